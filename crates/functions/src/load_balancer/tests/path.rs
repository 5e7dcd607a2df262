//! ICMP errors from routers between the balancer and its backends, about tunnelled packets.

use braid_testkit::{Bench, Frame, Outcome, assert_checksums};

use super::bench;

const MINUTE: u64 = 60_000;

/// Endpoints of one IP version: client and service, the tunnel's source, a router on the path, and the length of the
/// outer headers.
struct Family {
    client: &'static str,
    service: &'static str,
    router: &'static str,
    between: &'static str,
    overhead: usize,
}

const V4: Family = Family {
    client: "192.0.2.8:1031",
    service: "203.0.113.10:80",
    router: "192.0.2.254",
    between: "10.0.9.9",
    overhead: 20,
};
const V6: Family = Family {
    client: "[2001:db8:9::9]:1031",
    service: "[2001:db8::10]:80",
    router: "2001:db8::fe",
    between: "2001:db8:5::1",
    overhead: 40,
};
const MODES: [(&str, usize); 3] = [("ipip", 0), ("gre", 4), ("gue", 8)];

fn balancer(mode: &str) -> Bench {
    bench(&format!(
        "router = '192.0.2.254'\nrouter_v6 = '2001:db8::fe'
        [[service]]\naddress = '203.0.113.10'\nmode = '{mode}'\nbackends = [{{ address = '10.0.0.1' }}]
        [[service]]\naddress = '2001:db8::10'\nmode = '{mode}'\nbackends = [{{ address = '2001:db8:1::1' }}]"
    ))
}

impl Family {
    fn is_v4(&self) -> bool {
        self.overhead == 20
    }

    /// A segment from the client with `len` bytes of payload.
    fn segment(&self, len: usize) -> Frame {
        Frame::tcp(self.client, self.service).payload(&vec![7; len])
    }

    /// Sends a segment whose IP packet has `len` bytes.
    fn send(&self, lb: &mut Bench, ms: u64, len: usize) -> Outcome {
        lb.send(1, ms, &self.segment(len - self.overhead - 20).bytes())
    }

    /// The error that a router sends about a tunnelled frame, quoting `quoted` bytes of it.
    fn error(&self, (kind, code): (u8, u8), mtu: u16, tunnelled: &[u8], quoted: usize) -> Vec<u8> {
        let [high, low] = mtu.to_be_bytes();
        let ip = &tunnelled[14..];
        let quoted = &ip[..quoted.min(ip.len())];
        Frame::icmp(self.between, self.router, kind, code, [0, 0, high, low]).payload(quoted).bytes()
    }

    fn too_big(&self) -> (u8, u8) {
        if self.is_v4() { (3, 4) } else { (2, 0) }
    }

    /// Asserts that the balancer sends the client this error.
    #[track_caller]
    fn assert_told(&self, outcome: &Outcome, (kind, code): (u8, u8), mtu: usize) {
        let (port, told) = outcome.only();
        assert_checksums(told);
        let (addresses, at) = if self.is_v4() { (26..34, 34) } else { (22..54, 54) };
        let client = self.segment(0).bytes();
        let (own, to) = told[addresses.clone()].split_at(addresses.len() / 2);
        assert_eq!((port, to), (1, &client[addresses.start..][..addresses.len() / 2]), "to the client");
        let other = Frame::ip(self.router, self.router, 253).bytes();
        assert_eq!(own, &other[addresses.start..][..addresses.len() / 2], "from the tunnel's end");
        let says = (told[at], told[at + 1], usize::from(u16::from_be_bytes([told[at + 6], told[at + 7]])));
        assert_eq!(says, (kind, code, mtu));
        // The error quotes what the client has sent.
        let quoted = &told[at + 8..];
        assert_eq!(quoted[0] >> 4, if self.is_v4() { 4 } else { 6 });
        let ends = addresses.start - 14..addresses.end - 14;
        assert_eq!(quoted[ends.clone()], client[14..][ends]);
    }
}

#[test]
fn what_fits_on_the_way_is_told_and_known_for_ten_minutes() {
    for ((mode, between), family) in MODES.into_iter().flat_map(|mode| [(mode, V4), (mode, V6)]) {
        let (mut lb, overhead) = (balancer(mode), family.overhead + between);
        let tunnelled = family.send(&mut lb, 0, 1440).only().1.to_vec();
        let error = family.error(family.too_big(), 1420, &tunnelled, 500);
        family.assert_told(&lb.send(0, 1, &error), family.too_big(), 1420 - overhead);
        // From now on the balancer itself tells clients, and forwards packets that fit.
        let told = family.send(&mut lb, 2, 1421 - overhead);
        assert_eq!(told.dropped, Some("too_big"), "{mode}");
        family.assert_told(&told, family.too_big(), 1420 - overhead);
        assert_eq!(family.send(&mut lb, 3, 1420 - overhead).ports(), [0], "{mode}");
        // A smaller MTU takes effect at once; a larger one is ignored.
        family.assert_told(
            &lb.send(0, 4, &family.error(family.too_big(), 1400, &tunnelled, 500)),
            family.too_big(),
            1400 - overhead,
        );
        lb.send(0, 5, &family.error(family.too_big(), 1410, &tunnelled, 500));
        assert_eq!(family.send(&mut lb, 6, 1401 - overhead).dropped, Some("too_big"), "{mode}");
        assert_eq!(family.send(&mut lb, 10 * MINUTE, 1401 - overhead).dropped, Some("too_big"), "{mode}");
        assert_eq!(
            family.send(&mut lb, 10 * MINUTE + 5, 1420 - overhead).ports(),
            [0],
            "{mode}: the way may have changed"
        );
    }
}

