//! Makes flows end while others begin, indefinitely: with each pass over a trace, a share of its flows continues under other ports
//! or addresses, and the former flows fall silent.

use braid_control::plan::file::{PlanFile, unplaced};
use braid_control::runtime::io::Renewal;
use braid_control::runtime::nf::packet::checksum::Change;

/// Step between source ports of a flow: odd, so that all ports are used in turn, and large, because
/// adjacent ports belong to other flows of the client.
const PORT_STEP: u16 = 4099;
/// Number of flows whose packets all arrive within a second on a slow machine.
const FLOWS_PER_S: u64 = 1_000_000;
/// Number of flows that begin while the last ones are being forgotten.
const BEGUN: u64 = 4_000_000;
/// How much longer than its last flow a NAT mapping may remain.
const NAT_REFRESH_MS: i64 = 100;
/// Minimum ageing time of a bridge's stations.
const AGEING_S: u64 = 10;

/// The renewal of a share of a chain's flows with each pass: of stations if the chain contains a bridge, else of client ports.
pub fn renewal(chain: &str, share: f64) -> Renewal {
    let every = (1.0 / share).round() as u32;
    match chain.contains("bridge") {
        true => Renewal { every, together: 2, rewrite: rename_stations },
        false => Renewal { every, together: 1, rewrite: change_port },
    }
}

/// Number of flows that are remembered with `flows` flows at a time: as many silent ones as begin in a few seconds are added.
pub fn remembered(flows: u64) -> u64 {
    flows * 2 + BEGUN
}

/// How long functions remember a silent flow, in seconds. Among this many flows, none is silent for so long before it ends.
pub fn silent_s(flows: u64) -> u64 {
    1 + flows / FLOWS_PER_S
}

/// Makes functions forget silent flows soon, and evict the oldest ones from full tables.
pub fn forget_soon(file: &mut PlanFile, flows: u64) {
    let silent_s = silent_s(flows);
    for nf in &mut file.nf {
        let keys: &[&str] = match nf.function.get_ref().as_str() {
            "flow_counter" | "rate_limiter" => &["idle_timeout_s"],
            "load_balancer" | "nat" => &["udp_s"],
            "firewall" => &["udp_s", "udp_unanswered_s"],
            "bridge" => &["ageing_s"],
            _ => &[],
        };
        for key in keys {
            let time_s = if *key == "ageing_s" { silent_s.max(AGEING_S) } else { silent_s };
            nf.config.set(key, toml::Value::Integer(time_s as i64));
        }
        if nf.function.get_ref() == "nat" {
            // An ended session must release its port at once, or new flows find no free ports.
            nf.config.set("rest_s", toml::Value::Integer(0));
            // A mapping must not outlive its flow either, so that sessions need no more room than sets.
            nf.config.set("refresh_ms", toml::Value::Integer(NAT_REFRESH_MS));
        }
        nf.full.get_or_insert(unplaced("evict_oldest".to_owned()));
    }
}

/// Changes the source port of an IPv4 UDP packet on Ethernet, and updates its checksum (RFC 1624). A port
/// repeats for a flow only after all others have been used.
fn change_port(frame: &mut [u8; 64], _: u64) {
    const ETHERNET_IPV4: [u8; 3] = [0x08, 0x00, 0x45];
    const SOURCE_PORT: usize = 34;
    const CHECKSUM: usize = 40;
    if frame[12..15] != ETHERNET_IPV4 {
        return;
    }
    let word = |frame: &[u8; 64], at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let before = word(frame, SOURCE_PORT);
    let after = match before.wrapping_add(PORT_STEP) {
        // Port 0 is not used as a source.
        0 => PORT_STEP,
        port => port,
    };
    frame[SOURCE_PORT..SOURCE_PORT + 2].copy_from_slice(&after.to_be_bytes());
    let sum = Change::NONE.u16(before, after).apply_udp(word(frame, CHECKSUM));
    frame[CHECKSUM..CHECKSUM + 2].copy_from_slice(&sum.to_be_bytes());
}

/// Renames both stations of a frame, identically in both directions. In generated addresses the second byte
/// and the highest bits of the first byte are free.
fn rename_stations(frame: &mut [u8; 64], round: u64) {
    for station in [0, 6] {
        frame[station] = frame[station] & 0x07 | ((round >> 8) as u8) << 3;
        frame[station + 1] = round as u8;
    }
}

#[cfg(test)]
mod tests {
    use braid_testkit::{Frame, check_checksums};

    use super::*;

    fn line(bytes: &[u8]) -> [u8; 64] {
        let mut line = [0; 64];
        line[..bytes.len()].copy_from_slice(bytes);
        line
    }

    #[test]
    fn a_packet_from_another_port_is_whole() {
        let bytes = Frame::udp("10.1.2.3:4000", "198.18.0.1:80").payload(b"what it says").bytes();
        let (mut changed, mut seen) = (line(&bytes), std::collections::BTreeSet::new());
        for round in 1..=65_000 {
            change_port(&mut changed, round);
            assert_eq!(check_checksums(&changed[..bytes.len()]), Ok(()));
            assert!(seen.insert(changed[34..36].to_vec()), "round {round}");
        }
        assert!(!seen.contains(&vec![0, 0]));
        let mut arp = line(&bytes);
        arp[12..14].copy_from_slice(&[8, 6]);
        let before = arp;
        change_port(&mut arp, 13);
        assert_eq!(arp, before);
    }

    #[test]
    fn a_reply_goes_to_the_station_that_asked_under_its_new_name() {
        let bytes = Frame::udp("10.1.2.3:4000", "198.18.0.1:80").bytes();
        let mut asked = line(&bytes);
        let mut reply = line(&bytes);
        reply[..12].rotate_left(6);
        rename_stations(&mut asked, 3);
        rename_stations(&mut reply, 3);
        assert_eq!((&asked[..6], &asked[6..12]), (&reply[6..12], &reply[..6]));
        assert_ne!(asked[6..12], bytes[6..12]);
    }
}
