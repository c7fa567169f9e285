//! Which requests the ledger grants.

use super::*;

const LEASE: Duration = Duration::from_secs(15);

fn concurrency(most: u32) -> LimitNumbers {
    LimitNumbers {
        concurrency: Some(most),
        rate: None,
    }
}

fn rate(per_second: f64, burst: u32) -> LimitNumbers {
    LimitNumbers {
        concurrency: None,
        rate: Some(Rate { per_second, burst }),
    }
}

/// A store of records, and the requests to it.
#[derive(Default)]
struct Store(BTreeMap<String, LimitRecord>);

impl Store {
    fn ask(&mut self, request: &Request, now: u64) -> Grant {
        let records: Vec<_> = request
            .accounts
            .iter()
            .map(|account| self.0.get(&account.record).cloned())
            .collect();
        let (written, grant) = decide(request, &records, now);
        for (account, record) in request.accounts.iter().zip(written) {
            self.0.insert(account.record.clone(), record);
        }
        grant
    }

    /// Asks for starts of one limit. Returns those granted, and the state.
    fn one(
        &mut self,
        holder: &str,
        numbers: LimitNumbers,
        (keep, count): (u32, u32),
        now: u64,
    ) -> (u32, AccountState) {
        let request = request(holder, &[("l", numbers, keep)], &[(&[(0, 1)], count)]);
        let grant = self.ask(&request, now);
        (grant.claims[0], grant.accounts[0])
    }

    /// Asks for tokens in units. Returns the state.
    fn tokens(
        &mut self,
        holder: &str,
        numbers: LimitNumbers,
        (unit, count): (u32, u32),
        now: u64,
    ) -> AccountState {
        let mut request = request(holder, &[("l", numbers, 0)], &[]);
        request.accounts[0].tokens = TokenClaim { unit, count };
        self.ask(&request, now).accounts[0]
    }
}

fn request(
    holder: &str,
    accounts: &[(&str, LimitNumbers, u32)],
    claims: &[(&[(usize, u32)], u32)],
) -> Request {
    let accounts = accounts.iter().map(|(record, numbers, keep)| LimitAccount {
        record: (*record).to_owned(),
        numbers: *numbers,
        keep: *keep,
        tokens: TokenClaim::default(),
        shadow: false,
    });
    let claims = claims.iter().map(|(needs, count)| StartClaim {
        permits: needs.to_vec(),
        tokens: Vec::new(),
        count: *count,
    });
    Request {
        holder: holder.to_owned(),
        lease: LEASE,
        accounts: accounts.collect(),
        claims: claims.collect(),
    }
}

#[test]
fn permits_are_granted_up_to_the_limit_and_come_back() {
    let mut store = Store::default();
    assert_eq!(store.one("a", concurrency(5), (0, 3), 0).0, 3);
    let (granted, state) = store.one("b", concurrency(5), (0, 9), 10);
    assert_eq!((granted, state.used), (2, 5));
    assert_eq!(state.retry_after, Some(BEYOND_SHARE));
    // The one gives back what the other gets.
    assert_eq!(store.one("a", concurrency(5), (1, 0), 20).1.held, 1);
    assert_eq!(store.one("b", concurrency(5), (2, 9), 30).0, 2);
}

#[test]
fn the_same_request_again_takes_nothing_more() {
    let mut store = Store::default();
    assert_eq!(store.one("a", concurrency(5), (0, 3), 0).0, 3);
    // The answer was lost: the process has none of them.
    assert_eq!(store.one("a", concurrency(5), (0, 3), 10).0, 3);
    assert_eq!(store.0["l"].holders["a"].held, 3);
}

#[test]
fn permits_of_a_killed_process_are_free_after_its_lease_and_the_grace() {
    let mut store = Store::default();
    assert_eq!(store.one("a", concurrency(1), (0, 1), 0).0, 1);
    assert_eq!(store.one("b", concurrency(1), (0, 1), 15_999).0, 0);
    assert_eq!(store.one("b", concurrency(1), (0, 1), 16_000).0, 1);
}

