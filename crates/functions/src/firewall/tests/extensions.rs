//! Extension headers between the IPv6 header and its payload.

use braid_testkit::Frame;

use super::conditions::{SEEN, Seen, fits};
use super::rules::{PORTS, named, read_text};
use crate::firewall::conditions::fields::Field;

/// `ip6 nexthdr` is a byte of the first header, `meta l4proto` the protocol after all extension headers, as in the
/// kernel.
#[test]
fn the_header_behind_that_of_ipv6_is_none_of_those_behind_it() {
    let whole = Seen { v4: false, ..SEEN };
    let behind = |header| Seen { fields: SEEN.fields.with(Field::NextHeader, header), ..whole };
    for (condition, tcp, behind_options, behind_routing) in [
        ("ip6 nexthdr tcp", true, false, false),
        ("ip6 nexthdr 43", false, false, true),
        ("ip6 nexthdr { hopopt, ipv6-route, ipv6-frag, ipv6-opts }", false, true, true),
        ("ip6 nexthdr != tcp", false, true, true),
        ("ip6 nexthdr { tcp, ipv6-route } tcp dport 80", true, false, true),
        ("ip6 nexthdr != 43 meta l4proto tcp", true, true, false),
        ("meta l4proto tcp", true, true, true),
    ] {
        let seen = [whole, behind(0), behind(43)].map(|seen| fits(condition, seen));
        assert_eq!(seen, [tcp, behind_options, behind_routing], "{condition}");
        assert!(condition.starts_with("meta") || !fits(condition, SEEN), "{condition}: IPv4 has none");
    }
}

/// From frames: a routing header before a datagram, fragments, and an unfragmented datagram with a fragment header.
#[test]
fn headers_between_ipv6_and_its_datagram_are_seen_in_frames() {
    let rules = "ip6 nexthdr ipv6-route drop\nip6 nexthdr ipv6-frag reject\nip6 nexthdr udp accept";
    let decides = |header, extension: &[u8]| deciding(rules, header, extension);
    assert_eq!(decides(17, &[]), Some(3));
    assert_eq!(decides(43, &[17, 0, 0, 0, 0, 0, 0, 0]), Some(1));
    assert_eq!(decides(60, &[43, 0, 1, 4, 0, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0, 0]), None, "behind others");
    assert_eq!(decides(44, &[17, 0, 0, 0, 0, 0, 0, 7]), Some(3), "the kernel takes the header of a whole one out, too");
    assert_eq!(decides(44, &[17, 0, 0, 1, 0, 0, 0, 7]), Some(3), "as when it has been put together");
}

#[test]
fn any_extension_header_may_be_asked_for() {
    let rules = "rt type 0 drop\nexthdr rt exists reject\nexthdr frag exists drop\nexthdr hbh missing exthdr dst 1 accept\nrt type != 0 drop";
    let decides = |header, extension: &[u8]| deciding(rules, header, extension);
    const ROUTING: [u8; 8] = [17, 0, 0, 0, 0, 0, 0, 0];
    const OTHER_ROUTING: [u8; 8] = [17, 0, 4, 0, 0, 0, 0, 0];
    const OPTIONS: [u8; 8] = [17, 0, 1, 4, 0, 0, 0, 0];
    let behind = |number: u8, last: [u8; 8]| [[number, 0, 1, 4, 0, 0, 0, 0], last].concat();
    assert_eq!(decides(17, &[]), None, "none of them, and no type either");
    assert_eq!(decides(43, &ROUTING), Some(1));
    assert_eq!(decides(43, &OTHER_ROUTING), Some(2));
    assert_eq!(decides(60, &behind(43, ROUTING)), Some(1), "behind others");
    assert_eq!(decides(0, &behind(43, OTHER_ROUTING)), Some(2));
    assert_eq!(decides(44, &[17, 0, 0, 0, 0, 0, 0, 7]), None);
    assert_eq!(decides(44, &[17, 0, 0, 1, 0, 0, 0, 7]), None, "as when it has been put together");
    assert_eq!(decides(60, &OPTIONS), Some(4));
    assert_eq!(decides(0, &behind(60, OPTIONS)), None);
    assert!(!fits("exthdr hbh missing", SEEN) && !fits("rt type != 0", SEEN), "of IPv6 alone");
    for (text, reason) in [
        ("exthdr ah exists accept", "`ah` is no extension header"),
        ("exthdr rt 7 accept", "`7` is nothing that an extension header is asked for"),
        ("rt seg-left > 0 drop", "only the type of a routing header is looked at"),
        ("rt nexthop 10.0.0.1 drop", "`rt` is no condition here"),
    ] {
        let error = read_text(text, &mut named(), PORTS).expect_err("no such condition");
        assert!(error.reason.contains(reason), "{error}");
    }
}

/// The line that decides about a datagram after an extension header with this number.
fn deciding(rules: &str, header: u8, extension: &[u8]) -> Option<usize> {
    let mut config = named();
    read_text(rules, &mut config, PORTS).expect("rules");
    let mut bytes = Frame::udp("[2001:db8::1]:5", "[2001:db8::2]:6").payload(b"hello").bytes();
    bytes.splice(54..54, extension.iter().copied());
    if !extension.is_empty() {
        bytes[20] = header;
        bytes[19] += extension.len() as u8;
    }
    let page = crate::firewall::explain(config, 2, (0, &bytes), crate::firewall::When::Utc(0)).expect("a packet");
    (1..=5).find(|line| page.contains(&format!("line {line} of the rule file decides")))
}
