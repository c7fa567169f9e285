//! IP addresses and networks in the notation of AWS's engine.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The maximum length of an IPv4 address as text.
const LONGEST_V4: usize = 15;

/// Parses an address. Leading zeros do not change a number, and an IPv4-mapped IPv6 address is the
/// IPv4 address, as in Java.
pub(super) fn parse(text: &str) -> Option<IpAddr> {
    if text.contains(':') && !text.contains('.') {
        let address: Ipv6Addr = without_zeros(text, ':').parse().ok()?;
        let mapped = address.to_ipv4_mapped().map(IpAddr::V4);
        return Some(mapped.unwrap_or(IpAddr::V6(address)));
    }
    if text.len() > LONGEST_V4 {
        return None;
    }
    let address: Ipv4Addr = without_zeros(text, '.').parse().ok()?;
    Some(IpAddr::V4(address))
}

/// Removes the leading zeros of each number.
fn without_zeros(text: &str, between: char) -> String {
    let numbers = text.split(between).map(|number| {
        let rest = number.trim_start_matches('0');
        if rest.is_empty() && !number.is_empty() {
            return "0";
        }
        rest
    });
    numbers.collect::<Vec<_>>().join(&between.to_string())
}

/// A network such as `10.0.0.0/24`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Network {
    address: IpAddr,
    bits: u32,
}

impl Network {
    /// Parses a network. AWS does not accept a network of one address.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (address, bits) = text.split_once('/')?;
        let (address, bits) = (parse(address)?, bits.parse().ok()?);
        let is_network = bits < width(address);
        is_network.then_some(Self { address, bits })
    }

    pub(super) fn contains(self, address: IpAddr) -> bool {
        let (network, address) = (self.address, address);
        if network.is_ipv4() != address.is_ipv4() {
            return false;
        }
        let beyond = width(network) - self.bits;
        number(network).checked_shr(beyond) == number(address).checked_shr(beyond)
    }
}

fn width(address: IpAddr) -> u32 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}
