//! Compares the program, run by the kernel on synthetic frames, with the steering that it implements.

use aya::programs::{TestRun, TestRunOptions};
use braid_packet::{FieldId, Link, PortSet};
use braid_steer::{Fields, Key, Reta, Steering, Symmetry, Toeplitz};
use braid_testkit::skip::skip;
use proptest::prelude::*;

use super::*;
use crate::device::{CardHash, TUPLE_MAX};

/// The program's answer for a frame that it leaves to user space.
const NOT_UNDERSTOOD: u32 = u32::MAX;
const FIELDS: [FieldId; 4] = [FieldId::IpSrc, FieldId::IpDst, FieldId::SrcPort, FieldId::DstPort];
const WORKERS: usize = 5;
/// The port on which frames arrive.
const PORT: u16 = 1;

/// A plan's steering, and its form for the program.
fn plan(fields: u8, symmetry: Symmetry, udp_ports: bool) -> Option<(Steering, CardHash)> {
    let hashed = [0, 1, 2, 3].map(|i| fields >> i & 1 != 0);
    let chosen = FIELDS.into_iter().zip(hashed).filter(|(_, is_hashed)| *is_hashed).map(|(field, _)| field);
    let reta = Reta::new(128, WORKERS).expect("fits");
    let steering = Steering::new(chosen.collect::<Fields>(), symmetry, &Key::microsoft(), reta).ok()?;
    let steering = if udp_ports { steering } else { steering.without_udp_ports().ok()? };
    let toeplitz = Toeplitz::new(&Key::microsoft());
    let bytes = (0..TUPLE_MAX).flat_map(|at| (0..=255u8).map(move |value| (at, value)));
    let order = match symmetry {
        Symmetry::OneWay => EndOrder::AsTheyStand,
        Symmetry::BothWays => EndOrder::SmallerFirst,
        Symmetry::BySides(outside) => EndOrder::ExchangedAt(outside),
    };
    let contributions = bytes.map(|(at, value)| toeplitz.hash_at(at, &[value])).collect();
    let tuple = Some(TupleHash { fields: hashed, udp_ports, order, contributions });
    let card = CardHash { key: Vec::new(), table: steering.reta().entries().to_vec(), tuple };
    Some((steering, card))
}

fn loaded(card: &CardHash) -> io::Result<Program> {
    let lanes = Lanes { receivers: WORKERS, senders: 1, hash: Some(card), port: PORT };
    let mut program = Program::load(&[], &lanes, Steered::of(&lanes).as_ref())?;
    program.named("tell").load().map_err(as_io)?;
    Ok(program)
}

/// The worker that the program chooses for a frame.
fn told(program: &mut Program, frame: &[u8]) -> u32 {
    let options = TestRunOptions { data_in: Some(frame), ..TestRunOptions::default() };
    program.named("tell").test_run(options).expect("the kernel runs it").return_value
}

#[derive(Clone, Debug)]
struct Made {
    bytes: Vec<u8>,
    /// Whether the program must understand the frame.
    is_plain: bool,
}

/// Extension headers, of known kinds and one unknown kind: for each, its own number and its bytes.
fn extensions() -> impl Strategy<Value = Vec<(u8, Vec<u8>)>> {
    let kind = prop::sample::select(vec![0u8, 43, 44, 51, 60, 135, 139, 140, 253]);
    let extension = (kind, 0..4u8, any::<[u8; 40]>(), prop::bool::weighted(0.7)).prop_map(
        |(kind, length, mut random, is_first)| {
            random[1] = length;
            if kind == 44 && is_first {
                random[2..4].fill(0);
            }
            let len = match kind {
                44 => 8,
                51 => (usize::from(length) + 2) * 4,
                _ => (usize::from(length) + 1) * 8,
            };
            (kind, random[..len].to_vec())
        },
    );
    prop_oneof![3 => Just(Vec::new()), 2 => prop::collection::vec(extension.clone(), 1..4), 1 => prop::collection::vec(extension, 4..12)]
}

