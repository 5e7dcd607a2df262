//! `braid completions` and `braid man`: shell completions and manual pages, generated from the definition of the command line.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use braid_control::Catalog;
use braid_control::runtime::steer::nic::NICS;
use clap::builder::PossibleValuesParser;
use clap::{Arg, Command};
use clap_complete::Shell;
use clap_mangen::Man;

use super::print;
use crate::args::Cli;
use crate::failure::Failure;

/// `braid completions`.
#[derive(Debug, clap::Args)]
pub struct CompletionsArgs {
    /// The shell to complete for
    #[arg(value_enum)]
    pub shell: Shell,
}

/// `braid man`.
#[derive(Debug, clap::Args)]
pub struct ManArgs {
    /// Folder for the pages; created if it does not exist
    #[arg(value_name = "FOLDER")]
    pub folder: PathBuf,
}

/// Prints the completion script for a shell.
pub fn run(args: &CompletionsArgs, catalog: &Catalog) -> Result<ExitCode, Failure> {
    let names: Vec<&'static str> = catalog.names().map(|name| &*name.to_owned().leak()).collect();
    let mut command = told(&Cli::understood(), &names);
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, program(), &mut script);
    let mut script = String::from_utf8_lossy(&script).into_owned();
    if args.shell == Shell::Fish {
        fish_words(&command, &mut Vec::new(), &mut script);
    }
    print(&script)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes a page for the program and one for each of its commands.
pub fn man(args: &ManArgs) -> Result<ExitCode, Failure> {
    let folder = &args.folder;
    std::fs::create_dir_all(folder).map_err(|error| Failure::file(folder, &error))?;
    let mut command = Cli::understood().display_name(program()).bin_name(program()).disable_help_subcommand(true);
    // Gives the subcommands their full names.
    command.build();
    let pages = write_pages(&command, folder)?;
    print(&format!("{pages} pages in {0}; to read one: man -l {0}/{1}.1\n", folder.display(), program()))?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the page of a command and of its subcommands; returns the number of pages.
fn write_pages(command: &Command, folder: &Path) -> Result<usize, Failure> {
    let page = Man::new(command.clone()).manual("Braid").source(concat!("Braid ", env!("CARGO_PKG_VERSION")));
    page.generate_to(folder).map_err(|error| Failure::file(&folder.join(page.get_filename()), &error))?;
    let mut own = command.get_subcommands().filter(|command| !command.is_hide_set());
    own.try_fold(1, |pages, command| Ok(pages + write_pages(command, folder)?))
}

/// Words that an option knows, where the parser leaves them to the plan's checks.
fn words_of(option: &str) -> Option<Vec<&'static str>> {
    Some(match option {
        "time" => vec!["capture", "live"],
        "distribution" => vec!["hardware", "software"],
        "split" => vec!["single", "inside", "mac_hash"],
        "pages" => vec!["prefer", "transparent", "never", "touched"],
        "nic" => NICS.iter().map(|nic| nic.name).collect(),
        _ => return None,
    })
}

/// What clap_complete leaves out for fish: the values of arguments without an option, for each command within its own.
fn fish_words(command: &Command, path: &mut Vec<String>, script: &mut String) {
    for own in command.get_subcommands() {
        path.push(own.get_name().to_owned());
        let condition: Vec<String> = path.iter().map(|name| format!("__fish_seen_subcommand_from {name}")).collect();
        for arg in own.get_positionals().filter(|arg| !arg.get_possible_values().is_empty()) {
            let words: Vec<String> = arg.get_possible_values().iter().map(|word| word.get_name().to_owned()).collect();
            let (condition, words) = (condition.join("; and "), words.join(" "));
            script.push_str(&format!("complete -c {} -n \"{condition}\" -f -a \"{words}\"\n", program()));
        }
        fish_words(own, path, script);
        path.pop();
    }
}

/// A command as completion scripts describe it: without what is hidden, and with functions completed by their `names`. For writing scripts
/// alone: nothing that is typed is read by it.
fn told(command: &Command, names: &[&'static str]) -> Command {
    // Leaked, but the program ends right afterwards.
    let name: &'static str = command.get_name().to_owned().leak();
    let is_function = |arg: &Arg| arg.get_id() == "nf" || (name == "show" && arg.get_id() == "name");
    let words = |arg: &Arg| words_of(arg.get_id().as_str());
    let args = command.get_arguments().filter(|arg| !arg.is_hide_set()).map(|arg| {
        match is_function(arg).then(|| names.to_vec()).or_else(|| words(arg)) {
            Some(words) => arg.clone().value_parser(PossibleValuesParser::new(words)),
            None => arg.clone(),
        }
    });
    let own = command.get_subcommands().filter(|own| !own.is_hide_set()).map(|own| told(own, names));
    let told = Command::new(name).args(args).subcommands(own);
    command.get_about().into_iter().fold(told, |told, about| told.about(about.clone()))
}

/// The name of this program: `braid`, or that of a binary with the user's own functions.
fn program() -> String {
    let called = std::env::args_os().next().map(PathBuf::from);
    let name = called.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    name.unwrap_or_else(|| "braid".to_owned())
}
