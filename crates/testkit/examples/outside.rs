//! Makes of a capture that was recorded inside what enters a gateway that translates: what comes from inside stays, answers are
//! addressed to what the translator chose. IPv4; other packets stay as they are.
//!
//! ```sh
//! cargo run -p braid-testkit --example outside -- tests/traffic/gateway.pcapng tests/traffic/home.pcapng.gz
//! ```

use std::path::PathBuf;

use braid_functions::find;
use braid_io::capture::{CaptureSource, CaptureWriter, PortSplit, Precision};
use braid_io::{FrameStream, Next};
use braid_testkit::Bench;
use braid_testkit::kernel::Replies;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut paths = std::env::args().skip(1).map(PathBuf::from);
    let (Some(from), Some(to)) = (paths.next(), paths.next()) else { return Err("two captures: from, to".into()) };
    let inside = ["10.0.0.0/8", "fd00::/8"].into_iter().map(str::parse).collect::<Result<_, _>>()?;
    let mut stream = CaptureSource::new(vec![from]).split(PortSplit::InsidePrefixes(inside)).into_stream()?;
    let nat = find("nat")?;
    let mut bench = Bench::new(2, |builder| {
        (nat.build)("nat", toml::Table::new(), builder, 2).expect("its defaults are a configuration")
    });
    let (mut replies, mut kept, mut chosen) = (Replies::default(), 0, 0);
    let mut writer = CaptureWriter::create(&to, Precision::default())?;
    while stream.advance() == Next::Frame {
        let (frame, info) = stream.frame();
        if info.port == 0 {
            if let [(1, translated)] = &bench.send_info(info, frame).sent[..] {
                replies.learn(frame, translated);
                let (here, there) = (source_port(frame), source_port(translated));
                if here == there { kept += 1 } else { chosen += 1 }
            }
            writer.write(frame, &info);
        } else {
            writer.write(&replies.readdress(frame).unwrap_or_else(|| frame.to_vec()), &info);
        }
    }
    writer.finish()?;
    println!("{kept} packets kept their port, {chosen} were given another");
    Ok(())
}

/// The two bytes where most packets have their source port.
fn source_port(frame: &[u8]) -> Option<&[u8]> {
    frame.get(34..36)
}
