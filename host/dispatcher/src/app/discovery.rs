//! Finds the queues of patterns such as `prod-*`: at the start, at a reload, and at an interval.

use super::accounts::UnusableAccounts;
use super::build::Backends;
use dispatcher_config::discovery::{FoundQueues, QueuePattern};
use dispatcher_config::name::QueueName;
use dispatcher_config::problem::Problem;
use dispatcher_config::{Route, Settings, SettingsSource};
use dispatcher_core::account::AwsAccount;
use dispatcher_core::queue::{ErrorKind, QueueError};
use dispatcher_core::tasks;
use std::collections::{BTreeMap, BTreeSet};

/// The most queues that are asked about at the same time.
const ASKED_AT_ONCE: usize = 8;

/// Queues, each with the text of the pattern that it matches.
type MatchingQueues = BTreeSet<(String, QueueName)>;

/// Finds the queues of patterns, and remembers them for the next lookup.
#[derive(Debug)]
pub(crate) struct Discovery {
    source: SettingsSource,
    /// The queues that the last lookup found and that were not served. The next one may find that
    /// they are dead-letter queues, which are often created first.
    candidates: MatchingQueues,
    /// The dead-letter queues of others, which are not asked about again.
    dead_letters: BTreeSet<QueueName>,
    told: ToldPatterns,
}

/// The patterns that the log has named.
#[derive(Debug, Default, PartialEq, Eq)]
struct ToldPatterns {
    /// The patterns that match more queues than they may serve.
    full: BTreeSet<String>,
    /// The patterns that match none.
    empty: BTreeSet<String>,
}

/// The result of a lookup.
#[derive(Debug, Default, PartialEq, Eq)]
struct Decision {
    found: FoundQueues,
    candidates: MatchingQueues,
    full: BTreeSet<String>,
}

/// A call about queues that failed.
#[derive(Debug)]
struct FailedLookup {
    at: String,
    pattern: String,
    account: Option<String>,
    error: QueueError,
    /// Whether queues are served that the call is about. They stay.
    has_known: bool,
}

/// The kind of a queue that matches a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum QueueKind {
    Wanted,
    DeadLetters,
    /// It lacks a tag that the route wants.
    Untagged,
}

/// A lookup of all patterns.
struct Lookup<'a> {
    settings: &'a Settings,
    backends: &'a Backends,
    /// The accounts that are not asked.
    unusable: &'a UnusableAccounts,
    /// The queues that are served: they stay if they cannot be asked about.
    known: &'a FoundQueues,
    /// Whether to ask also whether these are dead-letter queues.
    asks_known: bool,
    dead_letters: &'a mut BTreeSet<QueueName>,
    failed: Vec<FailedLookup>,
}

impl Discovery {
    /// Knows nothing yet.
    pub(crate) fn new(source: SettingsSource) -> Self {
        Self {
            source,
            candidates: MatchingQueues::new(),
            dead_letters: BTreeSet::new(),
            told: ToldPatterns::default(),
        }
    }

    /// Looks up the queues of the patterns for a start or a reload. `before` has the queues that are
    /// served already: they come first, and stay if they cannot be looked up. Returns the settings
    /// with all that are found.
    ///
    /// # Errors
    /// Returns a problem for each call that failed, and the problems of the settings with the queues.
    pub(crate) async fn first_look(
        &mut self,
        settings: Settings,
        backends: &Backends,
        unusable: &UnusableAccounts,
        before: &FoundQueues,
    ) -> Result<Settings, Vec<Problem>> {
        if settings.patterns().next().is_none() {
            return Ok(settings);
        }
        let mut lookup = Lookup {
            settings: &settings,
            backends,
            unusable,
            known: before,
            asks_known: true,
            dead_letters: &mut self.dead_letters,
            failed: Vec::new(),
        };
        let listed = lookup.all().await;
        let (known, failed): (Vec<_>, Vec<_>) =
            lookup.failed.iter().partition(|failed| failed.has_known);
        if !failed.is_empty() {
            return Err(failed.into_iter().map(FailedLookup::problem).collect());
        }
        known.into_iter().for_each(FailedLookup::warn);
        let decision = decide(&settings, before, listed, None);
        self.told.tell(&decision);
        self.with(&settings, &decision.found, false)
    }

