//! Conditions on a packet's time: hours, days and dates.

use braid_testkit::Frame;

use super::check;
use super::conditions::{SEEN, Seen, fits};
use super::known::bench_of;
use super::rules::{PORTS, named, read_text};
use crate::firewall::conditions::fields::Field;
use crate::firewall::{UtcOffset, When, explain};

/// Monday, 2026-11-23, midnight.
const MONDAY_S: u64 = 1_795_392_000;

fn hour(text: &str) -> u64 {
    let (hours, rest) = text.split_once(':').expect("an hour");
    let (minutes, seconds) = rest.split_once(':').unwrap_or((rest, "0"));
    let [hours, minutes, seconds] = [hours, minutes, seconds].map(|part| part.parse::<u64>().expect("a number"));
    hours * 3600 + minutes * 60 + seconds
}

/// As translated by `nft --debug=netlink` 1.0.6 in time zone UTC: a range over midnight excludes its ends.
#[test]
fn hours_mean_what_nftables_means_by_them() {
    for (condition, fit, others) in [
        ("\"08:00\"-\"18:00\"", vec!["8:00", "12:30", "18:00"], vec!["7:59:59", "18:00:01", "0:00"]),
        ("\"08:00:30\"-\"18:00:10\"", vec!["8:00:30", "18:00:10"], vec!["8:00:29", "18:00:11"]),
        ("\"22:00\"-\"06:00\"", vec!["22:00:01", "23:59:59", "0:00", "5:59:59"], vec!["22:00", "6:00", "12:00"]),
        ("!= \"22:00\"-\"06:00\"", vec!["22:00", "6:00", "12:00"], vec!["22:00:01", "0:00", "5:59:59"]),
        ("!= \"08:00\"-\"18:00\"", vec!["7:59:59", "18:00:01"], vec!["8:00", "18:00"]),
        ("{ \"08:00\"-\"09:00\", \"10:00\" }", vec!["8:30", "10:00"], vec!["9:30", "10:00:01"]),
        (">= \"08:00\"", vec!["8:00", "23:59:59"], vec!["7:59:59"]),
        ("3600", vec!["1:00"], vec!["1:00:01"]),
        ("vmap { \"08:00\"-\"09:00\" : accept, \"10:00\"-\"11:00\" : drop };", vec!["8:30"], vec!["10:30", "12:00"]),
    ] {
        let at = |time: &str| Seen { fields: SEEN.fields.with(Field::Hour, hour(time)), ..SEEN };
        let text = condition
            .strip_suffix(';')
            .map_or(format!("meta hour {condition}"), |map| format!("meta hour {map}; meta length 1"));
        fit.iter().for_each(|time| assert!(fits(&text, at(time)), "{text} at {time}"));
        others.iter().for_each(|time| assert!(!fits(&text, at(time)), "{text} at {time}"));
    }
}

#[test]
fn days_have_names() {
    for (condition, expected) in [
        ("meta day \"Monday\"", vec![1]),
        ("meta day monday", vec![1]),
        ("day \"Mon\"", vec![1]),
        ("meta day { \"Saturday\", \"Sunday\" }", vec![0, 6]),
        ("meta day \"Monday\"-\"Friday\"", vec![1, 2, 3, 4, 5]),
        ("meta day != 6", vec![0, 1, 2, 3, 4, 5]),
        ("meta day . meta hour { \"Monday\" . \"00:00\"-\"01:00\", 3 . \"00:00\" }", vec![1, 3]),
    ] {
        let on = |day: &u64| fits(condition, Seen { fields: SEEN.fields.with(Field::Day, *day), ..SEEN });
        assert_eq!((0..7).filter(on).collect::<Vec<_>>(), expected, "{condition}");
    }
}

