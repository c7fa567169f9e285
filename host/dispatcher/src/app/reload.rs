//! SIGHUP: reloads the admin token and the settings, and applies the limits that may change at run
//! time.

use super::live::Live;
use super::replace::ReloadRequests;
use super::service_manager;
use crate::admin::access::Access;
use crate::config;
use crate::config::Settings;
use crate::config::flags::Flags;
use crate::config::reload::changes;
use dispatcher_core::tasks;
use std::sync::Arc;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// From now on the signal does not end the process.
pub(crate) fn listen() -> std::io::Result<Signal> {
    signal(SignalKind::hangup())
}

/// What is reloaded, and who is notified.
pub(crate) struct Reloaded {
    /// What the run began with.
    pub started: Settings,
    /// What that was made from.
    pub flags: Flags,
    /// The limits of the routes at work.
    pub live: Arc<Live>,
    /// Replaces their plugins.
    pub plugins: ReloadRequests,
    /// Who may use the admin address.
    pub access: Arc<Access>,
}

/// Applies what is new at every signal, until dropped.
pub(crate) async fn watch(mut signal: Signal, reloaded: Reloaded) {
    let Reloaded {
        started,
        flags,
        live,
        plugins,
        access,
    } = reloaded;
    while signal.recv().await.is_some() {
        service_manager::reloading();
        let (named, access) = (flags.clone(), access.clone());
        // The files may lie where nobody answers.
        let read = tasks::blocking(move || {
            access.reload();
            config::settings(&named)
        });
        let (settings, problems) = read.finished().await;
        if !problems.is_empty() {
            for problem in &problems {
                tracing::error!(%problem, "setting refused");
            }
            tracing::error!("settings not reloaded: they have problems, nothing changed");
            service_manager::ready(service_manager::NOT_RELOADED);
            continue;
        }
        let changes = changes(&started, &settings);
        for line in &changes.needs_restart {
            tracing::warn!(change = line, "setting needs a restart");
        }
        for limits in &changes.routes {
            live.configure(&limits.route, &limits.limits);
        }
        plugins.settings(changes.plugins);
        let routes = changes.routes.len();
        tracing::info!(
            routes,
            "settings reloaded: limits and plugins apply from now on"
        );
        service_manager::ready(service_manager::RUNNING);
    }
}
