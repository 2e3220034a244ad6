//! Names of hosts as the manifest writes them, and addresses that no manifest opens.

use std::net::IpAddr;

use reqwest::Url;

/// Addresses that even `private: true` does not open: link-local (the clouds' metadata services), multicast,
/// and the unspecified address, which means this machine.
pub(super) fn is_never_reachable(address: IpAddr) -> bool {
    let v4 = match address {
        IpAddr::V4(v4) => Some(v4),
        IpAddr::V6(v6) => v6.to_ipv4_mapped(),
    };
    if let Some(v4) = v4 {
        return v4.is_link_local() || v4.is_multicast() || v4.is_unspecified() || v4.is_broadcast();
    }
    let IpAddr::V6(v6) = address else { return false };
    // fd00:ec2::/32 is where one cloud keeps its metadata service in IPv6; 64:ff9b::/32 reaches any IPv4.
    v6.is_unicast_link_local()
        || v6.is_multicast()
        || v6.is_unspecified()
        || v6.segments()[..2] == [0xfd00, 0x0ec2]
        || v6.segments()[..2] == [0x64, 0xff9b]
}

/// `pattern` is a name, an address or `*.name`. Both sides are brought to the form that URLs use.
pub(super) fn host_matches(pattern: &str, host: &str) -> bool {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    let (pattern, below) = match pattern.strip_prefix("*.") {
        Some(rest) => (rest, true),
        None => (pattern, false),
    };
    let Ok(pattern) = url::Host::parse(pattern.trim_end_matches('.')) else { return false };
    let pattern = pattern.to_string().to_ascii_lowercase();
    if below {
        host.strip_suffix(&pattern).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
    } else {
        host == pattern
    }
}

pub(super) fn secret_host_matches(pattern: &str, url: &Url) -> bool {
    let (host, port) = match pattern.rsplit_once(':').and_then(|(h, p)| Some((h, p.parse::<u16>().ok()?))) {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, port),
        _ => (pattern, 443),
    };
    url.port_or_known_default() == Some(port) && host_matches(host, url.host_str().unwrap_or_default())
}