    /// Looks the queues up again. Returns the settings with them. `is_sure` serves new ones at once.
    ///
    /// # Errors
    /// Returns the problems of the settings with the queues.
    pub(crate) async fn look(
        &mut self,
        settings: &Settings,
        backends: &Backends,
        unusable: &UnusableAccounts,
        is_sure: bool,
    ) -> Result<Settings, Vec<Problem>> {
        let known = found(settings);
        let mut lookup = Lookup {
            settings,
            backends,
            unusable,
            known: &known,
            asks_known: false,
            dead_letters: &mut self.dead_letters,
            failed: Vec::new(),
        };
        let listed = lookup.all().await;
        lookup.failed.iter().for_each(FailedLookup::warn);
        let candidates = (!is_sure).then_some(&self.candidates);
        let decision = decide(settings, &known, listed, candidates);
        self.told.tell(&decision);
        self.candidates = decision.candidates;
        self.with(settings, &decision.found, true)
    }

    /// Returns settings with the queues that patterns find, without those that `refuse` leaves out.
    fn with(
        &self,
        settings: &Settings,
        found: &FoundQueues,
        may_empty: bool,
    ) -> Result<Settings, Vec<Problem>> {
        let (with_found, problems) = self.source.settings(found);
        let mut settings = Settings {
            routes: with_found.routes,
            ..settings.clone()
        };
        if problems.is_empty() || refuse(&mut settings, &problems, may_empty) {
            Ok(settings)
        } else {
            Err(problems)
        }
    }
}

impl ToldPatterns {
    /// Logs what is new of a lookup.
    fn tell(&mut self, decision: &Decision) {
        let empty = decision.found.iter().filter(|(_, found)| found.is_empty());
        let now = Self {
            full: decision.full.clone(),
            empty: empty.map(|(pattern, _)| pattern.clone()).collect(),
        };
        for pattern in now.full.difference(&self.full) {
            tracing::warn!(pattern, "pattern matches more queues than max-queues");
        }
        for pattern in now.empty.difference(&self.empty) {
            tracing::warn!(pattern, "pattern matches no queue now");
        }
        *self = now;
    }
}

impl FailedLookup {
    fn problem(&self) -> Problem {
        let Self { pattern, error, .. } = self;
        let account = self.account.as_ref();
        let place = account.map_or_else(String::new, |name| format!(" in account {name}"));
        let found = format!("queues of `{pattern}` not looked up{place}: {error}");
        Problem::new(&self.at, found, "")
    }

    fn warn(&self) {
        let Self { pattern, error, .. } = self;
        let account = self.account.as_deref();
        tracing::warn!(pattern, account, %error, "queues not looked up: those known stay");
    }
}

