//! Compiles the XDP program again and compares it with the committed object.
//!
//! Different releases of the compiler emit different instructions for the same source, so the release is fixed: the object is that
//! of [`CLANG`], and only that release is used for comparison.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{capability, shell};

/// The release of clang that built the object, which is that of Debian 12.
const CLANG: &str = "14";
const SOURCE: &str = "ebpf/steer.c";
const OBJECT: &str = "ebpf/steer.o";

/// Builds the object in the target folder and compares it with the committed one, byte by byte.
pub fn check() -> Result<(), String> {
    let fresh = shell::root().join("target/steer.o");
    build(&fresh)?;
    let read = |path: &Path| std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()));
    if read(&fresh)? != read(&shell::root().join(OBJECT))? {
        return Err(format!("{OBJECT} is not what {SOURCE} compiles to: cargo xtask ebpf --write"));
    }
    println!("{OBJECT} is what {SOURCE} compiles to");
    Ok(())
}

/// Builds the object in its final place.
pub fn write() -> Result<(), String> {
    build(&shell::root().join(OBJECT))
}

fn build(object: &Path) -> Result<(), String> {
    capability::install_clang(CLANG);
    let (clang, strip) = (program("clang")?, program("llvm-strip")?);
    let mut compile = Command::new(&clang);
    compile.args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Wextra", "-Werror"]);
    // The object must contain no path of this machine.
    compile.args(["-fdebug-compilation-dir=.", "-fno-addrsig"]).args(headers().map(|folder| format!("-I{folder}")));
    compile.args(["-c", SOURCE, "-o"]).arg(object);
    shell::run(&mut compile, &format!("{clang} {SOURCE}"))?;
    // Remove what debuggers read; what the kernel reads stays.
    shell::run(Command::new(&strip).arg("--strip-debug").arg(object), &format!("{strip} {}", object.display()))
}

/// The name of a program of this release; an error if it is not installed.
fn program(name: &str) -> Result<String, String> {
    let release = format!("{name}-{CLANG}");
    match shell::has(&release) {
        true => Ok(release),
        false => Err(format!("{release} is missing: sudo apt-get install clang-{CLANG} llvm-{CLANG} libbpf-dev")),
    }
}

/// The folder in which Debian keeps `asm/types.h`, which a cross compiler does not search.
fn headers() -> impl Iterator<Item = String> {
    let folder = format!("/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    Some(folder).into_iter().filter(|folder| PathBuf::from(folder).is_dir())
}
