//! Configurations under which functions are certified: such that share more, or fight for the same entries.

/// Small tables and low rates: functions that refuse, fill up and fight for the same entries.
pub fn busy(function: &str) -> &'static str {
    match function {
        "bridge" => "capacity = 64\nrefresh_interval_ms = 1\nsnooping = { enabled = true, groups_max = 4 }",
        "nat" => "mappings_max = 256\nfragments_max = 8\nfirst_port = 1024\nlast_port = 1407",
        "nat64" => {
            "mappings_max = 128\nfragments_max = 8\nheld_max = 4\nfirst_port = 1024\nlast_port = 1151\n\
             ports_per_host = 20\nrouter_v6 = '2001:db8::1'\nfiltering = 'address_dependent'"
        }
        "firewall" => {
            "connections_max = 256\nqueries_max = 16\nfragments_max = 8\ninbound = 'reject'\n\
             half_open_max = 40\nhost_connections_max = 20\nhost_half_open_max = 5\nhosts_max = 64"
        }
        "policer" => "bytes_per_s = 20000\nburst_bytes = 3000",
        "shaper" => "bytes_per_s = 20000\nburst_bytes = 3000\nqueue_packets = 20",
        "rate_limiter" => "bytes_per_s = 20000\nburst_bytes = 3000",
        "flow_counter" => "totals = true",
        "anti_ddos" => "flows_min = 5",
        "heavy_hitters" => {
            "count = 'packets'\nthreshold = 3\nrows = 2\ncolumns = 30\ninterval_ms = 100\nhitters_max = 6"
        }
        "connection_limiter" => {
            "connections_max = 3\nconnections_per_s = 20\nburst = 5\naction = 'reject'\nopening_s = 1\nclosing_s = 1
                udp_s = 1\nowners_max = 12\nalerts_max = 4"
        }
        "load_balancer" => BALANCED,
        "router" => "promiscuous = true\nneighbours_max = 16\nwaiting_max = 4\nneighbour_lifetime_s = 1",
        "port_scan" => "answer_ms = 1\naction = 'drop'\nforget_s = 1\nfalse_alarms = 0.2\nalerts_max = 3",
        "dns_tunnel" => "orphans = 1\nbytes = 0\nwindow_s = 1\nanswers_max = 40\nalerts_max = 3",
        "sidejacking" => "session_s = 1\nrefresh_ms = 0\nsessions_max = 5",
        "protocol_classifier" => "packets_max = 1\nidle_timeout_s = 1",
        "asset_monitor" => "refresh_ms = 0\nhosts_max = 20\nservices_max = 5\nidle_timeout_s = 1",
        "abacus" => "action = 'drop'\nidle_timeout_s = 1\nsubscribers_max = 30",
        _ => "",
    }
}

/// Further configurations that share more, or take other ways.
pub fn others(function: &str) -> &'static [&'static str] {
    match function {
        "bridge" => &[FILTERED],
        "nat" => &[BY_VLAN],
        "load_balancer" => &[SPARED, CROSSED, LIMITED],
        "policer" => &[
            "meter = 'trtcm'\npackets_per_s = 20\nburst_packets = 5\npeak_per_s = 40\npeak_burst = 10
                colour_aware = true\ndscp = { green = 10, yellow = 12 }\nlink = { per_s = 500, burst = 50 }",
            "meter = 'srtcm'\nby = 'source'\nexcess_burst = 9000\nprefix = { capacity = 8 }\nbytes_of = 'line'\noverhead = 8",
        ],
        "firewall" => &[RULED, FILED],
        "router" => &[ROUTED, SPREAD, TAGGED],
        "shaper" => &[
            "burst_bytes = 2000\nlink = { bytes_per_s = 100000, burst_bytes = 2000 }\nby = 'source'\nbytes_of = 'ip'\necn_ms = 1",
            "bytes_per_s = 20000\nburst_bytes = 3000\nceil_bytes_per_s = 400000\nceil_burst_bytes = 4000
                queue_packets = 40\naddresses_max = 20\nlink = { bytes_per_s = 500000, burst_bytes = 5000 }",
            GROUPED,
        ],
        "anti_ddos" => &[
            "flows_min = 5\naction = 'limit'\nsources_max = 6",
            "flows_min = 5\naction = 'mark'\ndscp = 8",
            COOKIES_ALWAYS,
            COOKIES_UNDER_ATTACK,
        ],
        "heavy_hitters" => &["by = 'flow'\nthreshold = 500\nrows = 1\ncolumns = 6"],
        "connection_limiter" => &["by = 'subscriber'\nconnections_max = 2\nprefix = { v4 = 16, v6 = 0 }"],
        _ => &[],
    }
}