#[test]
fn start_needs_all_its_limits_or_takes_none() {
    let mut store = Store::default();
    let accounts = [("a", concurrency(3), 0), ("b", concurrency(1), 0)];
    let needs: &[(usize, u32)] = &[(0, 1), (1, 1)];
    let grant = store.ask(&request("p", &accounts, &[(needs, 2)]), 0);
    assert_eq!(grant.claims, [1]);
    assert_eq!((grant.accounts[0].held, grant.accounts[1].held), (1, 1));
    let other = store.ask(&request("q", &accounts, &[(needs, 1)]), 0);
    assert_eq!((other.claims[0], other.accounts[0].held), (0, 0));
}

#[test]
fn rate_grants_the_burst_and_what_it_earns_soon() {
    let mut store = Store::default();
    let numbers = rate(10.0, 4);
    let state = store.tokens("a", numbers, (1, 30), 0);
    // 15 are earned within a second and a half; some of them are left.
    assert_eq!((state.units, state.tokens_before), (17, 4.0));
    assert_eq!(store.tokens("b", numbers, (1, 9), 0).units, 2);
    let refused = store.tokens("b", numbers, (1, 2), 50);
    let after = Duration::from_millis(150);
    assert_eq!((refused.units, refused.tokens_after), (0, Some(after)));
    let granted = store.tokens("b", numbers, (1, 30), 250);
    assert_eq!((granted.units, granted.tokens_before), (2, -12.5));
    assert_eq!(store.tokens("a", numbers, (1, 3), 60_000).units, 3);
}

#[test]
fn processes_have_equal_parts_of_the_tokens_to_come() {
    let mut store = Store::default();
    let numbers = rate(10.0, 1);
    let mut granted = [0; 3];
    for round in 0..100 {
        for (at, holder) in ["a", "b", "c"].into_iter().enumerate() {
            let state = store.tokens(holder, numbers, (1, 20), 100 * round);
            granted[at] += state.units;
        }
    }
    let sum: u32 = granted.iter().sum();
    assert!((100..=116).contains(&sum), "{granted:?}");
    assert!(
        granted.iter().all(|one| (25..=50).contains(one)),
        "{granted:?}"
    );
}

#[test]
fn heavy_start_gets_its_tokens_though_others_want_single_ones() {
    let mut store = Store::default();
    let numbers = rate(10.0, 30);
    assert_eq!(store.tokens("a", numbers, (1, 45), 0).units, 43);
    assert_eq!(store.tokens("c", numbers, (1, 2), 0).units, 2);
    let mut heavy = None;
    for now in (100..6_000).step_by(100) {
        let state = store.tokens("b", numbers, (30, 1), now);
        if state.units > 0 {
            heavy.get_or_insert(now);
        }
        store.tokens("a", numbers, (1, 45), now + 50);
    }
    // They are earned after three seconds, and 15 of them are granted ahead.
    assert_eq!(heavy, Some(3_000));
}

#[test]
fn lower_rate_does_not_wait_for_what_a_higher_one_granted_ahead() {
    let mut store = Store::default();
    for holder in ["a", "b"] {
        assert!(store.tokens(holder, rate(1000.0, 1), (1, 9999), 0).units > 100);
    }
    let state = store.tokens("a", rate(1.0, 1), (1, 1), 0);
    assert_eq!((state.units, state.tokens_before), (0, -1.5));
    assert_eq!(store.tokens("a", rate(1.0, 1), (1, 1), 1_000).units, 1);
}

