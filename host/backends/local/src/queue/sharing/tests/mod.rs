//! Tests of lanes: single rules, and random steps against a plain search of all messages.

mod model;
mod rules;
mod service;

use super::{SharingSlot, backlogs, next_due};
use crate::queue::claim::{claim, load};
use crate::queue::deliver::{DeliveryTerms, send};
use crate::queue::look::queue_id;
use crate::queue::schema::in_memory;
use crate::queue::settle::{Origin, extend, settle};
use crate::queue::time::StoreTime;
use crate::queue::turn::{LocalDelivery, Turn};
use dispatcher_core::message::place::MessagePlace;
use dispatcher_core::message::{Attribute, Message, Outcome, OutgoingMessage};
use dispatcher_core::queue::Ask;
use dispatcher_core::queue::sharing::{SharingRules, TenantBacklog};
use rusqlite::Connection;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// A queue of a file in memory, and one process that shares its messages out.
struct SharedWorld {
    connection: Connection,
    now: StoreTime,
    origin: Origin,
    terms: DeliveryTerms,
}

/// An answer of a receive: the messages, how many were overdue, and whether the queue is drained.
struct ReceiveAnswer {
    messages: Vec<Message>,
    overdue: usize,
    drained: bool,
}

impl SharedWorld {
    fn new(sharing: SharingRules) -> Self {
        let connection = in_memory();
        let id = queue_id(&connection, "q").unwrap();
        let world = Self {
            connection,
            now: StoreTime(1_000_000),
            origin: Origin {
                id,
                name: "q".into(),
                dead_letter: Some("q.dead".into()),
            },
            terms: DeliveryTerms {
                sharing: Some(Arc::default()),
                ..DeliveryTerms::default()
            },
        };
        world.share(sharing);
        world
    }

    fn slot(&self) -> &Arc<SharingSlot> {
        self.terms.sharing.as_ref().expect("a slot")
    }

    fn share(&self, sharing: SharingRules) {
        self.slot().set(&Arc::new(sharing));
    }

    fn turn(&self) -> Turn<'_> {
        Turn::new(&self.connection, self.now)
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
    }

    fn send(&self, tenant: &str, priority: &str, delay: Duration) -> String {
        let item = item(tenant, priority, delay);
        let mut answers = send(&mut self.turn(), self.origin.id, &[item]).unwrap();
        answers.remove(0).unwrap()
    }

    fn receive_by(&self, terms: &DeliveryTerms, ask: Ask) -> ReceiveAnswer {
        let mut turn = self.turn();
        let mut claimed = claim(&mut turn, self.origin.id, "local:q", ask, terms).unwrap();
        for (slot, rules) in std::mem::take(&mut turn.written) {
            slot.note_written(rules);
        }
        let (overdue, drained) = (claimed.overdue, claimed.drained);
        claimed.refused.clear();
        let (messages, _) = load(&turn, claimed, "local:q", terms).unwrap();
        ReceiveAnswer {
            messages,
            overdue,
            drained,
        }
    }

    fn receive(&self, max: usize) -> Vec<Message> {
        let ask = Ask { max, ..Ask::PLAIN };
        self.receive_by(&self.terms, ask).messages
    }

    fn bodies(&self, max: usize) -> Vec<String> {
        self.receive(max).into_iter().map(|one| one.body).collect()
    }

    fn settle(&self, message: &Message, outcome: &Outcome) {
        let delivery = LocalDelivery::parse(&message.receipt).unwrap();
        let _ = settle(&mut self.turn(), &self.origin, delivery, outcome).unwrap();
    }

    fn next_due(&self) -> Option<StoreTime> {
        let sharing = self.slot().sharing().expect("rules");
        next_due(&self.turn(), self.origin.id, self.slot(), &sharing).unwrap()
    }

    fn backlog(&self, tenant: &str) -> TenantBacklog {
        let tenants = [tenant.to_owned()];
        backlogs(&self.turn(), self.origin.id, &tenants).unwrap()[0]
    }
}

/// A message of a tenant, whose body names both. An empty text is a missing one.
fn item(tenant: &str, priority: &str, delay: Duration) -> OutgoingMessage {
    let attributes = match priority {
        "" => Vec::new(),
        priority => vec![Attribute::text("priority", priority)],
    };
    OutgoingMessage {
        body: format!("{tenant}{priority}"),
        delay,
        group: (!tenant.is_empty()).then(|| tenant.to_owned()),
        attributes,
        ..OutgoingMessage::default()
    }
}

/// Rules by which groups are tenants.
fn by_group() -> SharingRules {
    SharingRules {
        by_group: true,
        ..SharingRules::default()
    }
}

/// Rules by which the attribute `priority` names the priority.
fn by_priority() -> SharingRules {
    SharingRules {
        priority: Some(MessagePlace::Attribute("priority".into())),
        ..SharingRules::default()
    }
}

fn weights(weights: &[(&str, u32)]) -> BTreeMap<String, u32> {
    let weights = weights.iter();
    weights
        .map(|(tenant, weight)| ((*tenant).to_owned(), *weight))
        .collect()
}