/// Groups of every kind, and priorities.
const GROUPED: &str = "bytes_per_s = 10000\nburst_bytes = 2000\nceil_bytes_per_s = 300000\nceil_burst_bytes = 4000\nqueue_packets = 60
    addresses_max = 30\nlink = { bytes_per_s = 500000, burst_bytes = 5000 }\nquantum_bytes = 500
    group = [{ prefixes = ['10.0.0.0/9', 'fd00::/9'], total = { bytes_per_s = 100000, ceil_bytes_per_s = 150000, burst_bytes = 3000 } },
        { prefixes = '0.0.0.0/1', total = { bytes_per_s = 100000, burst_bytes = 3000 }, each = { bytes_per_s = 20000 } }]
    priority = [{ dscp = 46, ports = [53, 443] }, { addresses = '0.0.0.0/2' }]";

/// Few connections are listed, and those that open or are asked for do not wait long.
pub const COOKIES_ALWAYS: &str =
    "action = 'cookies'\ncookies = { when = 'always', secret = '000102030405060708090a0b0c0d0e0f',
    connections_max = 8, opening_timeout_s = 1, connection_timeout_s = 2 }";
const COOKIES_UNDER_ATTACK: &str = "action = 'cookies'\nflows_min = 5\nidle_timeout_s = 1
    cookies = { secret = '000102030405060708090a0b0c0d0e0f', window_scale = 9, connections_max = 8 }";

/// Rules that log, count and are limited, and decide nothing or for a while only.
pub const RULED: &str = "rules = [
    { action = 'continue', protocol = 'udp', log = 'udp: ' },
    { action = 'reject', protocol = 'udp', limit = 'over 50/second burst 20' },
    { action = 'allow', direction = 'inbound', limit = '100/second burst 30', counter = true },
    { action = 'continue', counter = true },
]";

/// A rule file whose rules change sets. Connections and pings end soon, so that they are counted out, and begin anew.
const FILED: &str = concat!(
    "rules_file = '",
    env!("CARGO_MANIFEST_DIR"),
    "/tests/verify/certify/changing.nft'
    networks = [['10.0.0.0/8', 'fc00::/7'], ['0.0.0.0/0', '::/0']]\nforwards = ['10.1.0.9:443', '10.1.0.5']\nloose = true
    queries_max = 16\nicmp_s = 1\ntcp_reset_s = 1\ntcp_closing_s = 1\nudp_unanswered_s = 1"
);

/// Two ways to everybody, one of which nobody answers on.
pub const SPREAD: &str = "promiscuous = true
    interface = [
        { port = 0, addresses = ['10.0.0.1/8', 'fd00::1/8'] },
        { port = 1, addresses = ['192.0.2.1/24', '2001:db8::1/32'] },
    ]
    route = [{ to = '0.0.0.0/0', hops = [{ via = '192.0.2.2' }, { via = '192.0.2.3', weight = 2 }] }]
    neighbour = [{ address = '192.0.2.3', mac = '02:00:00:00:00:03', port = 1 }]";

/// Interfaces told by tags, one of them with two ways by ports, of which nobody answers on one.
pub const TAGGED: &str = "promiscuous = true\nhash = 'ports'\nneighbours_max = 16\nwaiting_max = 4\nneighbour_lifetime_s = 1
    interface = [
        { port = 0, addresses = ['10.0.1.1/24'] },
        { port = 0, vlan = 10, addresses = ['10.0.0.1/24', '2001:db8:10::1/64'] },
        { port = 0, vlan = 20, addresses = ['10.0.20.1/24', 'fd00::1/64'], mtu = 1280 },
        { port = 1, addresses = ['198.18.0.250/16'], mtu = 576 },
        { port = 1, vlan = 30, addresses = ['192.0.2.1/24', '2001:db8::1/64'] },
    ]
    route = [{ to = '0.0.0.0/0', hops = [{ via = '192.0.2.2' }, { via = '192.0.2.3', weight = 2 }] }, { to = '::/0', via = '2001:db8::fe' }]
    neighbour = [{ address = '192.0.2.3', mac = '02:00:00:00:00:03', port = 1, vlan = 30 }]";

/// Neighbours that are there, links of different length.
pub const ROUTED: &str = "promiscuous = true\nicmp_errors_per_s = 20
    [[interface]]\nport = 0\naddresses = ['10.0.0.1/8', 'fd00::1/8']\n[[interface]]\nport = 1\naddresses = ['192.0.2.1/24']\nmtu = 576
    [[route]]\nto = '0.0.0.0/0'\nvia = '192.0.2.254'\n[[route]]\nto = '198.18.0.0/15'\nvia = '10.0.0.9'
    [[route]]\nto = '::/0'\nport = 0
    [[neighbour]]\naddress = '192.0.2.254'\nmac = '02:00:00:00:00:fe'\nport = 1
    [[neighbour]]\naddress = '10.0.0.9'\nmac = '02:00:00:00:00:09'\nport = 0\n";

