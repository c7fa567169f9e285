//! What a run is made of: settings, what is sent, what happens to the processes, how often what goes
//! wrong. Plain data, drawn from a seed elsewhere, so that it can be printed, pinned and shrunk.

/// One run of the simulated world.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Scenario {
    /// Of every choice that the scenario leaves open.
    pub seed: u64,
    /// The time that each read of the clock takes, in microseconds.
    pub step_us: u64,
    /// In the route's order.
    pub queues: Vec<QueuePlan>,
    /// By weight; otherwise strictly in order.
    pub weighted: bool,
    /// The route's settings, as `config::Route` has them.
    pub route: RoutePlan,
    /// How many processes run concurrently.
    pub processes: usize,
    /// In the order of their times.
    pub sends: Vec<SimulatedSend>,
    /// One after the other.
    pub happenings: Vec<SimulatedEvent>,
    /// What goes wrong while trouble is on.
    pub faults: Faults,
    /// What handlers answer.
    pub mix: Mix,
    /// The limits that hold for all processes together, if there are any.
    pub fleet: Option<FleetPlan>,
    /// How tenants and priorities share the route, if they do.
    pub sharing: Option<SharingPlan>,
}

/// How tenants and priorities share the route.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SharingPlan {
    pub tenants: TenantPlan,
    /// The weight of each tenant, by its number. The others have weight 1.
    pub weights: Vec<u32>,
    /// Messages name a priority.
    pub priorities: bool,
    /// The time after which a message of this priority goes first, in milliseconds.
    pub max_wait: Option<(u8, u64)>,
    /// How much longer the messages of tenant 1 take, in milliseconds.
    pub slow_ms: u64,
    /// Lists with leases deliver by turns. The embedded queue always does, SQS never.
    pub by_lists: bool,
    /// Functions are told the tenant, so that an attempt has messages of one.
    pub one_tenant: bool,
}

/// Where a message names its tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TenantPlan {
    /// Nowhere: all messages are of one tenant.
    Nowhere,
    /// Its group is its tenant. Groups are not kept in order then.
    Group,
    /// An attribute, where no queue looks.
    Attribute,
}

/// The limits that hold for all processes together, and their store.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FleetPlan {
    /// One or two; each message needs all of them.
    pub limits: Vec<LimitPlan>,
    /// The most messages of a queue that wait in a process. Further ones go back to their queue.
    pub most_waiting: usize,
    /// The longest that they wait, in seconds. Then they go back, too.
    pub longest_wait_s: u64,
    /// The milliseconds by which the store's date is ahead of the processes', or behind.
    pub date_ms: i64,
    pub faults: LimitFaults,
}

/// One limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LimitPlan {
    pub concurrency: Option<u32>,
    /// The starts per second, and how many may follow each other at once.
    pub rate: Option<(f64, u32)>,
    /// The number of keys, each with its own count; `None` if all messages count together.
    pub keys: Option<u16>,
    /// Each tenant is a key, whatever `keys` says.
    pub by_tenant: bool,
    pub weight: WeightPlan,
}

/// How much a message takes of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WeightPlan {
    /// The same for each.
    Fixed(u32),
    /// As the message says, 1 to 3.
    OfMessage,
}

/// How often, in a thousand, a call of the store of limits goes wrong, until it is quiet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct LimitFaults {
    /// It never arrives.
    pub lost_request: u32,
    /// It is carried out and not answered.
    pub lost_answer: u32,
    /// It takes long to arrive.
    pub hang: u32,
    /// Its answer takes long to come back.
    pub late_answer: u32,
    /// It is refused for now.
    pub refused: u32,
}

/// How a queue behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flavour {
    /// SQS without order.
    Standard,
    /// SQS with ordered groups.
    Fifo,
    /// The embedded queue: exact, near and without a network.
    Local,
    /// Lists with fenced leases behind a network: exact, and what comes back comes back in front.
    Redis,
}

impl Flavour {
    /// Whether an answer shows all there is, receipts are fenced, and a wait can be ended.
    pub(crate) fn is_exact(self) -> bool {
        matches!(self, Self::Local | Self::Redis)
    }

