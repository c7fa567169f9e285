//! Reads the logs of a storm and decides whether the limits held. Pure.

use dispatcher_core::clock::BootInstant;
use dispatcher_core::fleet::hand::LEASE;
use dispatcher_core::fleet::ledger::GRACE;
use dispatcher_core::fleet::limit::{Limit, Rate};
use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

/// The time after a kill within which others use the permits of the process. They are free after
/// the grace, but the many processes of a storm share few cores, and ask late.
const FREED: Duration = LEASE
    .saturating_add(GRACE)
    .saturating_add(Duration::from_secs(10));
/// The time after which a message has starved. Its process had the store for all of it.
const STARVED: Duration = Duration::from_secs(60);
/// The time that a process takes to find its store again.
const RECONNECT: Duration = Duration::from_secs(3);
/// The windows that are shown of each rate.
const WINDOWS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(10)];
/// The most violations of each kind that are described.
const MOST: usize = 5;

/// How a process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fate {
    Killed,
    /// It was asked to end, and gave its permits back.
    Left,
    /// It ended in another way.
    Failed(String),
}

/// A process that has ended.
#[derive(Debug)]
pub(super) struct Witness {
    pub(super) name: String,
    pub(super) fate: Fate,
    pub(super) ended: BootInstant,
    /// When it had no store.
    pub(super) cuts: Vec<(BootInstant, BootInstant)>,
    pub(super) log: String,
}

/// Where a limit stands after the storm.
#[derive(Debug)]
struct LimitReport {
    name: String,
    starts: u64,
    /// The most permits in use of one key, and the limit.
    running: Option<(u64, u32)>,
    /// The most starts of one key in each of [`WINDOWS`], and the bound.
    windows: Vec<(u64, f64)>,
}

/// The result of a storm.
#[derive(Debug, Default)]
pub struct StormReport {
    /// Each way in which a limit did not hold.
    pub violations: Vec<String>,
    /// Messages that started.
    pub acquisitions: u64,
    /// Killed processes.
    pub kills: u64,
    /// How often a process lost its store.
    pub partitions: u64,
    /// Messages that were stopped because their permits ended.
    pub revoked: u64,
    limits: Vec<LimitReport>,
    calls: u64,
    freed: Vec<Duration>,
    longest_wait: Duration,
}

/// A limit, or one key of it.
type AccountId = (usize, Option<u32>);

/// A message that took permits or tokens of one account.
#[derive(Debug, Clone, Copy)]
struct Stay {
    from: Duration,
    until: Duration,
    weight: u32,
    witness: usize,
    /// When it began to wait, if it did.
    waits: Option<Duration>,
    /// Whether its process was killed while it ran.
    is_cut_off: bool,
}

/// A message of which a log has told the beginning.
#[derive(Debug, Default)]
struct OpenMessage {
    waits: Option<Duration>,
    /// Its places in the lists of stays, once it has started.
    stays: Vec<(AccountId, usize)>,
}

#[derive(Default)]
struct Inquiry {
    accounts: HashMap<AccountId, Vec<Stay>>,
    report: StormReport,
}

/// Judges the limits by what the processes witnessed.
pub(super) fn judge(limits: &[Limit], witnesses: &[Witness], partitions: u64) -> StormReport {
    let mut inquiry = Inquiry::default();
    inquiry.report.partitions = partitions;
    for (at, witness) in witnesses.iter().enumerate() {
        inquiry.hear(at, witness);
    }
    for (at, limit) in limits.iter().enumerate() {
        inquiry.judge_limit(at, limit, witnesses);
    }
    inquiry.report
}

impl Witness {
    /// How long the process had no store between two times.
    fn cut_between(&self, from: Duration, until: Duration) -> Duration {
        let cuts = self.cuts.iter().map(|&(begins, ends)| {
            let (begins, ends) = (since_boot(begins), since_boot(ends) + RECONNECT);
            ends.min(until).saturating_sub(begins.max(from))
        });
        cuts.sum()
    }
}

fn since_boot(at: BootInstant) -> Duration {
    at.since(BootInstant::default())
}