/// Filters VLANs, cuts storms, and lets few stations in.
const FILTERED: &str = "capacity = 64\nrefresh_interval_ms = 1\nstorm = { broadcast_per_s = 20, unknown_per_s = 100 }
    [[port]]\nport = 0\naccess = 1\n[[port]]\nport = 1\ntrunk = ['1-4094']\n[[port]]\nport = 2\ntrunk = ['2-200']\nnative = 1
    [[vlan]]\nid = 1\nstations_max = 8\n";

/// Networks told by one tag, by two, and by none.
pub const BY_VLAN: &str =
    "networks = 'by_vlan'\nvlans = ['untagged', '1-100', '9.1-20']\nmappings_max = 256\nfragments_max = 8
    held_max = 4\nfirst_port = 1024\nlast_port = 1151\nports_per_host = 20\nfiltering = 'address_dependent'\n";

/// Balances servers of the mixes and of the recorded captures. Clients are those who ask there, so they come by port 0.
const BALANCED: &str = "persistence_max = 16\nclient_ports = [0]\nbackend_ports = [1]\ntable_size = 251\nfragments_max = 8
    [[service]]\naddress = '203.0.113.10'\nbackends = [{ address = '192.0.2.1' }, { address = '192.0.2.2' }]
    [[service]]\naddress = '203.0.113.53'\nmode = 'gue'\nbackends = [{ address = '192.0.2.3' }]
    [[service]]\naddress = '2001:db8:2::10'\nbackends = [{ address = '2001:db8:3::1' }, { address = '2001:db8:3::2' }]
    [[service]]\naddress = '198.18.0.0'\npersistence = 'source'\nbackends = [{ address = '192.0.2.10' }, { address = '192.0.2.11' }]
    [[service]]\naddress = '198.18.0.1'\nbackends = [{ address = '192.0.2.12' }]\n";

/// Services of ranges that meet, and tunnels of the other family that are too short for long packets.
const CROSSED: &str = "client_ports = [0]\nbackend_ports = [1]\ntable_size = 251\nfragments_max = 8\nheld_max = 8\nmtu = 1328
    persistence_max = 16\nrouter_v6 = '2001:db8::fe'\ntraffic = true
    [[service]]\naddress = '203.0.113.10'\nbackends = [{ address = '192.0.2.1' }, { address = '192.0.2.2' }]
    [[service]]\naddress = '203.0.113.10'\nport = '1-1023'\npersistence = 'source'\nbackends = [{ address = '192.0.2.1' }, { address = '192.0.2.3' }]
    [[service]]\naddress = '203.0.113.10'\nport = '20-99'\npersistence = 'source'\nbackends = [{ address = '192.0.2.4' }, { address = '192.0.2.5' }]
    [[service]]\naddress = '203.0.113.53'\nmode = 'gue'\nbackends = [{ address = '2001:db8:3::1' }, { address = '2001:db8:3::2' }]
    [[service]]\naddress = '198.18.0.0'\nmode = 'ipip'\nbackends = [{ address = '2001:db8:3::3' }]
    [[service]]\naddress = '2001:db8:2::10'\nmode = 'gre'\nbackends = [{ address = '192.0.2.10' }, { address = '192.0.2.11' }]\n";

/// Backups, clients that stay together, services that remember nothing or have nobody, and short times.
const SPARED: &str = "client_ports = [0]\nbackend_ports = [1]\ntable_size = 251\nfragments_max = 8\npersistence_max = 16\nicmp_errors_per_s = 10
    tcp_s = 1\ntcp_opening_s = 1\ntcp_closing_s = 1\nudp_s = 1\nrecheck_ms = 10
    [[service]]\naddress = '203.0.113.10'\nbackends = [{ address = '192.0.2.1', up = false }, { address = '192.0.2.2', backup = true }]
    [[service]]\naddress = '203.0.113.53'\nwhen_none = 'reject'\nbackends = [{ address = '192.0.2.3', up = false }]
    [[service]]\naddress = '198.18.0.0'\npersistence = 'source'\npersistence_prefix = { v4 = 16 }
    backends = [{ address = '192.0.2.10' }, { address = '192.0.2.11' }]
    [[service]]\naddress = '198.18.0.1'\npersistence = 'none'\nbackends = [{ address = '192.0.2.12' }, { address = '192.0.2.13' }]
    [[service]]\naddress = '2001:db8:2::10'\nwhen_none = 'reject'\nbackends = [{ address = '2001:db8:3::1', up = false }]\n";

