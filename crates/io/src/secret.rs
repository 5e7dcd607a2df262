//! Comparison of secrets.

/// Whether what was given is the wanted secret. The time this takes does not reveal where they differ; an empty secret is nobody's.
pub fn is_same(wanted: &[u8], given: &[u8]) -> bool {
    let differences = wanted.iter().zip(given).fold(0, |sum, (a, b)| sum | (a ^ b));
    std::hint::black_box(differences) == 0 && wanted.len() == given.len() && !wanted.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_secret_is_the_same() {
        let check = |given: &str, same| assert_eq!(is_same(b"secret", given.as_bytes()), same, "{given}");
        check("secret", true);
        check("secreT", false);
        check("secre", false);
        check("secrets", false);
        check("", false);
        assert!(!is_same(b"", b""));
    }
}