#[test]
fn times_are_compared_to_the_nanosecond() {
    const CHRISTMAS: u64 = 1_577_203_200_000_000_000;
    for (condition, before, at, behind) in [
        ("meta time \"2019-12-24 16:00:00\"-\"2020-01-02 07:00:00\"", false, true, true),
        ("meta time < \"2019-12-24 16:00\"", true, false, false),
        ("meta time <= 1577203200", true, true, false),
        ("time > \"2019-12-24 16:00\"", false, false, true),
        ("meta time >= \"2019-12-24\" meta time != \"2019-12-24 16:00\"", true, false, true),
        ("meta time \"2019-12-24 16:00\"", false, true, false),
    ] {
        let seen = [CHRISTMAS - 1, CHRISTMAS, CHRISTMAS + 1]
            .map(|time| fits(condition, Seen { fields: SEEN.fields.with(Field::Time, time), ..SEEN }));
        assert_eq!(seen, [before, at, behind], "{condition}");
    }
}

/// Rules apply at a packet's time, to known connections too, and by the clocks of the time zone.
#[test]
fn packets_meet_the_rules_of_their_hour() {
    let rules = "meta day \"Monday\" meta hour \"08:00\"-\"18:00\" accept\ndrop";
    let text = format!("table inet t {{\nchain f {{\ntype filter hook forward priority 0;\n{rules}\n}}\n}}\n");
    let mut fw = bench_of(&text);
    let packet = || Frame::udp("10.0.0.1:5", "192.0.2.9:6");
    check(&mut fw, 0, MONDAY_S + hour("7:59:59"), packet(), "denied");
    check(&mut fw, 0, MONDAY_S + hour("8:00"), packet(), "pass");
    check(&mut fw, 1, MONDAY_S + hour("8:00"), Frame::udp("192.0.2.9:6", "10.0.0.1:5"), "pass");
    check(&mut fw, 0, MONDAY_S + hour("18:00"), packet(), "pass");
    check(&mut fw, 0, MONDAY_S + hour("18:00:01"), packet(), "denied");
    check(&mut fw, 0, MONDAY_S + 24 * 3600 + hour("9:00"), packet(), "denied");

    let page = |zone: &str, when| {
        let mut config = named();
        config.utc_offset = UtcOffset::try_from(zone.to_owned()).expect("a zone");
        read_text(&text, &mut config, PORTS).expect("rules");
        explain(config, 2, (0, &packet().bytes()), when).expect("a packet")
    };
    let at_six = When::Utc((MONDAY_S + hour("6:30")) * 1_000_000_000);
    assert!(page("+00:00", at_six).contains("is dropped: denied"), "{}", page("+00:00", at_six));
    let later = page("+02:00", at_six);
    assert!(later.contains("passes") && later.contains("day Monday, hour 08:00:00-18:00:00"), "{later}");
    assert!(later.contains("It comes on Monday, 2026-11-23 08:30:00"), "{later}");
    assert!(page("-07:00", at_six).contains("It comes on Sunday, 2026-11-22 23:30:00"));
    let shown: When = "2026-11-23 17:00".parse().expect("a time");
    assert!(page("-07:00", shown).contains("passes"), "{}", page("-07:00", shown));
}

#[test]
fn times_that_are_none_are_refused() {
    for (rule, reason) in [
        ("meta hour \"24:00\" drop", "`24:00` is not an hour"),
        ("meta hour { \"22:00\"-\"06:00\", \"12:00\" } drop", "a range across midnight cannot be in a set"),
        ("meta day \"Mo\" drop", "`Mo` is not a day"),
        ("meta time \"2026-02-29\" drop", "`2026-02-29` is not a time"),
    ] {
        let error = read_text(rule, &mut named(), PORTS).expect_err(rule).to_string();
        assert!(error.contains(reason), "{error}");
    }
    assert_eq!("2024-02-29".parse(), Ok(When::Shown(1_709_164_800_000_000_000)));
    for zone in ["2", "+2:00", "02:00", "+15:00", "+02:60"] {
        assert!(UtcOffset::try_from(zone.to_owned()).is_err(), "{zone}");
    }
}
