//! Handlers: what they answer, and when, follows from the seed, the message and its try alone.

use super::port::{delivery, sleep};
use super::{Sim, World, WorldAnswer};
use dispatcher_core::handler::{Attempt, Handler};
use dispatcher_core::message::{FailureReason, Message, Verdict};
use fastrand::Rng;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The handler of one process.
pub(crate) struct Actor {
    pub sim: Sim,
    pub life: usize,
    pub batch: usize,
}

/// How one attempt goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HandlerCourse {
    At(Duration),
    Instant,
    Panics(Duration),
    Stalls,
}

/// What a handler makes of one message.
struct Act {
    said: WorldAnswer,
    way: HandlerCourse,
    /// It will take nothing more until somebody acts.
    closed: bool,
}

impl World {
    /// Whether a message is never done.
    fn is_stubborn(&self, message: usize) -> bool {
        let seed = self.scenario.seed ^ (message as u64) << 24;
        let mut rng = Rng::with_seed(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
        rng.u32(0..1_000) < self.scenario.mix.stubborn
    }

    /// How much longer the messages of its tenant take.
    fn slowness(&self, message: usize) -> Duration {
        let plan = self.scenario.sharing.as_ref();
        let slow = plan.filter(|_| self.tenant_of(message) == Some(1));
        Duration::from_millis(slow.map_or(0, |plan| plan.slow_ms))
    }

    /// What the handler makes of this try of a message.
    fn act(&self, message: usize) -> Act {
        let mix = self.scenario.mix;
        let tries = u64::from(self.messages[message].tries);
        let seed = self.scenario.seed ^ (message as u64) << 32 ^ tries << 8;
        let mut rng = Rng::with_seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut roll = |often: u32| rng.u32(0..1_000) < often;
        if self.quiet {
            return Act {
                said: WorldAnswer::Done,
                way: HandlerCourse::At(Duration::from_millis(1)),
                closed: false,
            };
        }
        let closed = self.closed || roll(mix.closed);
        let said = if closed || roll(mix.busy) {
            WorldAnswer::Kept
        } else if self.is_stubborn(message) || roll(mix.retry) {
            WorldAnswer::Retry(None)
        } else if roll(mix.retry_after) {
            WorldAnswer::Retry(Some(Duration::from_secs(1)))
        } else if roll(mix.reject) {
            WorldAnswer::Reject
        } else {
            WorldAnswer::Done
        };
        let (panics, stalls, slow, instant) = (
            roll(mix.panic),
            roll(mix.stall),
            roll(mix.slow),
            roll(mix.instant),
        );
        let wait = Duration::from_millis(rng.u64(0..=mix.longest_ms)) + self.slowness(message);
        let visibility = self
            .scenario
            .visibility_s(self.messages[message].queue)
            .min(600);
        let way = match (panics, stalls, slow, instant) {
            (true, ..) => HandlerCourse::Panics(wait),
            (_, true, ..) => HandlerCourse::Stalls,
            (_, _, true, _) => HandlerCourse::At(Duration::from_secs(3 * visibility) + wait),
            (.., true) => HandlerCourse::Instant,
            _ => HandlerCourse::At(wait),
        };
        let said = match said {
            WorldAnswer::Retry(Some(_)) => {
                WorldAnswer::Retry(Some(Duration::from_millis(rng.u64(0..20_000))))
            }
            other => other,
        };
        Act { said, way, closed }
    }
}

/// An attempt at work; however it ends, the world hears of it.
struct SimulatedWork {
    sim: Sim,
    attempt: usize,
    cancelled: Vec<CancellationToken>,
}

impl SimulatedWork {
    fn lost(&self) -> Vec<bool> {
        self.cancelled
            .iter()
            .map(CancellationToken::is_cancelled)
            .collect()
    }

    fn ends(&self, said: Vec<WorldAnswer>) {
        self.sim
            .lock()
            .attempt_ends(self.attempt, said, &self.lost());
    }
}

impl Drop for SimulatedWork {
    fn drop(&mut self) {
        let said = if std::thread::panicking() {
            WorldAnswer::Cut
        } else {
            self.sim.lock().stopped(self.attempt)
        };
        self.ends(vec![said; self.cancelled.len()]);
    }
}

#[async_trait::async_trait]
impl Handler for Actor {
    fn batch(&self) -> usize {
        self.batch
    }

    async fn handle(&self, attempt: Arc<Attempt>) -> Vec<Verdict> {
        let of = |message: &Message| delivery(&message.receipt);
        let deliveries: Vec<usize> = attempt.messages.iter().map(of).collect();
        if self.sim.lock().is_gone(self.life) {
            std::future::pending::<()>().await;
        }
        let (work, acts) = {
            let mut world = self.sim.lock();
            let acts = world.messages_of(&deliveries);
            let acts: Vec<_> = acts.into_iter().map(|message| world.act(message)).collect();
            let cancelled = attempt.cancelled.clone();
            let attempt = world.attempt_begins(self.life, &deliveries, cancelled.clone());
            let sim = self.sim.clone();
            (
                SimulatedWork {
                    sim,
                    attempt,
                    cancelled,
                },
                acts,
            )
        };
        let mut longest = None;
        for act in &acts {
            match act.way {
                HandlerCourse::At(time) => longest = longest.max(Some(time)),
                HandlerCourse::Instant => {}
                HandlerCourse::Panics(after) => {
                    sleep(after).await;
                    panic!("a handler panics, as the scenario wants");
                }
                HandlerCourse::Stalls => std::future::pending().await,
            }
        }
        if let Some(time) = longest {
            sleep(time).await;
        }
        let verdicts = acts.iter().map(|act| verdict(act, work.attempt)).collect();
        work.ends(acts.into_iter().map(|act| act.said).collect());
        verdicts
    }
}

fn verdict(act: &Act, number: usize) -> Verdict {
    match &act.said {
        WorldAnswer::Done => Verdict::Done,
        WorldAnswer::Retry(after) => Verdict::Retry {
            after: *after,
            why: FailureReason::Requested,
        },
        WorldAnswer::Reject => Verdict::Reject("as the scenario wants".into()),
        _ if act.closed => Verdict::Closed("as the scenario wants".into()),
        _ => Verdict::Busy {
            after: number.is_multiple_of(3).then(|| Duration::from_millis(700)),
            why: "as the scenario wants".into(),
        },
    }
}
