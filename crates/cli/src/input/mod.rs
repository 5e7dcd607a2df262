//! Interprets `--in` and `--out`: captures, one for each port, and generated traffic.

pub mod generated;
pub(super) mod inspect_capture;
pub(super) mod numbers;

use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::failure::{Failure, Kind};
use crate::stderr::asideln;

use braid_control::Plan;
use braid_control::frames::Frames;
use braid_control::profile::counted;
use braid_control::runtime::io::capture::{
    CaptureSink, CaptureSource, CaptureWriter, Damage, PortSplit, Precision, interface_names,
};
use braid_control::runtime::io::generate::{GenConfig, Generator, GeneratorSource};
use braid_control::runtime::io::{FrameStream, NullSink, Sink, Source};

/// Where packets come from.
#[derive(Clone, Debug)]
pub enum Input {
    /// Capture files: one that is split by port, or one for each port.
    Captures(Vec<PathBuf>, PortSplit),
    /// Generated traffic, with its specification.
    Generated(String, Box<GenConfig>),
}

/// Splits `PORT=FILE` into its parts.
pub fn port_of(text: &str) -> Option<(usize, &str)> {
    let (port, file) = text.split_once('=')?;
    Some((port.parse().ok()?, file))
}

/// Whether files are named for ports.
fn name_ports(texts: &[String]) -> bool {
    texts.iter().any(|text| port_of(text).is_some())
}

/// Sorts files by port; either all of them name a port or none does.
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
        let what = format!("{option} names files for ports, but not one for each");
        Failure::usage(what, "number them from 0 without gaps: 0=a.pcap, 1=b.pcap")
    })
}

impl Input {
    /// The input that a plan specifies.
    pub fn of(plan: &Plan) -> Result<Input, Failure> {
        let generated = plan.from.iter().find_map(|text| text.strip_prefix("gen:"));
        match generated {
            None if plan.from.is_empty() => {
                let help = "add --in capture.pcap, or --in 'gen:backbone?packets=1000000' for generated traffic";
                Err(Failure::usage("no input is named", help))
            }
            None if name_ports(&plan.from) && plan.from.len() == 1 && plan.split_is_asked => {
                let help = "leave `split` out, or name the capture without a port";
                Err(Failure::usage("what comes by a port that an input names is not split", help))
            }
            None if name_ports(&plan.from) => Ok(Input::Captures(by_port(&plan.from, "--in")?, PortSplit::Single)),
            None => Ok(Input::Captures(by_port(&plan.from, "--in")?, plan.split.clone())),
            Some(_) if plan.from.len() > 1 => {
                Err(Failure::usage("generated traffic cannot be mixed with other inputs", "name one input"))
            }
            Some(_) if matches!(plan.split, PortSplit::Interface(_)) => {
                let help = "name a capture, or another split: single, inside, mac_hash";
                Err(Failure::usage("generated traffic comes by no interface", help))
            }
            Some(specification) => {
                let mut config = generated::config(specification)?;
                if plan.split_is_asked || matches!(plan.split, PortSplit::MacHash(_)) {
                    config.split = Some(plan.split.clone());
                }
                if matches!(plan.split, PortSplit::MacHash(_)) && !specification.contains("mac_pairs=") {
                    // With only two stations, a bridge would show nothing.
                    config.mac_pairs = 256;
                }
                config.check().map_err(generated::refused)?;
                Ok(Input::Generated(specification.to_owned(), Box::new(config)))
            }
        }
    }

    /// The name of the input.
    pub fn name(&self) -> String {
        match self {
            Input::Captures(paths, _) => {
                paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
            }
            Input::Generated(name, _) => format!("gen:{name}"),
        }
    }

    /// What its ports are called, if they are the interfaces of a capture.
    fn port_names(&self) -> Vec<String> {
        match self {
            Input::Captures(paths, PortSplit::Interface(_)) if paths.len() == 1 => interface_names(&paths[0]),
            _ => Vec::new(),
        }
    }

    /// Notes on captures, before they are read.
    pub fn notes(&self) -> Vec<String> {
        let Input::Captures(paths, split) = self else { return Vec::new() };
        // Input from a pipe can be read only once.
        let files: Vec<&PathBuf> = paths.iter().filter(|path| path.is_file()).collect();
        let inside = match (split, files.as_slice()) {
            (PortSplit::InsidePrefixes(inside), [_]) if paths.len() == 1 => inside.as_slice(),
            _ => &[],
        };
        files.into_iter().flat_map(|path| inspect_capture::notes(path, inside)).collect()
    }

    /// Makes a source of the input.
    pub fn source(&self) -> Result<Box<dyn Source>, Failure> {
        Ok(match self {
            Input::Captures(paths, split) => Box::new(CaptureSource::new(paths.clone()).split(split.clone())),
            Input::Generated(name, config) => {
                Box::new(GeneratorSource::new(name, (**config).clone()).map_err(generated::refused)?)
            }
        })
    }

