//! The translation, compared with RFC 6296's example and the checksums that it must preserve.

use std::net::Ipv6Addr;

use braid_nf::packet::IpAddress;
use braid_nf::state::{Domain, HugePages, StateBuilder};
use proptest::prelude::*;

use super::Nptv6;
use super::prefix::{Mapping, Unmapped};
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
    assert_eq!(Mapping::new(inside, outside, bits).map(address(from)), Ok(address(to)));
    assert_eq!(Mapping::new(outside, inside, bits).map(address(to)), Ok(address(from)));
}

#[test]
fn addresses_are_mapped_as_in_the_example_of_the_rfc_and_back() {
    check("fd01:203:405::", "2001:db8:1::", 48, "fd01:203:405:1::1234", "2001:db8:1:d550::1234");
    // With longer prefixes: the first word of the interface identifier that is not all ones.
    check("fd01:203:405:7::", "2001:db8:1:9::", 64, "fd01:203:405:7::1234", "2001:db8:1:9:d54d::1234");
    let (from, to) = ("fd01:203:405:7:ffff:1::", "2001:db8:1:9:ffff:d54e::");
    check("fd01:203:405:7::", "2001:db8:1:9::", 64, from, to);
}

#[test]
fn addresses_that_have_no_other_are_not_mapped() {
    let mapping = Mapping::new(number("fd01:203:405::"), number("2001:db8:1::"), 48);
    assert_eq!(mapping.map(address("fd01:203:405:ffff::1")), Err(Unmapped::Subnet));
    assert_eq!(mapping.map(address("fd01:203:406::1")), Err(Unmapped::Subnet), "another prefix");
    let mapping = Mapping::new(number("fd00::"), number("2001:db8::"), 64);
    for identifier in ["ffff:ffff:ffff:ffff", "0:0:0:0"] {
        let from = address(&format!("fd00:0:0:0:{identifier}"));
        assert_eq!(mapping.map(from), Err(Unmapped::Identifier), "{identifier}");
    }
    // An address that would lose its identifier: 0xfd00 - 0x2db9 = 0xcf47 is added, and 0x30b8 is its complement.
    assert_eq!(mapping.map(address("fd00::30b8:0:0:0")), Err(Unmapped::Identifier));
    assert!(mapping.map(address("fd00::30b8:0:0:1")).is_ok());
}

proptest! {
    /// For any prefixes, the sum of the words and thus checksums are preserved, and the reverse mapping restores the
    /// address.
    #[test]
    fn the_mapping_is_neutral_and_leads_back(inside: u128, outside: u128, rest: u128, bits in 1u32..=64) {
        let mask = u128::MAX << (128 - bits);
        let from = (inside & mask | rest & !mask).to_be_bytes();
        // Zero and all ones are equal in one's complement, so only addresses without words of all ones are restored
        // exactly.
        prop_assume!(from.chunks(2).all(|word| word != [0xff, 0xff]));
        let mapped = Mapping::new(inside, outside, bits).map(IpAddress::from_v6(from)).unwrap();
        let sum = |octets: [u8; 16]| {
            octets.chunks(2).map(|word| u64::from(word[0]) << 8 | u64::from(word[1])).sum::<u64>() % 0xffff
        };
        prop_assert_eq!(sum(mapped.octets()), sum(from));
        // With prefixes of fewer than 48 bits, the remaining bits of the prefix's words are not changed.
        prop_assert_eq!(u128::from_be_bytes(mapped.octets()) & mask, outside & mask);
        prop_assert_eq!(Mapping::new(outside, inside, bits).map(mapped), Ok(IpAddress::from_v6(from)));
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
    check_error("inside = '10.0.0.0/8'", "`inside`: 10.0.0.0/8 cannot be exchanged; write an IPv6 unicast prefix");
    check_error(
        "inside = 'fd00::/80'",
        "`inside`: fd00::/80 cannot be exchanged; write an IPv6 unicast prefix of 1 to 64",
    );
    check_error("outside = 'ff02::/16'", "`outside`: ff02::/16 cannot be exchanged; write an IPv6 unicast prefix");
    check_error("outside = 'fd00::/48'", "`outside`: fd00::/48 and fd00::/48 have addresses in common");
    check_error("outside = 'fd00::/32'", "`outside`: fd00::/32 and fd00::/48 have addresses in common");
    check_error("outside = 'fe80::/48'", "`outside`: fe80::/48 cannot be exchanged; write an IPv6 unicast prefix");
    check_error("router = 'ff02::1'", "`router`: ff02::1 is no host's address beyond its link");
    check_error("router = 'fd00:0:0:ffff::1'", "`router`: fd00:0:0:ffff::1 cannot be exchanged");
    check_error("mac = '01:00:5e:00:00:01'", "`mac`: 01:00:5e:00:00:01 is no station's");
    check_error("prefix = 1", "`prefix`: no such key");
}
