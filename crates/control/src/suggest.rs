//! What somebody probably meant: the nearest known word to an unknown one.

/// The known word nearest to `wrong`, if one is near enough to be meant: at most one letter in three differs.
pub fn nearest<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let scored = known.into_iter().map(|word| (distance(wrong, word), word));
    let (distance, word) = scored.min_by_key(|(distance, _)| *distance)?;
    (distance <= (wrong.chars().count().max(word.chars().count()) / 3).max(1)).then_some(word)
}

/// Fewest insertions, deletions, replacements and exchanges of neighbours that make one word of the other
/// (optimal string alignment).
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    rows[0] = (0..=b.len()).collect();
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 4] = ["forward", "flow_counter", "load_balancer", "nat"];

    fn check(wrong: &str, right: Option<&str>) {
        assert_eq!(nearest(wrong, KNOWN), right, "{wrong}");
    }

    #[test]
    fn slips_of_the_finger_are_understood_and_nonsense_is_not() {
        check("foward", Some("forward"));
        check("flow-counter", Some("flow_counter"));
        check("loadbalancer", Some("load_balancer"));
        check("nta", Some("nat"));
        check("firewall", None);
    }
}
