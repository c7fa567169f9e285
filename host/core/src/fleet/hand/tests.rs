//! What a process may start and asks for, alone and with others that are killed or cut off.

use super::super::ledger::{LimitRecord, decide};
use super::super::limit::{LimitNumbers, LimitWeight, Rate};
use super::*;
use crate::message::place::{MessageKey, MessagePlace};
use proptest::prelude::*;

fn at(ms: u64) -> BootInstant {
    BootInstant::from_boot(Duration::from_millis(1_000_000 + ms))
}

fn limit(name: &str, numbers: LimitNumbers, is_keyed: bool) -> Limit {
    Limit {
        name: name.to_owned(),
        numbers,
        key: is_keyed.then(|| MessageKey::Place(MessagePlace::Attribute("k".to_owned()))),
        overrides: HashMap::new(),
        weight: LimitWeight::Fixed(1),
        shadow: false,
        hides_keys: false,
    }
}

fn needs(all: &[(usize, Option<&str>, u32)]) -> Needs {
    let needs = all.iter().map(|(limit, key, weight)| LimitNeed {
        limit: *limit,
        key: key.map(Arc::from),
        weight: *weight,
    });
    needs.collect()
}

const FIVE: LimitNumbers = LimitNumbers {
    concurrency: Some(5),
    rate: None,
};

/// The records of a store, by name.
#[derive(Default)]
struct Store(HashMap<String, LimitRecord>);

impl Store {
    fn ask(&mut self, request: &Request, now: u64) -> Grant {
        let accounts = request.accounts.iter();
        let records: Vec<_> = accounts
            .map(|account| self.0.get(&account.record).cloned())
            .collect();
        let (written, grant) = decide(request, &records, now);
        for (account, record) in request.accounts.iter().zip(written) {
            self.0.insert(account.record.clone(), record);
        }
        grant
    }

    /// Lets a process ask, and take the answer. Returns whether anything was granted.
    fn serve(&mut self, hand: &mut Hand, now: u64) -> bool {
        let Some(request) = hand.ask(at(now)) else {
            return false;
        };
        let grant = self.ask(&request, now);
        hand.answered(&grant, at(now))
    }
}

#[test]
fn message_starts_once_its_permits_are_granted() {
    let mut store = Store::default();
    let mut hand = Hand::new("p".into(), vec![limit("l", FIVE, false)], WhenAway::Closed);
    let one = needs(&[(0, None, 1)]);
    assert!(!hand.start(&one, at(0)));
    hand.wait(&one, at(0));
    assert_eq!(hand.next_request(at(0)), Some(BootInstant::default()));
    assert!(store.serve(&mut hand, 0));
    hand.wait_no_more(&one);
    assert!(hand.start(&one, at(1)) && !hand.start(&one, at(1)));
    hand.ended(&one, at(100));
    // The permit is used again without a call ...
    assert!(hand.start(&one, at(150)));
    assert_eq!(hand.next_request(at(150)), Some(at(0) + RENEW));
    // ... and goes back after a second.
    hand.ended(&one, at(200));
    assert_eq!(hand.next_request(at(200)), Some(at(1_200)));
    store.serve(&mut hand, 1_200);
    assert!(!hand.start(&one, at(1_201)));
    assert!(store.0["l"].holders.is_empty());
}

#[test]
fn least_limit_without_keys_is_common_to_all_messages() {
    let rate = |per_second| LimitNumbers {
        concurrency: Some(50),
        rate: Some(Rate {
            per_second,
            burst: 1,
        }),
    };
    let heavy = Limit {
        weight: LimitWeight::Fixed(2),
        ..limit("heavy", rate(10.0), false)
    };
    let each = limit("each", FIVE, true);
    let limits = vec![heavy, limit("slow", rate(6.0), false), each];
    let hand = Hand::new("p".into(), limits, WhenAway::Closed);
    let common = hand.common(&[0, 1, 2]);
    let per_second = common.rate.map(|rate| rate.per_second);
    assert_eq!((common.concurrency, per_second), (Some(25), Some(5.0)));
    assert_eq!(hand.common(&[2]), LimitNumbers::default());
}

