//! The account of a run: which numbered messages were sent, which were seen handled and by which
//! process, which came twice and whether that was allowed. Pure: told every moment, in
//! milliseconds since the run began. Knows no backend and no process.

use std::collections::{BTreeMap, HashMap};

/// How long after a print its process may still be settling it when nothing is wrong.
const SETTLING_MS: u64 = 2_000;

/// What is wanted of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageKind {
    /// Its handler prints its number and is done.
    Good,
    /// No handler is ever done with it: it is to be dead-lettered.
    Bad,
}

/// A number was printed by a handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Print {
    process: u32,
    at: u64,
}

#[derive(Debug)]
struct LedgerFate {
    kind: MessageKind,
    prints: Vec<Print>,
    /// How often it was found among the dead letters.
    dead_lettered: u32,
}

/// Why a message may have come twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Excuse {
    /// The process that handled it first said that it had lost the lease, or could not settle.
    LeaseLost,
    /// It was killed so many milliseconds after it had handled the message.
    Killed(u64),
    /// It was stopped for longer than a lease lasts.
    Stopped,
    /// The second delivery came a whole lease later, so the first was never settled: its calls
    /// were among those that the proxy broke.
    RanOut(u64),
}

/// A second handling of one message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Duplicate {
    /// The message.
    pub number: u64,
    /// Both processes, and the milliseconds between.
    pub processes: (u32, u32),
    /// Between the two.
    pub after_ms: u64,
    /// Why it may be, if it may.
    pub excuse: Option<Excuse>,
}

/// What came of it all.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Messages sent.
    pub sent: u64,
    /// Those that were handled, or dead-lettered where that was wanted.
    pub handled: u64,
    /// Wanted and never seen.
    pub lost: Vec<u64>,
    /// Handled more than once.
    pub duplicates: Vec<Duplicate>,
    /// Good ones among the dead letters.
    pub good_but_dead_lettered: Vec<u64>,
    /// Dead letters beyond the first of each message.
    pub dead_lettered_again: u64,
}

impl Verdict {
    /// Those duplicates that nothing explains.
    pub fn unexplained(&self) -> impl Iterator<Item = &Duplicate> {
        self.duplicates.iter().filter(|one| one.excuse.is_none())
    }

    /// Nothing lost, and nothing twice without a reason.
    pub fn holds(&self) -> bool {
        self.lost.is_empty() && self.unexplained().next().is_none()
    }
}

/// The account.
#[derive(Debug)]
pub struct Ledger {
    lease_ms: u64,
    /// Whether calls are broken between the program and its queue.
    breaks_calls: bool,
    fates: Vec<LedgerFate>,
    ids: HashMap<String, u64>,
    /// Messages of which a process said that it could not settle them.
    lost_leases: HashMap<u64, Vec<u32>>,
    kills: BTreeMap<u32, u64>,
    /// When a process was stopped, from and to.
    stops: Vec<(u32, u64, u64)>,
    reasons: BTreeMap<String, u64>,
}

impl Ledger {
    /// An empty one, of queues whose leases last so long.
    pub fn new(lease_ms: u64, breaks_calls: bool) -> Self {
        Self {
            lease_ms,
            breaks_calls,
            fates: Vec::new(),
            ids: HashMap::new(),
            lost_leases: HashMap::new(),
            kills: BTreeMap::new(),
            stops: Vec::new(),
            reasons: BTreeMap::new(),
        }
    }

    /// The number of the next message, which is about to be sent.
    pub fn next(&mut self, kind: MessageKind) -> u64 {
        self.fates.push(LedgerFate {
            kind,
            prints: Vec::new(),
            dead_lettered: 0,
        });
        self.fates.len() as u64 - 1
    }

    /// How many were sent.
    pub fn sent(&self) -> u64 {
        self.fates.len() as u64
    }

    /// How many of the good ones were handled.
    pub fn printed(&self) -> u64 {
        let printed = self.fates.iter().filter(|fate| !fate.prints.is_empty());
        printed.count() as u64
    }

    /// The queue calls it so.
    pub fn called(&mut self, number: u64, id: String) {
        self.ids.insert(id, number);
    }

    /// A handler in this process printed its number.
    pub fn handled(&mut self, number: u64, process: u32, at: u64) {
        if let Some(fate) = self.fate(number) {
            fate.prints.push(Print { process, at });
        }
    }

    /// The process said that it lost the lease of this message, or could not settle it.
    pub fn lease_lost(&mut self, id: &str, process: u32) {
        if let Some(number) = self.ids.get(id) {
            self.lost_leases.entry(*number).or_default().push(process);
        }
    }

    /// The process was killed.
    pub fn killed(&mut self, process: u32, at: u64) {
        self.kills.insert(process, at);
    }

    /// The process was stopped, and continued later.
    pub fn stopped(&mut self, process: u32, from: u64, to: u64) {
        self.stops.push((process, from, to));
    }

    /// It was found among the dead letters, for this reason.
    pub fn dead_lettered(&mut self, number: Option<u64>, reason: &str) {
        *self.reasons.entry(gist(reason)).or_default() += 1;
        if let Some(fate) = number.and_then(|number| self.fate(number)) {
            fate.dead_lettered += 1;
        }
    }

    /// Dead letters by the gist of their reasons.
    pub fn reasons(&self) -> &BTreeMap<String, u64> {
        &self.reasons
    }

    fn fate(&mut self, number: u64) -> Option<&mut LedgerFate> {
        self.fates.get_mut(usize::try_from(number).ok()?)
    }

