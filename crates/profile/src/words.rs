//! Numbers with their nouns.

/// `1 run`, `2 runs`.
pub fn counted(number: u64, noun: &str) -> String {
    format!("{number} {}", noun_of(number, noun))
}

/// A noun as it stands behind a number, however that is written: `run` behind 1, else `runs`.
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
