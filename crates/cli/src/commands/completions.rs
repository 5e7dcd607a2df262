//! `braid completions` and `braid man`: what shells and manuals are told about the command line, made of the command line itself.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use braid_control::Catalog;
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
    /// Whose
    #[arg(value_enum)]
    pub shell: Shell,
}

/// `braid man`.
#[derive(Debug, clap::Args)]
pub struct ManArgs {
    /// Folder for the pages; it is made unless it is there
    #[arg(value_name = "FOLDER")]
    pub folder: PathBuf,
}

/// Prints what a shell reads.
pub fn run(args: &CompletionsArgs, catalog: &Catalog) -> Result<ExitCode, Failure> {
    let names: Vec<&'static str> = catalog.names().map(|name| &*name.to_owned().leak()).collect();
    let mut command = told(&Cli::understood(), &names);
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, program(), &mut script);
    print(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}

/// Writes a page for the program, and one for each of its commands.
pub fn man(args: &ManArgs) -> Result<ExitCode, Failure> {
    let folder = &args.folder;
    std::fs::create_dir_all(folder).map_err(|error| Failure::file(folder, &error))?;
    let mut command = Cli::understood().display_name(program()).bin_name(program()).disable_help_subcommand(true);
    // Gives the commands within their full names.
    command.build();
    let pages = write_pages(&command, folder)?;
    print(&format!("{pages} pages in {0}; to read one: man -l {0}/{1}.1\n", folder.display(), program()))?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the page of a command, then those of its own; returns how many.
fn write_pages(command: &Command, folder: &Path) -> Result<usize, Failure> {
    let page = Man::new(command.clone()).manual("Braid").source(concat!("Braid ", env!("CARGO_PKG_VERSION")));
    page.generate_to(folder).map_err(|error| Failure::file(&folder.join(page.get_filename()), &error))?;
    let mut own = command.get_subcommands().filter(|command| !command.is_hide_set());
    own.try_fold(1, |pages, command| Ok(pages + write_pages(command, folder)?))
}

/// A command as shells are told of it: without what is hidden, and with functions completed by their `names`. For writing scripts
/// alone: nothing that is typed is read by it.
fn told(command: &Command, names: &[&'static str]) -> Command {
    // Kept until the program ends, which is at once.
    let name: &'static str = command.get_name().to_owned().leak();
    let is_function = |arg: &Arg| arg.get_id() == "nf" || (name == "show" && arg.get_id() == "name");
    let args = command.get_arguments().filter(|arg| !arg.is_hide_set()).map(|arg| match is_function(arg) {
        true => arg.clone().value_parser(PossibleValuesParser::new(names.to_vec())),
        false => arg.clone(),
    });
    let own = command.get_subcommands().filter(|own| !own.is_hide_set()).map(|own| told(own, names));
    let told = Command::new(name).args(args).subcommands(own);
    command.get_about().into_iter().fold(told, |told, about| told.about(about.clone()))
}

/// What this program is called: `braid`, or as a binary with functions of one's own is.
fn program() -> String {
    let called = std::env::args_os().next().map(PathBuf::from);
    let name = called.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    name.unwrap_or_else(|| "braid".to_owned())
}
