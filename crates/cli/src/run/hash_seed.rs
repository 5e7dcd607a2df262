//! How a run between interfaces hashes: at random, because who knows it can send packets whose keys all collide, and make look-ups slow. What is
//! read from captures is hashed alike in every run, so that it can be repeated.

use braid_control::runtime::nf::packet::key;
use braid_control::runtime::nf::state::hash;

use crate::failure::{Failure, Kind};

/// Chooses the seeds of this process, if nothing has been hashed yet.
pub fn choose() -> Result<(), Failure> {
    let mut seeds = [[0; 8]; 2];
    getrandom::fill(seeds.as_flattened_mut()).map_err(|error| {
        let help = "run it where the kernel gives some: getrandom(2)";
        Failure::new(Kind::Io, format!("no random numbers: {error}"), help)
    })?;
    let [keys, maps] = seeds.map(u64::from_ne_bytes);
    let _ = key::choose_seed(keys) && hash::choose_seed(maps);
    Ok(())
}
