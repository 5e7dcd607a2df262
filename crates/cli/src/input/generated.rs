//! Parses specifications of generated traffic for `gen:` and `braid gen`: a profile, and keys that modify it.

use std::str::FromStr;

use braid_control::runtime::io::generate::{Arrivals, ConfigError, FrameSizes, GenConfig, Profile};
use braid_control::runtime::nf::suggest::nearest;

use crate::failure::Failure;

/// Default number of packets of a generator.
const PACKETS_DEFAULT: u64 = 1_000_000;

const HELP: &str = "keys are packets, flows, seed, size, rate, burst, reverse, ipv6, arp, fragments, mac_pairs: \
gen:backbone?flows=100000&packets=1000000&seed=1";
const KEYS: [&str; 11] =
    ["packets", "flows", "seed", "size", "rate", "burst", "reverse", "ipv6", "arp", "fragments", "mac_pairs"];

/// Parses `PROFILE?key=value&key=value`.
pub fn config(specification: &str) -> Result<GenConfig, Failure> {
    let (name, keys) = specification.split_once('?').unwrap_or((specification, ""));
    let profile: Profile = name.parse().map_err(|_| {
        let known: Vec<&str> = Profile::ALL.into_iter().map(Profile::name).collect();
        let help = match nearest(name, known.iter().copied()) {
            Some(right) => format!("write gen:{right}"),
            None => format!("possible are: {}", known.join(", ")),
        };
        Failure::usage(format!("there is no traffic profile `{name}`"), help)
    })?;
    let pairs: Vec<(&str, &str)> = keys
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split_once('=').ok_or_else(|| Failure::usage(format!("`{pair}` has no `=`"), HELP)))
        .collect::<Result<_, _>>()?;
    if let Some(twice) = (1..pairs.len()).find(|&i| pairs[..i].iter().any(|(key, _)| *key == pairs[i].0)) {
        return Err(Failure::usage(format!("`{}` is given twice", pairs[twice].0), "give it once"));
    }
    let packets = pairs.iter().find(|(key, _)| *key == "packets");
    let packets = packets.map_or(Ok(PACKETS_DEFAULT), |(key, value)| number(key, value))?;
    let mut config = profile.config(packets);
    pairs.into_iter().try_for_each(|(key, value)| set(&mut config, key, value))?;
    Ok(config)
}

fn set(config: &mut GenConfig, key: &str, value: &str) -> Result<(), Failure> {
    match key {
        "packets" => {}
        "flows" => config.flows = number(key, value)?,
        "seed" => config.seed = number(key, value)?,
        "size" => config.frame_sizes = FrameSizes::Fixed(number(key, value)?),
        "rate" => config.arrivals = Arrivals { rate_pps: number(key, value)?, ..config.arrivals },
        "burst" => config.arrivals = Arrivals { cv: number(key, value)?, ..config.arrivals },
        "reverse" => config.reverse = number(key, value)?,
        "ipv6" => config.ipv6 = number(key, value)?,
        "arp" => config.arp = number(key, value)?,
        "fragments" => config.fragments = number(key, value)?,
        "mac_pairs" => config.mac_pairs = number(key, value)?,
        unknown => {
            let help = match nearest(unknown, KEYS) {
                Some(right) => format!("write {right}={value}"),
                None => HELP.to_owned(),
            };
            return Err(Failure::usage(format!("generated traffic has no key `{unknown}`"), help));
        }
    }
    Ok(())
}

fn number<T: FromStr>(key: &str, text: &str) -> Result<T, Failure> {
    let plain = text.replace('_', "");
    plain.parse().map_err(|_| Failure::usage(format!("{key} is `{text}`, which is no number that fits here"), HELP))
}

/// Explains an invalid configuration in terms of the keys of the specification.
pub fn refused(error: ConfigError) -> Failure {
    let key = |field: &'static str| match field {
        "frame_sizes" => "size",
        "arrivals.rate_pps" => "rate",
        "arrivals.cv" => "burst",
        field => field,
    };
    match error {
        ConfigError::Share { field, value } => {
            Failure::usage(format!("{} is {value}", key(field)), "write a share, a number from 0 to 1")
        }
        ConfigError::Range { field, value, least, most } => {
            Failure::usage(format!("{} is {value}", key(field)), format!("write a number from {least} to {most}"))
        }
        other => Failure::usage(other.to_string(), "ask for fewer flows"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specifications_are_read_and_slips_are_named() {
        let read = config("backbone?flows=1_000&packets=5000&seed=7&size=60").unwrap();
        assert_eq!((read.flows, read.packets, read.seed), (1000, 5000, 7));
        let check = |text: &str, words: &str| {
            let failure = config(text).and_then(|config| config.check().map_err(refused)).unwrap_err().render();
            assert!(failure.contains(words), "{failure}");
        };
        check("bakbone", "gen:backbone");
        check("backbone?flow=3", "flows=3");
        check("backbone?flows=many", "flows is `many`, which is no number");
        check("backbone?packets=-4", "packets is `-4`, which is no number");
        check("backbone?flows=3&flows=4", "`flows` is given twice");
        check("backbone?size=1", "size is 1\n");
        check("backbone?rate=0", "rate is 0\n");
        check("backbone?reverse=2", "write a share, a number from 0 to 1");
    }
}
