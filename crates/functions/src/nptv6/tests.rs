//! The translation, against RFC 6296's example and the checksum that it must not change.

use std::net::Ipv6Addr;

use braid_nf::packet::IpAddress;
use braid_nf::state::{Domain, HugePages, StateBuilder};
use proptest::prelude::*;

use super::Nptv6;
use super::prefix::Mapping;
use crate::catalog::FromConfig;
use crate::config::parse;

fn address(text: &str) -> IpAddress {
    text.parse::<Ipv6Addr>().unwrap().into()
}

fn number(text: &str) -> u128 {
    text.parse::<Ipv6Addr>().unwrap().into()
}

#[track_caller]
fn check(inside: &str, outside: &str, bits: u32, from: &str, to: &str) {
    let (inside, outside) = (number(inside), number(outside));
    assert_eq!(Mapping::new(inside, outside, bits).map(address(from)), Some(address(to)));
    assert_eq!(Mapping::new(outside, inside, bits).map(address(to)), Some(address(from)));
}

#[test]
fn addresses_are_mapped_as_in_the_example_of_the_rfc_and_back() {
    check("fd01:203:405::", "2001:db8:1::", 48, "fd01:203:405:1::1234", "2001:db8:1:d550::1234");
    // Longer prefixes: the first word of the interface identifier that is not all ones.
    check("fd01:203:405:7::", "2001:db8:1:9::", 64, "fd01:203:405:7::1234", "2001:db8:1:9:d54d::1234");
    let (from, to) = ("fd01:203:405:7:ffff:1::", "2001:db8:1:9:ffff:d54e::");
    check("fd01:203:405:7::", "2001:db8:1:9::", 64, from, to);
}

#[test]
fn an_address_without_a_word_to_adjust_is_not_mapped() {
    let mapping = Mapping::new(number("fd01:203:405::"), number("2001:db8:1::"), 48);
    assert_eq!(mapping.map(address("fd01:203:405:ffff::1")), None);
    let mapping = Mapping::new(number("fd00::"), number("2001:db8::"), 64);
    assert_eq!(mapping.map(address("fd00::ffff:ffff:ffff:ffff")), None);
}

proptest! {
    /// Whatever the prefixes: the sum of the words stays, so checksums do, and the way back leads back.
    #[test]
    fn the_mapping_is_neutral_and_leads_back(inside: u128, outside: u128, rest: u128, bits in 1u32..=64) {
        let mask = u128::MAX << (128 - bits);
        let from = (inside & mask | rest & !mask).to_be_bytes();
        // Zero and all ones are one number in this arithmetic, so only addresses without all ones come back as they were.
        prop_assume!(from.chunks(2).all(|word| word != [0xff, 0xff]));
        let mapped = Mapping::new(inside, outside, bits).map(IpAddress::from_v6(from)).unwrap();
        let sum = |octets: [u8; 16]| {
            octets.chunks(2).map(|word| u64::from(word[0]) << 8 | u64::from(word[1])).sum::<u64>() % 0xffff
        };
        prop_assert_eq!(sum(mapped.octets()), sum(from));
        // Prefixes of fewer than 48 bits leave bits of the prefix's words to the rest: they are not touched.
        prop_assert_eq!(u128::from_be_bytes(mapped.octets()) & mask, outside & mask);
        prop_assert_eq!(Mapping::new(outside, inside, bits).map(mapped), Some(IpAddress::from_v6(from)));
    }
}

#[track_caller]
fn check_error(text: &str, expected: &str) {
    let mut builder = StateBuilder::new(&Domain::new(1), HugePages::Never);
    let made = parse(text.parse().unwrap()).and_then(|config| Nptv6::from_config(config, builder.scope("nptv6"), 2));
    let error = made.unwrap_err().to_string();
    assert!(error.starts_with(expected), "{error}");
}

#[test]
fn configurations_that_cannot_work_are_refused_with_what_to_write() {
    check_error("inside = '10.0.0.0/8'", "`inside`: 10.0.0.0/8 cannot be exchanged; write an IPv6 prefix");
    check_error("inside = 'fd00::/80'", "`inside`: fd00::/80 cannot be exchanged; write an IPv6 prefix of 1 to 64");
    check_error("outside = '2001:db8::/32'", "`outside`: 2001:db8::/32 is not as long as fd00::/48");
    check_error("outside = 'fd00::/48'", "`outside`: fd00::/48 is the inside prefix");
    check_error("prefix = 1", "`prefix`: no such key");
}
