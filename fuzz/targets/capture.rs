//! Bytes as a capture file: pcap, pcapng, either in gzip. However damaged it is, reading ends, and says so without a panic.
#![no_main]

use std::io::Cursor;
use std::path::Path;

use braid_io::capture::CaptureReader;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(mut reader) = CaptureReader::new(Path::new("fuzz"), Cursor::new(bytes.to_vec())) else { return };
    let mut packets = 0;
    while let Ok(true) = reader.advance() {
        let captured = reader.captured();
        let _ = (captured.link(), captured.bytes.len(), captured.timestamp_ns);
        packets += 1;
        // gzip makes at most 1032 bytes of one, and an empty packet takes 16
        assert!(packets <= 1 + bytes.len() * 65, "more packets than the file can hold");
    }
    assert!(!matches!(reader.advance(), Ok(true)), "a packet after the end");
});
