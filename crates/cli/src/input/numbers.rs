//! Numbers and addresses on the command line: invalid or out-of-range values are rejected before anything starts, with a suggestion.

use std::fmt::Display;
use std::net::SocketAddr;
use std::str::FromStr;

use clap::{Arg, ArgAction, Command};

/// Has a number or a time below 0 refused as a value that does not fit, not as an option that nobody knows.
pub(crate) fn may_be_negative(command: Command) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    let command = command.mut_args(|arg| match arg.get_action() {
        ArgAction::Set if is_time(&arg) => arg.allow_hyphen_values(true),
        ArgAction::Set | ArgAction::Append => arg.allow_negative_numbers(true),
        _ => arg,
    });
    names.into_iter().fold(command, |command, name| command.mut_subcommand(name, may_be_negative))
}

/// Whether it takes a time, such as `30s`.
fn is_time(arg: &Arg) -> bool {
    arg.get_value_names().is_some_and(|names| names.iter().any(|name| name == "TIME"))
}

/// Digits of the largest bound that is worth saying.
const DIGITS_SAID: usize = 15;

/// Takes numbers within bounds, both of which are possible.
pub(crate) fn between<T>(least: T, most: T) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync
where
    T: FromStr + PartialOrd + Display + Clone + Send + Sync + 'static,
{
    move |text| match text.parse::<T>() {
        Ok(number) if least <= number && number <= most => Ok(number),
        // A bound that only the type sets means nothing to anybody.
        _ if most.to_string().len() > DIGITS_SAID => Err(format!("write a number, at least {least}")),
        _ => Err(format!("write a number from {least} to {most}")),
    }
}

/// Accepts integers for a key of the plan, which itself checks their range.
pub(crate) fn whole(text: &str) -> Result<i64, String> {
    text.parse().map_err(|_| "write a whole number, as 4 or 2000000".to_owned())
}

/// Accepts an address with a port, to listen at.
pub(crate) fn listened_at(text: &str) -> Result<SocketAddr, String> {
    let local = |port: &str| port.parse().map(|port: u16| format!("write 127.0.0.1:{port}")).ok();
    text.parse().map_err(|_| {
        let port = text.strip_prefix("localhost").unwrap_or(text).trim_start_matches(':');
        local(port).unwrap_or_else(|| "write an address and a port: 127.0.0.1:9100, or [::1]:9100".to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bounds_that_mean_something_are_said() {
        assert_eq!(between(1, 256u64)("0"), Err("write a number from 1 to 256".to_owned()));
        assert_eq!(between(1, u64::MAX)("0"), Err("write a number, at least 1".to_owned()));
        assert_eq!(between(1, u64::MAX)("7"), Ok(7));
    }
}
