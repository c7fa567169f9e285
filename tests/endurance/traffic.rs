//! The stream of numbered messages: which roles there are, what their bodies print, how many a
//! second. Knows no faults but those of the guests.

use crate::scene::Site;
use dispatcher_tests::bodies;
use dispatcher_tests::ledger::MessageKind;
use fastrand::Rng;
use std::time::{Duration, Instant};
use tokio::sync::RwLock;

/// How often a handful is sent.
const TICK: Duration = Duration::from_millis(100);

/// A kind of queue, each with a plugin and its own route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Role {
    /// A fresh instance for each message.
    Steady,
    /// One instance for a thousand messages, one after the other.
    Reused,
    /// One instance for fifty messages at once.
    Many,
    /// Guests that fail, trap, loop past their time and eat memory.
    Bad,
}

impl Role {
    /// All of them.
    pub(crate) const ALL: [Self; 4] = [Self::Steady, Self::Reused, Self::Many, Self::Bad];

    /// Of the queue and of the plugin.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Steady => "steady",
            Self::Reused => "reused",
            Self::Many => "many",
            Self::Bad => "bad",
        }
    }

    /// The plugin's settings.
    pub(crate) fn plugin(self) -> String {
        let (guest, more) = match self {
            Self::Steady => ("verdicts", "timeout = \"20s\""),
            Self::Reused => ("verdicts", "timeout = \"20s\"\nreuse = 1000"),
            Self::Many => (
                "commands",
                "timeout = \"20s\"\ninstance-concurrency = 50\nallow-lambda = [\"none\"]",
            ),
            Self::Bad => ("verdicts", "timeout = \"400ms\"\nmax-memory = \"16MiB\""),
        };
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../plugins/prebuilt");
        format!("file = \"{folder}/{guest}.wasm\"\n{more}")
    }

    /// The route's retry policy. What is good is tried for as long as it takes.
    pub(crate) fn retry(self) -> &'static str {
        match self {
            Self::Bad => "{ first = \"10ms\", most = \"50ms\", attempts = 2 }",
            _ => "{ first = \"10ms\", most = \"200ms\", attempts = 100000 }",
        }
    }

    fn kind(self) -> MessageKind {
        match self {
            Self::Bad => MessageKind::Bad,
            _ => MessageKind::Good,
        }
    }
}

/// How much of what.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    /// Messages a second, by role in the order of `Role::ALL`.
    pub per_second: [f64; 4],
    /// Of a thousand good messages so many are large, up to 1 MiB.
    pub large_permille: u32,
    /// Whether every character is allowed, or only those that XML knows; none where bodies are
    /// plain.
    pub odd: Option<bodies::AllowedCharacters>,
}

/// Sends until then. While the gate is shut for writing nothing is sent.
pub(crate) async fn send_until(
    site: &Site,
    load: Load,
    until: Instant,
    gate: &RwLock<()>,
    seed: u64,
) {
    let mut dice = Rng::with_seed(seed);
    let mut owed = [0.0; 4];
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while Instant::now() < until {
        ticks.tick().await;
        for (at, role) in Role::ALL.into_iter().enumerate() {
            owed[at] += load.per_second[at] * TICK.as_secs_f64();
            let mut numbers = Vec::new();
            let mut texts = Vec::new();
            while owed[at] >= 1.0 {
                owed[at] -= 1.0;
                let number = site.account.ledger().next(role.kind());
                texts.push(body(role, number, load, &mut dice));
                numbers.push(number);
            }
            if numbers.is_empty() {
                continue;
            }
            let open = gate.read().await;
            let ids = site.backend.send(role, texts).await;
            drop(open);
            let mut ledger = site.account.ledger();
            for (number, id) in numbers.into_iter().zip(ids) {
                ledger.called(number, id);
            }
        }
    }
}

fn body(role: Role, number: u64, load: Load, dice: &mut Rng) -> String {
    let verb = match role {
        Role::Bad => misdeed(dice),
        Role::Many => "print ",
        Role::Steady | Role::Reused => "print:",
    };
    let mut body = format!("{verb}m{number} ");
    if role == Role::Bad {
        return body;
    }
    if dice.u32(..1_000) < load.large_permille {
        let more = dice.usize(..bodies::LARGEST - body.len());
        body.extend(std::iter::repeat_n('x', more));
    } else if let Some(allowed) = load.odd {
        // A line of the program that began so would be taken for a number.
        body.push_str(&bodies::odd(allowed, dice, 64).replace('m', "M"));
    }
    body
}

/// What costs a processor for all of its time is rarer.
fn misdeed(dice: &mut Rng) -> &'static str {
    match dice.u32(..24) {
        0 => "loop:",
        1 => "loop-calls:",
        2..5 => "eat:",
        5..8 => "recurse:",
        8..12 => "trap:",
        12..15 => "panic:",
        15..18 => "error:",
        18..20 => "exit:",
        _ => "reject:",
    }
}