#[test]
fn attempts_stop_before_their_permits_end() {
    let mut store = Store::default();
    let mut hand = Hand::new("p".into(), vec![limit("l", FIVE, false)], WhenAway::Closed);
    let one = needs(&[(0, None, 1)]);
    hand.wait(&one, at(0));
    store.serve(&mut hand, 0);
    hand.wait_no_more(&one);
    assert!(hand.start(&one, at(0)));
    let request = hand.ask(at(5_000)).expect("a renewal");
    assert_eq!(request.accounts[0].keep, 1);
    hand.failed(true, at(6_000));
    assert!(!hand.must_stop(&one, at(12_999)));
    assert!(hand.must_stop(&one, at(13_000)));
    hand.ended(&one, at(13_000));
    assert!(!hand.start(&one, at(13_000)), "a permit about to end");
}

#[test]
fn renewal_that_failed_is_tried_again_before_attempts_stop() {
    let mut store = Store::default();
    let mut hand = Hand::new("p".into(), vec![limit("l", FIVE, false)], WhenAway::Closed);
    let one = needs(&[(0, None, 1)]);
    hand.wait(&one, at(0));
    store.serve(&mut hand, 0);
    hand.wait_no_more(&one);
    assert!(hand.start(&one, at(0)));
    assert!(hand.ask(at(5_000)).is_some());
    hand.failed(true, at(8_200));
    assert_eq!(hand.next_request(at(8_200)), Some(at(8_200)));
    store.serve(&mut hand, 8_200);
    assert!(!hand.must_stop(&one, at(20_000)));
}

#[test]
fn permits_given_back_in_vain_are_given_back_again() {
    let mut store = Store::default();
    let mut hand = Hand::new("p".into(), vec![limit("l", FIVE, false)], WhenAway::Closed);
    let one = needs(&[(0, None, 1)]);
    hand.wait(&one, at(0));
    store.serve(&mut hand, 0);
    hand.wait_no_more(&one);
    assert!(hand.ask(at(1_000)).is_some(), "it is idle");
    hand.failed(true, at(1_200));
    store.serve(&mut hand, 1_200);
    assert!(store.0["l"].holders.is_empty());
    assert_eq!(hand.next_request(at(1_200)), None);
}

#[test]
fn many_keys_that_wait_keep_no_permit_from_being_renewed() {
    let mut store = Store::default();
    let mut hand = Hand::new("p".into(), vec![limit("l", FIVE, true)], WhenAway::Closed);
    let first = needs(&[(0, Some("first"), 1)]);
    hand.wait(&first, at(0));
    store.serve(&mut hand, 0);
    hand.wait_no_more(&first);
    assert!(hand.start(&first, at(0)));
    for number in 0..2 * MOST_ACCOUNTS {
        hand.wait(&needs(&[(0, Some(&format!("k{number}")), 1)]), at(1_000));
    }
    let request = hand.ask(at(5_000)).expect("many wait");
    assert_eq!(request.accounts.len(), MOST_ACCOUNTS);
    let renews = |account: &LimitAccount| account.record == "l/first";
    assert!(request.accounts.iter().any(renews));
}

#[test]
fn tokens_end_a_second_after_they_were_asked_for() {
    let numbers = LimitNumbers {
        concurrency: None,
        rate: Some(Rate {
            per_second: 1.0,
            burst: 3,
        }),
    };
    let mut store = Store::default();
    let mut hand = Hand::new(
        "p".into(),
        vec![limit("l", numbers, false)],
        WhenAway::Closed,
    );
    let one = needs(&[(0, None, 1)]);
    hand.wait(&one, at(0));
    assert!(store.serve(&mut hand, 0));
    assert!(!hand.start(&one, at(1_000)));
    assert!(hand.start(&one, at(999)));
    assert!(!hand.start(&one, at(999)));
}

fn rate(per_second: f64, burst: u32) -> LimitNumbers {
    LimitNumbers {
        concurrency: None,
        rate: Some(Rate { per_second, burst }),
    }
}

