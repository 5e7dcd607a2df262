//! What `--in` and `--out` mean: captures, one for each port, generated traffic.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use braid_control::Plan;
use braid_control::frames::Frames;
use braid_control::runtime::io::capture::{
    CaptureReader, CaptureSink, CaptureSource, PortSplit, Prefix, source_address,
};
use braid_control::runtime::io::generate::{Arrivals, FrameSizes, GenConfig, Generator, GeneratorSource, Profile};
use braid_control::runtime::io::{FrameStream, NullSink, Sink, Source};
use braid_control::suggest::nearest;

use crate::failure::Failure;

/// Packets of a generator that nothing is said about.
const PACKETS_DEFAULT: u64 = 1_000_000;

/// Packets of a capture that are looked at before a run.
const LOOKED_AT: usize = 10_000;

/// Where packets come from.
#[derive(Clone, Debug)]
pub enum Input {
    /// Capture files: one, split by port, or one for each port.
    Captures(Vec<PathBuf>, PortSplit),
    /// Generated traffic under its specification.
    Generated(String, Box<GenConfig>),
}

/// `PORT=FILE` in its parts.
pub fn port_of(text: &str) -> Option<(usize, &str)> {
    let (port, file) = text.split_once('=')?;
    Some((port.parse().ok()?, file))
}

/// Files by port: all with their port, or none.
fn by_port(texts: &[String], option: &str) -> Result<Vec<PathBuf>, Failure> {
    let named: Vec<_> = texts.iter().filter_map(|text| port_of(text)).collect();
    if named.is_empty() {
        return Ok(texts.iter().map(PathBuf::from).collect());
    }
    let mut files = vec![None; texts.len()];
    for (port, file) in &named {
        match files.get_mut(*port) {
            Some(place @ None) => *place = Some(PathBuf::from(file)),
            _ => break,
        }
    }
    files.into_iter().collect::<Option<Vec<_>>>().ok_or_else(|| {
        let help = format!("number them from 0 without gaps: {option} 0=a.pcap {option} 1=b.pcap");
        Failure::usage(format!("{option} names files for ports, but not one for each"), help)
    })
}

impl Input {
    /// What a plan says about it; `explicit_split` if the split was asked for rather than wished by a function.
    pub fn of(plan: &Plan, explicit_split: bool) -> Result<Input, Failure> {
        let generated = plan.from.iter().find_map(|text| text.strip_prefix("gen:"));
        match generated {
            None if plan.from.is_empty() => {
                let help = "add --in capture.pcap, or --in 'gen:backbone?packets=1000000' for generated traffic";
                Err(Failure::usage("no input is named", help))
            }
            None => Ok(Input::Captures(by_port(&plan.from, "--in")?, plan.split.clone())),
            Some(_) if plan.from.len() > 1 => {
                Err(Failure::usage("generated traffic cannot be mixed with other inputs", "name one input"))
            }
            Some(specification) => {
                let mut config = generator(specification)?;
                if explicit_split || matches!(plan.split, PortSplit::MacHash(_)) {
                    config.split = Some(plan.split.clone());
                }
                if matches!(plan.split, PortSplit::MacHash(_)) && !specification.contains("mac_pairs=") {
                    // A bridge with two stations would show nothing.
                    config.mac_pairs = 256;
                }
                Ok(Input::Generated(specification.to_owned(), Box::new(config)))
            }
        }
    }

    /// What it is called.
    pub fn name(&self) -> String {
        match self {
            Input::Captures(paths, _) => {
                paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
            }
            Input::Generated(name, _) => format!("gen:{name}"),
        }
    }

