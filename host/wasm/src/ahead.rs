//! Creates instances ahead of messages, but none while an attempt waits for a slot. Attempts create
//! the instances that they miss themselves.

use crate::failure_reason;
use crate::guest::Guest;
use crate::idle::Idle;
use crate::instance::LiveInstance;
use crate::plugin::PluginParts;
use dispatcher_core::clock;
use dispatcher_core::message::FailureReason;
use std::sync::{Arc, Weak};

/// Starts creating the missing instances, on the runtime for guests. Cheap if none is missing.
pub(crate) fn refill(loaded: &Arc<PluginParts>) {
    let Some(idle) = &loaded.idle else { return };
    if loaded.runtime.admission.is_wanted() || !idle.begin_making() {
        return;
    }
    let maker = Maker(Some(Arc::clone(idle)));
    let runtime = Arc::clone(&loaded.runtime);
    let plugin = Arc::downgrade(loaded);
    let work = async move { runtime.host(make_all(plugin, maker)).await };
    (loaded.runtime.spawn)(Box::pin(work));
}

/// The task that creates instances ahead. Dropping it early lets another one begin.
struct Maker(Option<Arc<Idle>>);

impl Drop for Maker {
    fn drop(&mut self) {
        if let Some(idle) = self.0.take() {
            idle.end_making();
        }
    }
}

/// Creates instances until there are enough, no slot is free, one fails or the plugin is gone.
async fn make_all(plugin: Weak<PluginParts>, mut maker: Maker) {
    while let Some(loaded) = plugin.upgrade() {
        let Some(idle) = &loaded.idle else { return };
        if !idle.goes_on_making() {
            maker.0 = None;
            return;
        }
        match make(&loaded).await {
            Ok(Some(live)) => idle.put(live, &loaded.runtime.admission),
            Ok(None) => return,
            Err(why) => {
                if idle.failed_to_make() {
                    let plugin = &loaded.settings.name;
                    tracing::warn!(
                        plugin,
                        error = %why,
                        "prewarming failed, so messages create their own instances"
                    );
                }
                return;
            }
        }
    }
}

/// Creates one instance if a slot is free.
async fn make(loaded: &PluginParts) -> Result<Option<LiveInstance>, FailureReason> {
    let admission = &loaded.runtime.admission;
    let Some(permit) = admission.try_enter() else {
        return Ok(None);
    };
    let patience = loaded.patience;
    let until = clock::now() + patience;
    let birth = LiveInstance::make(&loaded.pre, permit, until, || {
        Guest::ahead(Arc::clone(&loaded.settings), until)
    });
    let made = tokio::select! {
        biased;
        made = birth => made,
        () = clock::sleep_on(loaded.runtime.io.handle(), until) => {
            return Err(FailureReason::TimedOut(patience));
        }
    };
    match made {
        Ok(live) => {
            live.store.data().end();
            Ok(Some(live))
        }
        Err(stillborn) => {
            let guest = stillborn.store.data();
            guest.end();
            Err(failure_reason::of_birth(&stillborn.error, guest, patience))
        }
    }
}