/// Lets three processes with more messages than the rate allows run for some seconds, and calls
/// the store as often as they ask. Returns the starts of each process, and the number of requests.
fn saturate(limits: &[Limit], all: &Needs, seconds: u64) -> (Vec<usize>, usize) {
    let mut store = Store::default();
    let new = |name: &str| Hand::new(name.to_owned(), limits.to_vec(), WhenAway::Closed);
    let mut hands = ["a", "b", "c"].map(new);
    for hand in &mut hands {
        for _ in 0..1000 {
            hand.wait(all, at(0));
        }
    }
    let mut starts = vec![0; hands.len()];
    let mut requests = 0;
    for now in (0..1000 * seconds).step_by(2) {
        for (hand, starts) in hands.iter_mut().zip(&mut starts) {
            if hand.next_request(at(now)).is_some_and(|due| due <= at(now)) {
                store.serve(hand, now);
                requests += 1;
            }
            while hand.start(all, at(now)) {
                hand.ended(all, at(now));
                *starts += 1;
            }
        }
    }
    (starts, requests)
}

#[test]
fn used_up_rate_is_reached_in_equal_parts_with_few_requests() {
    for numbers in [
        rate(100.0, 20),
        LimitNumbers {
            concurrency: Some(30),
            ..rate(100.0, 1)
        },
    ] {
        let (starts, requests) =
            saturate(&[limit("l", numbers, false)], &needs(&[(0, None, 1)]), 20);
        let sum: usize = starts.iter().sum();
        assert!((1_900..=2_040).contains(&sum), "{starts:?}");
        assert!(starts.iter().all(|one| *one > 500), "{starts:?}");
        assert!(requests <= sum / 20, "{requests} requests for {sum} starts");
    }
}

#[test]
fn tokens_are_usable_once_they_are_earned() {
    let mut store = Store::default();
    let limits = vec![limit("l", rate(50.0, 2), false)];
    let mut hand = Hand::new("p".into(), limits, WhenAway::Closed);
    let one = needs(&[(0, None, 1)]);
    for _ in 0..4 {
        hand.wait(&one, at(0));
    }
    store.serve(&mut hand, 0);
    assert!(hand.start(&one, at(0)) && hand.start(&one, at(0)));
    assert!(!hand.start(&one, at(0)));
    assert_eq!(hand.next_tokens(at(0)), Some(at(20)));
    assert!(!hand.start(&one, at(19)) && hand.start(&one, at(20)));
    assert!(!hand.start(&one, at(39)) && hand.start(&one, at(40)));
    assert!(!hand.start(&one, at(1_000)));
}

/// Its queue may have a rate of its own, or be paused.
#[test]
fn message_that_does_not_start_with_its_tokens_gets_others() {
    let mut store = Store::default();
    let limits = vec![limit("l", rate(1.0, 2), false)];
    let mut hand = Hand::new("p".into(), limits, WhenAway::Closed);
    let one = needs(&[(0, None, 1)]);
    hand.wait(&one, at(0));
    store.serve(&mut hand, 0);
    let ended = hand.next_request(at(10)).expect("tokens end");
    assert!(ended > at(1_000) && ended < at(1_001));
    assert!(!hand.start(&one, ended));
    assert!(store.serve(&mut hand, 1_001));
    assert!(hand.start(&one, at(1_001)));
}

/// A token would end while it waits for a permit, and a permit would stand idle while it waits for a
/// token.
#[test]
fn start_gets_its_permit_and_its_token_together() {
    let mut store = Store::default();
    let limits = vec![
        limit("slow", rate(0.2, 1), false),
        limit(
            "full",
            LimitNumbers {
                concurrency: Some(1),
                rate: None,
            },
            false,
        ),
    ];
    let [mut holder, mut hand] =
        ["holder", "p"].map(|name| Hand::new(name.into(), limits.clone(), WhenAway::Closed));
    let full = needs(&[(1, None, 1)]);
    holder.wait(&full, at(0));
    store.serve(&mut holder, 0);
    holder.wait_no_more(&full);
    assert!(holder.start(&full, at(0)));
    let both = needs(&[(0, None, 1), (1, None, 1)]);
    hand.wait(&both, at(0));
    let mut started = None;
    for now in (0..10_000).step_by(10) {
        if now == 3_000 {
            holder.ended(&full, at(now));
        }
        for one in [&mut holder, &mut hand] {
            if one.next_request(at(now)).is_some_and(|due| due <= at(now)) {
                store.serve(one, now);
            }
        }
        if started.is_none() && hand.start(&both, at(now)) {
            started = Some(now);
        }
    }
    assert!(started.is_some_and(|now| now < 4_600), "{started:?}");
}

