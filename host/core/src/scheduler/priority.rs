//! Orders queues: strictly as listed, or by weight. Pure.

/// The unit of virtual time: a queue of weight `w` pays `SHARE / w` for each message.
const SHARE: u128 = 1 << 32;

/// The ranking of a route's queues.
#[derive(Debug, Clone)]
pub(crate) enum QueueOrder {
    /// The order in which the queues are listed.
    Strict,
    /// The number of messages that each queue has had in proportion to its weight, least first
    /// (stride scheduling): shares converge to the weights faster than with a random draw.
    Weighted(Vec<Account>),
}

/// The account of a weighted queue.
#[derive(Debug, Clone, Copy)]
pub struct Account {
    weight: u32,
    spent: u128,
}

impl QueueOrder {
    /// Creates the ranking. `weights` are in the order of the queues; `None` means strict order.
    pub(crate) fn new(weights: Option<&[u32]>) -> Self {
        match weights {
            None => Self::Strict,
            Some(weights) => Self::Weighted(
                weights
                    .iter()
                    .map(|&weight| Account {
                        weight: weight.max(1),
                        spent: 0,
                    })
                    .collect(),
            ),
        }
    }

    /// Whether a queue must wait for all before it.
    pub(crate) fn is_strict(&self) -> bool {
        matches!(self, Self::Strict)
    }

    /// Returns these queues, given in their order, with the most urgent first. Equal ones come in a
    /// random order, so that queues of the same weight have the same chance.
    pub(crate) fn ranking(&self, lanes: impl Iterator<Item = usize>) -> Vec<usize> {
        let mut ranking: Vec<usize> = lanes.collect();
        if let Self::Weighted(accounts) = self {
            if ranking
                .windows(2)
                .any(|pair| accounts[pair[0]].spent == accounts[pair[1]].spent)
            {
                fastrand::shuffle(&mut ranking);
            }
            ranking.sort_by_key(|&lane| accounts[lane].spent);
        }
        ranking
    }

    /// Charges a queue for this many messages.
    pub(crate) fn charge(&mut self, lane: usize, messages: usize) {
        if let Self::Weighted(accounts) = self {
            let account = &mut accounts[lane];
            let price = SHARE / u128::from(account.weight);
            account.spent += price * messages as u128;
        }
    }

    /// Refunds the charge for messages that did not come.
    pub(crate) fn refund(&mut self, lane: usize, messages: usize) {
        if let Self::Weighted(accounts) = self {
            let account = &mut accounts[lane];
            let price = SHARE / u128::from(account.weight);
            account.spent = account.spent.saturating_sub(price * messages as u128);
        }
    }

    /// Lets a queue that was empty compete again. It has no claim on the time that it did not use.
    pub(crate) fn rejoin(&mut self, lane: usize, competing: impl Iterator<Item = usize>) {
        if let Self::Weighted(accounts) = self {
            let least = competing
                .filter(|&other| other != lane)
                .map(|other| accounts[other].spent)
                .min();
            if let Some(least) = least {
                accounts[lane].spent = accounts[lane].spent.max(least);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn shares_converge_to_the_weights(weights in prop::collection::vec(1_u32..100, 1..8)) {
            let mut order = QueueOrder::new(Some(&weights));
            let mut picks = vec![0_u32; weights.len()];
            for _ in 0..10_000 {
                let lane = order.ranking(0..weights.len())[0];
                order.charge(lane, 1);
                picks[lane] += 1;
            }
            let total: u32 = weights.iter().sum();
            for (lane, &weight) in weights.iter().enumerate() {
                let wanted = f64::from(weight) / f64::from(total);
                let got = f64::from(picks[lane]) / 10_000.0;
                prop_assert!((wanted - got).abs() < 0.01, "{wanted} {got}");
            }
        }
    }

    #[test]
    fn equal_queues_take_turns_at_being_first() {
        let order = QueueOrder::new(Some(&[1, 1, 1]));
        let mut first = [0; 3];
        for _ in 0..300 {
            first[order.ranking(0..3)[0]] += 1;
        }
        assert!(first.iter().all(|&count| count > 0), "{first:?}");
    }

    #[test]
    fn queue_that_was_empty_gets_no_credit_for_the_past() {
        let mut order = QueueOrder::new(Some(&[1, 1]));
        order.charge(0, 1_000);
        order.rejoin(1, [0, 1].into_iter());
        order.charge(1, 1);
        assert_eq!(order.ranking(0..2)[0], 0);
    }
}