/// Backends that are soon full.
const LIMITED: &str = "client_ports = [0]\nbackend_ports = [1]\ntable_size = 251\nfragments_max = 8\npersistence_max = 16\nrecheck_ms = 10
    tcp_opening_s = 1\ntcp_closing_s = 1\nudp_s = 1
    [[service]]\naddress = '203.0.113.10'\nwhen_none = 'reject'
    backends = [{ address = '192.0.2.1', connections_max = 2 }, { address = '192.0.2.2', connections_max = 5 }]
    [[service]]\naddress = '198.18.0.0'\npersistence = 'source'
    backends = [{ address = '192.0.2.10', connections_max = 3 }, { address = '192.0.2.11' }]
    [[service]]\naddress = '2001:db8:2::10'\nbackends = [{ address = '2001:db8:3::1', connections_max = 1 }]\n";

/// The inside and the outside of a translator that has the router's hop.
pub const BEHIND_NAT: &str = "promiscuous = true\ncounts_hops = false\nneighbours_max = 8\nwaiting_max = 8
    interface = [
        { port = 0, addresses = ['10.0.0.254/24'] },
        { port = 1, addresses = ['198.51.100.1/24'], mtu = 576 },
    ]
    route = [{ to = '0.0.0.0/0', via = '198.51.100.9' }]
    neighbour = [
        { address = '198.51.100.9', mac = '02:00:00:00:00:09', port = 1 },
        { address = '10.0.0.2', mac = '02:00:00:00:00:12', port = 0 },
        { address = '10.0.0.3', mac = '02:00:00:00:00:13', port = 0 },
    ]";

/// Behind a translator: no route leads out, and only one of the hosts is there.
pub const NOWHERE: &str =
    "promiscuous = true\ncounts_hops = false\nneighbours_max = 8\nwaiting_max = 8\nneighbour_lifetime_s = 1
    interface = [
        { port = 0, addresses = ['10.0.0.254/8', 'fd00::fe/8'] },
        { port = 1, addresses = ['198.51.100.1/24', '2001:db8::fe/32'] },
    ]
    neighbour = [{ address = '10.0.0.2', mac = '02:00:00:00:00:12', port = 0 }]";

/// A router that knows nobody yet, and forgets them soon.
pub const ASKING: &str = "neighbours_max = 20\nwaiting_max = 12\nneighbour_lifetime_s = 1
    interface = [
        { port = 0, addresses = ['10.0.0.1/24', '2001:db8:1::1/64'], mtu = 1280 },
        { port = 1, addresses = ['192.0.2.1/24', '2001:db8:2::1/64'], mtu = 1300 },
    ]";

/// Whose backends get datagrams in tunnels, by their Ethernet addresses, and translated. Clients ask by port 0.
pub const IN_EVERY_MODE: &str = "client_ports = [0]\nbackend_ports = [1]\ntable_size = 251\nfragments_max = 64\nheld_max = 32\nmtu = 1400
    router = '198.51.100.254'
    [[service]]\naddress = '203.0.113.0'\nmode = 'ipip'\nbackends = [{ address = '198.51.100.2' }, { address = '198.51.100.3' }]
    [[service]]\naddress = '203.0.113.1'\nmode = 'gue'\nbackends = [{ address = '198.51.100.4' }, { address = '198.51.100.5' }]
    [[service]]\naddress = '203.0.113.2'\nmode = 'direct'\nbackends = [
        { address = '198.51.100.6', mac = '02:00:00:00:00:16' }, { address = '198.51.100.7', mac = '02:00:00:00:00:17' }]
    [[service]]\naddress = '203.0.113.3'\nbackends = [{ address = '198.51.100.8' }, { address = '198.51.100.9' }]";

/// The router of their clients and backends, to which frames are addressed. Two backends it has to ask for.
pub const BEHIND_BALANCER: &str = "neighbours_max = 12\nwaiting_max = 8
    interface = [
        { port = 0, addresses = ['10.0.0.254/24', '203.0.113.0/32', '203.0.113.1/32', '203.0.113.2/32'], mac = '02:00:00:00:00:02' },
        { port = 1, addresses = ['198.51.100.254/24'] },
    ]
    neighbour = [
        { address = '198.51.100.2', mac = '02:00:00:00:00:12', port = 1 },
        { address = '198.51.100.4', mac = '02:00:00:00:00:14', port = 1 },
        { address = '198.51.100.5', mac = '02:00:00:00:00:15', port = 1 },
        { address = '198.51.100.9', mac = '02:00:00:00:00:19', port = 1 },
    ]";