#[test]
fn process_goes_on_with_its_share_of_a_rate_while_the_store_is_away() {
    let mut store = Store::default();
    let slow = Limit {
        key: None,
        ..limit("l", rate(0.5, 1), false)
    };
    let mut hand = Hand::new("p".into(), vec![slow], WhenAway::Share);
    let one = needs(&[(0, None, 1)]);
    hand.wait(&one, at(0));
    store.serve(&mut hand, 0);
    assert!(hand.start(&one, at(0)));
    hand.wait(&one, at(0));
    assert!(hand.ask(at(5_000)).is_some());
    hand.failed(true, at(5_000));
    let starts = (5_000..25_000)
        .step_by(10)
        .filter(|now| hand.start(&one, at(*now)));
    assert_eq!(starts.count(), 10);
}

#[test]
fn refused_key_keeps_no_other_from_starting() {
    let mut store = Store::default();
    let one_each = LimitNumbers {
        concurrency: Some(1),
        rate: None,
    };
    let mut other = Hand::new(
        "o".into(),
        vec![limit("l", one_each, true)],
        WhenAway::Closed,
    );
    let full = needs(&[(0, Some("a"), 1)]);
    other.wait(&full, at(0));
    store.serve(&mut other, 0);
    let mut hand = Hand::new(
        "p".into(),
        vec![limit("l", one_each, true)],
        WhenAway::Closed,
    );
    let free = needs(&[(0, Some("b"), 1)]);
    hand.wait(&full, at(0));
    hand.wait(&free, at(0));
    assert!(store.serve(&mut hand, 10));
    assert!(!hand.start(&full, at(10)) && hand.start(&free, at(10)));
    hand.wait_no_more(&free);
    assert!(
        hand.ask(at(11)).is_none(),
        "the full key is asked for later"
    );
    assert_eq!(hand.next_request(at(11)), Some(at(260)));
}

/// One process of the simulation.
struct HandProcess {
    hand: Hand,
    /// What runs, and since when.
    running: Vec<(Needs, u64)>,
    waiting: Vec<Needs>,
    /// Whether it does not reach the store.
    is_cut_off: bool,
}

impl HandProcess {
    fn new(number: u32) -> Self {
        let rate = LimitNumbers {
            concurrency: Some(4),
            rate: Some(Rate {
                per_second: 20.0,
                burst: 6,
            }),
        };
        let limits = vec![limit("a", FIVE, false), limit("b", rate, true)];
        Self {
            hand: Hand::new(format!("p{number}"), limits, WhenAway::Closed),
            running: Vec::new(),
            waiting: Vec::new(),
            is_cut_off: false,
        }
    }

