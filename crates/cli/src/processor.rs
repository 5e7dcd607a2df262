//! Checks that this processor has the instructions for which the program was compiled, to print an error
//! instead of crashing on an illegal instruction.

use crate::failure::{Failure, Kind};

/// Features of x86-64-v3 that compilers use everywhere, with their names in /proc/cpuinfo.
const LEVEL_3: [&str; 7] = ["avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"];

/// Returns an error if the program was compiled for features that the processor lacks.
pub fn check() -> Result<(), Failure> {
    if !cfg!(target_feature = "avx2") {
        return Ok(());
    }
    // If the file cannot be read, nothing counts as missing.
    let missing = std::fs::read_to_string("/proc/cpuinfo").map(|text| missing(&text)).unwrap_or_default();
    if missing.is_empty() {
        return Ok(());
    }
    let what = format!("this program was built for x86-64-v3, and this processor has no {}", missing.join(", "));
    let help = "build it for older ones: RUSTFLAGS=\"-C target-cpu=x86-64\" cargo build --release -p braid-cli";
    Err(Failure::new(Kind::Failed, what, help))
}

/// The features that the first processor of a /proc/cpuinfo lacks; none if it does not list features.
fn missing(cpuinfo: &str) -> Vec<&'static str> {
    let mut lines = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    let Some((_, flags)) = lines.find(|(key, _)| key.trim() == "flags") else { return Vec::new() };
    let has = |name: &&str| flags.split_ascii_whitespace().any(|flag| flag == *name);
    LEVEL_3.into_iter().filter(|name| !has(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_processor_is_told_what_it_lacks() {
        let older = "processor\t: 0\nflags\t\t: fpu sse2 avx f16c movbe fma avx2x\nbogomips\t: 1\n";
        assert_eq!(missing(older), ["avx2", "bmi1", "bmi2"]);
        assert_eq!(missing("flags : avx avx2 bmi1 bmi2 f16c fma movbe\n"), [""; 0]);
        assert_eq!(missing("processor : 0\n"), [""; 0], "what is not told is not missed");
    }

    #[test]
    fn this_program_runs_here() {
        assert!(check().is_ok());
    }
}
