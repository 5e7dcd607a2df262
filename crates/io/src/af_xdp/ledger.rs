//! How a program describes to its successor the sockets that it leaves open: descriptors and the buffers that the kernel holds,
//! both by number. The format is text, with one line per item:
//!
//! ```text
//! memory 7 16896 buffers of 2112 bytes (Prefer)
//! port 3 41 native 6283185307179586476 Any-Any-0-2048
//! queue 9:0,10:0 0-2040,2050 17
//! ```
//! The memory with its shape; for each port the interface, the descriptor of the program's link, where the program runs, its
//! fingerprint and the keys; for each queue the sockets with the missed frames already reported, the buffers to be filled, and the
//! buffers to be sent. Change [`INHERITED`](super::INHERITED) whenever this format changes.

use std::fmt::{self, Display, Formatter};
use std::os::fd::RawFd;

/// The whole ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ledger {
    pub(super) memory: RawFd,
    /// Buffers and rings: the properties that must be the same in the next program.
    pub(super) shape: String,
    pub(super) ports: Vec<PortEntry>,
}

/// One port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PortEntry {
    pub(super) interface: u32,
    pub(super) link: RawFd,
    pub(super) is_native: bool,
    /// Fingerprint of what the program does.
    pub(super) print: u64,
    /// The options with which the port was opened, as one word.
    pub(super) keys: String,
    pub(super) queues: Vec<QueueEntry>,
}

/// One queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct QueueEntry {
    /// Each socket with the number of missed frames already reported.
    pub(super) sockets: Vec<(RawFd, u64)>,
    pub(super) filled: Vec<u32>,
    pub(super) sent: Vec<u32>,
}

impl Display for Ledger {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "memory {} {}", self.memory, self.shape)?;
        for PortEntry { interface, link, is_native, print, keys, queues } in &self.ports {
            let mode = if *is_native { NATIVE } else { GENERIC };
            writeln!(f, "port {interface} {link} {mode} {print} {keys}")?;
            for QueueEntry { sockets, filled, sent } in queues {
                let sockets: Vec<String> = sockets.iter().map(|(fd, missed)| format!("{fd}:{missed}")).collect();
                writeln!(f, "queue {} {} {}", sockets.join(","), Ranges(filled), Ranges(sent))?;
            }
        }
        Ok(())
    }
}

const NATIVE: &str = "native";
const GENERIC: &str = "generic";

impl Ledger {
    /// All descriptors that it names.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        let sockets = self.ports.iter().flat_map(|port| &port.queues).flat_map(|queue| &queue.sockets);
        let links = self.ports.iter().map(|port| port.link);
        sockets.map(|(socket, _)| *socket).chain(links).chain([self.memory])
    }

    /// Parses what another program has written; `None` if the text is anything else.
    pub(super) fn parse(text: &str) -> Option<Ledger> {
        let mut lines = text.lines();
        let (memory, shape) = lines.next()?.strip_prefix("memory ")?.split_once(' ')?;
        let mut ledger = Ledger { memory: memory.parse().ok()?, shape: shape.to_owned(), ports: Vec::new() };
        for line in lines {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["port", interface, link, mode @ (NATIVE | GENERIC), print, keys] => ledger.ports.push(PortEntry {
                    interface: interface.parse().ok()?,
                    link: link.parse().ok()?,
                    is_native: mode == NATIVE,
                    print: print.parse().ok()?,
                    keys: keys.to_owned(),
                    queues: Vec::new(),
                }),
                ["queue", sockets, filled, sent] => ledger.ports.last_mut()?.queues.push(QueueEntry {
                    sockets: sockets.split(',').map(socket).collect::<Option<_>>()?,
                    filled: numbers(filled)?,
                    sent: numbers(sent)?,
                }),
                _ => return None,
            }
        }
        Some(ledger)
    }
}

fn socket(text: &str) -> Option<(RawFd, u64)> {
    let (fd, missed) = text.split_once(':')?;
    Some((fd.parse().ok()?, missed.parse().ok()?))
}

/// Formats ascending numbers as ranges; `-` if there are none.
struct Ranges<'a>(&'a [u32]);

impl Display for Ranges<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("-");
        }
        for (i, range) in self.0.chunk_by(|one, next| one + 1 == *next).enumerate() {
            let comma = if i > 0 { "," } else { "" };
            match range {
                [only] => write!(f, "{comma}{only}")?,
                [first, .., last] => write!(f, "{comma}{first}-{last}")?,
                [] => unreachable!("no range is empty"),
            }
        }
        Ok(())
    }
}

/// Maximum length of a list, which exceeds the buffers that any pool has for one queue.
const NUMBERS_MAX: usize = 1 << 20;

fn numbers(text: &str) -> Option<Vec<u32>> {
    let mut numbers = Vec::new();
    for range in text.split(',').filter(|_| text != "-") {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if last < first || (last - first) as usize >= NUMBERS_MAX - numbers.len() {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use proptest::collection::{btree_set, vec};
    use proptest::prelude::*;

    use super::*;

    fn queue() -> impl Strategy<Value = QueueEntry> {
        let numbers = || btree_set(0u32..60, 0..40).prop_map(|numbers| numbers.into_iter().collect::<Vec<_>>());
        (vec((0..99, any::<u64>()), 1..4), numbers(), numbers()).prop_map(|(sockets, filled, sent)| QueueEntry {
            sockets,
            filled,
            sent,
        })
    }

    fn ledger() -> impl Strategy<Value = Ledger> {
        let port = (any::<u32>(), 0..99, any::<bool>(), any::<u64>(), vec(queue(), 0..4)).prop_map(
            |(interface, link, is_native, print, queues)| PortEntry {
                interface,
                link,
                is_native,
                print,
                keys: "Any-Any-0-2048".to_owned(),
                queues,
            },
        );
        (0..99, vec(port, 0..4)).prop_map(|(memory, ports)| Ledger { memory, shape: "8 buffers".to_owned(), ports })
    }

    proptest! {
        #[test]
        fn what_one_program_writes_the_next_one_reads(ledger in ledger()) {
            prop_assert_eq!(Ledger::parse(&ledger.to_string()), Some(ledger));
        }

        #[test]
        fn no_text_is_too_strange(text in "((memory|port|queue)? ?[0-9:,-]{0,12} ?[a-z0-9-]{0,9}\n?){0,6}") {
            Ledger::parse(&text);
        }
    }

    #[test]
    fn what_nobody_wrote_is_not_read() {
        let check = |text: &str| assert_eq!(Ledger::parse(text), None, "{text}");
        check("");
        check("memory 7");
        check("memory seven shape");
        check("memory 7 shape\nqueue 9:0 - -");
        check("memory 7 shape\nport 3 41 sideways 1 keys");
        check("memory 7 shape\nport 3 41 native 1 keys\nqueue 9 - -");
        check("memory 7 shape\nport 3 41 native 1 keys\nqueue 9:0 5-4 -");
        check("memory 7 shape\nport 3 41 native 1 keys\nqueue 9:0 0-4294967295 -");
        check("memory 7 shape\nport 3 41 native 1 keys\nqueue 9:0 - - -");
    }
}