impl Inquiry {
    /// Reads the log of a process.
    fn hear(&mut self, at: usize, witness: &Witness) {
        let mut open: HashMap<&str, OpenMessage> = HashMap::new();
        let mut calls = 0;
        // A kill may have left a part of a line.
        let whole = witness.log.rsplit_once('\n').map_or("", |(lines, _)| lines);
        for line in whole.lines() {
            let mut words = line.split(' ');
            let mut word = || words.next().expect("a storm writes whole lines");
            let time = Duration::from_nanos(number(word()));
            let (what, message) = (word(), word());
            match what {
                "wait" => open.entry(message).or_default().waits = Some(time),
                "start" => {
                    calls = number(word());
                    self.report.acquisitions += 1;
                    let opened = open.entry(message).or_default();
                    let waits = opened.waits;
                    self.report.note_wait(witness, waits, time);
                    for need in words {
                        let stay = Stay {
                            from: time,
                            until: since_boot(witness.ended),
                            weight: 0,
                            witness: at,
                            waits,
                            is_cut_off: witness.fate != Fate::Left,
                        };
                        opened.stays.push(stays(&mut self.accounts, need, stay));
                    }
                }
                _ => {
                    self.report.revoked += u64::from(what == "revoked");
                    let ended = open.remove(message).expect("it started");
                    for (account, place) in ended.stays {
                        let stays = self.accounts.get_mut(&account).expect("it is known");
                        (stays[place].until, stays[place].is_cut_off) = (time, false);
                    }
                }
            }
        }
        self.report.calls += calls;
        for message in open.values().filter(|message| message.stays.is_empty()) {
            let ended = since_boot(witness.ended);
            self.report.note_wait(witness, message.waits, ended);
        }
        match &witness.fate {
            Fate::Killed => self.report.kills += 1,
            Fate::Left => {}
            Fate::Failed(how) => {
                let text = format!("{} ended in a wrong way: {how}", witness.name);
                self.report.violations.push(text);
            }
        }
    }

    fn judge_limit(&mut self, at: usize, limit: &Limit, witnesses: &[Witness]) {
        let mut shown = LimitReport {
            name: limit.name.clone(),
            starts: 0,
            running: limit.numbers.concurrency.map(|most| (0, most)),
            windows: Vec::new(),
        };
        let mut windows = [0; WINDOWS.len()];
        let mut complaints = Vec::new();
        let accounts = self.accounts.iter_mut().filter(|(key, _)| key.0 == at);
        for ((_, key), stays) in accounts {
            let name = key.map_or_else(String::new, |key| format!(", key {key}"));
            let name = format!("limit {}{name}", limit.name);
            stays.sort_by_key(|stay| stay.from);
            shown.starts += stays.iter().map(|stay| u64::from(stay.weight)).sum::<u64>();
            if let Some((most_running, most)) = &mut shown.running {
                let (running, when) = most_at_once(stays);
                *most_running = running.max(*most_running);
                if running > u64::from(*most) {
                    complaints.push(format!("{name}: {running} of {most} permits at {when:?}"));
                }
                if *most == 1 {
                    judge_freed(&name, stays, witnesses, &mut self.report, &mut complaints);
                }
            }
            if let Some(rate) = limit.numbers.rate {
                for (most, window) in windows.iter_mut().zip(WINDOWS) {
                    *most = fullest(stays, window).max(*most);
                }
                let (excess, from, until) = worst_window(stays, rate);
                if excess > 1e-6 {
                    complaints.push(format!(
                        "{name}: {excess:.1} starts too many between {from:?} and {until:?}"
                    ));
                }
            }
        }
        if shown.starts == 0 {
            complaints.push(format!("limit {}: nothing started", limit.name));
        }
        if let Some(rate) = limit.numbers.rate {
            let bounds = WINDOWS.map(|window| bound(rate, window));
            shown.windows = windows.into_iter().zip(bounds).collect();
        }
        complaints.truncate(MOST);
        self.report.violations.append(&mut complaints);
        self.report.limits.push(shown);
    }
}