impl Lookup<'_> {
    /// Returns the queues of each pattern, by its text: those that the configuration does not name,
    /// that belong to no pattern before, and that are no dead-letter queues.
    async fn all(&mut self) -> FoundQueues {
        let settings = self.settings;
        let named = named(settings);
        let mut taken = BTreeSet::new();
        // The patterns of which not all queues are known.
        let mut partial: Vec<&QueuePattern> = Vec::new();
        let mut listed = FoundQueues::new();
        for route in &settings.routes {
            for pattern in &route.patterns {
                let (mut queues, is_complete) = self.matching(pattern).await;
                queues.retain(|queue| {
                    let is_known = self.known(pattern).contains(queue);
                    let may_be_of_another = partial.iter().any(|other| other.has(queue));
                    let is_free = is_known || !may_be_of_another;
                    let is_wanted = !route.excepts(queue);
                    is_wanted && is_free && !taken.contains(queue) && !is_named(&named, queue)
                });
                if !is_complete {
                    partial.push(pattern);
                }
                let (wanted, untagged) = self.wanted(route, pattern, &queues).await;
                taken.extend(queues.into_iter().filter(|queue| !untagged.contains(queue)));
                listed.insert(pattern.to_string(), wanted);
            }
        }
        listed
    }

    /// Returns the queues that match a pattern, those that are served first, and whether all accounts
    /// answered. Those of an account that did not are those that are known.
    async fn matching(&mut self, pattern: &QueuePattern) -> (Vec<QueueName>, bool) {
        let accounts = &self.settings.stores.accounts;
        let mut queues = Vec::new();
        let mut is_complete = true;
        for account in pattern.accounts(accounts) {
            let found = match account {
                Some(account) if self.unusable.contains_key(account) => None,
                account => self.of_account(pattern, account).await,
            };
            is_complete &= found.is_some();
            let found = found.unwrap_or_else(|| self.known(pattern).to_vec());
            let of_account = found.into_iter();
            queues.extend(of_account.filter(|queue| queue.account_in(accounts) == account));
        }
        queues.sort_by_cached_key(|queue| (!self.known(pattern).contains(queue), queue.clone()));
        (queues, is_complete)
    }

    /// Returns the queues of a pattern in an account. Returns `None` if the call failed.
    async fn of_account(
        &mut self,
        pattern: &QueuePattern,
        account: Option<&AwsAccount>,
    ) -> Option<Vec<QueueName>> {
        match self.backends.find(pattern, account).await {
            Ok(found) => Some(found),
            Err(error) => {
                let accounts = &self.settings.stores.accounts;
                let mut known = self.known(pattern).iter();
                let has_known = known.any(|queue| queue.account_in(accounts) == account);
                self.failed(pattern, account, error, has_known);
                None
            }
        }
    }

    fn failed(
        &mut self,
        pattern: &QueuePattern,
        account: Option<&AwsAccount>,
        error: QueueError,
        has_known: bool,
    ) {
        self.failed.push(FailedLookup {
            at: pattern.at.clone(),
            pattern: pattern.to_string(),
            account: account.map(|account| account.name.clone()),
            error,
            has_known,
        });
    }

    /// Returns those of the matching queues that the route should serve, and those that lack a tag.
    /// Asks about no more than it may serve, and one more. A queue that cannot be asked about stays if
    /// it is served.
    async fn wanted(
        &mut self,
        route: &Route,
        pattern: &QueuePattern,
        queues: &[QueueName],
    ) -> (Vec<QueueName>, BTreeSet<QueueName>) {
        let mut wanted = Vec::new();
        let mut untagged = BTreeSet::new();
        let mut refused = Vec::new();
        let mut others: Vec<&QueueName> = queues.iter().collect();
        others.retain(|queue| !self.dead_letters.contains(*queue));
        for asked in others.chunks(ASKED_AT_ONCE) {
            if wanted.len() > route.settings.max_queues {
                break;
            }
            let answers = asked.iter().map(|queue| self.kind(route, pattern, queue));
            let answers = tasks::all(answers.collect()).await;
            for (&queue, answer) in asked.iter().zip(answers) {
                let is_known = self.known(pattern).contains(queue);
                match answer {
                    Ok(QueueKind::Wanted) => wanted.push(queue.clone()),
                    Ok(QueueKind::DeadLetters) => {
                        self.dead_letters.insert(queue.clone());
                    }
                    Ok(QueueKind::Untagged) => {
                        untagged.insert(queue.clone());
                    }
                    // A list may have a queue for a minute after its end.
                    Err(error) if error.kind == ErrorKind::NotFound => {}
                    Err(_) if is_known => wanted.push(queue.clone()),
                    Err(error) if error.kind == ErrorKind::AccessDenied => {
                        refused.push((queue, error));
                    }
                    Err(error) => {
                        let account = queue.account_in(&self.settings.stores.accounts);
                        self.failed(pattern, account, error, false);
                    }
                }
            }
        }
        if let Some((queue, error)) = refused.first() {
            let (pattern, count) = (pattern.to_string(), refused.len());
            tracing::warn!(pattern, count, %queue, %error, "queues not served: asked about again");
        }
        (wanted, untagged)
    }

    /// Asks what a queue is.
    async fn kind(
        &self,
        route: &Route,
        pattern: &QueuePattern,
        queue: &QueueName,
    ) -> Result<QueueKind, QueueError> {
        let tags = &route.settings.queue_tag;
        if !tags.is_empty() {
            let own = self.backends.tags(queue).await?;
            if tags
                .iter()
                .any(|(name, value)| own.get(name) != Some(value))
            {
                return Ok(QueueKind::Untagged);
            }
        }
        let is_asked = self.asks_known || !self.known(pattern).contains(queue);
        if is_asked && self.backends.is_dead_letter_queue(queue).await? {
            return Ok(QueueKind::DeadLetters);
        }
        Ok(QueueKind::Wanted)
    }

    fn known(&self, pattern: &QueuePattern) -> &[QueueName] {
        let known = self.known.get(&pattern.to_string());
        known.map_or(&[], Vec::as_slice)
    }
}

/// Returns the queues of settings that patterns found.
pub(crate) fn found(settings: &Settings) -> FoundQueues {
    let patterns = settings.patterns().map(ToString::to_string);
    let mut found: FoundQueues = patterns.map(|pattern| (pattern, Vec::new())).collect();
    for queue in settings.routes.iter().flat_map(|route| &route.queues) {
        let pattern = queue.found_by.as_ref();
        if let Some(queues) = pattern.and_then(|pattern| found.get_mut(pattern)) {
            queues.push(queue.name.clone());
        }
    }
    found
}