#[test]
fn what_may_be_cut_is_cut_to_what_fits() {
    for (mode, _) in MODES {
        let mut lb = balancer(mode);
        let tunnelled = V4.send(&mut lb, 0, 1400).only().1.to_vec();
        lb.send(0, 1, &V4.error((3, 4), 1000, &tunnelled, 500));
        let sent = lb.send(1, 2, &V4.segment(1300).may_be_fragmented().bytes()).sent;
        assert_eq!(sent.len(), 2, "{mode}");
        assert!(sent.iter().all(|(port, piece)| *port == 0 && piece.len() <= 14 + 1000), "{mode}");
    }
}

#[test]
fn a_backend_that_is_not_reached_is_a_host_that_is_not() {
    // RFC 2003 sections 4.1 and 4.4: network, host and protocol unreachable, prohibited, and time exceeded.
    let v4 = [(3, 0), (3, 1), (3, 2), (3, 13), (11, 0)].map(|said| (V4, said, (3, 1)));
    let v6 = [(1, 0), (1, 3), (3, 0)].map(|said| (V6, said, (1, 3)));
    for ((mode, _), (family, said, told)) in
        MODES.into_iter().flat_map(|mode| v4.iter().chain(&v6).map(move |case| (mode, case)))
    {
        let mut lb = balancer(mode);
        let tunnelled = family.send(&mut lb, 0, 400).only().1.to_vec();
        family.assert_told(&lb.send(0, 1, &family.error(*said, 0, &tunnelled, 120)), *told, 0);
    }
}

#[test]
fn what_is_no_concern_of_a_client_ends_here() {
    for ((mode, between), family) in MODES.into_iter().flat_map(|mode| [(mode, V4), (mode, V6)]) {
        let (mut lb, overhead) = (balancer(mode), family.overhead + between);
        let tunnelled = family.send(&mut lb, 0, 1400).only().1.to_vec();
        let mut ends_here = |error: Vec<u8>, why: &str| {
            let outcome = lb.send(0, 1, &error);
            assert_eq!((outcome.dropped, outcome.sent.len()), (Some("error_about_tunnel"), 0), "{mode}: {why}");
        };
        // RFC 2003 sections 4.1 and 4.2, and reassembly timeouts at the far end.
        let others = if family.is_v4() { [(3, 5), (4, 0), (11, 1)] } else { [(3, 1), (4, 0), (4, 2)] };
        others.into_iter().for_each(|said| ends_here(family.error(said, 0, &tunnelled, 500), "no concern"));
        ends_here(family.error(family.too_big(), 1500, &tunnelled, 500), "it would have fit");
        // Too little is quoted to find the client, but the path MTU is learnt.
        ends_here(family.error(family.too_big(), 1400, &tunnelled, overhead + 4), "too little is quoted");
        assert_eq!(family.send(&mut lb, 2, 1401 - overhead).dropped, Some("too_big"), "{mode}");
        // An MTU below the minimum of every path is raised to it.
        lb.send(0, 3, &family.error(family.too_big(), 68, &tunnelled, 500));
        let least = if family.is_v4() { 576 - overhead } else { 1280 };
        assert_eq!(family.send(&mut lb, 4, least).ports(), [0], "{mode}");
        assert_eq!(family.send(&mut lb, 5, least + 1).dropped, Some("too_big"), "{mode}");
    }
    // A router that reports no MTU: the next lower plateau applies (RFC 1191 section 7).
    let mut lb = balancer("ipip");
    let tunnelled = V4.send(&mut lb, 0, 1400).only().1.to_vec();
    V4.assert_told(&lb.send(0, 1, &V4.error((3, 4), 0, &tunnelled, 500)), (3, 4), 1006 - 20);
}

#[test]
fn errors_about_errors_and_about_no_tunnel_change_nothing() {
    let mut lb = balancer("ipip");
    // A client's error about a service's reply is tunnelled to the backend; an error about that packet is not passed on.
    let answer = Frame::tcp(V4.service, V4.client).bytes();
    let tunnelled = lb.send(1, 0, &Frame::unreachable("198.18.0.9", "203.0.113.10", &answer).bytes()).only().1.to_vec();
    let outcome = lb.send(0, 1, &V4.error((3, 1), 0, &tunnelled, 500));
    assert_eq!((outcome.dropped, outcome.sent.len()), (Some("error_about_tunnel"), 0));
    // From the clients' side, to another address, or about another protocol: it passes unchanged.
    let tunnelled = V4.send(&mut lb, 2, 1400).only().1.to_vec();
    let error = V4.error((3, 4), 1000, &tunnelled, 500);
    assert_eq!(lb.send(1, 3, &error).ports(), [0]);
    let quoted = &tunnelled[14..500];
    let elsewhere = Frame::icmp("10.0.9.9", "192.0.2.253", 3, 4, [0, 0, 3, 232]).payload(quoted).bytes();
    assert_eq!(lb.send(0, 3, &elsewhere).ports(), [1]);
    let mut other = tunnelled.clone();
    other[14 + 9] = 47;
    assert_eq!(lb.send(0, 3, &V4.error((3, 4), 1000, &other, 500)).ports(), [1]);
    assert_eq!(V4.send(&mut lb, 4, 1400).ports(), [0], "nothing was learnt");
}
