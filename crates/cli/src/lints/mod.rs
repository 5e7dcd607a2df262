//! What a plan or an interface says and nobody can have meant.

pub(super) mod interfaces;
pub(super) mod knowledge;
pub(super) mod plan;
