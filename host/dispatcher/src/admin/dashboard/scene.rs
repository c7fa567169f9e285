//! What pages are made of: the running program, its metrics, and what the sampler knows.

use super::Dashboard;
use super::links::Links;
use super::looks::{View, ViewParts};
use super::view;
use crate::admin::api::outcome_view;
use crate::admin::operations::{Operations, OutcomeView, Page, RouteView};
use crate::telemetry::registry::Registry;

/// The state that pages show.
#[derive(Clone, Copy)]
pub(super) struct Scene<'a> {
    pub dashboard: &'a Dashboard,
    pub operations: &'a dyn Operations,
    pub metrics: &'a Registry,
    /// Why whoever looks may not act, where that is so.
    pub why_not: Option<&'static str>,
}

impl Scene<'_> {
    pub(super) fn links(&self) -> &Links {
        &self.dashboard.links
    }

    /// All routes.
    pub(super) fn routes(&self) -> Vec<RouteView> {
        let all = Page {
            limit: usize::MAX,
            after: None,
        };
        self.operations.routes(&all).unwrap_or_default().0
    }

    /// Whether messages are handled here; otherwise only queues are served.
    pub(super) fn has_routes(&self) -> bool {
        let first = Page {
            limit: 1,
            after: None,
        };
        let routes = self.operations.routes(&first);
        routes.is_ok_and(|(routes, _)| !routes.is_empty())
    }

    /// How many messages wait in a queue, if that was asked for lately.
    pub(super) fn waiting(&self, queue: &str) -> Option<u64> {
        let known = self.dashboard.sampler.depth(queue)?;
        Some(known.depth?.waiting?.0)
    }

    /// The last ends of deliveries otherwise than done: of a queue, or of all.
    pub(super) fn outcomes(&self, queue: Option<&str>, limit: usize) -> Vec<OutcomeView> {
        let outcomes = self.metrics.meters.outcomes();
        let found = outcomes.recent(None, limit, |one| {
            queue.is_none_or(|queue| one.queue == *queue)
        });
        found.iter().map(|one| outcome_view(one)).collect()
    }

    /// The parts of a view that change, each an element with an id.
    pub(super) async fn parts(&self, view: &View) -> ViewParts {
        let mut parts = match view {
            View::Overview { filter, after } => view::overview::parts(self, filter, *after).await,
            _ => self.single_parts(view).await.into(),
        };
        let process = self.operations.process();
        parts.single.push(view::state(&process).into_string());
        parts
    }

    async fn single_parts(&self, view: &View) -> Vec<String> {
        match view {
            View::Overview { .. } => Vec::new(),
            View::Queue(queue) => view::queue::parts(self, queue).await,
            View::DeadLetters { filter, after } => {
                view::letters::queue_parts(self, filter, *after).await
            }
            View::Running { after } => view::attempts::parts(self, after.as_deref()),
            View::Plugins => view::lists::plugin_parts(self),
            View::Letters(queue) => view::letters::parts(self, queue),
            View::Job(id) => view::letters::job_parts(self, id),
        }
    }
}
