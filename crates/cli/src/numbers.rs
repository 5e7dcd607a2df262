//! Numbers on the command line: those out of bounds are refused before anything is begun, with what to write instead.

use std::fmt::Display;
use std::str::FromStr;

use clap::{ArgAction, Command};

/// Has a number below 0 refused as a value that does not fit, not as an option that nobody knows.
pub(crate) fn may_be_negative(command: Command) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    let command = command.mut_args(|arg| match arg.get_action() {
        ArgAction::Set | ArgAction::Append => arg.allow_negative_numbers(true),
        _ => arg,
    });
    names.into_iter().fold(command, |command, name| command.mut_subcommand(name, may_be_negative))
}

/// Takes numbers within bounds, both of which are possible.
pub(crate) fn between<T>(least: T, most: T) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync
where
    T: FromStr + PartialOrd + Display + Clone + Send + Sync + 'static,
{
    move |text| match text.parse::<T>() {
        Ok(number) if least <= number && number <= most => Ok(number),
        _ => Err(format!("write a number from {least} to {most}")),
    }
}