    /// Judges the run once everything has been told.
    pub fn judge(&self) -> Verdict {
        let mut verdict = Verdict {
            sent: self.sent(),
            ..Verdict::default()
        };
        for (number, fate) in (0..).zip(&self.fates) {
            let seen = fate.dead_lettered > 0
                || (fate.kind == MessageKind::Good && !fate.prints.is_empty());
            if seen {
                verdict.handled += 1
            } else {
                verdict.lost.push(number)
            }
            if fate.kind == MessageKind::Good && fate.dead_lettered > 0 {
                verdict.good_but_dead_lettered.push(number);
            }
            verdict.dead_lettered_again += u64::from(fate.dead_lettered.saturating_sub(1));
            let mut prints = fate.prints.clone();
            prints.sort_by_key(|print| print.at);
            for pair in prints.windows(2) {
                verdict.duplicates.push(Duplicate {
                    number,
                    processes: (pair[0].process, pair[1].process),
                    after_ms: pair[1].at - pair[0].at,
                    excuse: self.excuse(number, pair[0], pair[1]),
                });
            }
        }
        verdict
    }

    fn excuse(&self, number: u64, first: Print, second: Print) -> Option<Excuse> {
        let said = self.lost_leases.get(&number);
        if said.is_some_and(|processes| processes.contains(&first.process)) {
            return Some(Excuse::LeaseLost);
        }
        // What is read after the kill was written before it.
        if let Some(killed) = self.kills.get(&first.process)
            && *killed <= first.at + self.lease_ms + SETTLING_MS
        {
            return Some(Excuse::Killed(killed.saturating_sub(first.at)));
        }
        let over_the_lease = |(process, from, to): &(u32, u64, u64)| {
            let held_it =
                *process == first.process && *from <= first.at + self.lease_ms && *to >= first.at;
            // Stopped in the middle of its receive, it may handle what the other has had since.
            let came_late =
                *process == second.process && *to <= second.at && second.at - to <= SETTLING_MS;
            // A lease is extended when half of it is left.
            to - from >= self.lease_ms / 2 && (held_it || came_late)
        };
        if self.stops.iter().any(over_the_lease) {
            return Some(Excuse::Stopped);
        }
        let apart = second.at - first.at;
        (self.breaks_calls && apart + SETTLING_MS / 4 >= self.lease_ms)
            .then_some(Excuse::RanOut(apart))
    }
}

/// A reason without what differs from message to message.
fn gist(reason: &str) -> String {
    let words = reason.split_whitespace().map(|word| match number(word) {
        Some(_) => "m…",
        None => word,
    });
    let text: Vec<&str> = words.collect();
    text.join(" ").chars().take(120).collect()
}

/// The number in the first `m123` of a text.
pub fn number(text: &str) -> Option<u64> {
    let mut parts = text.split(|c: char| !c.is_ascii_alphanumeric());
    parts.find_map(|part| {
        let digits = part.strip_prefix('m')?;
        let all = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        all.then(|| digits.parse().ok()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger() -> Ledger {
        let mut ledger = Ledger::new(10_000, false);
        ledger.next(MessageKind::Good);
        ledger
    }

    fn excuse(ledger: &Ledger) -> Option<Excuse> {
        ledger.judge().duplicates[0].excuse.clone()
    }

    #[test]
    fn message_neither_handled_nor_dead_lettered_is_lost() {
        let mut ledger = ledger();
        let bad = ledger.next(MessageKind::Bad);
        ledger.handled(bad, 1, 5);
        assert_eq!(ledger.judge().lost, [0, bad]);
        ledger.handled(0, 1, 5);
        ledger.dead_lettered(Some(bad), "trapped");
        let verdict = ledger.judge();
        assert!(verdict.holds());
        assert_eq!((verdict.sent, verdict.handled), (2, 2));
    }

    #[test]
    fn second_handling_needs_an_excuse() {
        let mut ledger = ledger();
        ledger.handled(0, 1, 1_000);
        ledger.handled(0, 2, 4_000);
        assert!(!ledger.judge().holds());
        ledger.killed(2, 1_100);
        ledger.killed(1, 14_000);
        assert_eq!(excuse(&ledger), None, "killed long after it was handled");
        ledger.killed(1, 1_100);
        assert_eq!(excuse(&ledger), Some(Excuse::Killed(100)));
        assert!(ledger.judge().holds());
    }

    #[test]
    fn only_lost_leases_and_suspended_processes_excuse_a_second_handling() {
        let mut ledger = ledger();
        ledger.called(0, "id".into());
        ledger.handled(0, 1, 1_000);
        ledger.handled(0, 2, 20_000);
        ledger.lease_lost("id", 2);
        ledger.stopped(2, 500, 15_000);
        ledger.stopped(2, 19_000, 19_900);
        ledger.stopped(1, 1_500, 2_500);
        assert_eq!(excuse(&ledger), None);
        ledger.stopped(1, 1_500, 9_500);
        assert_eq!(excuse(&ledger), Some(Excuse::Stopped));
        ledger.lease_lost("id", 1);
        assert_eq!(excuse(&ledger), Some(Excuse::LeaseLost));
    }

    #[test]
    fn messages_received_before_a_suspension_may_belong_to_another() {
        let mut ledger = ledger();
        ledger.handled(0, 1, 11_000);
        ledger.handled(0, 2, 12_500);
        ledger.stopped(2, 2_000, 12_000);
        assert_eq!(excuse(&ledger), Some(Excuse::Stopped));
    }

    #[test]
    fn numbers_are_found_and_omitted_from_reasons() {
        assert_eq!(number("print:m12 x"), Some(12));
        assert_eq!(number("many more"), None);
        assert_eq!(gist("failed: m7 of memory"), "failed: m… of memory");
    }
}
