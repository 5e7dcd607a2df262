//! With the feature `dpdk`, compiles the shim and links the distribution's DPDK; otherwise does nothing.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    #[cfg(feature = "dpdk")]
    dpdk::build();
}

#[cfg(feature = "dpdk")]
mod dpdk {
    use std::process::{Command, exit};

    /// The libraries that the shim calls; EAL loads drivers at run time.
    const LIBRARIES: [&str; 4] = ["rte_eal", "rte_ethdev", "rte_mbuf", "rte_mempool"];
    const SHIM: &str = "src/dpdk/shim.c";

    pub fn build() {
        println!("cargo:rerun-if-changed={SHIM}");
        pkg_config(&["--atleast-version=22.11", "libdpdk"]);
        let flags = pkg_config(&["--cflags", "libdpdk"]);
        let mut shim = cc::Build::new();
        // Warnings are off because DPDK's headers cause some.
        shim.file(SHIM).opt_level(2).flag_if_supported("-Wno-unused-parameter").warnings(false);
        flags.split_whitespace().for_each(|flag| {
            shim.flag(flag);
        });
        shim.compile("braid_dpdk");
        for flag in pkg_config(&["--libs-only-L", "libdpdk"]).split_whitespace() {
            println!("cargo:rustc-link-search=native={}", flag.trim_start_matches("-L"));
        }
        LIBRARIES.iter().for_each(|library| println!("cargo:rustc-link-lib={library}"));
    }

    fn pkg_config(arguments: &[&str]) -> String {
        match Command::new("pkg-config").args(arguments).output() {
            Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).into_owned(),
            Ok(_) => missing("libdpdk 22.11 or newer is not installed"),
            Err(_) => missing("pkg-config is not installed"),
        }
    }

    fn missing(what: &str) -> ! {
        eprintln!("the feature `dpdk` cannot be built: {what}\n    sudo apt-get install libdpdk-dev pkg-config gcc");
        exit(1)
    }
}
