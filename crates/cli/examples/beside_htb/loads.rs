//! What is offered, and under which rules: each written once, for tc and for a plan.

/// Bytes of every frame.
pub const FRAME: usize = 1000;
/// Thousands of bytes a second of the link.
const LINK: u64 = 2000;

/// A class of the kernel: rate and ceiling in thousands of bytes a second.
pub struct Rates(pub u64, pub u64);

/// One row.
pub struct Load {
    pub name: &'static str,
    /// Thousands of bytes a second to 10.0.0.0 to 10.0.0.3.
    pub offered: [u64; 4],
    /// Of each host.
    pub each: Rates,
    /// Of the first two hosts together, if there is a group.
    pub group: Option<Rates>,
    /// The host that has a higher priority than the others.
    pub first: Option<usize>,
    /// Nothing is offered in the first second.
    pub is_idle_first: bool,
}

const BASE: Load =
    Load { name: "", offered: [0; 4], each: Rates(400, LINK), group: None, first: None, is_idle_first: false };

/// The rows.
pub const LOADS: &[Load] = &[
    Load { name: "one alone", offered: [3000, 0, 0, 0], ..BASE },
    Load { name: "two that compete", offered: [3000, 3000, 0, 0], ..BASE },
    Load { name: "two borrow what a third leaves", offered: [3000, 3000, 100, 0], ..BASE },
    Load { name: "all four", offered: [3000, 3000, 3000, 3000], ..BASE },
    Load { name: "a ceiling", offered: [3000, 3000, 200, 0], each: Rates(400, 700), ..BASE },
    Load { name: "a burst after a second of idleness", offered: [3000, 0, 0, 0], is_idle_first: true, ..BASE },
    Load { name: "the third borrows first", offered: [3000, 3000, 3000, 0], first: Some(2), ..BASE },
    Load { name: "the third borrows first and leaves some", offered: [3000, 3000, 900, 0], first: Some(2), ..BASE },
    Load {
        name: "a group that borrows",
        offered: [3000, 3000, 3000, 0],
        each: Rates(100, LINK),
        group: Some(Rates(800, LINK)),
        ..BASE
    },
    Load {
        name: "a group at its ceiling",
        offered: [3000, 3000, 3000, 0],
        each: Rates(100, LINK),
        group: Some(Rates(800, 900)),
        ..BASE
    },
];

impl Load {
    /// What `tc` is told, for the interface `device`.
    pub fn commands(&self, device: &str) -> Vec<String> {
        let rates = |Rates(own, ceil): &Rates, burst| {
            format!("htb rate {own}kbps ceil {ceil}kbps burst {burst} cburst 6000 quantum 3028")
        };
        let mut all = vec![
            format!("qdisc add dev {device} root handle 1: htb default 90"),
            format!(
                "class add dev {device} parent 1: classid 1:1 htb rate {LINK}kbps ceil {LINK}kbps burst 6000 cburst 6000"
            ),
            format!("class add dev {device} parent 1:1 classid 1:90 htb rate 8kbps ceil {LINK}kbps"),
        ];
        if let Some(group) = &self.group {
            all.push(format!("class add dev {device} parent 1:1 classid 1:2 {}", rates(group, 6000)));
        }
        for host in 0..4 {
            let parent = if self.group.is_some() && host < 2 { "1:2" } else { "1:1" };
            let prio = u8::from(self.first.is_some_and(|first| first != host));
            let class = format!("1:1{host}");
            all.push(format!(
                "class add dev {device} parent {parent} classid {class} {} prio {prio}",
                rates(&self.each, 2000)
            ));
            all.push(format!("qdisc add dev {device} parent {class} bfifo limit 60000"));
            all.push(format!(
                "filter add dev {device} parent 1: protocol ip prio 1 u32 match ip dst 10.0.0.{host}/32 flowid {class}"
            ));
        }
        all
    }

    /// The configuration of `shaper`.
    pub fn config(&self) -> String {
        let rates = |Rates(own, ceil): &Rates| format!("bytes_per_s = {own}000, ceil_bytes_per_s = {ceil}000");
        let group = self.group.as_ref().map(|group| {
            let total = format!("{}, burst_bytes = 6000, ceil_burst_bytes = 6000", rates(group));
            format!("{{ prefixes = '10.0.0.0/31', total = {{ {total} }} }}")
        });
        let first = self.first.map(|host| format!("{{ addresses = '10.0.0.{host}' }}"));
        format!(
            "{}\nburst_bytes = 2000\nceil_burst_bytes = 6000\nqueue_bytes = 60000\nfrom_port = 0
            link = {{ bytes_per_s = {LINK}000, burst_bytes = 6000 }}\ngroup = [{}]\npriority = [{}]\n",
            rates(&self.each).replace(", ", "\n"),
            group.unwrap_or_default(),
            first.unwrap_or_default()
        )
    }
}
