//! Tests that configurations that cannot work are refused, with what to write instead.

use super::*;

#[track_caller]
fn refuse(config: &str, expected: &str) {
    let error = crate::parse::<Config>(config.parse().unwrap()).and_then(|config| {
        config.times_ns()?;
        config.filter(4)?;
        config.checked_vlans(4)?;
        config.checked_stations(4)
    });
    assert_eq!(error.unwrap_err().to_string(), expected);
}

#[test]
fn impossible_configurations_are_refused() {
    refuse("ageing_s = 5", "`ageing_s`: 5 is out of range; write 10 to 1000000 seconds");
    refuse(
        "refresh_interval_ms = 301000",
        "`refresh_interval_ms`: 301000 is out of range; write 0 to 300000 milliseconds",
    );
    refuse(
        "[[static]]\nmac = '02:00:00:00:00:0a'\nport = 4",
        "`static[0].port`: the plan has no port 4; write a number from 0 to 3",
    );
    refuse(
        "[[static]]\nmac = 'printer'\nport = 1",
        "`static[0].mac`: `printer` is no Ethernet address; write six pairs of digits such as 02:00:00:00:00:01",
    );
    refuse(
        "[[static]]\nmac = '01:00:5e:00:00:01'\nport = 1",
        "`static[0].mac`: 01:00:5e:00:00:01 is a group address; write the address of one station",
    );
    refuse(
        "[[static]]\nmac = '00:00:00:00:00:00'\nport = 1",
        "`static[0].mac`: 00:00:00:00:00:00 is nobody's address; write the address of one station",
    );
    crate::parts::testing::refuse::refuse(
        "bridge",
        "snooping = { enabled = true, router_ports = [1, 9] }",
        "`snooping.router_ports`: the plan has no port 9; name ports of the plan",
    );
    for key in ["groups_max = 1024", "membership_s = 260", "unregistered = 'flood'"] {
        let wrong = "`snooping`: nothing says whether groups are looked at; write `enabled = true`, `enabled = false`, or nothing about snooping";
        crate::parts::testing::refuse::refuse("bridge", &format!("[snooping]\n{key}"), wrong);
    }
    refuse(
        "vlan_aware = false\n[[static]]\nmac = '02:00:00:00:00:0a'\nport = 1\nvlan = 5",
        "`static[0].vlan`: VLAN 5 is not possible; write 0 (untagged) to 4094, only 0 with `vlan_aware = false`, and not 0 beside VLANs \
         of a `[[port]]`",
    );
    refuse(
        "[[static]]\nmac = '02:00:00:00:00:0a'\nport = 1\nvlan = 5\n[[static]]\nmac = '02:00:00:00:00:0A'\nport = 2\nvlan = 5",
        "`static[1].mac`: 02:00:00:00:00:0a vlan 5 stands there twice; name it once: a station is at one port",
    );
    for (vlan, port) in [(7, 1), (1, 1), (5, 2)] {
        refuse(
            &format!(
                "[[port]]\nport = 1\naccess = 5\n[[static]]\nmac = '02:00:00:00:00:0a'\nport = {port}\nvlan = {vlan}"
            ),
            &format!(
                "`static[0].vlan`: port {port} does not carry VLAN {vlan}; write a VLAN of its `[[port]]`, or another port"
            ),
        );
    }
    refuse(
        "[[vlan]]\nid = 5\nstations_max = 7\n[[vlan]]\nid = 5\nstations_max = 8",
        "`vlan[1].id`: VLAN 5 stands there twice; say all of a VLAN in one place",
    );
    for (vlans, id) in [("vlan_aware = false", 5), ("[[port]]\nport = 1\naccess = 5", 0), ("", 4095)] {
        let wrong = format!(
            "`vlan[0].id`: VLAN {id} is not possible; write 0 (untagged) to 4094, only 0 with `vlan_aware = false`, and not 0 \
             beside VLANs of a `[[port]]`"
        );
        refuse(&format!("{vlans}\n[[vlan]]\nid = {id}\nstations_max = 7"), &wrong);
    }
    refuse(
        "[[port]]\nport = 1\naccess = 5\n[[vlan]]\nid = 6\nstations_max = 7",
        "`vlan[0].id`: no port carries VLAN 6; write a VLAN of a `[[port]]`, or leave it out",
    );
    refuse(
        "capacity = 100\n[[vlan]]\nid = 5\nstations_max = 101",
        "`vlan[0].stations_max`: the table has room for 100 of all VLANs; write at most 100, or a larger `capacity`",
    );
    refuse(
        "[[port]]\nport = 1",
        "`port[0].access`: port 1 is to be an access port or a trunk; write `access`, or `trunk` perhaps with `native`",
    );
    refuse("[[port]]\nport = 1\naccess = 4095", "`port[0].access`: there is no VLAN 4095; write 1 to 4094");
    refuse(
        "[[port]]\nport = 1\ntrunk = ['ten']",
        "`port[0].trunk`: `ten` is no VLAN; write a number or a range as in `20-29`",
    );
    refuse(
        "[[port]]\nport = 1\ntrunk = ['29-20']",
        "`port[0].trunk`: `29-20` ends before it begins; write a number or a range as in `20-29`",
    );
    for twice in ["[1, 1]", "['1-3', 3]"] {
        let text = format!("[[port]]\nport = 1\ntrunk = {twice}");
        let vlan = if twice.contains('3') { 3 } else { 1 };
        let wrong =
            format!("`port[0].trunk`: VLAN {vlan} stands there twice; name each VLAN once, alone or in a range");
        refuse(&text, &wrong);
    }
    refuse("[[port]]\nport = 1\ntrunk = [5000]", "`port[0].trunk`: there is no VLAN 5000; write 1 to 4094");
    refuse(
        "[[port]]\nport = 1\naccess = 10\n[[port]]\nport = 1\naccess = 20",
        "`port[1].port`: port 1 stands there twice; say all of a port in one place",
    );
    refuse(
        "vlan_aware = false\n[[port]]\nport = 1\naccess = 1",
        "`port`: this bridge knows no VLANs; leave it out, or write `vlan_aware = true`",
    );
}
