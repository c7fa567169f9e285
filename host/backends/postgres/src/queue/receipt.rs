//! Receipts: the id of a message, its receive count, and the time of its last receipt.

use crate::server::time::ServerTime;
use dispatcher_core::message::Receipt;
use dispatcher_core::queue::ItemError;
use tokio_postgres::types::Type;

/// One delivery, or a message that waits. The time belongs to it, because the count can repeat after
/// a fail-over that has lost writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Delivery {
    pub id: i64,
    pub count: i32,
    /// `None` if the message waits.
    pub at: Option<ServerTime>,
}

impl Delivery {
    pub(super) fn receipt(self) -> Receipt {
        let Self { id, count, at } = self;
        Receipt(match at {
            Some(at) => format!("{id}.{count}.{}", at.0),
            None => format!("{id}.{count}."),
        })
    }

    pub(super) fn read(receipt: &Receipt) -> Result<Self, ItemError> {
        parse(&receipt.0)
            .ok_or_else(|| ItemError::Refused(format!("`{}` is no receipt", receipt.0)))
    }
}

fn parse(text: &str) -> Option<Delivery> {
    let mut parts = text.split('.');
    let delivery = Delivery {
        id: parts.next()?.parse().ok()?,
        count: parts.next()?.parse().ok()?,
        at: match parts.next()? {
            "" => None,
            at => Some(ServerTime(at.parse().ok()?)),
        },
    };
    parts.next().is_none().then_some(delivery)
}

/// Deliveries as the values $1, $2 and $3 of a statement.
#[derive(Default)]
pub(super) struct DeliveryLists {
    ids: Vec<i64>,
    counts: Vec<i32>,
    times: Vec<Option<ServerTime>>,
}

impl FromIterator<Delivery> for DeliveryLists {
    fn from_iter<I: IntoIterator<Item = Delivery>>(deliveries: I) -> Self {
        let mut lists = Self::default();
        for one in deliveries {
            lists.ids.push(one.id);
            lists.counts.push(one.count);
            lists.times.push(one.at);
        }
        lists
    }
}

impl DeliveryLists {
    pub(super) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    pub(super) fn values(&self) -> [crate::server::Value<'_>; 3] {
        [
            (&self.ids, Type::INT8_ARRAY),
            (&self.counts, Type::INT4_ARRAY),
            (&self.times, Type::TIMESTAMPTZ_ARRAY),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receipt_names_one_delivery() {
        let held = Delivery {
            id: 7,
            count: 2,
            at: Some(ServerTime(-5)),
        };
        assert_eq!(Delivery::read(&held.receipt()), Ok(held));
        let waiting = Delivery { at: None, ..held };
        assert_eq!(Delivery::read(&waiting.receipt()), Ok(waiting));
        for wrong in ["", "7", "7.2", "7.2.x", "7.2.1.1", "a.1.1"] {
            assert!(Delivery::read(&Receipt(wrong.into())).is_err(), "{wrong}");
        }
    }
}