    /// Reads the first frames into memory; prints a message if they end at damage, and returns where.
    pub fn frames(&self, limit: usize) -> Result<(Frames, Vec<Damage>), Failure> {
        let mut stream: Box<dyn FrameStream> = match self {
            Input::Captures(paths, split) => {
                Box::new(CaptureSource::new(paths.clone()).split(split.clone()).into_stream()?)
            }
            Input::Generated(_, config) => Box::new(Generator::new((**config).clone()).map_err(generated::refused)?),
        };
        let frames = Frames::read(&mut *stream, limit);
        let damages = stream.damages();
        damages
            .iter()
            .for_each(|damage| asideln!("note: {damage}; before it: {}", counted(frames.len() as u64, "packet")));
        Ok((frames, damages.to_vec()))
    }
}

/// The final failure of a command whose input was damaged; everything before the damage has been processed.
pub fn undamaged(damages: &[impl std::fmt::Display]) -> Result<(), Failure> {
    let end = |damage| Err(Failure::new(Kind::Io, format!("{damage}"), "what stands before it was handled"));
    damages.first().map_or(Ok(()), end)
}

/// Whether two paths lead to the same regular file, also to one that is not there yet. Pipes and devices may be both read and written.
pub fn is_same_file(one: &Path, other: &Path) -> bool {
    match (one.metadata(), other.metadata()) {
        (Ok(one), Ok(other)) => one.is_file() && (one.dev(), one.ino()) == (other.dev(), other.ino()),
        // `-` is standard input and standard output.
        (Err(_), Err(_)) if one != Path::new("-") => to_come(one).is_some_and(|file| to_come(other) == Some(file)),
        _ => false,
    }
}

/// The folder, however it is named, and the name there of a file that is not there yet.
fn to_come(path: &Path) -> Option<(PathBuf, &OsStr)> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Some((folder.canonicalize().ok()?, path.file_name()?))
}

/// Refuses to write into a file that is also read, or twice into the same file.
pub fn spared(input: Option<&Input>, outputs: &[PathBuf]) -> Result<(), Failure> {
    let inputs = if let Some(Input::Captures(paths, _)) = input { paths.as_slice() } else { &[] };
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

/// The output files of a plan, by port, and whether each port has its own file. Each name must imply a format, and none may be an input.
pub fn outputs(plan: &Plan, input: Option<&Input>) -> Result<(Vec<PathBuf>, bool), Failure> {
    let texts: Vec<String> = plan.to.iter().map(|path| path.display().to_string()).collect();
    let paths = by_port(&texts, "--out")?;
    paths.iter().try_for_each(|path| CaptureWriter::check_name(path))?;
    spared(input, &paths)?;
    let ports = usize::from(plan.ports);
    let per_port = paths.len() > 1 || name_ports(&texts);
    if per_port && paths.len() != ports {
        let (ports, files) = (counted(ports as u64, "port"), counted(paths.len() as u64, "file"));
        let what = format!("the plan has {ports}, and for them it names {files}");
        return Err(Failure::usage(what, "name one file for all ports, or one for each"));
    }
    Ok((paths, per_port))
}

/// The sink of a plan.
pub fn sink(plan: &Plan, input: &Input) -> Result<Box<dyn Sink>, Failure> {
    let (mut paths, per_port) = outputs(plan, Some(input))?;
    Ok(match paths.pop() {
        None => Box::new(NullSink),
        Some(only) if !per_port => {
            let sink = CaptureSink::new(only).precision(Precision::Nanoseconds);
            Box::new(sink.named(input.port_names()).of_ports(plan.ports))
        }
        Some(last) => {
            paths.push(last);
            Box::new(CaptureSink::per_port(paths).precision(Precision::Nanoseconds).named(input.port_names()))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_for_ports_come_in_their_order() {
        let files = |texts: &[&str]| by_port(&texts.iter().map(|&t| t.to_owned()).collect::<Vec<_>>(), "--in");
        assert_eq!(files(&["1=b", "0=a"]).unwrap(), [PathBuf::from("a"), PathBuf::from("b")]);
        assert!(files(&["0=a", "2=b"]).is_err());
        assert!(files(&["0=a", "b"]).is_err());
    }

    #[test]
    fn a_file_that_is_not_there_yet_is_the_same_however_it_is_named() {
        let folder = std::env::temp_dir();
        let (one, other) = (folder.join("not-there-yet.pcap"), folder.join(".").join("not-there-yet.pcap"));
        assert!(is_same_file(&one, &other));
        assert!(!is_same_file(&one, &folder.join("nor-this.pcap")));
        assert!(is_same_file(Path::new("nowhere.pcap"), Path::new("./nowhere.pcap")));
        assert!(!is_same_file(Path::new("-"), Path::new("-")));
    }
}
