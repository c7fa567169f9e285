//! Evicts shared instances without attempts, for attempts that wait for an instance of this plugin
//! or another. The driver ends the instances.

use super::{Instance, SharedInstances};
use crate::admission::Spare;

impl Spare for SharedInstances {
    fn spare(&self) -> usize {
        let state = self.state();
        state.instances.iter().filter(|one| is_idle(one)).count()
    }

    /// Makes an idle instance take no more attempts, so that its driver ends it.
    fn let_go(&self) -> bool {
        let mut state = self.state();
        let idle = state.instances.iter_mut().find(|one| is_idle(one));
        idle.is_some_and(|instance| instance.jobs.take().is_some())
    }
}

/// Whether it takes attempts and has none.
fn is_idle(instance: &Instance) -> bool {
    instance.under_way == 0 && instance.jobs.is_some()
}
