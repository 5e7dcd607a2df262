//! What keys and words of other programs are called here: who comes from keepalived, IPVS, HAProxy or Envoy writes them out of
//! habit, and the key that is spelt most alike is often another one.

/// A word of another program, a word of Braid's beside which it stands, and what to write.
type Row = (&'static str, &'static str, &'static str);

/// Keys. The second word is a key of the same table.
const KEYS: [Row; 47] = [
    ("persistence_timeout", "persistence_prefix", PERSISTENCE),
    ("persistence_granularity", "persistence_prefix", "write persistence_prefix = { v4 = 24, v6 = 64 }"),
    ("stick_table", "persistence_prefix", PERSISTENCE),
    ("session_affinity", "persistence_prefix", PERSISTENCE),
    ("ops", "persistence_prefix", "write persistence = \"none\""),
    ("lb_algo", "persistence_prefix", MAGLEV),
    ("lvs_sched", "persistence_prefix", MAGLEV),
    ("scheduler", "persistence_prefix", MAGLEV),
    ("balance", "persistence_prefix", MAGLEV),
    ("algorithm", "persistence_prefix", MAGLEV),
    ("lb_policy", "persistence_prefix", MAGLEV),
    ("lb_kind", "persistence_prefix", MODE),
    ("lvs_method", "persistence_prefix", MODE),
    ("forwarding", "persistence_prefix", MODE),
    ("vip", "persistence_prefix", "write it as `address`"),
    ("ip", "persistence_prefix", "write it as `address`"),
    ("bind", "persistence_prefix", "write `address` and `port`"),
    ("virtual_server", "persistence_s", "write [[nf.config.service]], with `address` and `port`"),
    ("virtual_servers", "persistence_s", "write [[nf.config.service]], with `address` and `port`"),
    ("vip", "persistence_s", "write [[nf.config.service]], with `address` and `port`"),
    ("frontend", "persistence_s", "write [[nf.config.service]], with `address` and `port`"),
    ("backend", "persistence_s", "write [[nf.config.service]], with its `backends`"),
    ("persistence_timeout", "persistence_s", "write `persistence_s`, and persistence = \"source\" in the service"),
    ("real_server", "persistence_prefix", BACKENDS),
    ("real_servers", "persistence_prefix", BACKENDS),
    ("server", "persistence_prefix", BACKENDS),
    ("servers", "persistence_prefix", BACKENDS),
    ("endpoints", "persistence_prefix", BACKENDS),
    ("upstream", "persistence_prefix", BACKENDS),
    ("sorry_server", "persistence_prefix", "write backup = true in one of the `backends`"),
    ("quorum", "persistence_prefix", "leave it out: a service serves as long as one backend is up"),
    ("health_check", "persistence_prefix", "write it as `check`"),
    ("ip", "server_id", "write it as `address`"),
    ("host", "server_id", "write it as `address`"),
    ("drain", "server_id", DRAIN),
    ("disabled", "server_id", DRAIN),
    ("state", "server_id", DRAIN),
    ("maxconn", "server_id", CONNECTIONS),
    ("uthreshold", "server_id", CONNECTIONS),
    ("slowstart", "server_id", "leave it out, or raise `weight` by `braid apply`"),
    ("interval", "every_ms", "write it as `every_ms`"),
    ("inter", "every_ms", "write it as `every_ms`"),
    ("delay_loop", "every_ms", "write it as `every_ms`"),
    ("retry", "every_ms", "write it as `fall`"),
    ("url", "every_ms", "write it as `path`, with kind = \"http\""),
    ("status", "every_ms", STATUS),
    ("expect", "every_ms", STATUS),
];

/// Values. The second word is another value that may stand there.
const VALUES: [Row; 19] = [
    ("dr", "ipip", "write \"direct\""),
    ("dsr", "ipip", "write \"direct\""),
    ("gatewaying", "ipip", "write \"direct\""),
    ("tun", "ipip", "write \"ipip\", \"gre\" or \"gue\""),
    ("tunnel", "ipip", "write \"ipip\", \"gre\" or \"gue\""),
    ("ipvsadm", "ipip", "write \"nat\""),
    ("masq", "ipip", "write \"nat\""),
    ("masquerade", "ipip", "write \"nat\""),
    ("snat", "ipip", "write \"nat\""),
    ("source_ip", "connection", "write \"source\""),
    ("client_ip", "connection", "write \"source\""),
    ("sh", "connection", "write \"source\""),
    ("https", "http", TLS),
    ("ssl", "http", TLS),
    ("ssl_get", "http", TLS),
    ("http_get", "http", "write \"http\""),
    ("tcp_check", "http", "write \"tcp\""),
    ("udp_check", "http", "write \"udp\""),
    ("dns_check", "http", "write \"dns\""),
];

const PERSISTENCE: &str = "write persistence = \"source\", and `persistence_s` beside the services";
const MAGLEV: &str = "leave it out: it is always Maglev hashing, by `weight`";
const MODE: &str = "write it as `mode`: \"nat\", \"ipip\", \"gre\", \"gue\" or \"direct\"";
const BACKENDS: &str = "write backends = [{ address = \"10.0.0.1\", port = 8080 }]";
const DRAIN: &str = "write weight = 0, so that it gets no new connections, or up = false";
const CONNECTIONS: &str = "leave it out, or put a connection_limiter behind, with by = \"destination\"";
const STATUS: &str = "leave it out: 200 to 399 is good";
const TLS: &str = "write \"tcp\": checks speak no TLS";

/// What to write instead of an unknown key, if it is known from elsewhere.
pub fn key(unknown: &str, known: &[&str]) -> Option<String> {
    find(&KEYS, unknown, known)
}

/// What to write instead of an unknown value: the one with other capitals, or what a word from elsewhere means.
pub fn value(unknown: &str, known: &[&str]) -> Option<String> {
    let same = known.iter().find(|word| word.eq_ignore_ascii_case(unknown));
    same.map(|word| format!("write \"{word}\"")).or_else(|| find(&VALUES, unknown, known))
}

fn find(rows: &[Row], unknown: &str, known: &[&str]) -> Option<String> {
    let unknown = unknown.to_ascii_lowercase().replace('-', "_");
    let row = rows.iter().find(|(word, beside, _)| *word == unknown && known.contains(beside));
    row.map(|(_, _, instead)| (*instead).to_owned())
}