/// A frame with tags, an IPv4 header with options or an IPv6 header with extension headers, and a payload, possibly truncated.
fn frame() -> impl Strategy<Value = Made> {
    let protocol =
        prop_oneof![4 => Just(6u8), 4 => Just(17), 1 => Just(132), 1 => Just(1), 1 => Just(44), 1 => any::<u8>()];
    let tags = prop::collection::vec(prop::sample::select(vec![0x8100u16, 0x88a8, 0x9100]), 0..4);
    let offset = prop_oneof![3 => Just(0x4000u16), 1 => any::<u16>()];
    let words = prop_oneof![3 => Just(5u8), 2 => 6..16u8];
    let lens = (words, prop_oneof![3 => Just(usize::MAX), 1 => 14usize..90], extensions());
    (any::<[u8; 60]>(), tags, protocol, offset, any::<bool>(), lens).prop_map(
        |(mut random, tags, protocol, offset, is_v6, (words, cut, extensions))| {
            let mut bytes = vec![2; 12];
            tags.iter().for_each(|tag| bytes.extend([(tag >> 8) as u8, *tag as u8, 0, 7]));
            bytes.extend(if is_v6 { [0x86, 0xdd] } else { [0x08, 0x00] });
            if is_v6 {
                let numbers = extensions.iter().map(|(kind, _)| *kind).chain([protocol]).collect::<Vec<_>>();
                (random[0], random[6]) = (0x60, numbers[0]);
                bytes.extend(&random[..40]);
                for ((_, header), next) in extensions.iter().zip(&numbers[1..]) {
                    bytes.push(*next);
                    bytes.extend(&header[1..]);
                }
                bytes.extend(&random[40..]);
            } else {
                (random[0], random[9]) = (0x40 | words, protocol);
                random[6..8].copy_from_slice(&offset.to_be_bytes());
                bytes.extend(random);
            }
            bytes.extend([9; 20]);
            let is_cut = bytes.len() > cut;
            bytes.truncate(cut);
            // The payload behind the extensions may look like another extension header.
            let is_known = !is_v6 || extensions.len() < 8 && matches!(protocol, 1 | 6 | 17 | 132);
            Made { bytes, is_plain: !is_cut && tags.len() <= 2 && is_known }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn the_program_chooses_the_worker_that_the_plan_chooses(
        fields in 1u8..16, symmetry in 0..4, udp_ports: bool, frames in prop::collection::vec(frame(), 40)
    ) {
        let outside = PortSet::of([PORT]);
        let symmetry = match symmetry {
            0 => Symmetry::OneWay,
            1 => Symmetry::BothWays,
            2 => Symmetry::BySides(outside),
            _ => Symmetry::BySides(PortSet::default()),
        };
        let Some((steering, card)) = plan(fields, symmetry, udp_ports) else { return Ok(()) };
        let mut program = match loaded(&card) {
            Ok(program) => program,
            Err(error) => {
                skip("the steering program", &format!("no XDP program may be loaded ({error})"));
                return Ok(());
            }
        };
        for Made { bytes, is_plain } in frames {
            let (told, wanted) = (told(&mut program, &bytes), steering.queue(&bytes, Link::Ethernet, PORT) as u32);
            prop_assert!(told == wanted || told == NOT_UNDERSTOOD && !is_plain, "{told}, not {wanted}: {bytes:02x?}");
        }
    }
}

/// A UDP packet over IPv4 or, with a fragment header, over IPv6: the offset of the fragment in units of eight bytes, and its ports.
fn udp(is_v6: bool, offset: u16, ports: [u16; 2]) -> Vec<u8> {
    let mut bytes = vec![2; 12];
    if is_v6 {
        bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 48, 44, 64]);
        bytes.extend([[0x20; 16], [0x21; 16]].concat());
        bytes.extend([&[17, 0], &(offset << 3 | 1).to_be_bytes()[..], &[0, 0, 0, 7]].concat());
    } else {
        bytes.extend([8, 0, 0x45, 0, 0, 68, 0, 7]);
        bytes.extend([&(0x2000 | offset).to_be_bytes()[..], &[64, 17, 0, 0, 10, 0, 0, 1, 192, 0, 2, 1]].concat());
    }
    bytes.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
    bytes.extend([0; 36]);
    bytes
}

#[test]
fn fragments_of_udp_come_to_one_worker_where_its_ports_are_left_out() {
    for symmetry in [Symmetry::OneWay, Symmetry::BothWays] {
        let (steering, card) = plan(15, symmetry, false).expect("addresses and ports steer");
        let mut program = match loaded(&card) {
            Ok(program) => program,
            Err(error) => return skip("fragments of UDP", &format!("no XDP program may be loaded ({error})")),
        };
        for is_v6 in [false, true] {
            let frames = [udp(is_v6, 0, [4000, 53]), udp(is_v6, 185, [1, 2]), udp(is_v6, 0, [4001, 53])];
            let workers = frames.each_ref().map(|frame| told(&mut program, frame));
            assert_eq!(workers, [steering.queue(&frames[0], Link::Ethernet, PORT) as u32; 3], "IPv6: {is_v6}");
        }
    }
}

#[test]
fn without_a_plan_it_leaves_all_to_user_space() {
    let lanes = Lanes { receivers: 1, senders: 1, hash: None, port: 0 };
    let program = Program::load(&[], &lanes, None).and_then(|mut program| {
        program.named("tell").load().map_err(as_io)?;
        Ok(program)
    });
    match program {
        Ok(mut program) => assert_eq!(told(&mut program, &[0; 64]), NOT_UNDERSTOOD),
        Err(error) => skip("the program without a plan", &format!("no XDP program may be loaded ({error})")),
    }
}
