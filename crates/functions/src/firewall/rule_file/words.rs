//! A rule file as statements and words. Braces and commas are words of their own; `#` begins a comment; a statement ends with
//! its line or with `;`, but not within braces.

/// A word; the text between quotes is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word(pub(super) String);

/// The statements, each with the line in which it begins, counted from 1.
pub(super) fn lines(text: &str) -> Vec<(u32, Vec<Word>)> {
    let mut statements = Vec::new();
    let mut words: Vec<Word> = Vec::new();
    let (mut begun, mut depth) = (1, 0u32);
    for (number, line) in (1u32..).zip(text.lines()) {
        for word in split(line) {
            if words.is_empty() {
                begun = number;
            }
            match word.as_str() {
                "{" => depth += 1,
                "}" => depth = depth.saturating_sub(1),
                ";" if depth == 0 => {
                    statements.push((begun, std::mem::take(&mut words)));
                    continue;
                }
                _ => {}
            }
            words.push(Word(word));
        }
        if depth == 0 && !words.is_empty() {
            statements.push((begun, std::mem::take(&mut words)));
        }
    }
    statements.push((begun, words));
    statements.retain(|(_, words)| !words.is_empty());
    statements
}

fn split(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match character {
            '#' => break,
            '"' => words.push(characters.by_ref().take_while(|c| *c != '"').collect()),
            '{' | '}' | ',' | ';' | '/' if character != '/' || word.is_empty() => {
                words.push(std::mem::take(&mut word));
                words.push(character.to_string());
            }
            character if character.is_whitespace() => words.push(std::mem::take(&mut word)),
            character => word.push(character),
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}
