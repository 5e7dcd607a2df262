//! More first packets than tables have room for, and frames that are none: what is known goes on, what was refused is counted.

use std::fs::File;
use std::io::Write;
use std::time::Duration;

use braid_testkit::Frame;

use crate::scene::{EXTERNAL, SERVER, connect, eventually, pings};

/// Frames of each storm.
const FRAMES: u32 = 20_000;

/// The first segment of another connection each time.
fn first_segment(number: u32) -> Vec<u8> {
    let [_, _, high, low] = number.to_be_bytes();
    Frame::tcp(&format!("10.7.{high}.{low}:1024"), &format!("{SERVER}:80")).flags("S").bytes()
}

/// A frame cut off somewhere, or with a byte in its headers that makes no sense.
fn damaged(number: u32) -> Vec<u8> {
    let mut frame = first_segment(number);
    match number % 3 {
        0 => frame.truncate(15 + (number as usize / 3) % 38),
        1 => frame[14] = (number / 3) as u8,
        _ => frame[16] = 0xff,
    }
    frame
}

fn storm(sender: &mut File, frame: fn(u32) -> Vec<u8>) {
    // The cable may be full for a moment: a storm does not mind.
    (0..FRAMES).for_each(|number| drop(sender.write(&frame(number))));
}

#[test]
fn a_flood_of_first_packets_and_of_damaged_ones_leaves_known_connections_alone() {
    let Some(scene) = crate::scene("floods") else { return };
    for back_end in crate::BACK_ENDS {
        let braid = scene.run_braid(&format!(
            "--nf firewall,nat --set nat.external=[\"{EXTERNAL}\"] --sets 2000 --port {back_end}:m0 --port {back_end}:m1"
        ));
        eventually("the first echo comes back", || pings(&scene.client, SERVER));
        let mut held = connect(&scene.client, &scene.server, SERVER, 7000, Duration::from_secs(10)).expect("TCP");
        held.talk();
        let mut sender = scene.client.frame_sender("c0").expect("the cable is there");
        storm(&mut sender, damaged);
        held.talk();
        storm(&mut sender, first_segment);
        held.talk();
        held.transfer(1 << 20);
        let report = braid.stop();
        let dropped = |reason: &str| report["dropped"][reason].as_u64().unwrap_or(0);
        println!("{back_end}: {}", report["dropped"]);
        assert!(dropped("set_table_full") > 0 && dropped("malformed") > 0, "{back_end}: {report}");
    }
}