    fn start_all(&mut self, now: u64, starts: &mut Vec<(u64, Needs)>) {
        let waiting = std::mem::take(&mut self.waiting);
        for needs in waiting {
            if self.hand.start(&needs, at(now)) {
                self.hand.wait_no_more(&needs);
                starts.push((now, needs.clone()));
                self.running.push((needs, now));
            } else {
                self.waiting.push(needs);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn no_limit_is_ever_exceeded(steps in prop::collection::vec((0_u32..4, 0_u8..12, 0_u64..400, 1_u32..4), 50..400)) {
        let mut store = Store::default();
        let mut processes: Vec<HandProcess> = (0..4).map(HandProcess::new).collect();
        let mut born = 4;
        let mut now = 0;
        let mut starts = Vec::new();
        for (index, what, later, weight) in steps {
            now += later;
            let process = &mut processes[index as usize];
            match what {
                0..=4 => {
                    let key = if weight == 1 { "x" } else { "y" };
                    let needs = match what {
                        0 => needs(&[(0, None, weight)]),
                        1 | 2 => needs(&[(1, Some(key), weight)]),
                        _ => needs(&[(0, None, 1), (1, Some(key), 1)]),
                    };
                    process.hand.wait(&needs, at(0));
                    process.waiting.push(needs);
                }
                5 | 6 if !process.running.is_empty() => {
                    let (needs, _) = process.running.remove(0);
                    process.hand.ended(&needs, at(now));
                }
                7 => process.is_cut_off = !process.is_cut_off,
                8 => {
                    born += 1;
                    *process = HandProcess::new(born);
                }
                9 => {
                    // Carried out, and the answer is lost.
                    if let Some(request) = process.hand.ask(at(now)) {
                        let _ = store.ask(&request, now);
                        process.hand.failed(true, at(now + 100));
                    }
                }
                _ => {}
            }
            for process in &mut processes {
                if process.is_cut_off {
                    if process.hand.ask(at(now)).is_some() {
                        process.hand.failed(true, at(now + 100));
                    }
                } else {
                    let _ = store.serve(&mut process.hand, now);
                }
                let running = std::mem::take(&mut process.running);
                for (needs, since) in running {
                    if process.hand.must_stop(&needs, at(now)) {
                        process.hand.ended(&needs, at(now));
                    } else {
                        process.running.push((needs, since));
                    }
                }
                process.start_all(now, &mut starts);
            }
            for (limit, key, most) in [(0, None, 5), (1, Some("x"), 4), (1, Some("y"), 4)] {
                let used: u32 = processes
                    .iter()
                    .flat_map(|process| &process.running)
                    .flat_map(|(needs, _)| needs.iter())
                    .filter(|need| need.limit == limit && need.key.as_deref() == key)
                    .map(|need| need.weight)
                    .sum();
                prop_assert!(used <= most, "{used} of {most} permits of {limit} {key:?} at {now}");
            }
        }
        for key in ["x", "y"] {
            let weighed: Vec<(u64, u32)> = starts
                .iter()
                .flat_map(|(at, needs)| needs.iter().map(move |need| (*at, need)))
                .filter(|(_, need)| need.limit == 1 && need.key.as_deref() == Some(key))
                .map(|(at, need)| (at, need.weight))
                .collect();
            for (first, &(from, _)) in weighed.iter().enumerate() {
                let mut sum = 0;
                for &(to, weight) in &weighed[first..] {
                    sum += weight;
                    let allowed = 20.0 * (Duration::from_millis(to - from).as_secs_f64() + 1.0) + 6.0;
                    prop_assert!(f64::from(sum) <= allowed + 0.01, "{sum} starts of {allowed}");
                }
            }
        }
    }
}

#[test]
fn refused_needs_are_asked_for_before_those_that_were_granted() {
    let one_at_once = LimitNumbers {
        concurrency: Some(1),
        rate: None,
    };
    let mut store = Store::default();
    let limits = vec![limit("l", one_at_once, false), limit("k", FIVE, true)];
    let mut hand = Hand::new("p".into(), limits, WhenAway::Closed);
    let [a, b] = ["a", "b"].map(|key| needs(&[(0, None, 1), (1, Some(key), 1)]));
    hand.wait(&a, at(0));
    hand.wait(&b, at(0));
    assert!(store.serve(&mut hand, 0));
    assert!(!hand.start(&b, at(0)));
    // The first does not start, for another reason, and its permit goes back.
    assert!(store.serve(&mut hand, 1_100));
    assert!(!hand.start(&a, at(1_100)) && hand.start(&b, at(1_100)));
}

/// Its queue waits for that of the heavy one.
#[test]
fn heavy_start_comes_before_a_light_one_that_never_starts() {
    let three = LimitNumbers {
        concurrency: Some(3),
        rate: None,
    };
    let mut store = Store::default();
    let limits = vec![limit("l", three, false)];
    let mut hand = Hand::new("p".into(), limits, WhenAway::Closed);
    let [light, heavy] = [1, 3].map(|weight| needs(&[(0, None, weight)]));
    hand.wait(&light, at(0));
    hand.wait(&heavy, at(0));
    let mut answer = None;
    let starts = (0..5_000).step_by(10).any(|now| {
        if let Some((_, grant)) = answer.take_if(|(due, _)| *due <= now) {
            hand.answered(&grant, at(now));
        } else if hand.next_request(at(now)).is_some_and(|due| due <= at(now)) {
            let request = hand.ask(at(now)).expect("something is due");
            answer = Some((now + 70, store.ask(&request, now)));
        }
        hand.start(&heavy, at(now))
    });
    assert!(starts, "the light one always came first");
}
