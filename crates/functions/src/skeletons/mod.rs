//! Two functions of NFOS's table 6 as far as the programming model is concerned: packet set, packet-set state, aggregate
//! state and who touches what. They only look on and are not in the catalogue; each says what is missing to be of use.

pub mod ipsec_tunnel;
pub mod web_cache;

pub use ipsec_tunnel::IpsecTunnel;
pub use web_cache::WebCache;

#[cfg(test)]
mod tests;
