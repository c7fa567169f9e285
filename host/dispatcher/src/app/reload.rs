//! SIGHUP: reloads the admin token and the settings, and applies the limits and the log level that
//! may change at run time.

use super::live::Live;
use super::replace::ReloadRequests;
use super::service_manager;
use dispatcher_config as config;
use dispatcher_config::Settings;
use dispatcher_config::flags::Flags;
use dispatcher_config::reload::changes;
use dispatcher_console::access::Access;
use dispatcher_core::tasks;
use std::sync::Arc;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Handles the signal from now on, so that it does not end the process.
pub(crate) fn listen() -> std::io::Result<Signal> {
    signal(SignalKind::hangup())
}

/// The parts that a reload changes.
pub(crate) struct ReloadedParts {
    /// The settings at the start of the run.
    pub started: Settings,
    /// The source of these settings.
    pub flags: Flags,
    /// The limits of the running routes.
    pub live: Arc<Live>,
    /// Replaces their plugins.
    pub plugins: ReloadRequests,
    /// The access rules of the admin address.
    pub access: Arc<Access>,
}

/// Applies changes at every signal, until dropped.
pub(crate) async fn watch(mut signal: Signal, reloaded: ReloadedParts) {
    let ReloadedParts {
        started,
        flags,
        live,
        plugins,
        access,
    } = reloaded;
    while signal.recv().await.is_some() {
        service_manager::reloading();
        let (named, access) = (flags.clone(), access.clone());
        // The files may be on a file system that does not respond.
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
        live.configure_level(&settings.log.level);
        let routes = changes.routes.len();
        tracing::info!(
            routes,
            "settings reloaded: limits and plugins apply from now on"
        );
        service_manager::ready(service_manager::RUNNING);
    }
}
