//! Splits a rule file into tokens, each with its place. Braces, commas, `;`, `=`, `<`, `>`, `&`, `|`, parentheses and lone `:`
//! `.` `-` are tokens of their own; `#` begins a comment; `\` at the end of a line joins it with the next.

use std::collections::HashSet;
use std::sync::Arc;

/// A word or a sign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::firewall::rule_file) struct Token {
    pub(in crate::firewall::rule_file) text: Arc<str>,
    pub(in crate::firewall::rule_file) at: Place,
    pub(in crate::firewall::rule_file) kind: Kind,
}

/// The place of a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::firewall::rule_file) struct Place {
    /// The file's number among the files that are read.
    pub(in crate::firewall::rule_file) file: u16,
    /// Line and column, both counted from 1; the column in characters.
    pub(in crate::firewall::rule_file) line: u32,
    pub(in crate::firewall::rule_file) column: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::firewall::rule_file) enum Kind {
    Word,
    /// Between quotes.
    Quoted,
    /// After a quote that is not closed on its line.
    Unclosed,
    /// The end of a line, or `;`. It ends a statement, unless it is within the braces of a set.
    End,
}

/// The distinct texts of tokens: most words occur in a file many times, and are stored once.
#[derive(Debug, Default)]
pub(in crate::firewall::rule_file) struct Texts(HashSet<Arc<str>>);

impl Texts {
    fn of(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.0.get(text) {
            return known.clone();
        }
        let text: Arc<str> = text.into();
        self.0.insert(text.clone());
        text
    }
}

/// All tokens of the file with this number.
pub(in crate::firewall::rule_file) fn tokens(text: &str, file: u16, texts: &mut Texts) -> Vec<Token> {
    let mut tokens = Vec::new();
    for (line, content) in (1u32..).zip(text.lines()) {
        let before = tokens.len();
        let place = |column: u32| Place { file, line, column };
        split(content, place, (&mut tokens, texts));
        match tokens.last() {
            Some(last) if tokens.len() > before && &*last.text == "\\" => drop(tokens.pop()),
            _ => push((&mut tokens, texts), "\n", place(content.chars().count() as u32 + 1), Kind::End),
        }
    }
    tokens
}

fn push((into, texts): (&mut Vec<Token>, &mut Texts), text: &str, at: Place, kind: Kind) {
    into.push(Token { text: texts.of(text), at, kind });
}

/// The tokens of a line.
fn split(content: &str, place: impl Fn(u32) -> Place, (into, texts): (&mut Vec<Token>, &mut Texts)) {
    let mut push = |text: &str, at: Place, kind: Kind| push((&mut *into, &mut *texts), text, at, kind);
    let characters: Vec<char> = content.chars().collect();
    let place = |at: usize| place(at as u32 + 1);
    let mut at = 0;
    while let Some(&first) = characters.get(at) {
        let begun = at;
        at += 1;
        match first {
            '#' => return,
            '"' => {
                while characters.get(at).is_some_and(|it| *it != '"') {
                    at += 1;
                }
                let text: String = characters[begun + 1..at].iter().collect();
                let is_closed = at < characters.len();
                push(&text, place(begun), if is_closed { Kind::Quoted } else { Kind::Unclosed });
                at += 1;
            }
            ';' => push(";", place(begun), Kind::End),
            '=' | '!' | '<' | '>' => {
                let follows = characters.get(at);
                let is_shift = matches!(first, '<' | '>') && follows == Some(&first);
                at += usize::from(is_shift || follows == Some(&'='));
                let text: String = characters[begun..at].iter().collect();
                push(&text, place(begun), Kind::Word);
            }
            '{' | '}' | ',' | '|' | '&' | '^' | '(' | ')' | '/' => push(&first.to_string(), place(begun), Kind::Word),
            first if first.is_whitespace() => {}
            _ => {
                while characters.get(at).is_some_and(|it| !it.is_whitespace() && !"{},;|&^()=!<>#\"".contains(*it)) {
                    at += 1;
                }
                let mut text: String = characters[begun..at].iter().collect();
                // `22: accept`, but not `fe80::`.
                let ends_key = text.len() > 1 && text.ends_with(':') && !text.ends_with("::");
                if ends_key {
                    text.pop();
                }
                push(&text, place(begun), Kind::Word);
                if ends_key {
                    push(":", place(at - 1), Kind::Word);
                }
            }
        }
    }
}
