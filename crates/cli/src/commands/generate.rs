//! `braid gen`: writes generated traffic to a capture file.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use braid_control::report::grouped_of;
use braid_control::runtime::io::capture::{CaptureWriter, Precision};
use braid_control::runtime::io::generate::Generator;
use braid_control::runtime::io::{FrameStream, Next};

use super::print;
use crate::args::GenArgs;
use crate::failure::{Failure, Kind};
use crate::input::generated;
use crate::run::watch;

/// Runs the command.
pub fn run(args: &GenArgs) -> Result<ExitCode, Failure> {
    let specification = args.profile.strip_prefix("gen:").unwrap_or(&args.profile);
    let mut stream = Generator::new(generated::config(specification)?).map_err(generated::refused)?;
    let mut file = CaptureWriter::create_whole(&args.to, Precision::Nanoseconds)?;
    let stop = Arc::new(AtomicBool::new(false));
    watch::stop_on_signal(&stop)?;
    let (mut packets, mut bytes) = (0, 0);
    // Relaxed: the flag carries no data.
    while !stop.load(Ordering::Relaxed) && stream.advance() == Next::Frame {
        let (frame, info) = stream.frame();
        file.write(frame, &info);
        packets += 1;
        bytes += u64::from(info.wire_len);
    }
    if stop.load(Ordering::Relaxed) {
        let what = format!("{}: interrupted after {}", args.to.display(), grouped_of(packets, "packet"));
        return Err(Failure::new(Kind::Failed, what, "no file is written"));
    }
    file.finish().map_err(|error| Failure::new(Kind::Io, error.to_string(), "no file is written"))?;
    let (packets, bytes) = (grouped_of(packets, "packet"), grouped_of(bytes, "byte"));
    print(&format!("{}: {packets}, {bytes}\n", args.to.display()))?;
    Ok(ExitCode::SUCCESS)
}
