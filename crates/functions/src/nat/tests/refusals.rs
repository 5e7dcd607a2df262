//! Configurations that cannot work, and what to write instead.

use super::*;

#[test]
fn configurations_that_cannot_work_are_refused_with_what_to_write() {
    check_error("inside = []", "`inside`: names no range; write");
    check_error("inside = ['fd00::/8']", "`inside`: fd00::/8 is not IPv4");
    check_error("external = []", "`external`: names no address; write");
    check_error("external = ['10.0.0.1']", "`external`: 10.0.0.1 lies in the inside range 10.0.0.0/8");
    check_error("external = ['192.0.2.1', '192.0.2.1']", "`external`: 192.0.2.1 stands there twice");
    check_error("first_port = 9000\nlast_port = 8000", "`first_port`: 9000 to 8000 is no range");
    check_error("external = ['10.0.0.0/24']", "`external`: 10.0.0.0 lies in the inside range 10.0.0.0/8");
    check_error("external = ['198.18.0.0/15']", "`external`: 198.18.0.0/15 makes more than 4096 addresses");
    check_error("external = ['2001:db8::1']", "`external`: 2001:db8::1/128 is not IPv4");
    check_error("allocation = 'blocks'\nblock_size = 0", "`block_size`: 0 makes no block; write 1 to 64512");
    check_error("allocation = 'blocks'\nblocks_per_host = 5", "`blocks_per_host`: 5 is out of range; write 1 to 4");
    check_error("allocation = 'deterministic'", "`block_size`: 22085632 inside addresses, but 126 blocks of 512 ports");
    for most in [0, 2_147_483_649, 4_294_967_296_u64] {
        let expected = format!("`mappings_max`: {most} is out of range; write 1 to 2147483648");
        check_error(&format!("mappings_max = {most}"), &expected);
    }
    check_error(
        "mappings_max = -1",
        "`mappings_max`: invalid value: integer `-1`; write a whole number that is not negative",
    );
    let fixed = |external: &str, inside: &str| {
        format!("static = [{{ protocol = 'tcp', external = '{external}', inside = '{inside}' }}]")
    };
    check_error(&fixed("198.51.100.2:80", "10.0.0.1:80"), "`static[0]`: 198.51.100.2 is no external address");
    check_error(
        &fixed("198.51.100.1:0", "10.0.0.1:80"),
        "`static[0]`: 198.51.100.1:0 has no port; write the port that is forwarded",
    );
    check_error(&fixed("198.51.100.1:8080", "9.0.0.1:80"), "`static[0]`: 9.0.0.1 is not inside");
    check_error(&fixed("198.51.100.1:8080", "10.0.0.1:0"), "`static[0]`: 10.0.0.1:0 has no port; write where");
    let end = "`static[0].external`: invalid IPv4 socket address syntax; write an address with its port, such as \"192.0.2.1:80\"";
    check_error(&fixed("198.51.100.1", "10.0.0.1:80"), end);
    let uneven =
        "`static[0]`: 198.51.100.1:5000-5100 has 101 ports, and 10.0.0.1:80 has 1; write as many on both sides";
    check_error(&fixed("198.51.100.1:5000-5100", "10.0.0.1:80"), uneven);
    let backwards = "`static[0].external`: `198.51.100.1:5100-5000` is no range of ports; write `192.0.2.1:5000-5100`";
    check_error(&fixed("198.51.100.1:5100-5000", "10.0.0.1:5000-5100"), backwards);
    let two = fixed("198.51.100.1:5000-5100", "10.0.0.1:5000-5100")
        .replace("}]", "}, { protocol = 'tcp', external = '198.51.100.1:5100', inside = '10.0.0.2:80' }]");
    check_error(&two, "`static[1]`: 198.51.100.1:5100 leads to another host already; write another port");
    let two = |external: &str| {
        let more = format!("}}, {{ protocol = 'tcp', external = '{external}', inside = '10.0.0.1:80' }}]");
        fixed("198.51.100.1:8080", "10.0.0.1:80").replace("}]", &more)
    };
    let twice = "`static[1]`: 10.0.0.1:80 and 198.51.100.1:8080 stand in an earlier one; write them once";
    check_error(&two("198.51.100.1:8080"), twice);
    let one = "`static[1]`: 10.0.0.1:80 has an external endpoint already, and an inside endpoint has one; let the host listen at a second port, for 198.51.100.1:8081";
    check_error(&two("198.51.100.1:8081"), one);
    let told = |key: &str| fixed("198.51.100.1:8080", "10.0.0.1:80").replace(" }]", &format!(", {key} }}]"));
    check_error(
        &told("vlan = 10"),
        "`static[0]`: there is no such VLAN; leave out `vlan`, or add networks = \"by_vlan\"",
    );
    check_error(
        &told("network = 0"),
        "`static[0]`: there is no network 0; leave out `network`, or add networks = \"by_port\"",
    );
    check_error("udp_s = 0", "`udp_s`: 0 is out of range; write 1 to 2073600 seconds");
    check_error("mapings_max = 5", "`mapings_max`: no such key; did you mean `mappings_max`?");
    check_error(
        "inside = ['10.0.0.0/25']\nnetworks = 'by_vlan'\nvlans = ['1-4']\nallocation = 'deterministic'",
        "`block_size`: 512 inside addresses in 4 networks, but 126 blocks of 512 ports; write smaller blocks",
    );
    check_error("vlans = [10]", "`vlans`: says nothing: networks are not told by VLAN; add networks = \"by_vlan\"");
    check_error("networks = 'by_vlan'\nvlans = ['10-12', 11]", "`vlans`: vlan 11 stands there twice; write it once");
    check_error("networks = 'by_vlan'\nvlans = [4095]", "`vlans`: \"4095\" is no VLAN; write one from 1 to 4094 as 10");
    check_error("networks = 'by_vlan'\nvlans = [true]", "`vlans`: no VLAN; write 10, \"10-19\", \"100.7\"");
    check_error("networks = 'by_vlan'\nvlans = ['1-4.1-4094']", "`vlans`: more than 12287 networks; name fewer");
    check_error("networks = 'by_vlan'\noutside_vlan = '1-2'", "`outside_vlan`: names several; write one");
    let hop = |list: &str| format!("networks = 'by_vlan'\nvlans = [10]\nnext_hops = [{list}]");
    check_error(&hop("{ vlan = 11, mac = '02:00:00:00:00:01' }"), "`next_hops`: vlan 11 is no network; name some of");
    let twice = "{ vlan = 10, mac = '02:00:00:00:00:01' }, { vlan = 10, mac = '02:00:00:00:00:02' }";
    check_error(&hop(twice), "`next_hops`: 02:00:00:00:00:01 and 02:00:00:00:00:02 are of one network; write one");
    let by_vlan = |network: &str| {
        let (external, inside) = ("external = '198.51.100.1:8080'", "inside = '10.0.0.1:80'");
        format!("networks = 'by_vlan'\nvlans = [10]\nstatic = [{{ protocol = 'tcp', {external}, {inside}{network} }}]")
    };
    check_error(&by_vlan(""), "`static[0]`: 10.0.0.1:80 is in no network; name one of `vlans`: vlan = 10");
    check_error(&by_vlan(", vlan = 11"), "`static[0]`: there is no such VLAN; name one of `vlans`");
    check_error(&by_vlan(", network = 0"), "`static[0]`: there is no network 0; name one of `vlans`");
    let by_port = format!("networks = 'by_port'\n{}", fixed("198.51.100.1:8080", "10.0.0.1:80"));
    check_error(&by_port, "`static[0]`: 10.0.0.1:80 is in no network; name an inside port");
    check_error("outside_ports = [1]", "`inside_ports`: missing");
    for external in ["0.0.0.0", "127.0.0.1", "224.0.0.1", "255.255.255.255"] {
        check_error(&format!("external = ['{external}']"), &format!("`external`: {external} is no host's address"));
        check_error(&format!("router = '{external}'"), &format!("`router`: {external} is no host's address"));
    }
    for range in ["198.51.100.1/32", "198.51.100.0/31"] {
        check_error(
            &format!("external = ['198.51.100.0/30']\nexempt = ['192.0.2.0/24', '{range}']"),
            &format!("`exempt`: {range} is external: what comes for it is for a mapping; write addresses of others"),
        );
    }
    for key in ["router_v6", "outside_router_v6"] {
        check_error(
            &format!("ipv6 = 'drop'\n{key} = '2001:db8::1'"),
            &format!("`{key}`: no sender of IPv6 is told of anything: its packets are dropped; leave it out"),
        );
    }
    check_error("outside_router_v6 = 'ff02::1'", "`outside_router_v6`: ff02::1 is no host's address beyond its link");
}