#[test]
fn process_that_waits_gets_its_turn() {
    let mut store = Store::default();
    let one = concurrency(1);
    assert_eq!(store.one("a", one, (0, 1), 0).0, 1);
    assert_eq!(store.one("b", one, (0, 1), 10).0, 0);
    // The holder learns that it may go on with none, and gets no other while the first waits.
    assert_eq!(store.one("a", one, (1, 0), 20).1.share, Some(0));
    assert_eq!(store.one("a", one, (0, 1), 30).0, 0);
    assert_eq!(store.one("c", one, (0, 1), 40).0, 0);
    assert_eq!(store.one("b", one, (0, 1), 260).0, 1);
    // A process that asks no more is not waited for.
    assert_eq!(store.one("b", one, (0, 0), 5_000).1.held, 0);
    assert_eq!(store.one("c", one, (0, 1), 5_000).0, 1);
}

/// Each had waited longer at one of them, and kept it for the other process.
#[test]
fn processes_that_wait_for_the_same_limits_have_one_order() {
    let mut store = Store::default();
    let numbers = concurrency(1);
    assert_eq!(store.one("holder", numbers, (0, 1), 0).0, 1);
    let other = request("holder", &[("m", numbers, 0)], &[(&[(0, 1)], 1)]);
    assert_eq!(store.ask(&other, 0).claims, [1]);
    assert_eq!(store.one("a", numbers, (0, 1), 10).0, 0);
    let both: &[(usize, u32)] = &[(0, 1), (1, 1)];
    let accounts = [("l", numbers, 0), ("m", numbers, 0)];
    let only_m = request("b", &[("m", numbers, 0)], &[(&[(0, 1)], 1)]);
    assert_eq!(store.ask(&only_m, 5).claims, [0]);
    for holder in ["a", "b"] {
        assert_eq!(
            store
                .ask(&request(holder, &accounts, &[(both, 1)]), 20)
                .claims,
            [0]
        );
    }
    // The holder gives both back.
    assert_eq!(
        store.ask(&request("holder", &accounts, &[]), 30).accounts[0].held,
        0
    );
    let mut granted = 0;
    for round in 0..3 {
        for holder in ["a", "b"] {
            let request = request(holder, &accounts, &[(both, 1)]);
            granted += store.ask(&request, 100 + 250 * round).claims[0];
        }
    }
    assert!(granted > 0, "they wait for each other");
}

#[test]
fn heavy_start_is_not_passed_for_ever() {
    let mut store = Store::default();
    let ten = concurrency(10);
    assert_eq!(store.one("a", ten, (0, 10), 0).0, 10);
    let heavy = request("b", &[("l", ten, 0)], &[(&[(0, 8)], 1)]);
    assert_eq!(store.ask(&heavy, 10).claims, [0]);
    assert_eq!(store.one("a", ten, (9, 1), 20).0, 0);
    assert_eq!(store.one("a", ten, (2, 8), 30).0, 0);
    assert_eq!(store.ask(&heavy, 40).claims, [1]);
}

#[test]
fn shadow_counts_and_stops_nothing() {
    let mut store = Store::default();
    let mut request = request("a", &[("l", concurrency(1), 0)], &[(&[(0, 1)], 7)]);
    request.accounts[0].shadow = true;
    let grant = store.ask(&request, 0);
    assert_eq!((grant.claims[0], grant.accounts[0].used), (7, 7));
    // Starts that it let pass take nothing from those to come, once it stops some.
    request.accounts[0].numbers = rate(1.0, 3);
    request.accounts[0].tokens = TokenClaim { unit: 1, count: 9 };
    assert_eq!(store.ask(&request, 0).accounts[0].units, 9);
    assert_eq!(store.0["l"].tokens, 0.0);
}

#[test]
fn clock_that_goes_back_earns_nothing() {
    let mut store = Store::default();
    let numbers = rate(10.0, 1);
    assert_eq!(store.tokens("b", numbers, (1, 99), 10_000).units, 14);
    assert_eq!(store.tokens("a", numbers, (1, 99), 10_000).units, 2);
    assert_eq!(store.tokens("a", numbers, (1, 1), 9_000).units, 0);
    assert_eq!(store.tokens("a", numbers, (1, 1), 10_050).units, 0);
    assert_eq!(store.tokens("a", numbers, (1, 1), 10_100).units, 1);
}