    /// Refuses to write into a file that is read, or twice into one.
    pub fn spared_by(&self, outputs: &[PathBuf]) -> Result<(), Failure> {
        let inputs = if let Input::Captures(paths, _) = self { paths.as_slice() } else { &[] };
        for (at, output) in outputs.iter().enumerate() {
            let name = output.display();
            if inputs.iter().any(|input| is_same_file(input, output)) {
                let help = "name another file to write: nothing was changed";
                return Err(Failure::usage(format!("{name} is to be read and written"), help));
            }
            if outputs[..at].iter().any(|other| other == output || is_same_file(other, output)) {
                return Err(Failure::usage(format!("{name} is to be written twice"), "name a file for each port"));
            }
        }
        Ok(())
    }

    /// What is to be said of a capture that is split by inside addresses and has none: its packets would all come in from
    /// outside, and a gateway would do nothing.
    pub fn note(&self) -> Option<String> {
        let Input::Captures(paths, PortSplit::InsidePrefixes(inside)) = self else { return None };
        let [path] = paths.as_slice() else { return None };
        let mut reader = path.is_file().then(|| CaptureReader::open(path).ok()).flatten()?;
        let mut outside = None;
        for _ in 0..LOOKED_AT {
            if !reader.advance().is_ok_and(|is_packet| is_packet) {
                break;
            }
            let captured = reader.captured();
            let Some(source) = source_address(captured.bytes, captured.link()) else { continue };
            if inside.iter().any(|prefix| prefix.contains(source)) {
                return None;
            }
            outside.get_or_insert(source);
        }
        let source = outside?;
        let len = if source.is_ipv4() { 24 } else { 64 };
        Some(format!(
            "no packet comes from inside ({}); if {source} is inside, say so: --inside {source}/{len}",
            inside.iter().map(Prefix::to_string).collect::<Vec<_>>().join(", ")
        ))
    }

    /// As a source.
    pub fn source(&self) -> Result<Box<dyn Source>, Failure> {
        Ok(match self {
            Input::Captures(paths, split) => Box::new(CaptureSource::new(paths.clone()).split(split.clone())),
            Input::Generated(name, config) => {
                let source = GeneratorSource::new(name, (**config).clone());
                Box::new(source.map_err(|error| Failure::usage(error.to_string(), GENERATOR_HELP))?)
            }
        })
    }

    /// Its first frames, in memory.
    pub fn frames(&self, limit: usize) -> Result<Frames, Failure> {
        let mut stream: Box<dyn FrameStream> = match self {
            Input::Captures(paths, split) => {
                Box::new(CaptureSource::new(paths.clone()).split(split.clone()).into_stream()?)
            }
            Input::Generated(_, config) => Box::new(generator_of(config)?),
        };
        Ok(Frames::read(&mut *stream, limit))
    }
}

/// A generator of a configuration.
pub fn generator_of(config: &GenConfig) -> Result<Generator, Failure> {
    Generator::new(config.clone()).map_err(|error| Failure::usage(error.to_string(), GENERATOR_HELP))
}

const GENERATOR_HELP: &str = "keys are packets, flows, seed, size, rate, burst, reverse, ipv6, arp, fragments, mac_pairs: \
gen:backbone?flows=100000&packets=1000000&seed=1";
const GENERATOR_KEYS: [&str; 11] =
    ["packets", "flows", "seed", "size", "rate", "burst", "reverse", "ipv6", "arp", "fragments", "mac_pairs"];

/// `PROFILE?key=value&key=value`.
pub fn generator(specification: &str) -> Result<GenConfig, Failure> {
    let (name, keys) = specification.split_once('?').unwrap_or((specification, ""));
    let profile: Profile = name.parse().map_err(|_| {
        let known: Vec<&str> = Profile::ALL.into_iter().map(Profile::name).collect();
        let help = match nearest(name, known.iter().copied()) {
            Some(right) => format!("write gen:{right}"),
            None => format!("possible are: {}", known.join(", ")),
        };
        Failure::usage(format!("there is no traffic profile `{name}`"), help)
    })?;
    let pairs: Vec<(&str, &str)> = keys
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split_once('=').ok_or_else(|| Failure::usage(format!("`{pair}` has no `=`"), GENERATOR_HELP)))
        .collect::<Result<_, _>>()?;
    let packets = pairs.iter().find(|(key, _)| *key == "packets").map_or(Ok(PACKETS_DEFAULT), |(_, n)| number(n))?;
    let mut config = profile.config(packets);
    for (key, value) in pairs {
        set(&mut config, key, value)?;
    }
    Ok(config)
}

