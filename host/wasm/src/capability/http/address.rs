//! Decides which IP addresses are public and which are private: loopback, private networks, a
//! cloud's metadata. Pure.

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The addresses that are not public (IANA special-purpose address registries for IPv4 and IPv6,
/// RFC 6890; RFC 3879 for site-local addresses). An address that embeds an IPv4 address is first
/// reduced to that.
const OWN_V4: [(Ipv4Addr, u8); 16] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    (Ipv4Addr::new(240, 0, 0, 0), 4),
    (Ipv4Addr::BROADCAST, 32),
];
const OWN_V6: [(Ipv6Addr, u8); 8] = [
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10),
    (Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0), 10),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8),
];
/// The block that contains all public IPv6 addresses.
const GLOBAL_V6: (Ipv6Addr, u8) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);
/// The prefix of IPv4 addresses embedded in IPv6 addresses for a translator (RFC 6052); the last
/// four bytes are the IPv4 address.
const TRANSLATED: (Ipv6Addr, u8) = (Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96);

/// Whether the address is public.
pub(super) fn is_public(address: IpAddr) -> bool {
    match plain(address) {
        IpAddr::V4(address) => own_v4(address).is_none(),
        IpAddr::V6(address) => net_v6(GLOBAL_V6).contains(&address) && own_v6(address).is_none(),
    }
}

/// Whether a network in the grant covers this address. It covers a private address only if it
/// contains no addresses of another kind: `0.0.0.0/0` covers everything public and no metadata
/// service.
pub(super) fn is_named_by(network: IpNet, address: IpAddr) -> bool {
    let address = plain(address);
    network.contains(&address)
        && (is_public(address)
            || network.prefix_len() == network.max_prefix_len()
            || own(address).is_some_and(|own| own.contains(&network)))
}

/// Returns the IPv4 address that is embedded in forms like `::ffff:127.0.0.1` and
/// `64:ff9b::7f00:1`, otherwise the address itself.
pub(super) fn plain(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(long) if net_v6(TRANSLATED).contains(&long) => {
            let [.., a, b, c, d] = long.octets();
            Ipv4Addr::new(a, b, c, d).into()
        }
        address => address,
    }
}

fn own(address: IpAddr) -> Option<IpNet> {
    match address {
        IpAddr::V4(address) => own_v4(address).map(IpNet::V4),
        IpAddr::V6(address) => own_v6(address).map(IpNet::V6),
    }
}

fn own_v4(address: Ipv4Addr) -> Option<Ipv4Net> {
    let nets = OWN_V4.iter().map(|(net, length)| net_v4((*net, *length)));
    nets.into_iter().find(|net| net.contains(&address))
}

fn own_v6(address: Ipv6Addr) -> Option<Ipv6Net> {
    let nets = OWN_V6.iter().map(|(net, length)| net_v6((*net, *length)));
    nets.into_iter().find(|net| net.contains(&address))
}

fn net_v4((net, length): (Ipv4Addr, u8)) -> Ipv4Net {
    Ipv4Net::new(net, length).expect("lengths are at most 32")
}

fn net_v6((net, length): (Ipv6Addr, u8)) -> Ipv6Net {
    Ipv6Net::new(net, length).expect("lengths are at most 128")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect(text)
    }

    #[test]
    fn private_addresses_are_not_public() {
        for own in [
            "0.0.0.0",
            "0.1.2.3",
            "10.255.255.255",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.255",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.170",
            "192.168.1.1",
            "198.19.255.255",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::10.0.0.1",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "3fff::1",
            "5f00::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!is_public(ip(own)), "{own}");
        }
        for public in [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "169.253.255.255",
            "172.15.255.255",
            "172.32.0.0",
            "192.169.0.0",
            "223.255.255.255",
            "::ffff:1.1.1.1",
            "64:ff9b::1.1.1.1",
            "2606:4700::1111",
            "2a00:1450::1",
        ] {
            assert!(is_public(ip(public)), "{public}");
        }
    }

    #[test]
    fn private_networks_are_named_in_their_own_family() {
        for (network, address, named) in [
            ("10.0.0.0/8", "10.1.2.3", true),
            ("10.1.0.0/16", "10.1.2.3", true),
            ("10.1.0.0/16", "10.2.2.3", false),
            ("10.1.2.3/32", "10.1.2.3", true),
            ("127.0.0.1/32", "::ffff:127.0.0.1", true),
            ("169.254.169.254/32", "169.254.169.254", true),
            ("0.0.0.0/0", "1.1.1.1", true),
            ("0.0.0.0/0", "169.254.169.254", false),
            ("8.0.0.0/5", "10.1.2.3", false),
            ("fd00::/8", "fd00::7", true),
            ("::/0", "fd00::7", false),
            ("::/0", "2606:4700::1111", true),
            ("::1/128", "::1", true),
            ("::/0", "::1", false),
            ("::/0", "127.0.0.1", false),
        ] {
            let network = network.parse().expect(network);
            assert_eq!(
                is_named_by(network, ip(address)),
                named,
                "{network} {address}"
            );
        }
    }

    proptest! {
        /// The forms that carry an address of IPv4 never say more than it does.
        #[test]
        fn ipv6_address_that_embeds_ipv4_is_judged_by_it(bits: u32) {
            let four = Ipv4Addr::from_bits(bits);
            let public = is_public(four.into());
            prop_assert_eq!(is_public(four.to_ipv6_mapped().into()), public);
            let [a, b] = [(bits >> 16) as u16, (bits & 0xffff) as u16];
            let translated = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, a, b);
            prop_assert_eq!(is_public(translated.into()), public);
            // Beside std's own words, as far as it has them on stable Rust.
            if four.is_private() || four.is_loopback() || four.is_link_local()
                || four.is_multicast() || four.is_unspecified() || four.is_broadcast()
                || four.is_documentation()
            {
                prop_assert!(!public);
            }
        }

        #[test]
        fn private_ipv6_addresses_are_not_public(bits: u128) {
            let six = Ipv6Addr::from_bits(bits);
            if six.is_loopback() || six.is_unique_local() || six.is_unicast_link_local()
                || six.is_multicast() || six.is_unspecified()
            {
                prop_assert!(!is_public(six.into()));
            }
        }
    }
}
