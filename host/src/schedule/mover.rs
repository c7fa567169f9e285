//! Takes what is due from a store to its queue, round by round: read, claim, send, end. Decides
//! nothing itself.
//!
//! A job is claimed before it is sent and ended after: whoever dies in between leaves a claim that
//! runs out, and the job is sent by another. The end is bound to the claim, since by then the job may
//! have run, and its producer written it anew under the same id.

use super::decide::{self, Planned, Reach};
use super::{Ending, Job, Store, StoreError, Trouble};
use crate::clock::{self, Moment, Timestamp};
use crate::message::Outgoing;
use crate::tasks::Group;
use crate::telemetry::said::Said;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// So many jobs are claimed together.
const CHUNK: usize = 100;
/// So many calls that send are under way at once, to queues that keep no order.
const CALLS: usize = 10;
/// How long a store that is not there is left alone. Well below the 15 minutes that a job is read
/// ahead, so that nothing is late for it.
const MISSING: Duration = Duration::from_secs(300);

/// Why a message was not sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotSent {
    /// It may be later.
    Passing(String),
    /// It never will, as it is.
    Refused(String),
}

/// Where messages go.
#[async_trait::async_trait]
pub trait Outlet: Send + Sync + 'static {
    /// What a queue takes, by the name that a job has.
    async fn reach(&self, queue: &str) -> Result<Reach, String>;

    /// Sends at most `Reach::batch` messages; one answer per item, in order.
    async fn send(&self, queue: &str, items: Vec<Outgoing>) -> Vec<Result<(), NotSent>>;
}

/// What one round did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Round {
    /// Messages that their queues took.
    pub sent: usize,
    /// Jobs that another dispatcher claimed first.
    pub lost: usize,
    /// Messages that their queues did not take; their jobs stay.
    pub failed: usize,
    /// When the first job that is held back is ready.
    pub held: Option<Timestamp>,
}

impl Round {
    fn hold(&mut self, ready: Timestamp) {
        self.held = Some(self.held.map_or(ready, |held| held.min(ready)));
    }
}

/// Moves the jobs of one store.
pub struct Mover {
    store: Arc<dyn Store>,
    outlet: Arc<dyn Outlet>,
    interval: Duration,
    /// What was sent and could not be ended.
    unended: Vec<Ending>,
    said: Said,
    /// Whether the store has answered once.
    known: bool,
}

/// A message on its way: of which planned job, and what.
type Parcel = (usize, Outgoing);

impl Mover {
    /// Looks every `interval`.
    pub fn new(store: Arc<dyn Store>, outlet: Arc<dyn Outlet>, interval: Duration) -> Self {
        Self {
            store,
            outlet,
            interval,
            unended: Vec::new(),
            said: Said::default(),
            known: false,
        }
    }

