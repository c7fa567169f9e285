//! Counts wrong tokens by the address that sent them, so that no one can try many. Pure: the caller
//! passes `now`.

use dispatcher_core::clock::BootInstant;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

/// The number of wrong tokens in a minute after which an address must wait for the rest of it.
const MOST: u32 = 20;
const WITHIN: Duration = Duration::from_secs(60);
/// The maximum number of addresses that are counted; the earliest is forgotten first.
const ADDRESSES: usize = 10_000;

/// The wrong tokens of the last minute.
#[derive(Debug, Default)]
pub(crate) struct WrongTokens(Mutex<HashMap<IpAddr, WrongCount>>);

/// The wrong tokens of one address.
#[derive(Debug, Clone, Copy)]
struct WrongCount {
    count: u32,
    until: BootInstant,
}

impl WrongTokens {
    /// Returns how long an address must wait before it may send a token, if it must.
    pub(crate) fn wait(&self, address: IpAddr, now: BootInstant) -> Option<Duration> {
        let counts = self.0.lock();
        let own = counts.get(&network(address));
        let full = own.filter(|one| one.count >= MOST && now < one.until)?;
        Some(full.until.since(now))
    }

    /// Records a wrong token. Returns whether the address must wait from now on.
    pub(crate) fn record(&self, address: IpAddr, now: BootInstant) -> bool {
        let mut counts = self.0.lock();
        let network = network(address);
        if counts.len() >= ADDRESSES && !counts.contains_key(&network) {
            let earliest = counts.iter().min_by_key(|(_, one)| one.until);
            if let Some(earliest) = earliest.map(|(network, _)| *network) {
                counts.remove(&earliest);
            }
        }
        let fresh = WrongCount {
            count: 0,
            until: now + WITHIN,
        };
        let one = counts.entry(network).or_insert(fresh);
        if one.until <= now {
            *one = fresh;
        }
        one.count += 1;
        one.count == MOST
    }
}

/// Returns the network of an address that one customer of a provider has.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn address_waits_for_the_rest_of_its_minute_after_twenty_wrong_tokens() {
        let wrong = WrongTokens::default();
        let (one, other) = (address("10.0.0.1"), address("10.0.0.2"));
        let start = BootInstant::default();
        let later = start + Duration::from_secs(20);
        for number in 1..MOST {
            assert!(!wrong.record(one, start), "{number}");
        }
        assert_eq!(wrong.wait(one, later), None);
        assert!(wrong.record(one, later));
        assert_eq!(wrong.wait(one, later), Some(Duration::from_secs(40)));
        assert_eq!(wrong.wait(other, later), None);
        let over = start + WITHIN;
        assert_eq!(wrong.wait(one, over), None);
        assert!(!wrong.record(one, over));
        assert_eq!(wrong.wait(one, over), None);
    }

    #[test]
    fn addresses_of_one_network_are_counted_together_and_the_earliest_is_forgotten() {
        let wrong = WrongTokens::default();
        let now = BootInstant::default();
        for number in 0..MOST {
            wrong.record(address(&format!("2001:db8::{number:x}")), now);
        }
        assert!(wrong.wait(address("2001:db8::ffff"), now).is_some());
        assert!(wrong.wait(address("2001:db8:0:1::1"), now).is_none());
        assert!(wrong.wait(address("::ffff:10.0.0.1"), now).is_none());
        let later = now + Duration::from_secs(1);
        for _ in 0..MOST {
            wrong.record(address("::1"), later);
        }
        for number in 2..u32::try_from(ADDRESSES).expect("few") {
            wrong.record(IpAddr::V4(number.into()), later);
        }
        assert!(wrong.wait(address("2001:db8::1"), later).is_some());
        wrong.record(address("10.9.9.9"), later);
        assert!(wrong.wait(address("2001:db8::1"), later).is_none());
        assert!(wrong.wait(address("::1"), later).is_some());
        assert!(wrong.wait(address("10.8.8.8"), later).is_none());
        assert_eq!(wrong.0.lock().len(), ADDRESSES);
    }
}
