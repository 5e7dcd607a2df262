//! What becomes of packets that a function has nothing to do with, and which of them it counts as a hop for.

use serde::Deserialize;

/// Which packets a translator is a hop for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CountsHops {
    /// All that it routes.
    #[default]
    All,
    /// Only those that it translates: another function counts the others.
    Translated,
}

/// What happens to packets that are not translated, or that no rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Others {
    /// They pass to the other side.
    Pass,
    /// They are dropped.
    Drop,
}
