//! Suggestions for misspelt words, such as names of functions and keys of their configuration.

/// Returns the known word that was probably meant: one that begins with what was written, or else the nearest one, if
/// at most a third of its letters differ (a swap of two neighbours counts as one).
pub fn nearest<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let distance = |word: &str| if word.starts_with(written) { 0 } else { strsim::osa_distance(written, word) };
    let scored = known.into_iter().map(|word| (distance(word), word));
    let (distance, word) = scored.min_by_key(|(distance, _)| *distance)?;
    let letters = written.chars().count().max(word.chars().count());
    (!written.is_empty() && distance <= (letters / 3).max(1)).then_some(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 5] = ["forward", "flow_counter", "load_balancer", "nat", "rate_limiter"];

    fn check(written: &str, meant: Option<&str>) {
        assert_eq!(nearest(written, KNOWN), meant, "{written}");
    }

    #[test]
    fn slips_of_the_finger_are_understood_and_nonsense_is_not() {
        check("foward", Some("forward"));
        check("forwrad", Some("forward"));
        check("flow-counter", Some("flow_counter"));
        check("loadbalancer", Some("load_balancer"));
        check("nta", Some("nat"));
        check("rate", Some("rate_limiter"));
        check("firewall", None);
        check("", None);
        assert_eq!(nearest("nat", []), None);
    }
}
