//! Queues: the queues that a plugin may send to.

mod contract;
mod sending;

use super::caller::{Grant, GrantedTo, Recipient};
use super::description::{CONTRACT, Description, Interface};
use sending::GrantedQueues;
pub use sending::{Deliver, NotDelivered, QueuesGrant};
use std::sync::Arc;
use wasmtime::component::Linker;

impl Grant for Option<QueuesGrant> {
    const DESCRIPTION: Description = Description {
        name: "sending to queues",
        key: "allow-send",
        value: "QUEUE",
        value_for: Some(str::to_owned),
        requested_by: &["dispatcher:plugin/queues", "dispatcher:plugin/queues-async"],
        interfaces: &[
            Interface::new("dispatcher:plugin/queues", &[CONTRACT]),
            Interface::new("dispatcher:plugin/queues-async", &[CONTRACT]),
        ],
        suspends: &[],
        documented_as: "`dispatcher:plugin/queues`",
        without_grant: "the component is refused at start; with other queues granted, `forbidden`",
    };

    type SharedGrant = Option<Arc<GrantedQueues>>;

    fn link<C: GrantedTo<Self>>(linker: &mut Linker<C>) -> wasmtime::Result<()> {
        contract::link(linker)
    }

    fn give(self, plugin: &Recipient<'_>) -> Self::SharedGrant {
        let refusals = Arc::clone(plugin.refusals);
        let (prefix, control) = (plugin.queue_prefix.clone(), plugin.control.clone());
        self.map(|queues| Arc::new(GrantedQueues::new(queues, prefix, refusals, control)))
    }

    fn for_shadow(self) -> Self {
        self.map(|queues| QueuesGrant {
            allowed: Vec::new(),
            ..queues
        })
    }

    fn missing(&self) -> Option<&'static str> {
        self.is_none().then_some("queues")
    }
}
