//! Runs other programs from the root of the project and prints their names.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The root of the project, which is the folder above this crate.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the root").to_owned()
}

/// Path of a program that cargo has built in release mode, wherever the target folder is.
pub fn built(program: &str) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    root().join(target).join("release").join(program)
}

/// Runs cargo in the root, with additional environment variables; an error names the command.
pub fn cargo(arguments: &[&str], environment: &[(&str, &str)]) -> Result<(), String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    run(
        Command::new(cargo).args(arguments).envs(environment.iter().copied()),
        &format!("cargo {}", arguments.join(" ")),
    )
}

/// Runs a command in the root; `name` is how it is displayed.
pub fn run(command: &mut Command, name: &str) -> Result<(), String> {
    eprintln!("── {name}");
    match command.current_dir(root()).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{name}: {status}")),
        Err(error) => Err(format!("{name}: {error}")),
    }
}

/// Whether a program with this name is on the search path, or in a folder for administrators' programs.
pub fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .any(|folder| folder.join(program).is_file())
}
