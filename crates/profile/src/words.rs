//! Numbers with their nouns.

/// A number with its noun: `1 run`, `2 runs`.
pub fn counted(number: u64, noun: &str) -> String {
    format!("{number} {}", noun_of(number, noun))
}

/// The form of a noun after a number, however the number is written: `run` after 1, otherwise `runs`.
pub fn noun_of(number: u64, noun: &str) -> String {
    format!("{noun}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_one_and_all_others_are_several() {
        assert_eq!([0, 1, 2].map(|number| counted(number, "turn")), ["0 turns", "1 turn", "2 turns"]);
    }
}
