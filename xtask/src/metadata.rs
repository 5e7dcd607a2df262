//! What a packet's metadata costs, by its size and placement: the measurement of the message-buffer work (Kawashima laboratory).
//!
//! A batch goes through four loops: receive (header and record are written), parse (header read, record changed), handle (both
//! read), send (both read). A record is either *inline*, in its own cache lines before the packet's header, as in `rte_mbuf`, or
//! *apart*, in one array for the whole batch, as in Braid. Buffers are used last in, first out, with a stride of 33 cache lines, as
//! in Braid. The time is the best of several runs. Misses of the first-level cache are counted by cachegrind with this machine's
//! geometry, as the difference of two run lengths. No code of Braid runs here: only the layout is measured.

use std::hint::black_box;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::shell;

const SIZES: [usize; 8] = [0, 2, 4, 8, 16, 32, 64, 128];
const BATCHES: [usize; 3] = [32, 256, 512];
const LINE: usize = 64;
const STRIDE: usize = 33 * LINE;
/// Packets of the two runs under cachegrind, and of a timed run.
const COUNTED: [usize; 2] = [1 << 15, 3 << 15];
const TIMED: usize = 1 << 21;
const RUNS: usize = 9;

/// Placement of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Inline,
    Apart,
}

impl Place {
    fn name(self) -> &'static str {
        if self == Place::Inline { "inline" } else { "apart" }
    }
}

/// One layout to measure.
#[derive(Clone, Copy, Debug)]
struct Layout {
    bytes: usize,
    place: Place,
    batch: usize,
}

/// Measures all layouts and prints the table.
pub fn run() -> Result<(), String> {
    let counts = shell::has("valgrind");
    if !counts {
        eprintln!("   no misses: program valgrind is missing");
    }
    shell::cargo(&["build", "--release", "--package", "xtask"], &[])?;
    let geometry = geometry();
    println!("first-level cache: {} bytes, {} ways; {}\n", geometry[0], geometry[1], processor());
    println!("| record | place | {} |", BATCHES.map(|batch| format!("batch {batch}: ns, misses a packet")).join(" | "));
    println!("|---:|---|{}", "---:|".repeat(BATCHES.len()));
    for bytes in SIZES {
        for place in [Place::Inline, Place::Apart] {
            if bytes == 0 && place == Place::Apart {
                continue;
            }
            let cell = |batch| {
                let layout = Layout { bytes, place, batch };
                let misses = if counts { format!("{:.2}", misses(layout, geometry)?) } else { "–".to_owned() };
                Ok(format!("{:.1}, {misses}", time(layout)?))
            };
            let cells = BATCHES.into_iter().map(cell).collect::<Result<Vec<_>, String>>()?;
            let name = if bytes == 0 { "none" } else { place.name() };
            println!("| {bytes} bytes | {name} | {} |", cells.join(" | "));
        }
    }
    Ok(())
}

/// Size, ways and line size in bytes of the first-level data cache; usual values if the kernel does not report them.
fn geometry() -> [usize; 3] {
    let read = |what: &str| {
        let path = format!("/sys/devices/system/cpu/cpu0/cache/index0/{what}");
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let (digits, is_kib) = text.trim().strip_suffix('K').map_or((text.trim(), false), |digits| (digits, true));
        digits.parse::<usize>().ok().map(|number| if is_kib { number << 10 } else { number })
    };
    [
        read("size").unwrap_or(32 << 10),
        read("ways_of_associativity").unwrap_or(8),
        read("coherency_line_size").unwrap_or(LINE),
    ]
}

fn processor() -> String {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model =
        cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ").map(|(_, model)| model));
    model.unwrap_or("unknown processor").to_owned()
}

/// The command that runs this program again, for one layout and this number of packets.
fn again(layout: Layout, packets: usize) -> Vec<String> {
    let program = shell::built("xtask").display().to_string();
    let Layout { bytes, place, batch } = layout;
    [
        program,
        "metadata-probe".to_owned(),
        place.name().to_owned(),
        bytes.to_string(),
        batch.to_string(),
        packets.to_string(),
    ]
    .into()
}

/// Nanoseconds per packet.
fn time(layout: Layout) -> Result<f64, String> {
    let words = again(layout, TIMED);
    let output =
        Command::new(&words[0]).args(&words[1..]).output().map_err(|error| format!("{}: {error}", words[0]))?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().parse().map_err(|_| format!("{}: says {text:?}, not a time", words.join(" ")))
}

/// First-level data misses per packet.
fn misses(layout: Layout, geometry: [usize; 3]) -> Result<f64, String> {
    let [short, long] = COUNTED;
    let more = cachegrind(layout, long, geometry)? - cachegrind(layout, short, geometry)?;
    Ok(more / ((long - short) * RUNS) as f64)
}