/// Logs which queues have come and gone.
pub(crate) fn tell_changes(before: &FoundQueues, after: &FoundQueues) {
    let [before, after] = [before, after].map(|found| {
        let queues = found.values().flatten();
        queues.collect::<BTreeSet<_>>()
    });
    for queue in after.difference(&before) {
        tracing::info!(%queue, "queue found: it is served from now on");
    }
    for queue in before.difference(&after) {
        tracing::info!(%queue, "queue gone: it is no longer served");
    }
}

/// Leaves out the queues that patterns found and that have these problems, and logs them. Returns
/// false, and changes nothing, if there is any other problem; or if a route had no queue left, unless
/// `may_empty`: then its own settings are to blame.
pub(crate) fn refuse(settings: &mut Settings, problems: &[Problem], may_empty: bool) -> bool {
    let refused = problems
        .iter()
        .map(|problem| problem.found_queue.as_deref());
    let Some(refused) = refused.collect::<Option<BTreeSet<&str>>>() else {
        return false;
    };
    let mut routes = settings.routes.clone();
    for route in &mut routes {
        route.queues.retain(|queue| {
            queue.found_by.is_none() || !refused.contains(&*queue.name.to_string())
        });
    }
    let mut both = settings.routes.iter().zip(&routes);
    let is_emptied = both.any(|(was, now)| now.queues.is_empty() && !was.queues.is_empty());
    if refused.is_empty() || (is_emptied && !may_empty) {
        return false;
    }
    for problem in problems {
        tracing::error!(%problem, queue = problem.found_queue, "queue found and not served");
    }
    settings.routes = routes;
    true
}

/// Returns the queues that the configuration names, also as dead-letter queues.
fn named(settings: &Settings) -> BTreeSet<&QueueName> {
    let routes = settings.routes.iter();
    let queues = routes.clone().flat_map(|route| &route.queues);
    let written = queues.filter(|queue| queue.found_by.is_none());
    let dead_letters = routes.filter_map(|route| route.dead_letter.as_ref());
    written
        .map(|queue| &queue.name)
        .chain(dead_letters)
        .collect()
}

/// Whether a queue is among these, which may have ARNs or URLs.
fn is_named(named: &BTreeSet<&QueueName>, queue: &QueueName) -> bool {
    named.iter().any(|other| {
        let may_have_arn = other.backend.facts().has_accounts;
        let last = other.name.rsplit(['/', ':']).next();
        let is_of_place = may_have_arn && last == Some(&queue.name);
        other.backend == queue.backend && (other.name == queue.name || is_of_place)
    })
}

/// Decides which queues to serve from now on. A queue that comes is served once two lookups in a row
/// have found it; a start has no `candidates` and serves all. Pure.
fn decide(
    settings: &Settings,
    before: &FoundQueues,
    listed: FoundQueues,
    candidates: Option<&MatchingQueues>,
) -> Decision {
    let mut most = BTreeMap::new();
    for route in &settings.routes {
        let patterns = route.patterns.iter().map(ToString::to_string);
        most.extend(patterns.map(|pattern| (pattern, route.settings.max_queues)));
    }
    let mut decision = Decision::default();
    for (pattern, queues) in listed {
        let known = before.get(&pattern).map_or(&[][..], Vec::as_slice);
        let (mut served, new): (Vec<_>, Vec<_>) =
            queues.into_iter().partition(|queue| known.contains(queue));
        for queue in new {
            let candidate = (pattern.clone(), queue.clone());
            if candidates.is_none_or(|candidates| candidates.contains(&candidate)) {
                served.push(queue);
            }
            decision.candidates.insert(candidate);
        }
        let most = most.get(&pattern).copied().unwrap_or_default();
        if served.len() > most {
            decision.full.insert(pattern.clone());
            served.truncate(most);
        }
        served.sort();
        decision.found.insert(pattern, served);
    }
    decision
}

#[cfg(test)]
mod tests {
    use super::*;
    use dispatcher_config::WeightedQueue;
    use dispatcher_config::flags::Flags;
    use dispatcher_config::section::WrittenValue;

    /// The settings of a route with the pattern `jobs-*` and at most two queues.
    fn settings() -> Settings {
        let mut flags = Flags::default();
        for (flag, text) in [
            ("queues", "jobs-*"),
            ("max-queues", "2"),
            ("plugin", "p.wasm"),
        ] {
            flags.take(flag, WrittenValue::new(format!("--{flag}"), text));
        }
        let (settings, problems) = SettingsSource::read(&flags).written();
        assert_eq!(problems, []);
        settings
    }

