//! The client at the other end of a connection, where proxies stand between: the rightmost address that nobody of ours
//! wrote.

use std::future::ready;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use http::HeaderName;
use http::header::{FORWARDED, HeaderMap};
use http::request::Parts;
use ipnet::IpNet;

use crate::ConfigError;
use crate::who::{Answer, Subject, Who};

/// The address of the client.
///
/// It begins at the peer of the socket. Where that is a proxy of ours, the header is read from its end, all lines of it
/// together: addresses of our proxies are passed over, the first other one is the client. An entry that does not parse
/// ends the reading, and the last good address counts. The header of a peer that is no proxy of ours is not looked at,
/// since anybody can send one.
///
/// An IPv4 address counts by itself, also where it is written as an IPv6 one (`::ffff:192.0.2.1`); of an IPv6 address the
/// first 56 bits, since a subscriber has at least that many to choose from. The key says so:
/// `ip:192.0.2.1`, `ip:2001:db8:1:200::/56`.
///
/// ```
/// use tallygate_tower::ClientAddress;
/// let direct = ClientAddress::of_peer();
/// let behind = ClientAddress::behind(["10.0.0.0/8", "2001:db8:ff::/48"])?;
/// # let _ = (direct, behind);
/// # Ok::<(), tallygate_tower::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
pub struct ClientAddress {
    proxies: Proxies,
    header: HeaderName,
    v6_prefix: u8,
}

/// The writers of the header that we believe.
#[derive(Clone, Debug)]
enum Proxies {
    None,
    Networks(Vec<IpNet>),
    Hops(usize),
}

/// The peer of a connection, for servers that do not tell it as axum does: an extension of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub SocketAddr);

impl ClientAddress {
    /// The peer of the socket: nothing stands between.
    pub fn of_peer() -> Self {
        Self { proxies: Proxies::None, header: HeaderName::from_static("x-forwarded-for"), v6_prefix: 56 }
    }

    /// Behind proxies in these networks, which write `X-Forwarded-For`.
    ///
    /// # Errors
    /// One of them is no network.
    pub fn behind<'n>(networks: impl IntoIterator<Item = &'n str>) -> Result<Self, ConfigError> {
        let network = |text: &str| {
            let alone = || text.parse().map(|address: IpAddr| IpNet::from(address.to_canonical()));
            text.parse::<IpNet>().or_else(|_| alone()).map_err(|_| {
                ConfigError::new(format!(
                    "{text:?} is no network; write an address and its prefix, as 10.0.0.0/8"
                ))
            })
        };
        let networks = networks.into_iter().map(network).collect::<Result<_, _>>()?;
        Ok(Self { proxies: Proxies::Networks(networks), ..Self::of_peer() })
    }

    /// Behind so many proxies, the peer included, each of which appends one address to `X-Forwarded-For`; for those
    /// whose addresses are not known. A client that reaches the service past them can choose an address.
    pub fn behind_hops(hops: usize) -> Self {
        Self { proxies: Proxies::Hops(hops), ..Self::of_peer() }
    }

    /// The proxies write this header instead: a list of addresses, or `Forwarded` with the syntax of RFC 7239.
    #[must_use]
    pub fn header(mut self, header: HeaderName) -> Self {
        self.header = header;
        self
    }

    /// Sets the number of bits of an IPv6 address that count: 1 to 128, 56 by itself.
    ///
    /// # Errors
    /// It is out of range.
    pub fn v6_prefix(mut self, bits: u8) -> Result<Self, ConfigError> {
        if !(1..=128).contains(&bits) {
            return Err(ConfigError::new(format!(
                "an IPv6 prefix of {bits} bits is out of range; use 1 to 128"
            )));
        }
        self.v6_prefix = bits;
        Ok(self)
    }

    /// The address of the client, by its peer and the header of its request.
    pub fn find(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let mut client = peer.to_canonical();
        let mut passed = 0;
        let mut entries = entries(headers, &self.header);
        loop {
            let is_ours = match &self.proxies {
                Proxies::None => false,
                Proxies::Networks(networks) => networks.iter().any(|network| network.contains(&client)),
                Proxies::Hops(hops) => passed < *hops,
            };
            let Some(Some(before)) = is_ours.then(|| entries.next()).flatten() else { return client };
            client = before;
            passed += 1;
        }
    }

    /// The address of whoever sent this; None where the server does not tell the peer.
    #[cfg(feature = "region")]
    pub(crate) fn of(&self, parts: &Parts) -> Option<IpAddr> {
        peer(parts).map(|peer| self.find(peer.ip(), &parts.headers))
    }

    /// The key of the client's bucket, by its peer and the header of its request: for checks that a handler asks itself.
    pub fn key(&self, peer: IpAddr, headers: &HeaderMap) -> String {
        match self.find(peer, headers) {
            IpAddr::V4(address) => format!("ip:{address}"),
            IpAddr::V6(address) => {
                let host = 128 - u32::from(self.v6_prefix);
                let network = u128::from(address).checked_shr(host).unwrap_or(0) << host;
                format!("ip:{}/{}", Ipv6Addr::from(network), self.v6_prefix)
            }
        }
    }
}

