//! The data of pages: the running program, its metrics, and the sampler.

use super::Dashboard;
use super::links::Links;
use super::looks::{View, ViewParts};
use super::view;
use crate::api::outcome_view;
use dispatcher_operate::operations::{Operations, OutcomeView, Page, RouteView};
use dispatcher_telemetry::registry::Registry;

/// The state that pages show.
#[derive(Clone, Copy)]
pub(super) struct Scene<'a> {
    pub dashboard: &'a Dashboard,
    pub operations: &'a dyn Operations,
    pub metrics: &'a Registry,
    /// The reason why the viewer may not act, or `None` if it may.
    pub why_not: Option<&'static str>,
}

impl Scene<'_> {
    pub(super) fn links(&self) -> &Links {
        &self.dashboard.links
    }

    /// Returns all routes.
    pub(super) fn routes(&self) -> Vec<RouteView> {
        let routes = self.operations.routes(&Page::everything());
        routes.unwrap_or_default().0
    }

    /// Returns whether this process handles messages. Otherwise it only serves queues.
    pub(super) fn has_routes(&self) -> bool {
        let first = Page {
            limit: 1,
            after: None,
        };
        let routes = self.operations.routes(&first);
        routes.is_ok_and(|(routes, _)| !routes.is_empty())
    }

    /// Returns how many messages wait in a queue, if that was requested recently.
    pub(super) fn waiting(&self, queue: &str) -> Option<u64> {
        let known = self.dashboard.sampler.depth(queue)?;
        Some(known.depth?.waiting?.0)
    }

    /// Returns the last outcomes other than done, of one queue or of all queues.
    pub(super) fn outcomes(&self, queue: Option<&str>, limit: usize) -> Vec<OutcomeView> {
        let outcomes = self.metrics.meters.outcomes();
        let found = outcomes.recent(None, limit, |one| {
            queue.is_none_or(|queue| one.queue == *queue)
        });
        found.iter().map(|one| outcome_view(one)).collect()
    }

    /// Returns the parts of a view that change, each an element with an id.
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
            View::Fleet => view::fleet::parts(self).await,
            View::Plugins => view::lists::plugin_parts(self),
            View::Letters(queue) => view::letters::parts(self, queue),
            View::Job(id) => view::letters::job_parts(self, id),
        }
    }
}
