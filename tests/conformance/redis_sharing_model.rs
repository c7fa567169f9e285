//! Random steps on a shared-out queue on Redis, compared with a small model of the rules: which
//! message a receive must bring, and that none is lost, brought twice or left behind.

use crate::backend::{Handy, LONG, grouped, plain};
use crate::redis_sharing::{SharedQueue, by_priority, lane_of, second, urgent};
use dispatcher_core::message::place::MessagePlace;
use dispatcher_core::message::{Message, Outcome, samples};
use dispatcher_core::queue::sharing::{Priority, SharingRules};
use dispatcher_core::queue::{Ask, Queue};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const TENANTS: [&str; 4] = ["a", "b", "c", ""];

#[derive(Debug, Clone)]
enum SharingStep {
    Send {
        tenant: usize,
        priority: u8,
        count: usize,
    },
    Receive {
        max: usize,
        newest: bool,
        by_second: bool,
    },
    Settle {
        which: usize,
        outcome: Outcome,
    },
    EndVisibility(usize),
    Choose(usize),
    Cancel(usize),
    Purge,
    Park(Vec<usize>),
    Weigh(u32),
    Rules {
        by_group: bool,
        by_priority: bool,
    },
}

fn steps() -> impl Strategy<Value = Vec<SharingStep>> {
    let which = 0..100_usize;
    let outcome = prop_oneof![
        3 => Just(Outcome::Delete),
        2 => Just(Outcome::Release(Duration::ZERO)),
        1 => Just(Outcome::Release(LONG)),
    ];
    let step = prop_oneof![
        8 => (0..4_usize, 1..6_u8, 1..6_usize)
            .prop_map(|(tenant, priority, count)| SharingStep::Send { tenant, priority, count }),
        10 => (1..6_usize, prop::bool::weighted(0.2), any::<bool>())
            .prop_map(|(max, newest, by_second)| SharingStep::Receive { max, newest, by_second }),
        6 => (which.clone(), outcome).prop_map(|(which, outcome)| SharingStep::Settle { which, outcome }),
        2 => which.clone().prop_map(SharingStep::EndVisibility),
        1 => (1..4_usize).prop_map(SharingStep::Choose),
        1 => which.prop_map(SharingStep::Cancel),
        1 => Just(SharingStep::Purge),
        2 => prop::collection::vec(0..4_usize, 0..3).prop_map(SharingStep::Park),
        1 => (1..9_u32).prop_map(SharingStep::Weigh),
        1 => any::<(bool, bool)>()
            .prop_map(|(by_group, by_priority)| SharingStep::Rules { by_group, by_priority }),
    ];
    prop::collection::vec(step, 1..80)
}

#[derive(Debug)]
enum Whereabouts {
    Waiting,
    Delayed,
    Held(Box<Message>),
}

#[derive(Debug)]
struct ModelMessage {
    tenant: &'static str,
    priority: u8,
    place: Whereabouts,
}