impl StormReport {
    /// Notes how long a message has waited, without the time in which its process had no store.
    fn note_wait(&mut self, witness: &Witness, from: Option<Duration>, until: Duration) {
        let Some(from) = from else { return };
        let cut = witness.cut_between(from, until);
        let waited = until.saturating_sub(from).saturating_sub(cut);
        self.longest_wait = self.longest_wait.max(waited);
        if waited > STARVED && self.violations.len() < MOST {
            let name = &witness.name;
            self.violations
                .push(format!("{name}: a message waited {waited:?}"));
        }
    }
}

/// Adds a stay to its account. Returns its place.
fn stays(
    accounts: &mut HashMap<AccountId, Vec<Stay>>,
    need: &str,
    stay: Stay,
) -> (AccountId, usize) {
    let mut parts = need.split('/').map(|part| part.parse::<u32>().ok());
    let mut part = || parts.next().flatten();
    let limit = part().expect("the index of a limit") as usize;
    let account = (limit, part());
    let list = accounts.entry(account).or_default();
    let weight = part().expect("a weight");
    list.push(Stay { weight, ..stay });
    (account, list.len() - 1)
}

fn number(text: &str) -> u64 {
    text.parse().expect("a number")
}

/// Returns the most permits in use, and when.
fn most_at_once(stays: &[Stay]) -> (u64, Duration) {
    let changes = stays.iter().flat_map(|stay| {
        let weight = i64::from(stay.weight);
        [(stay.from, weight), (stay.until, -weight)]
    });
    let mut changes: Vec<(Duration, i64)> = changes.collect();
    // Of one moment, the ends first.
    changes.sort_unstable();
    let (mut running, mut most) = (0_i64, (0, Duration::ZERO));
    for (time, change) in changes {
        running += change;
        if running > most.0 {
            most = (running, time);
        }
    }
    (most.0.unsigned_abs(), most.1)
}

/// Returns the starts that a window may have.
fn bound(rate: Rate, window: Duration) -> f64 {
    rate.per_second * (window.as_secs_f64() + 1.0) + f64::from(rate.burst)
}

/// Returns the most starts in any window of this length.
fn fullest(stays: &[Stay], window: Duration) -> u64 {
    let (mut first, mut sum, mut most) = (0, 0, 0);
    for stay in stays {
        sum += u64::from(stay.weight);
        while stay.from - stays[first].from > window {
            sum -= u64::from(stays[first].weight);
            first += 1;
        }
        most = sum.max(most);
    }
    most
}

/// Returns by how much the worst window of any length exceeds its bound, and its ends.
fn worst_window(stays: &[Stay], rate: Rate) -> (f64, Duration, Duration) {
    let mut worst = (f64::MIN, Duration::ZERO, Duration::ZERO);
    // The starts before a window less what the rate allows until then: the least makes the worst.
    let mut least = (f64::MAX, Duration::ZERO);
    let mut started = 0.0;
    for stay in stays {
        let allowed = rate.per_second * stay.from.as_secs_f64();
        if started - allowed < least.0 {
            least = (started - allowed, stay.from);
        }
        started += f64::from(stay.weight);
        let excess = started - allowed - least.0 - bound(rate, Duration::ZERO);
        if excess > worst.0 {
            worst = (excess, least.1, stay.from);
        }
    }
    worst
}

/// Looks how long others waited for the one permit of an account after its process was killed.
fn judge_freed(
    name: &str,
    stays: &[Stay],
    witnesses: &[Witness],
    report: &mut StormReport,
    complaints: &mut Vec<String>,
) {
    for pair in stays.windows(2) {
        let [killed, next] = pair else { continue };
        if !killed.is_cut_off {
            continue;
        }
        let freed = next.from.saturating_sub(killed.until);
        let waited = next
            .waits
            .is_some_and(|since| since <= killed.until + LEASE);
        let cut = witnesses[next.witness].cut_between(killed.until, next.from);
        if waited && cut.is_zero() {
            report.freed.push(freed);
            if freed > FREED {
                complaints.push(format!(
                    "{name}: free {freed:?} after its process was killed"
                ));
            }
        }
    }
}

