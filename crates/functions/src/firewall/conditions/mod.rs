//! What rules examine: the values in conditions, a packet's facts and rare fields, its output port, and the time of day.

pub(super) mod clock;
pub(super) mod extensions;
pub(super) mod facts;
pub(super) mod fields;
pub(super) mod masked;
pub(super) mod names;
pub(super) mod output_ports;
pub(super) mod payload;
pub(super) mod rare_fields;
pub(super) mod values;
