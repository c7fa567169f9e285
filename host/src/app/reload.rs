//! SIGHUP: reads the settings again and applies the limits that may change while a run goes on.

use super::replace::Wishes;
use super::route::Adjustable;
use crate::config::flags::Flags;
use crate::config::reload::changes;
use crate::config::{self, Settings};
use crate::tasks;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// From now on the signal does not end the process.
pub(crate) fn listen() -> std::io::Result<Signal> {
    signal(SignalKind::hangup())
}

/// Applies new settings at every signal, until dropped. `started` is what the run began with.
pub(crate) async fn watch(
    mut signal: Signal,
    started: Settings,
    flags: Flags,
    routes: Vec<Adjustable>,
    plugins: Wishes,
) {
    while signal.recv().await.is_some() {
        let named = flags.clone();
        // The file may lie where nobody answers.
        let read = tasks::blocking(move || config::settings(&named));
        let (settings, problems) = read.finished().await;
        if !problems.is_empty() {
            for problem in &problems {
                tracing::error!("{problem}");
            }
            tracing::error!("settings not reloaded: they have problems, so nothing changes");
            continue;
        }
        let changes = changes(&started, &settings);
        for line in &changes.needs_restart {
            tracing::warn!("setting not applied until the next start: {line}");
        }
        for limits in &changes.routes {
            let named = routes.iter().find(|route| route.name == limits.route);
            if let Some(route) = named {
                route.adjust(&limits.limits);
            }
        }
        plugins.settings(changes.plugins);
        let routes = changes.routes.len();
        tracing::info!(
            routes,
            "settings reloaded: limits and plugins apply from now on"
        );
    }
}