impl Who for ClientAddress {
    fn who<'p>(&'p self, parts: &'p Parts) -> Answer<'p> {
        let key = peer(parts).map(|peer| Subject::Key(self.key(peer.ip(), &parts.headers)));
        Box::pin(ready(key.unwrap_or(Subject::Nobody)))
    }
}

fn peer(parts: &Parts) -> Option<SocketAddr> {
    #[cfg(feature = "axum")]
    if let Some(info) = parts.extensions.get::<axum::extract::ConnectInfo<SocketAddr>>() {
        return Some(info.0);
    }
    parts.extensions.get::<Peer>().map(|peer| peer.0)
}

/// The addresses that proxies wrote, from the last to the first; None where it is no address.
fn entries<'h>(headers: &'h HeaderMap, name: &'h HeaderName) -> impl Iterator<Item = Option<IpAddr>> + 'h {
    let is_forwarded = name == FORWARDED;
    let lines: Vec<_> = headers.get_all(name).iter().collect();
    lines.into_iter().rev().flat_map(move |line| {
        let text = line.to_str().unwrap_or("?");
        text.rsplit(',').map(move |entry| if is_forwarded { forwarded(entry) } else { address(entry.trim()) })
    })
}

/// The one `for` of an element of RFC 7239. A part of another element, since its comma stands in quotes, has a quote
/// without another, and says nothing.
fn forwarded(element: &str) -> Option<IpAddr> {
    let mut found = None;
    for pair in element.split(';') {
        let (name, value) = pair.split_once('=')?;
        let value = value.trim();
        let bare = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(value);
        if bare.contains('"') {
            return None;
        }
        // Twice is a riddle.
        if name.trim().eq_ignore_ascii_case("for") && found.replace(address(bare)?).is_some() {
            return None;
        }
    }
    found
}

