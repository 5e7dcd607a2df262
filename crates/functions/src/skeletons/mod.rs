//! Skeletons of two functions from NFOS's table 6, as far as the programming model is concerned: packet set, packet-set
//! state, aggregate state, and which handler accesses what. They only observe and are not in the catalogue; each says
//! what is missing.

pub mod ipsec_tunnel;
pub mod web_cache;

pub use ipsec_tunnel::IpsecTunnel;
pub use web_cache::WebCache;

#[cfg(test)]
mod tests;
