//! What ports are for besides their VLANs. The scenarios `isolated_ports` and `ports_to_which_nothing_is_flooded` have the rest.

use super::*;

#[test]
fn isolated_ports_send_to_others_only() {
    let config = "[[port]]\nport = 0\nisolated = true\n[[port]]\nport = 1\nisolated = true";
    check(
        config,
        &[
            (0, 0, A, BROADCAST, &[2, 3]),
            (1, 1, B, BROADCAST, &[2, 3]),
            // Known, and not to be reached; again, as a known pair.
            (2, 0, A, B, &[]),
            (3, 0, A, B, &[]),
            (4, 2, C, A, &[0]),
            (5, 0, A, C, &[2]),
            (6, 2, C, BROADCAST, &[0, 1, 3]),
            // A station that moves away from an isolated port can be reached at once.
            (7, 3, B, BROADCAST, &[0, 1, 2]),
            (8, 0, A, B, &[3]),
        ],
    );
}

#[test]
fn where_nobody_is_learnt_stations_stay_unknown_and_move_no_other() {
    check(
        "[[port]]\nport = 0\nlearning = false",
        &[
            (0, 0, A, BROADCAST, &[1, 2, 3]),
            (1, 1, B, A, &[0, 2, 3]),
            (2, 0, A, B, &[1]),
            (3, 1, B, A, &[0, 2, 3]),
            (4, 2, A, B, &[1]),
            // It is known at port 2, whatever port 0 says.
            (5, 0, A, B, &[1]),
            (6, 1, B, A, &[2]),
            (7, 0, A, B, &[1]),
            (2000, 0, A, B, &[1]),
            (2001, 1, B, A, &[2]),
        ],
    );
}

#[test]
fn what_is_flooded_depends_on_what_it_is_and_where_it_goes() {
    let config = "[[port]]\nport = 1\nflood = false\n[[port]]\nport = 2\nmcast_flood = false\n[[port]]\nport = 3\nbcast_flood = false";
    check(
        config,
        &[(0, 0, A, B, &[2, 3]), (1, 0, A, MULTICAST, &[1, 3]), (2, 0, A, BROADCAST, &[1, 2]), (3, 0, A, B, &[2, 3])],
    );
}

#[test]
fn a_port_as_usual_filters_no_vlans() {
    let mut bench = bench(1000, "[[port]]\nport = 0\nisolated = false");
    assert_eq!(bench.send(0, 0, &tagged(7, A, B)).ports(), flood(0));
}