type ModelLane = (u8, &'static str);

/// All messages by id, and what each lane has paid.
struct SharingModel {
    messages: BTreeMap<String, ModelMessage>,
    sharing: SharingRules,
    passes: HashMap<ModelLane, u64>,
    virtual_times: HashMap<u8, u64>,
}

impl SharingModel {
    fn lane(&self, entry: &ModelMessage) -> ModelLane {
        (
            if self.sharing.priority.is_some() {
                entry.priority
            } else {
                3
            },
            if self.sharing.by_group {
                entry.tenant
            } else {
                ""
            },
        )
    }

    /// Whether the message could be received, regardless of parked tenants.
    fn is_receivable(&self, id: &str) -> bool {
        let entry = &self.messages[id];
        let in_order = !self.sharing.by_group && !entry.tenant.is_empty();
        let mut before = self.messages.range(..id.to_owned());
        matches!(entry.place, Whereabouts::Waiting)
            && !(in_order && before.any(|(_, other)| other.tenant == entry.tenant))
    }

    fn pass(&self, lane: ModelLane) -> u64 {
        let own = self.passes.get(&lane).copied().unwrap_or_default();
        own.max(self.virtual_times.get(&lane.0).copied().unwrap_or_default())
    }

    /// The messages that the next receive may bring, one of each lane that has paid least.
    fn next(&self, newest: bool) -> BTreeMap<ModelLane, String> {
        let mut lanes: BTreeMap<ModelLane, String> = BTreeMap::new();
        for (id, entry) in &self.messages {
            let lane = self.lane(entry);
            if self.is_receivable(id) && !self.sharing.parked.contains(lane.1) {
                let first = lanes.entry(lane).or_insert_with(|| id.clone());
                if newest {
                    first.clone_from(id);
                }
            }
        }
        let Some(priority) = lanes.keys().map(|lane| lane.0).min() else {
            return lanes;
        };
        lanes.retain(|lane, _| lane.0 == priority);
        let least = lanes.keys().map(|lane| self.pass(*lane)).min();
        lanes.retain(|lane, _| Some(self.pass(*lane)) == least);
        lanes
    }

    fn take(&mut self, message: Message, newest: bool) -> Result<(), TestCaseError> {
        let allowed = self.next(newest);
        let entry = self.messages.get(&message.id);
        prop_assert!(entry.is_some(), "{message:?} is not there");
        let lane = self.lane(&self.messages[&message.id]);
        prop_assert_eq!(
            allowed.get(&lane),
            Some(&message.id),
            "{:?} of {:?}",
            lane,
            allowed
        );
        let pass = self.pass(lane);
        self.virtual_times.insert(lane.0, pass);
        self.passes.insert(lane, pass + self.sharing.price(lane.1));
        self.hold(message);
        Ok(())
    }

    fn hold(&mut self, message: Message) {
        let entry = self.messages.get_mut(&message.id).expect("it was sent");
        entry.place = Whereabouts::Held(Box::new(message));
    }

    fn held(&self) -> Vec<Message> {
        let held = self
            .messages
            .values()
            .filter_map(|entry| match &entry.place {
                Whereabouts::Held(message) => Some((**message).clone()),
                _ => None,
            });
        held.collect()
    }
}

struct ModelRun {
    scene: SharedQueue,
    other: Box<dyn Queue>,
    model: SharingModel,
}

impl ModelRun {
    async fn new() -> Self {
        let sharing = SharingRules {
            by_group: true,
            ..by_priority()
        };
        let scene = SharedQueue::sharing(sharing.clone()).await;
        let run = Self {
            other: Box::new(second(&scene).await),
            scene,
            model: SharingModel {
                messages: BTreeMap::new(),
                sharing,
                passes: HashMap::new(),
                virtual_times: HashMap::new(),
            },
        };
        run.share_out();
        run
    }

    fn queue(&self) -> &dyn Queue {
        &self.scene.queue
    }

    fn share_out(&self) {
        let sharing = Arc::new(self.model.sharing.clone());
        self.queue().share_out(&sharing);
        self.other.share_out(&sharing);
    }

    async fn take(&mut self, step: &SharingStep) -> Result<usize, TestCaseError> {
        let SharingStep::Receive {
            max,
            newest,
            by_second,
        } = *step
        else {
            return Ok(0);
        };
        let ask = Ask {
            max,
            newest_first: newest,
            visibility: LONG,
            ..Ask::PLAIN
        };
        let queue = if by_second {
            &*self.other
        } else {
            self.queue()
        };
        let received = queue.receive(ask, &CancellationToken::new()).await;
        let messages = received.expect("an answer").messages;
        let count = messages.len();
        for message in messages {
            self.model.take(message, newest)?;
        }
        let left = self.model.next(newest);
        prop_assert!(count == max || left.is_empty(), "left behind: {:?}", left);
        Ok(count)
    }

    async fn settle(&mut self, message: Message, outcome: &Outcome) {
        self.scene
            .handy()
            .settle_one(&message, outcome.clone())
            .await;
        let entry = self
            .model
            .messages
            .get_mut(&message.id)
            .expect("it was sent");
        match outcome {
            Outcome::Release(Duration::ZERO) => entry.place = Whereabouts::Waiting,
            Outcome::Release(_) => entry.place = Whereabouts::Delayed,
            _ => {
                self.model.messages.remove(&message.id);
            }
        }
    }

    async fn delete_all(&mut self) {
        for message in self.model.held() {
            self.settle(message, &Outcome::Delete).await;
        }
    }

    async fn step(&mut self, step: &SharingStep) -> Result<(), TestCaseError> {
        let held = self.model.held();
        match step {
            SharingStep::Send {
                tenant,
                priority,
                count,
            } => self.send(TENANTS[*tenant], *priority, *count).await,
            SharingStep::Receive { .. } => {
                self.take(step).await?;
            }
            SharingStep::Settle { which, outcome } if !held.is_empty() => {
                self.settle(held[which % held.len()].clone(), outcome).await;
            }
            SharingStep::EndVisibility(which) if !held.is_empty() => {
                let message = &held[which % held.len()];
                let ended = [(message.receipt.clone(), Duration::ZERO)];
                prop_assert_eq!(self.queue().extend(&ended).await, [Ok(())]);
                self.model
                    .messages
                    .get_mut(&message.id)
                    .expect("it was sent")
                    .place = Whereabouts::Waiting;
            }
            SharingStep::Settle { .. } | SharingStep::EndVisibility(_) => {}
            SharingStep::Choose(count) => self.choose(*count).await,
            SharingStep::Cancel(which) => {
                let waiting = self
                    .model
                    .messages
                    .iter()
                    .filter(|(_, entry)| !matches!(entry.place, Whereabouts::Held(_)));
                let ids: Vec<_> = waiting.map(|(id, _)| id.clone()).collect();
                if let Some(id) = ids.get(which % ids.len().max(1)) {
                    prop_assert_eq!(self.scene.cancel(id).await, 1);
                    self.model.messages.remove(id);
                }
            }
            SharingStep::Purge => {
                while self.queue().purge().await.expect("an answer").has_more {}
                self.model
                    .messages
                    .retain(|_, entry| matches!(entry.place, Whereabouts::Held(_)));
            }
            SharingStep::Park(tenants) => {
                self.model.sharing.parked =
                    tenants.iter().map(|at| TENANTS[*at].to_owned()).collect();
                if !self.model.sharing.by_group {
                    self.model.sharing.parked.clear();
                }
                self.share_out();
            }
            SharingStep::Weigh(weight) => {
                self.model.sharing.weights =
                    BTreeMap::from([("a".into(), *weight), ("b".into(), 2)]);
                self.share_out();
            }
            SharingStep::Rules {
                by_group,
                by_priority,
            } => self.change_rules(*by_group, *by_priority).await?,
        }
        Ok(())
    }

    async fn send(&mut self, tenant: &'static str, priority: u8, count: usize) {
        let message = if tenant.is_empty() {
            plain("m")
        } else {
            grouped(tenant, "m")
        };
        let ids = self
            .scene
            .handy()
            .send_all(&vec![urgent(priority.into(), message); count])
            .await;
        for id in ids {
            let entry = ModelMessage {
                tenant,
                priority,
                place: Whereabouts::Waiting,
            };
            self.model.messages.insert(id, entry);
        }
    }

    async fn choose(&mut self, count: usize) {
        let page = self.queue().browse(None, 50).await.expect("a page");
        let receipts = page
            .messages
            .iter()
            .rev()
            .take(count)
            .map(|m| m.receipt.clone());
        let receipts: Vec<_> = receipts.collect();
        let chosen = self
            .queue()
            .receive_these(&receipts, LONG)
            .await
            .expect("an answer");
        for message in chosen {
            self.model.hold(message);
        }
    }

    async fn change_rules(
        &mut self,
        by_group: bool,
        has_priority: bool,
    ) -> Result<(), TestCaseError> {
        let sharing = &mut self.model.sharing;
        let is_same = (sharing.by_group, sharing.priority.is_some()) == (by_group, has_priority);
        if is_same {
            return Ok(());
        }
        sharing.by_group = by_group;
        sharing.priority = has_priority.then(|| MessagePlace::Attribute("priority".into()));
        sharing.parked.clear();
        self.delete_all().await;
        self.model.passes.clear();
        self.model.virtual_times.clear();
        self.share_out();
        // Both processes have told the server before the next step.
        for by_second in [false, true] {
            self.take(&SharingStep::Receive {
                max: 1,
                newest: false,
                by_second,
            })
            .await?;
        }
        Ok(())
    }

    /// Everything that can be received comes, and once.
    async fn end(mut self) -> Result<(), TestCaseError> {
        self.model.sharing.parked = BTreeSet::new();
        self.share_out();
        let all = SharingStep::Receive {
            max: 100,
            newest: false,
            by_second: true,
        };
        self.delete_all().await;
        while self.take(&all).await? > 0 {
            self.delete_all().await;
        }
        let depth = self.queue().depth().await.expect("an answer");
        let left = self.model.messages.len() as u64;
        prop_assert_eq!((depth.waiting + depth.delayed, depth.in_flight), (left, 0));
        Ok(())
    }
}

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().expect("a runtime")
}

