//! `braid gen`: generated traffic into a capture file.

use std::process::ExitCode;

use braid_control::report::grouped;
use braid_control::runtime::io::capture::{CaptureWriter, Precision};
use braid_control::runtime::io::generate::Generator;
use braid_control::runtime::io::{FrameStream, Next};

use super::print;
use crate::args::GenArgs;
use crate::failure::Failure;
use crate::generated;

/// Runs it.
pub fn run(args: &GenArgs) -> Result<ExitCode, Failure> {
    let specification = args.profile.strip_prefix("gen:").unwrap_or(&args.profile);
    let mut stream = Generator::new(generated::config(specification)?).map_err(generated::refused)?;
    let mut file = CaptureWriter::create(&args.to, Precision::Nanoseconds)?;
    let (mut packets, mut bytes) = (0, 0);
    while stream.advance() == Next::Frame {
        let (frame, info) = stream.frame();
        file.write(frame, &info);
        packets += 1;
        bytes += u64::from(info.wire_len);
    }
    file.finish()?;
    print(&format!("{}: {} packets, {} bytes\n", args.to.display(), grouped(packets), grouped(bytes)))?;
    Ok(ExitCode::SUCCESS)
}