impl fmt::Display for StormReport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            acquisitions,
            kills,
            partitions,
            revoked,
            ..
        } = self;
        writeln!(
            out,
            "{acquisitions} acquisitions, {kills} kills, {partitions} partitions, {revoked} \
             messages stopped because their permits ended, {:.2} calls to the store for each \
             acquisition",
            self.calls as f64 / (*acquisitions).max(1) as f64
        )?;
        for limit in &self.limits {
            write!(
                out,
                "{:<10} {:>9} permits or tokens",
                limit.name, limit.starts
            )?;
            if let Some((running, most)) = limit.running {
                write!(out, "; at most {running} of {most} at once")?;
            }
            for ((most, bound), window) in limit.windows.iter().zip(WINDOWS) {
                write!(out, "; at most {most} in {window:?}, allowed {bound:.0}")?;
            }
            writeln!(out)?;
        }
        writeln!(
            out,
            "{} permits of killed processes were used by others, after {:.1?} at most; allowed \
             {FREED:?}",
            self.freed.len(),
            self.freed.iter().max().copied().unwrap_or_default(),
        )?;
        writeln!(
            out,
            "the longest wait of a message whose process had the store: {:.1?}; allowed \
             {STARVED:?}",
            self.longest_wait
        )?;
        for violation in &self.violations {
            writeln!(out, "VIOLATION: {violation}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::limits;
    use super::*;

    fn witness(name: &str, fate: Fate, ended_s: u64, log: &str) -> Witness {
        Witness {
            name: name.to_owned(),
            fate,
            ended: BootInstant::from_boot(Duration::from_secs(ended_s)),
            cuts: Vec::new(),
            log: log.to_owned(),
        }
    }

    /// The violations that are not of limits which nothing used.
    fn violations(witnesses: &[Witness]) -> Vec<String> {
        let found = judge(&limits(), witnesses, 0).violations.into_iter();
        found
            .filter(|text| !text.contains("nothing started"))
            .collect()
    }

    #[test]
    fn permits_in_use_of_all_processes_are_counted_together_until_a_kill() {
        let first = witness("a", Fate::Killed, 5, "1000000000 start 0 1 4/7/1\n5");
        let later = |from: u64| {
            let log = format!("{from} start 0 1 4/7/1\n{} end 0\n", from + 9);
            witness("b", Fate::Left, 30, &log)
        };
        assert_eq!(violations(&[later(5_000_000_001)]), [""; 0]);
        let both = [first, later(4_999_999_999)];
        let found = violations(&both);
        assert!(
            found[0].starts_with("limit lone, key 7: 2 of 1 permits"),
            "{found:?}"
        );
    }

    #[test]
    fn starts_in_every_window_are_compared_with_its_bound() {
        let starts = |count: u64| {
            let lines = (0..count).map(|at| format!("{} start {at} 1 2//1\n", 1_000_000_000 + at));
            let ends = (0..count).map(|at| format!("2000000000 end {at}\n"));
            let log: String = lines.chain(ends).collect();
            violations(&[witness("a", Fate::Left, 9, &log)])
        };
        assert_eq!(starts(360), [""; 0]);
        let found = starts(361);
        assert!(
            found[0].starts_with("limit paced: 1.0 starts too many"),
            "{found:?}"
        );
    }

    #[test]
    fn permit_that_comes_free_too_late_and_starved_message_are_found() {
        let killed = witness("a", Fate::Killed, 5, "1000000000 start 0 1 4/7/1\n");
        let waits = "4000000000 wait 0 4/7/1\n31000000001 start 0 1 4/7/1\n32000000000 end 0\n";
        let mut next = witness("b", Fate::Left, 70, waits);
        let found = violations(&[killed, next]);
        assert!(
            found[0].contains("after its process was killed"),
            "{found:?}"
        );
        next = witness("b", Fate::Left, 70, "4000000000 wait 0 4/7/1\n");
        let found = violations(&[next]);
        assert!(found[0].contains("a message waited 66s"), "{found:?}");
        let mut cut = witness("b", Fate::Left, 70, "4000000000 wait 0 4/7/1\n");
        let at = |seconds| BootInstant::from_boot(Duration::from_secs(seconds));
        cut.cuts = vec![(at(10), at(20))];
        assert_eq!(violations(&[cut]), [""; 0]);
    }
}