fn set(config: &mut GenConfig, key: &str, value: &str) -> Result<(), Failure> {
    match key {
        "packets" => {}
        "flows" => config.flows = number(value)?,
        "seed" => config.seed = number(value)?,
        "size" => config.frame_sizes = FrameSizes::Fixed(number(value)?),
        "rate" => config.arrivals = Arrivals { rate_pps: number(value)?, ..config.arrivals },
        "burst" => config.arrivals = Arrivals { cv: number(value)?, ..config.arrivals },
        "reverse" => config.reverse = number(value)?,
        "ipv6" => config.ipv6 = number(value)?,
        "arp" => config.arp = number(value)?,
        "fragments" => config.fragments = number(value)?,
        "mac_pairs" => config.mac_pairs = number(value)?,
        unknown => {
            let help = match nearest(unknown, GENERATOR_KEYS) {
                Some(right) => format!("write {right}={value}"),
                None => GENERATOR_HELP.to_owned(),
            };
            return Err(Failure::usage(format!("generated traffic has no key `{unknown}`"), help));
        }
    }
    Ok(())
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, Failure> {
    let plain = text.replace('_', "");
    plain.parse().map_err(|_| Failure::usage(format!("`{text}` is no number that fits here"), GENERATOR_HELP))
}

/// Whether two paths lead to one regular file. Pipes and devices may well be read and written.
fn is_same_file(one: &Path, other: &Path) -> bool {
    match (one.metadata(), other.metadata()) {
        (Ok(one), Ok(other)) => one.is_file() && (one.dev(), one.ino()) == (other.dev(), other.ino()),
        _ => false,
    }
}

/// Where a plan's packets go, none of it what they come from.
pub fn sink(plan: &Plan, input: &Input) -> Result<Box<dyn Sink>, Failure> {
    let texts: Vec<String> = plan.to.iter().map(|path| path.display().to_string()).collect();
    let mut paths = by_port(&texts, "--out")?;
    input.spared_by(&paths)?;
    let ports = usize::from(plan.ports);
    let per_port = paths.len() > 1 || texts.iter().any(|text| port_of(text).is_some());
    if per_port && paths.len() != ports {
        let what = format!("the plan has {ports} ports, and {} files are named for them", paths.len());
        return Err(Failure::usage(what, "name one file for all ports, or one for each"));
    }
    Ok(match paths.pop() {
        None => Box::new(NullSink),
        Some(only) if !per_port => Box::new(CaptureSink::new(only)),
        Some(last) => {
            paths.push(last);
            Box::new(CaptureSink::per_port(paths))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specifications_are_read_and_slips_are_named() {
        let config = generator("backbone?flows=1_000&packets=5000&seed=7&size=60").unwrap();
        assert_eq!((config.flows, config.packets, config.seed), (1000, 5000, 7));
        let failure = |text: &str| generator(text).unwrap_err().render();
        assert!(failure("bakbone").contains("gen:backbone"));
        assert!(failure("backbone?flow=3").contains("flows=3"));
        assert!(failure("backbone?flows=many").contains("no number"));
    }

    #[test]
    fn files_for_ports_come_in_their_order() {
        let files = |texts: &[&str]| by_port(&texts.iter().map(|&t| t.to_owned()).collect::<Vec<_>>(), "--in");
        assert_eq!(files(&["1=b", "0=a"]).unwrap(), [PathBuf::from("a"), PathBuf::from("b")]);
        assert!(files(&["0=a", "2=b"]).is_err());
        assert!(files(&["0=a", "b"]).is_err());
    }
}