    /// Whether there is a network before it.
    pub(crate) fn is_far(self) -> bool {
        self != Self::Local
    }

    /// Whether it promises the order of groups.
    pub(crate) fn orders_groups(self) -> bool {
        matches!(self, Self::Fifo | Self::Local)
    }
}

/// One queue.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct QueuePlan {
    pub flavour: Flavour,
    pub weight: u32,
    pub rate: Option<f64>,
    pub concurrency: Option<usize>,
    pub dead_letters: bool,
    /// The backend's own redrive policy: so many receives, then it is dead-lettered.
    pub redrive: Option<u32>,
    pub visibility_s: u64,
    /// Maximum messages in flight, where SQS has such a limit.
    pub in_flight: usize,
}

impl QueuePlan {
    /// Whether the program sends dead letters to the target of the queue's own redrive policy.
    pub(crate) fn takes_dead(&self) -> bool {
        self.flavour == Flavour::Fifo && self.redrive.is_some() && !self.dead_letters
    }

    /// How many attempts a message has, if that is limited: `attempts` as the route says or, where
    /// the queue keeps groups in order, as often as its redrive policy lets it be received.
    pub(crate) fn limit(&self, attempts: Option<u32>) -> Option<u32> {
        let own = attempts.filter(|_| self.dead_letters);
        let takes = self.dead_letters || self.takes_dead();
        let policy = self
            .redrive
            .filter(|_| takes && self.flavour.orders_groups());
        own.into_iter().chain(policy).min()
    }
}

/// The route.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RoutePlan {
    pub batch: usize,
    pub window_ms: u64,
    pub concurrency: usize,
    pub visibility_s: Option<u64>,
    pub poll_for_s: u64,
    pub sleep_ms: u64,
    pub first_ms: u64,
    pub most_ms: u64,
    pub attempts: Option<u32>,
    pub timeout_ms: u64,
    /// What was sent last starts first.
    pub newest_first: bool,
    /// At hand besides what may run.
    pub prefetch: usize,
    /// What was sent longer ago is shed.
    pub max_age_ms: Option<u64>,
    /// What is shed is deleted; otherwise it is dead-lettered.
    pub drops: bool,
    /// Messages say which group they belong to where their queue does not.
    pub group_by: bool,
    /// What is done is remembered beyond the process for this long.
    pub remembers_s: Option<u64>,
}

/// A message that is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SimulatedSend {
    pub at_ms: u64,
    pub queue: usize,
    /// Of its queue or, on a route with `group_by`, perhaps its own; see `is_tag`.
    pub group: Option<u16>,
    /// The tenant and the priority that it names.
    pub tenant: Option<u16>,
    pub priority: Option<u8>,
}

/// Something that happens, so long or so many events after what happened before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SimulatedEvent {
    pub after_ms: u64,
    /// Where it is not zero, it counts instead of the time.
    pub after_events: u64,
    pub what: HappeningKind,
}

/// What happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HappeningKind {
    /// The process is gone at once.
    Crash(usize),
    /// It is asked to stop.
    Stop(usize, u64),
    /// A new one takes its place; a stopping one continues beside it.
    Start(usize),
    /// All processes stand still for so many milliseconds, and their timers with them.
    Suspend(u64),
    /// The machine's date is set, so many milliseconds on or back.
    Date(i64),
    /// Faults begin or end.
    Faults(bool),
    /// The downstream is closed or open again.
    Closed(bool),
    /// An operator pauses a queue in a process, or resumes it.
    Pause(usize, usize, bool),
    /// An operator sets the most attempts at once of a process.
    Limit(usize, usize),
    /// A process cannot reach the store of limits, or can again.
    Parted(usize, bool),
    /// An operator sets the weight of a tenant in a process.
    Weight(usize, u16, u32),
    /// A process replaces its route by a new version.
    Reload(usize),
}