    fn queues(names: &[&str]) -> Vec<QueueName> {
        let names = names.iter().map(|name| format!("jobs-{name}"));
        names.map(|name| name.parse().expect("a name")).collect()
    }

    fn candidates(names: &[&str]) -> MatchingQueues {
        let queues = queues(names).into_iter();
        queues.map(|queue| ("jobs-*".to_owned(), queue)).collect()
    }

    fn found(names: &[&str]) -> FoundQueues {
        FoundQueues::from([("jobs-*".to_owned(), queues(names))])
    }

    #[test]
    fn queue_is_served_once_two_lookups_in_a_row_have_found_it() {
        let settings = settings();
        let (none, known) = (MatchingQueues::new(), found(&["b"]));
        let first = decide(&settings, &known, found(&["a", "b"]), Some(&none));
        assert_eq!(first.found, known);
        assert_eq!(first.candidates, candidates(&["a"]));
        // It was missing from the second one.
        let missed = decide(&settings, &known, known.clone(), Some(&first.candidates));
        assert_eq!((missed.found, missed.candidates), (known.clone(), none));
        let listed = found(&["a", "b"]);
        let second = decide(&settings, &known, listed.clone(), Some(&first.candidates));
        assert_eq!(second.found, listed);
    }

    #[test]
    fn start_serves_what_it_finds_and_first_what_was_served() {
        let settings = settings();
        let started = decide(&settings, &FoundQueues::new(), found(&["a", "b"]), None);
        assert_eq!(started.found, found(&["a", "b"]));
        let reloaded = decide(&settings, &found(&["c"]), found(&["a", "b", "c"]), None);
        assert_eq!(reloaded.found, found(&["a", "c"]));
        let full = BTreeSet::from(["jobs-*".to_owned()]);
        assert_eq!(reloaded.full, full);
        let all = found(&["a", "b", "c"]);
        let fewer = decide(&settings, &all, all.clone(), None);
        assert_eq!((fewer.found, fewer.full), (found(&["a", "b"]), full));
    }

    #[test]
    fn no_more_queues_than_max_queues_are_served_until_one_goes() {
        let settings = settings();
        let known = found(&["b", "c"]);
        let candidates = candidates(&["a"]);
        let listed = found(&["a", "b", "c"]);
        let full = decide(&settings, &known, listed, Some(&candidates));
        assert_eq!(full.found, known);
        assert_eq!(full.full.len(), 1);
        let one_gone = decide(
            &settings,
            &known,
            found(&["a", "c"]),
            Some(&full.candidates),
        );
        assert_eq!(one_gone.found, found(&["a", "c"]));
    }

    #[test]
    fn queue_is_named_by_its_name_its_arn_or_its_url() {
        let queue: QueueName = "prod-a".parse().expect("a name");
        for (name, is_it) in [
            ("prod-a", true),
            ("prod-ab", false),
            ("arn:aws:sqs:eu-west-1:123456789012:prod-a", true),
            (
                "https://sqs.eu-west-1.amazonaws.com/123456789012/prod-a",
                true,
            ),
            ("local:prod-a", false),
        ] {
            let name: QueueName = name.parse().expect("a name");
            assert_eq!(is_named(&BTreeSet::from([&name]), &queue), is_it, "{name}");
        }
    }

    #[test]
    fn only_problems_of_found_queues_leave_queues_out() {
        let mut settings = settings();
        let route = &mut settings.routes[0];
        route.queues = queues(&["a", "b"])
            .into_iter()
            .map(|name| WeightedQueue {
                name,
                weight: None,
                rate: None,
                concurrency: None,
                found_by: Some("jobs-*".to_owned()),
                at: "--queues".to_owned(),
            })
            .collect();
        let of_a = Problem::new("--queues", "a", "").of_queue(&route.queues[0]);
        let other = Problem::new("--plugin", "not there", "");
        assert!(!refuse(&mut settings, &[of_a.clone(), other], true));
        assert!(!refuse(&mut settings, &[], true));
        assert_eq!(super::found(&settings), found(&["a", "b"]));
        assert!(refuse(&mut settings, &[of_a], false));
        assert_eq!(super::found(&settings), found(&["b"]));
        let of_b = Problem::new("--queues", "b", "").of_queue(&settings.routes[0].queues[0]);
        assert!(!refuse(&mut settings, std::slice::from_ref(&of_b), false));
        assert!(refuse(&mut settings, &[of_b], true));
        assert_eq!(super::found(&settings), found(&[]));
    }
}