/// An address, with or without a port: `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]:80`, `fe80::1%eth0`.
fn address(text: &str) -> Option<IpAddr> {
    let without_zone = |text: &str| {
        let (address, zone) = text.split_once('%').unwrap_or((text, "0"));
        address.parse::<Ipv6Addr>().ok().filter(|_| !zone.is_empty()).map(IpAddr::V6)
    };
    let found = if let Some(rest) = text.strip_prefix('[') {
        let (inside, port) = rest.split_once(']')?;
        let is_port =
            port.is_empty() || port.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok());
        without_zone(inside).filter(|_| is_port)
    } else {
        text.parse()
            .ok()
            .or_else(|| without_zone(text))
            .or_else(|| text.parse::<SocketAddr>().ok().map(|socket| socket.ip()))
    };
    found.map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn client(behind: &ClientAddress, peer: &str, lines: &[&str]) -> String {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(behind.header.clone(), HeaderValue::from_bytes(line.as_bytes()).unwrap());
        }
        behind.key(peer.parse().unwrap(), &headers)
    }

    /// Each row is a hole that some limiter has.
    #[test]
    fn nobody_chooses_an_address() {
        let ours = ClientAddress::behind(["10.0.0.0/8", "2001:db8:ff::/48", "192.0.2.250"]).unwrap();
        let hops = ClientAddress::behind_hops(2);
        let forwarded = ours.clone().header(FORWARDED);
        let direct = ClientAddress::of_peer();
        for (by, peer, lines, expected) in [
            // A header of whoever is no proxy of ours is nothing.
            (&direct, "203.0.113.9", &["198.51.100.1"][..], "ip:203.0.113.9"),
            (&ours, "203.0.113.9", &["198.51.100.1"], "ip:203.0.113.9"),
            (&hops, "203.0.113.9", &[], "ip:203.0.113.9"),
            // The leftmost is what the client wrote; the rightmost what our proxy did.
            (&ours, "10.0.0.1", &["198.51.100.1, 203.0.113.9"], "ip:203.0.113.9"),
            (&hops, "10.0.0.1", &["198.51.100.1, 203.0.113.9, 10.0.0.2"], "ip:203.0.113.9"),
            // Lines of one header are one list: who reads the first or the last alone is led astray.
            (&ours, "10.0.0.1", &["198.51.100.1", "203.0.113.9", "10.0.0.2, 10.0.0.3"], "ip:203.0.113.9"),
            // An entry that does not parse is not passed over to what the client wrote behind it.
            (&ours, "10.0.0.1", &["198.51.100.1, unknown, 10.0.0.2"], "ip:10.0.0.2"),
            (&ours, "10.0.0.1", &["198.51.100.1, , 10.0.0.2"], "ip:10.0.0.2"),
            (&ours, "10.0.0.1", &["198.51.100.1, 203.0.113.9 x"], "ip:10.0.0.1"),
            (&ours, "10.0.0.1", &[""], "ip:10.0.0.1"),
            (&ours, "10.0.0.1", &["198.51.100.1,\u{e9}"], "ip:10.0.0.1"),
            // Nobody but proxies of ours: the first of them.
            (&ours, "10.0.0.1", &["10.0.0.7, 10.0.0.8"], "ip:10.0.0.7"),
            (&ours, "192.0.2.250", &["203.0.113.9"], "ip:203.0.113.9"),
            // One address has one key, however it is written.
            (&ours, "::ffff:10.0.0.1", &["::ffff:203.0.113.9"], "ip:203.0.113.9"),
            (&ours, "10.0.0.1", &["203.0.113.9:4711"], "ip:203.0.113.9"),
            (&ours, "10.0.0.1", &["[2001:db8:1:2ff::1]:443"], "ip:2001:db8:1:200::/56"),
            (&ours, "10.0.0.1", &["2001:DB8:1:200:0:0:0:1"], "ip:2001:db8:1:200::/56"),
            (&ours, "10.0.0.1", &["fe80::1%eth0"], "ip:fe80::/56"),
            (&ours, "2001:db8:ff::1", &["203.0.113.9"], "ip:203.0.113.9"),
            (&ours, "10.0.0.1", &["0x7f.1"], "ip:10.0.0.1"),
            (&ours, "10.0.0.1", &["203.0.113.009"], "ip:10.0.0.1"),
            (&ours, "10.0.0.1", &["[203.0.113.9]"], "ip:10.0.0.1"),
            (&ours, "10.0.0.1", &["[2001:db8::1]x"], "ip:10.0.0.1"),
            (&ours, "10.0.0.1", &["[2001:db8::1"], "ip:10.0.0.1"),
            // RFC 7239.
            (&forwarded, "10.0.0.1", &["for=198.51.100.1, for=203.0.113.9;proto=https"], "ip:203.0.113.9"),
            (&forwarded, "10.0.0.1", &["For=\"[2001:db8:1:2ff::1]:443\""], "ip:2001:db8:1:200::/56"),
            (&forwarded, "10.0.0.1", &["for=198.51.100.1, for=_hidden, for=10.0.0.2"], "ip:10.0.0.2"),
            (&forwarded, "10.0.0.1", &["for=198.51.100.1, proto=https"], "ip:10.0.0.1"),
            (&forwarded, "10.0.0.1", &["for=198.51.100.1;for=203.0.113.9"], "ip:10.0.0.1"),
            (&forwarded, "10.0.0.1", &["for=\"203.0.113.9"], "ip:10.0.0.1"),
            (&forwarded, "10.0.0.1", &["by=\"a,for=198.51.100.1\""], "ip:10.0.0.1"),
            // A client chooses its Host, which a proxy may write too.
            (&forwarded, "10.0.0.1", &["for=203.0.113.9;host=\"a,for=198.51.100.1;x=\""], "ip:10.0.0.1"),
            (
                &forwarded,
                "10.0.0.1",
                &["for=203.0.113.9;host=\"a,for=198.51.100.1;x=\";proto=https"],
                "ip:10.0.0.1",
            ),
            (&forwarded, "10.0.0.1", &["for=203.0.113.9;host=\"a;for=198.51.100.1\""], "ip:10.0.0.1"),
        ] {
            assert_eq!(client(by, peer, lines), expected, "{peer} {lines:?} by {by:?}");
        }
    }

    #[test]
    fn prefixes_are_those_that_were_asked_for() {
        for (bits, expected) in
            [(128, "2001:db8:1:2ff::1"), (64, "2001:db8:1:2ff::"), (48, "2001:db8:1::"), (1, "::")]
        {
            let by = ClientAddress::of_peer().v6_prefix(bits).unwrap();
            assert_eq!(client(&by, "2001:db8:1:2ff::1", &[]), format!("ip:{expected}/{bits}"));
        }
        for bits in [0, 129] {
            assert!(ClientAddress::of_peer().v6_prefix(bits).is_err());
        }
        for wrong in ["", "10.0.0.0/33", "proxy", "10.0.0"] {
            assert!(ClientAddress::behind([wrong]).is_err(), "{wrong}");
        }
    }

    proptest! {
        #![proptest_config(crate::tests::cases())]

        /// An address that a client sends comes before what our proxy wrote behind it, and changes nothing.
        #[test]
        fn what_a_client_sends_changes_nothing(sent in proptest::collection::vec(".{0,40}|[0-9a-f:.,\\[\\]%\"=; ]{0,40}", 0..4)) {
            let ours = ClientAddress::behind(["10.0.0.0/8"]).unwrap();
            let mut headers = HeaderMap::new();
            for line in sent.iter().filter_map(|line| HeaderValue::from_str(line).ok()) {
                headers.append(ours.header.clone(), line);
            }
            headers.append(ours.header.clone(), HeaderValue::from_static("203.0.113.9, 10.0.0.2"));
            let found = ours.find([10, 0, 0, 1].into(), &headers);
            prop_assert_eq!(found, IpAddr::from([203, 0, 113, 9]));
        }

        /// An address is read as it is written.
        #[test]
        fn an_address_is_read_as_it_is_written(bits: u128, port: u16) {
            let v6 = IpAddr::from(Ipv6Addr::from(bits)).to_canonical();
            prop_assert_eq!(address(&v6.to_string()), Some(v6));
            prop_assert_eq!(address(&SocketAddr::new(v6, port).to_string()), Some(v6));
        }
    }
}