#[test]
fn ranges_and_networks_that_add_nothing_are_refused() {
    let one = "inside_ports = [0]\noutside_ports = [1, 2, 3]\nnetworks";
    let reason = "`networks`: there is one inside port, which tells no network apart; ";
    check_error(&format!("{one} = 'by_port'"), &format!("{reason}leave it out, or name more"));
    check_error(&format!("{one} = 'by_port_and_vlan'"), &format!("{reason}write \"by_vlan\", or name more"));
    for key in ["inside", "exempt"] {
        let ranges = |list: &str| format!("{key} = [{list}]");
        let twice = format!("`{key}`: 10.0.0.0/8 stands there twice; write it once");
        check_error(&ranges("'10.0.0.0/8', '172.16.0.0/12', '10.0.0.0/8'"), &twice);
        for list in ["'10.0.0.0/8', '10.1.0.0/16'", "'10.1.0.0/16', '10.0.0.0/8'"] {
            let within = format!("`{key}`: 10.1.0.0/16 lies in 10.0.0.0/8, which stands there too; leave one of them");
            check_error(&ranges(list), &within);
        }
    }
    let only = "only_to = ['192.0.2.1:80']";
    let other = "translates by other rules; leave one of them out";
    check_error(&format!("{only}\nexempt = ['192.0.2.0/24']"), &format!("`only_to`: `exempt` {other}"));
    check_error("only_to = ['10.0.0.1:80']", "`only_to`: 10.0.0.1:80 is inside; write endpoints outside");
    check_error(
        "mappings_per_network = 9",
        "`mappings_per_network`: says nothing: there is one network; write `mappings_max`",
    );
    check_error("outer_tag = '802.1q'", "`outer_tag`: says nothing: networks are not told by VLAN");
    let nobody =
        "`for_router`: `outside_router`, 192.0.0.8, is no external address, so nothing comes for it here; write";
    check_error("for_router = ['echo']", nobody);
    let without =
        "`for_router_addresses`: nothing is left to a router; write for_router = [\"echo\"] too, or leave it out";
    check_error("for_router_addresses = ['198.51.100.1']", without);
    let left = |others: &str| {
        format!("outside_router = '198.51.100.1'\nfor_router = ['echo']\nfor_router_addresses = [{others}]")
    };
    let twice = "`for_router_addresses`: 198.51.100.1 stands there twice, or is `outside_router`; write it once";
    check_error(&left("'198.51.100.1'"), twice);
    check_error(&left("'203.0.113.7'"), "`for_router_addresses`: 203.0.113.7 is no external address");
}