/// How often, in a thousand, something goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Faults {
    /// A call that never arrives.
    pub lost_request: u32,
    /// One that takes effect and is not answered.
    pub lost_answer: u32,
    /// One that takes long to arrive.
    pub hang: u32,
    /// One that is refused for now.
    pub throttle: u32,
    /// One entry of a call that fails.
    pub entry: u32,
    /// An extension's entry that is refused for good.
    pub refused_extension: u32,
    /// An answer that takes long to come back.
    pub late_answer: u32,
    /// A long poll that sees nothing.
    pub blind: u32,
    /// A delivery of what is in flight or deleted.
    pub duplicate: u32,
    /// A delivery out of order.
    pub disorder: u32,
    /// A call that takes effect twice.
    pub repeat: u32,
    /// A stale receipt that is accepted without effect, rather than refused.
    pub silent: u32,
    /// A call that tells outcomes and takes seconds to arrive.
    pub slow_settle: u32,
    /// A call of the store of what is done that fails.
    pub store_fails: u32,
    /// One that is never answered.
    pub store_hangs: u32,
}

/// How often, in a thousand, handlers do other than be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Mix {
    pub retry: u32,
    pub retry_after: u32,
    pub reject: u32,
    pub busy: u32,
    pub closed: u32,
    pub panic: u32,
    /// Never answers.
    pub stall: u32,
    /// Takes several times as long as a lease.
    pub slow: u32,
    /// Answers without waiting for anything.
    pub instant: u32,
    /// Messages that are never done, however often they are tried, as long as it is not quiet.
    pub stubborn: u32,
    /// The longest that the others take.
    pub longest_ms: u64,
}

impl Scenario {
    /// How long a message of this queue stays invisible, in seconds.
    pub(crate) fn visibility_s(&self, queue: usize) -> u64 {
        let own = self.queues[queue].visibility_s;
        self.route.visibility_s.unwrap_or(own).max(2)
    }

    /// Whether a group is told by the message and not by its queue.
    pub(crate) fn is_tag(&self, queue: usize, group: u16) -> bool {
        let own = self.queues[queue].flavour.orders_groups();
        self.route.group_by && (!own || group.is_multiple_of(2))
    }

    /// Whether the groups of messages are tenants, which no queue keeps in order.
    pub(crate) fn shares_groups(&self) -> bool {
        let plan = self.sharing.as_ref();
        plan.is_some_and(|plan| plan.tenants == TenantPlan::Group)
    }

    /// Whether a queue delivers by turns of tenants and priorities.
    pub(crate) fn shares_out(&self, queue: usize) -> bool {
        let Some(plan) = &self.sharing else {
            return false;
        };
        match self.queues[queue].flavour {
            Flavour::Local => true,
            Flavour::Redis => plan.by_lists,
            Flavour::Standard | Flavour::Fifo => false,
        }
    }

    /// Whether nothing at all goes wrong with calls and processes.
    pub(crate) fn is_calm(&self) -> bool {
        let rough =
            |happening: &SimulatedEvent| !matches!(happening.what, HappeningKind::Closed(_));
        self.processes == 1 && !self.happenings.iter().any(rough)
    }
}

#[rustfmt::skip]
impl std::fmt::Display for Scenario {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let order = if self.weighted { "weighted" } else { "strict" };
        let (seed, processes, step_us) = (self.seed, self.processes, self.step_us);
        writeln!(out, "seed {seed} · {processes} processes · {order} order · {step_us} µs a read")?;
        writeln!(out, "{:?}\n{:?}\n{:?}", self.route, self.faults, self.mix)?;
        if let Some(fleet) = &self.fleet {
            writeln!(out, "{fleet:?}")?;
        }
        if let Some(sharing) = &self.sharing {
            writeln!(out, "{sharing:?}")?;
        }
        for (at, queue) in self.queues.iter().enumerate() {
            writeln!(out, "  q{at} {queue:?}")?;
        }
        for happening in &self.happenings {
            writeln!(out, "  {happening:?}")?;
        }
        for (at, sending) in self.sends.iter().enumerate() {
            writeln!(out, "  m{at} {sending:?}")?;
        }
        Ok(())
    }
}
