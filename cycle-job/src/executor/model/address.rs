//! Which addresses the agent's own requests may reach.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// True for an address of the public internet. Everything that may be a machine, a pod, a metadata
/// service or a router near us is not: private, loopback, link-local, shared, multicast, documentation
/// and reserved ranges, and every IPv6 form that carries an IPv4 address (mapped, compatible, NAT64,
/// 6to4, Teredo), whatever that address is.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    !(address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_broadcast()
        || address.is_documentation()
        || a == 0
        // 100.64/10: shared by providers, and used by cloud metadata services and cluster networks.
        || (a == 100 && (64..128).contains(&b))
        // 192.0.0/24 (protocols), 192.88.99/24 (6to4 relays).
        || (a == 192 && b == 0 && c == 0)
        || (a == 192 && b == 88 && c == 99)
        // 198.18/15: benchmarks.
        || (a == 198 && (b == 18 || b == 19))
        || a >= 240)
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let [a, b, ..] = address.segments();
    // Only 2000::/3 is handed out as global unicast; that excludes ::1, mapped, compatible, NAT64
    // (64:ff9b::/96 and 64:ff9b:1::/48), fc00::/7, fe80::/10 and ff00::/8 at once.
    (0x2000..0x4000).contains(&a)
        // 2001::/23: Teredo, benchmarks, ORCHID and other protocols.
        && !(a == 0x2001 && b < 0x0200)
        // 2001:db8::/32 and 3fff::/20: documentation.
        && !(a == 0x2001 && b == 0x0db8)
        && !(a == 0x3fff && b < 0x1000)
        // 2002::/16: 6to4.
        && a != 0x2002
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_addresses_are_not_public_in_any_form() {
        for text in [
            "127.0.0.1",
            "127.9.9.9",
            "0.0.0.0",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "100.100.100.200",
            "192.0.0.192",
            "198.18.0.1",
            "203.0.113.7",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:8.8.8.8",
            "::10.0.0.1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "ff02::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "3fff::1",
            "fec0::1",
        ] {
            assert!(!is_public(text.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn the_internet_is_public() {
        for text in [
            "8.8.8.8",
            "1.1.1.1",
            "100.128.0.1",
            "172.32.0.1",
            "192.0.1.1",
            "2606:4700::1111",
            "2a00:1450::1",
            "2001:4860:4860::8888",
        ] {
            assert!(is_public(text.parse().unwrap()), "{text}");
        }
    }
}