/// First-level data misses of a complete run.
fn cachegrind(layout: Layout, packets: usize, [bytes, ways, line]: [usize; 3]) -> Result<f64, String> {
    let file = std::env::temp_dir().join(format!("braid-cachegrind-{}", std::process::id()));
    let mut command = Command::new("valgrind");
    command
        .args(["--tool=cachegrind", "--cache-sim=yes", &format!("--D1={bytes},{ways},{line}")])
        .arg(format!("--cachegrind-out-file={}", file.display()))
        .args(again(layout, packets))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let status = command.status().map_err(|error| format!("valgrind: {error}"))?;
    let profile = std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()));
    let _ = std::fs::remove_file(&file);
    if !status.success() {
        return Err(format!("valgrind: {status}"));
    }
    sum(&profile?).ok_or_else(|| "cachegrind's file has no sum of D1mr and D1mw".to_owned())
}

/// First-level read and write misses in the summary of cachegrind's output.
fn sum(profile: &str) -> Option<f64> {
    let words = |name: &str| {
        let line = profile.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    };
    let (events, counts) = (words("events:")?, words("summary:")?);
    let of = |event: &str| counts.get(events.iter().position(|name| name == event)?)?.parse::<f64>().ok();
    Some(of("D1mr")? + of("D1mw")?)
}

/// Runs one layout and prints the nanoseconds per packet; called only by [`run`].
pub fn probe(place: &str, numbers: [&str; 3]) -> Result<(), String> {
    let parsed = numbers.map(|number| number.parse::<usize>().ok());
    let [Some(bytes), Some(batch), Some(packets)] = parsed else { return Err("three numbers are needed".to_owned()) };
    let place = if place == "inline" { Place::Inline } else { Place::Apart };
    let mut memory = Memory::new(Layout { bytes, place, batch });
    let mut best = f64::INFINITY;
    for _ in 0..RUNS {
        let begun = Instant::now();
        (0..packets / batch).for_each(|round| memory.batch(round as u8));
        best = best.min(begun.elapsed().as_nanos() as f64 / (packets / batch * batch) as f64);
    }
    println!("{best:.2}");
    Ok(())
}

/// The buffers and records of a layout.
struct Memory {
    layout: Layout,
    buffers: Vec<u8>,
    records: Vec<u8>,
    /// Offset of the first cache line boundary in each.
    starts: [usize; 2],
    /// Offset of a packet's header in its buffer.
    header: usize,
}

impl Memory {
    fn new(layout: Layout) -> Memory {
        let (buffers, records) =
            (vec![0; STRIDE * layout.batch + LINE], vec![0; (layout.bytes + 1) * layout.batch + LINE]);
        let to_line = |bytes: &Vec<u8>| bytes.as_ptr().align_offset(LINE);
        let starts = [to_line(&buffers), to_line(&records)];
        let header = if layout.place == Place::Inline { layout.bytes.next_multiple_of(LINE) } else { 0 };
        Memory { layout, buffers, records, starts, header }
    }

    fn header(&mut self, i: usize) -> &mut [u8] {
        &mut self.buffers[self.starts[0] + i * STRIDE + self.header..][..LINE]
    }

    fn record(&mut self, i: usize) -> &mut [u8] {
        let bytes = self.layout.bytes;
        match self.layout.place {
            Place::Inline => &mut self.buffers[self.starts[0] + i * STRIDE..][..bytes],
            Place::Apart => &mut self.records[self.starts[1] + i * bytes..][..bytes],
        }
    }

    /// Processes a batch from receive to send.
    fn batch(&mut self, round: u8) {
        for i in 0..self.layout.batch {
            self.header(i).fill(round);
            self.record(i).fill(round);
        }
        for i in 0..self.layout.batch {
            let kind = self.header(i)[12];
            if let Some(first) = self.record(i).first_mut() {
                *first = kind;
            }
        }
        let mut sum = 0u64;
        for i in 0..self.layout.batch {
            sum += self.record(i).iter().map(|byte| u64::from(*byte)).sum::<u64>();
            sum += u64::from(self.header(i)[30]);
        }
        for i in 0..self.layout.batch {
            sum += self.record(i).first().map_or(0, |byte| u64::from(*byte)) + u64::from(self.header(i)[0]);
        }
        black_box(sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misses_are_found_in_a_profile() {
        let profile = "desc: D1 cache: 49152 B\nevents: Ir I1mr ILmr Dr D1mr DLmr Dw D1mw DLmw\nfn=x\n1 2\nsummary: 9 8 7 6 50 4 3 20 1\n";
        assert_eq!(sum(profile), Some(70.0));
        assert_eq!(sum("events: Ir\nsummary: 9\n"), None);
    }

    #[test]
    fn a_record_lies_beside_or_before_its_header() {
        for (place, header) in [(Place::Inline, 64), (Place::Apart, 0)] {
            let mut memory = Memory::new(Layout { bytes: 16, place, batch: 4 });
            memory.batch(7);
            assert_eq!((memory.header, memory.record(3).len(), memory.header(3)[63]), (header, 16, 7));
        }
    }
}
