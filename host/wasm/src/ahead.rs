//! Creates instances ahead of messages. Creates none while an attempt waits for a slot, and none
//! for attempts: those create their own.

use crate::failure_reason;
use crate::guest::Guest;
use crate::idle::Idle;
use crate::instance::LiveInstance;
use crate::plugin::Loaded;
use dispatcher_core::clock;
use dispatcher_core::message::FailureReason;
use std::sync::{Arc, Weak};

/// Has the missing instances made by whoever runs guests. Cheap where none is missing.
pub(crate) fn refill(loaded: &Arc<Loaded>) {
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

/// Who makes instances ahead; dropped on the way, another may begin.
struct Maker(Option<Arc<Idle>>);

impl Drop for Maker {
    fn drop(&mut self) {
        if let Some(idle) = self.0.take() {
            idle.end_making();
        }
    }
}

/// Until there are enough, there is no room, one fails, or the plugin is gone.
async fn make_all(plugin: Weak<Loaded>, mut maker: Maker) {
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

/// One instance, if there is room for it.
async fn make(loaded: &Loaded) -> Result<Option<LiveInstance>, FailureReason> {
    let admission = &loaded.runtime.admission;
    let Some(permit) = admission.try_enter() else {
        return Ok(None);
    };
    let patience = loaded.patience;
    let until = clock::now() + patience;
    let guest = || Guest::ahead(Arc::clone(&loaded.settings), until);
    let made = tokio::select! {
        biased;
        made = LiveInstance::make(&loaded.pre, permit, until, guest) => made,
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