    /// Round after round until the stop; what is claimed by then is still sent and ended. The first
    /// begins at a random time within the interval, so that dispatchers that start together do not
    /// all ask for the same jobs.
    pub async fn run(mut self, stop: CancellationToken) {
        let phase = self.interval.mul_f64(fastrand::f64()).min(FIRST);
        let mut wait = phase;
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = clock::sleep_until(Some(clock::now() + wait)) => {}
            }
            wait = match self.round(&stop).await {
                Ok(round) => {
                    self.known = true;
                    self.report(&round);
                    decide::wait(clock::today(), self.interval, round.held)
                }
                Err(error) => self.trouble(&error),
            };
        }
    }

    fn report(&self, round: &Round) {
        let Round {
            sent, lost, failed, ..
        } = *round;
        let store = self.store.place();
        if sent + failed > 0 {
            tracing::info!(
                store,
                sent,
                lost,
                failed,
                "scheduled messages were sent to their queues"
            );
        }
    }

    /// Says what is wrong, and how long to leave it alone.
    fn trouble(&mut self, error: &StoreError) -> Duration {
        match error.kind {
            // Most queues have none.
            Trouble::Missing => {
                tracing::debug!("{error}");
                self.interval.max(MISSING)
            }
            // Perhaps there is none, and nobody who may tell; or the service itself is not there.
            _ if !self.known => {
                if self.said.again(clock::now()) {
                    tracing::info!("no scheduled messages are read: {error}");
                }
                self.interval.max(MISSING)
            }
            _ => {
                if self.said.again(clock::now()) {
                    tracing::warn!("scheduled messages wait: {error}");
                }
                self.interval
            }
        }
    }

    /// Everything that is due, once.
    pub async fn round(&mut self, stop: &CancellationToken) -> Result<Round, StoreError> {
        self.end_the_rest().await;
        let mut round = Round::default();
        let mut reaches = HashMap::new();
        let mut after = None;
        loop {
            let until = clock::today() + decide::AHEAD;
            let page = tokio::select! {
                page = self.store.due(until, after.as_deref()) => page?,
                () = stop.cancelled() => return Ok(round),
            };
            for chunk in chunks(&page.jobs, fastrand::usize(..)) {
                if stop.is_cancelled() {
                    break;
                }
                self.learn(&chunk, &mut reaches).await;
                self.chunk(chunk, &reaches, &mut round).await?;
            }
            after = page.next;
            if after.is_none() || stop.is_cancelled() {
                return Ok(round);
            }
        }
    }

    /// Asks the queues of these jobs what they take, those that were not asked yet.
    async fn learn(&mut self, jobs: &[Job], reaches: &mut HashMap<String, Option<Reach>>) {
        for job in jobs {
            if reaches.contains_key(&job.queue) {
                continue;
            }
            let reach = self.outlet.reach(&job.queue).await;
            let reach = reach.map_err(|why| self.refused(&job.queue, &job.id, &why));
            reaches.insert(job.queue.clone(), reach.ok());
        }
    }

    fn refused(&mut self, queue: &str, job: &str, why: &str) {
        if self.said.again(clock::now()) {
            tracing::error!(
                queue,
                job,
                "a scheduled message cannot be sent and waits: {why}"
            );
        }
    }

    async fn chunk(
        &mut self,
        jobs: Vec<Job>,
        reaches: &HashMap<String, Option<Reach>>,
        round: &mut Round,
    ) -> Result<(), StoreError> {
        let (started, now) = (clock::now(), clock::today());
        let mut planned = Vec::new();
        for job in jobs {
            // It was sent; what is left is to strike it out.
            let is_it = |one: &Ending| (&one.job.id, one.job.due) == (&job.id, job.due);
            if self.unended.iter().any(is_it) {
                continue;
            }
            let Some(Some(reach)) = reaches.get(&job.queue).copied() else {
                round.failed += 1;
                continue;
            };
            match decide::plan(&job, reach, self.interval, now) {
                Ok(Some(one)) => {
                    if let Some(next) = one.next.map(|due| Job { due, ..job }) {
                        round.hold(decide::ready_at(&next, reach, self.interval));
                    }
                    planned.push(one);
                }
                Ok(None) if decide::is_claimed(&job, now) => {}
                Ok(None) => round.hold(decide::ready_at(&job, reach, self.interval)),
                Err(why) => self.refused(&job.queue, &job.id, &why),
            }
        }
        if planned.is_empty() {
            return Ok(());
        }
        let token = uuid::Uuid::new_v4().to_string();
        let claim = decide::claim(token.clone(), now);
        let wanted: Vec<Job> = planned.iter().map(|one| one.job.clone()).collect();
        let answers = self.store.claim(&wanted, &claim, now).await;
        let mut ours = Vec::new();
        let mut error = None;
        for (one, answer) in planned.into_iter().zip(answers) {
            match answer {
                Ok(true) => ours.push(one),
                Ok(false) => round.lost += 1,
                Err(why) => error = Some(why),
            }
        }
        let sent = self.send(&ours, reaches, started, round).await;
        self.end(ours, &sent, &token).await;
        error.map_or(Ok(()), Err)
    }

    /// Sends what is ours. How many messages of each job were taken, up to the first that was not.
    async fn send(
        &mut self,
        ours: &[Planned],
        reaches: &HashMap<String, Option<Reach>>,
        started: Moment,
        round: &mut Round,
    ) -> Vec<usize> {
        let mut by_queue: HashMap<&str, Vec<Parcel>> = HashMap::new();
        for (at, one) in ours.iter().enumerate() {
            let Some(Some(reach)) = reaches.get(&one.job.queue) else {
                continue;
            };
            let now = clock::today();
            let parcels = one.ticks.iter().map(|tick| {
                let delay = decide::delay(*tick, now, *reach);
                let message = one.job.message.clone();
                (at, Outgoing { delay, ..message })
            });
            by_queue.entry(&one.job.queue).or_default().extend(parcels);
        }
        let mut whole = vec![true; ours.len()];
        let mut sent = vec![0; ours.len()];
        for (queue, parcels) in by_queue {
            let Some(Some(reach)) = reaches.get(queue).copied() else {
                continue;
            };
            for (at, answer) in self.send_to(queue, parcels, reach, started).await {
                match answer {
                    Ok(()) => {
                        round.sent += 1;
                        sent[at] += usize::from(whole[at]);
                    }
                    Err(NotSent::Passing(why) | NotSent::Refused(why)) => {
                        round.failed += 1;
                        whole[at] = false;
                        self.refused(queue, &ours[at].job.id, &why);
                    }
                }
            }
        }
        sent
    }

    /// The answers of one queue, those of each job in the order of its messages. Calls that would
    /// begin too late after the claim are not made.
    async fn send_to(
        &self,
        queue: &str,
        parcels: Vec<Parcel>,
        reach: Reach,
        started: Moment,
    ) -> Vec<(usize, Result<(), NotSent>)> {
        let most = if reach.ordered { 1 } else { CALLS };
        let batches: Vec<Vec<Parcel>> = parcels
            .chunks(reach.batch.max(1))
            .map(<[Parcel]>::to_vec)
            .collect();
        let mut answers: Vec<Option<Vec<Result<(), NotSent>>>> = vec![None; batches.len()];
        let mut calls = Group::new();
        for (number, batch) in batches.iter().enumerate() {
            if calls.len() >= most {
                let (number, answer) = calls.next().await;
                answers[number] = Some(answer);
            }
            if clock::now().since(started) >= decide::SEND_WITHIN {
                break;
            }
            let (outlet, queue) = (self.outlet.clone(), queue.to_owned());
            let items = batch.iter().map(|(_, item)| item.clone()).collect();
            calls.spawn(async move { (number, outlet.send(&queue, items).await) });
        }
        while !calls.is_empty() {
            let (number, answer) = calls.next().await;
            answers[number] = Some(answer);
        }
        let late = || Err(NotSent::Passing("its claim was about to run out".into()));
        let mut all = Vec::new();
        for (batch, answer) in batches.into_iter().zip(answers) {
            let mut answer = answer.unwrap_or_default().into_iter();
            all.extend(
                batch
                    .into_iter()
                    .map(|(at, _)| (at, answer.next().unwrap_or_else(late))),
            );
        }
        all
    }

    /// Ends the claims: by what was sent, or gives them back.
    async fn end(&mut self, ours: Vec<Planned>, sent: &[usize], token: &str) {
        let endings: Vec<Ending> = ours
            .into_iter()
            .zip(sent)
            .map(|(one, sent)| Ending {
                next: decide::next_after(&one, *sent),
                job: one.job,
                token: token.to_owned(),
            })
            .collect();
        self.end_all(endings).await;
    }

    async fn end_the_rest(&mut self) {
        let rest = std::mem::take(&mut self.unended);
        self.end_all(rest).await;
    }

    /// What cannot be ended is kept for the next round: else it would be sent again when its claim
    /// has run out.
    async fn end_all(&mut self, endings: Vec<Ending>) {
        if endings.is_empty() {
            return;
        }
        let answers = self.store.end(&endings).await;
        for (ending, answer) in endings.into_iter().zip(answers) {
            let Err(why) = answer else { continue };
            if self.said.again(clock::now()) {
                let job = &ending.job.id;
                tracing::warn!(
                    job,
                    "a scheduled message was sent and still stands in its store: {why}"
                );
            }
            if why.kind != Trouble::Missing {
                self.unended.push(ending);
            }
        }
    }
}

/// The longest that a run waits before its first look.
const FIRST: Duration = Duration::from_secs(5);

/// The jobs of a page in parts, beginning somewhere, so that dispatchers that look at once do not
/// claim the same ones; in order where groups are.
fn chunks(jobs: &[Job], start: usize) -> Vec<Vec<Job>> {
    let mut chunks: Vec<Vec<Job>> = jobs.chunks(CHUNK).map(<[Job]>::to_vec).collect();
    let ordered = jobs.iter().any(|job| job.message.group.is_some());
    if !ordered && !chunks.is_empty() {
        let at = start % chunks.len();
        chunks.rotate_left(at);
    }
    chunks
}