/// JSON texts in which a priority may stand, and others.
fn texts() -> impl Strategy<Value = String> {
    let value = prop_oneof![
        (0..7_u8).prop_map(|number| number.to_string()),
        (0..7_u8).prop_map(|number| format!("\" {number} \"")),
        (0..7_u8).prop_map(|number| format!("{number}.0")),
        (0..7_u8).prop_map(|number| format!("\"+0{number}\"")),
        Just("2.5".to_owned()),
        Just("20e-1".to_owned()),
        Just("true".to_owned()),
        Just("null".to_owned()),
        Just("\"high\"".to_owned()),
        Just("\"\\u0032\"".to_owned()),
        Just("[1]".to_owned()),
        Just("{".to_owned()),
    ];
    prop_oneof![
        4 => value.clone().prop_map(|value| format!("{{\"p\":{value}}}")),
        2 => value.clone().prop_map(|value| format!("[7, {{\"a/b\":{value}}}]")),
        1 => (value.clone(), value.clone()).prop_map(|(one, two)| format!("{{\"p\":{one},\"p\":{two}}}")),
        1 => value.clone().prop_map(|value| format!("{{\"1\":{{\"a/b\":{value}}}}}")),
        1 => value,
        1 => "\\PC{0,5}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn receives_keep_to_the_rules(steps in steps()) {
        runtime().block_on(async {
            let mut run = ModelRun::new().await;
            for step in &steps {
                run.step(step).await?;
            }
            run.end().await
        })?;
    }

    #[test]
    fn server_reads_priorities_as_the_program_does(
        bodies in prop::collection::vec(texts(), 1..40),
        pointer in prop_oneof![Just("/p"), Just("/1/a~1b"), Just("")],
    ) {
        runtime().block_on(async {
            let place = MessagePlace::Pointer(pointer.into());
            let mut scene = SharedQueue::sharing(SharingRules {
                priority: Some(place.clone()),
                ..SharingRules::default()
            }).await;
            scene.receive(1).await;
            let sent: Vec<_> = bodies.iter().map(|body| plain(body)).collect();
            let ids = scene.handy().send_all(&sent).await;
            scene.queue.backlogs(&[String::new()]).await.expect("an answer");
            for (id, body) in ids.iter().zip(&bodies) {
                let message = Message { body: body.clone(), ..samples::message("m") };
                let wanted = Priority::of(&place, &message).number();
                prop_assert_eq!(lane_of(&mut scene, id), format!("{wanted}:0::{id}"), "{}", body);
            }
            Ok(())
        })?;
    }
}
