//! Puts what the TOML reader says of a plan file into words that do not refer to Rust types, with a remedy.

use std::ops::Range;

use braid_runtime::nf::suggest::nearest;

use super::{PlanFile, Problem};

/// A key whose line ends behind its `=`, which is at `at`.
pub(super) fn without_value(text: &str, at: usize) -> Option<Problem> {
    let (before, behind) = text.split_at_checked(at)?;
    let key = before.lines().next_back()?.trim_end().strip_suffix('=')?.trim();
    let is_over = behind.lines().next().is_none_or(|rest| rest.trim().is_empty() || rest.trim().starts_with('#'));
    let is_key = !key.is_empty() && !key.contains(['=', '"', '\'', '{']);
    let line = before.trim_end();
    (is_over && is_key).then(|| {
        let help = format!("write the value behind it, {key} = …, or leave the line out");
        Problem::new(format!("`{key}` has no value"), help).at(line.len() - 1..line.len())
    })
}

/// The help if the place is the `nf` of a `[[nf]]` that follows a table `[nf.…]`: the table is meant to configure that function.
pub(super) fn above_its_function(text: &str, at: Range<usize>) -> Option<String> {
    let (before, header) = text.get(..at.start)?.rsplit_once("[[").filter(|_| text.get(at.clone()) == Some("nf"))?;
    let mut headers = before.lines().map(str::trim).filter(|line| line.starts_with('['));
    let is_first = header.trim().is_empty() && !before.contains("[[nf]]");
    let table = headers.find(|line| line.starts_with("[nf.")).filter(|_| is_first)?;
    let table = table.split_inclusive(']').next()?;
    Some(format!("write `{table}` below the `[[nf]]` that it belongs to"))
}

/// Translates an error message of the TOML reader about the text `written` into words that do not refer to Rust types.
pub(super) fn in_words(message: &str, written: &str) -> String {
    const WORDS: [(&str, &str); 5] = [
        ("expected i64", "expected a whole number"),
        ("expected a sequence", "expected a list"),
        ("expected a map", "expected a table"),
        (": map,", ": table,"),
        ("` as i128", "`"),
    ];
    // The reader presents a date or a time of day as a table with one private key, which appears in its messages.
    const DATES: [(&str, &str); 3] = [
        ("string \"$__toml_private_datetime\"", "a date or a time of day"),
        ("type: map", "type: a date or a time of day"),
        ("expected a spanned value", "expected a table"),
    ];
    let is_date = written.starts_with(|c: char| c.is_ascii_digit()) && written.contains([':', '-']);
    let dates: &[_] = if is_date { &DATES } else { &[] };
    let ours =
        dates.iter().chain(&WORDS).fold(message.to_owned(), |message, (theirs, ours)| message.replace(theirs, ours));
    // A Rust struct corresponds to a TOML table.
    ours.split_once("expected struct ").map_or(ours.clone(), |(before, _)| format!("{before}expected a table"))
}

/// Derives a suggested correction from the message of the TOML reader about the text `written`.
pub(super) fn help_for(message: &str, written: &str) -> String {
    let mut quoted = message.split('`').skip(1).step_by(2);
    if message.starts_with("unknown field") || message.starts_with("unknown variant") {
        let wrong = quoted.next().unwrap_or_default();
        let known: Vec<&str> = quoted.collect();
        // The plan's own tables are always top-level. If their name appears inside another table, the user meant something else.
        let is_table = ["port", "input", "output", "chain", "nf"].contains(&wrong);
        let elsewhere = belongs_to(wrong).filter(|_| message.starts_with("unknown field") && !is_table);
        return match (nearest(wrong, known.iter().copied()), elsewhere) {
            (_, Some(table)) if known.contains(&"config") => {
                format!("if it is a key of the function, write `config.{wrong}`; else move it to {table}")
            }
            (_, Some(table)) => format!("move it to {table}"),
            (Some(right), None) => format!("write `{right}`"),
            (None, None) if known.contains(&"config") => {
                format!("if it is a key of the function, write `config.{wrong}`; possible here: {}", known.join(", "))
            }
            (None, None) => format!("possible here: {}", known.join(", ")),
        };
    }
    if message.starts_with("duplicate key") {
        return "it stands there twice: keep one of them".to_owned();
    }
    // As programs for letters and web pages write them.
    if message.starts_with("string values must be quoted") && written.starts_with(['“', '”', '„', '‘', '’', '«'])
    {
        return "write straight quotes: \"".to_owned();
    }
    if message.starts_with("string values must be quoted") {
        return "write it in quotes".to_owned();
    }
    if message.starts_with("missing field") {
        return format!("add `{} = …`", quoted.next().unwrap_or_default());
    }
    let is_of_a_value = |(_, expected): &(&str, &str)| message.starts_with("invalid ") && *expected != "key";
    if let Some((given, expected)) = message.split_once(", expected ").filter(is_of_a_value) {
        let is_table = given.ends_with("table");
        return match expected {
            "a whole number" if given.contains(": integer") => "write a smaller number",
            "a whole number" => "write a whole number, without quotes",
            "a boolean" => "write true or false, without quotes",
            "a string" => "write a text in quotes",
            "a list" if is_table => "write two brackets, as [[nf]]: there may be several",
            "a list" => "write it in brackets, as [first, second], even if it is only one",
            "a table" => "write a table, as { key = value }",
            // The reader takes a word that begins like `nan` or `true` for a misspelt one.
            "`nan`" | "`inf`" | "`true`" | "`false`" => "write words in quotes, numbers without",
            _ if expected.contains("visible characters") => "write control characters as \\u0000, with four digits",
            "`\"`" | "`'`" => "end the text with the quote with which it begins",
            _ => "give a value of the kind that is expected",
        }
        .to_owned();
    }
    "correct the TOML at this place; docs/plan-file.md lists every key with an example".to_owned()
}

/// Finds the table of a plan file to which a key belongs, by asking the reader of each table.
fn belongs_to(key: &str) -> Option<&'static str> {
    const TABLES: [(&str, &str); 7] = [
        ("", "the beginning of the file, before the first table"),
        ("[[nf]]", "`[[nf]]`"),
        ("[chain]", "`[chain]`"),
        ("[input]", "`[input]`"),
        ("[output]", "`[output]`"),
        ("[[port]]", "`[[port]]`"),
        ("[[nf]]\nfunction = ''\n[nf.packet_set]", "`[nf.packet_set]`"),
    ];
    let has = |head: &str| {
        let refused = toml::from_str::<PlanFile>(&format!("{head}\n'?' = 0")).err();
        refused.is_some_and(|error| error.message().split('`').skip(3).step_by(2).any(|known| known == key))
    };
    TABLES.iter().find(|(head, _)| has(head)).map(|(_, table)| *table)
}