#[test]
fn keys_that_say_nothing_as_ports_are_given_are_refused() {
    let check = |text: &str, key: &str, wanted: &str| {
        let instead = format!("`{key}`: says nothing as ports are given to hosts; write allocation = \"{wanted}\"");
        check_error(text, &instead);
    };
    check("block_size = 64", "block_size", "blocks");
    check("blocks_per_host = 2", "blocks_per_host", "blocks");
    check("block_log_max = 7", "block_log_max", "blocks");
    let ends =
        "from = '10.9.0.1:514', to = '10.9.0.9:514', from_mac = '02:00:00:00:00:01', to_mac = '02:00:00:00:00:09'";
    check(&format!("block_syslog = {{ port = 1, {ends} }}"), "block_syslog", "blocks");
    check("pooling = 'arbitrary'\nallocation = 'blocks'", "pooling", "shared");
    let few = "inside = ['10.0.0.0/24']\nallocation = 'deterministic'\nblock_size = 64";
    check(&format!("{few}\nblocks_per_host = 2"), "blocks_per_host", "blocks");
}

#[test]
fn addresses_of_their_own_are_checked() {
    let check = |list: &str, wanted: &str| check_error(&format!("one_to_one = [{list}]"), wanted);
    let of = |external: &str, inside: &str| format!("{{ external = '{external}', inside = '{inside}' }}");
    let range = |external: &str| of(external, "10.0.0.5");
    check(&of("198.51.100.16/30", "10.0.0.0/31"), "`one_to_one[0]`: 198.51.100.16/30 is not as long as 10.0.0.0/31");
    check(&of("2001:db8::1", "10.0.0.5"), "`one_to_one[0]`: 2001:db8::1/128 or 10.0.0.5/32 is not IPv4");
    check(&range("198.51.100.1"), "`one_to_one[0]`: 198.51.100.1 is one of `external`, which hosts share");
    check(&of("198.51.100.9", "192.0.2.5"), "`one_to_one[0]`: 192.0.2.5/32 is not inside");
    check(&range("10.0.0.9"), "`one_to_one[0]`: 10.0.0.9/32 meets the inside range 10.0.0.0/8");
    let twice = |second: &str| format!("{}, {second}", of("198.51.100.16/30", "10.0.0.0/30"));
    for second in
        [of("198.51.100.17", "10.0.0.9"), of("198.51.100.9", "10.0.0.3"), of("198.51.100.0/24", "10.9.0.0/24")]
    {
        let list = twice(&second).replace("198.51.100.0/24", "198.51.100.0/26");
        let list = list.replace("10.9.0.0/24", "10.9.0.0/26");
        let config = format!("external = ['203.0.113.1']\none_to_one = [{list}]");
        check_error(&config, "`one_to_one[1]`: ");
    }
    let forwarded = "static = [{ protocol = 'tcp', external = '198.51.100.1:8080', inside = '10.0.0.5:80' }]";
    let both = format!("{forwarded}\none_to_one = [{}]", range("198.51.100.9"));
    check_error(&both, "`one_to_one[0]`: 10.0.0.5/32 has a `static` mapping too; leave one of them out");
    let unnamed = "networks = 'by_port'\ninside_ports = [0, 2]\noutside_ports = [1, 3]";
    check_error(
        &format!("{unnamed}\none_to_one = [{}]", range("198.51.100.9")),
        "`one_to_one[0]`: 10.0.0.5/32 is in no network",
    );
}

#[test]
fn a_port_on_both_sides_needs_vlans_that_tell_its_packets_apart() {
    let port = "inside_ports = [0]\noutside_ports = [0]\n";
    let vlans = format!("{port}networks = 'by_vlan'\n");
    check_error(
        port,
        "`outside_ports`: port 0 is inside as well, and nothing tells its packets apart; write it in one list only, or add networks = \"by_vlan\"",
    );
    check_error(
        &vlans,
        "`vlans`: port 0 is outside as well, so its inside VLANs have to be named; write for example vlans = [10]",
    );
    check_error(
        &format!("{vlans}vlans = [10, 20]\noutside_vlan = 20"),
        "`outside_vlan`: vlan 20 is one of `vlans`, and",
    );
    check_error(
        &format!("{vlans}vlans = [10]\noutside_next_hop = '02:00:00:00:00:ff'"),
        "`non_ip`: ARP and IPv6 that come by port 0 would leave by it as they came; write ipv6 = \"drop\" and non_ip = \"drop\"",
    );
    check_error(
        "inside_ports = [0, 1]\noutside_ports = [1]",
        "`outside_ports`: port 1 stands in `inside_ports` as well",
    );
}
