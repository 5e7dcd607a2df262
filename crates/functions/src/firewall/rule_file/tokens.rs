//! A rule file as tokens, each with its place. Braces, commas, `;`, `=`, `<`, `>`, `&`, `|`, parentheses and lone `:` `.` `-` are tokens of
//! their own; `#` begins a comment; `\` at the end of a line joins it with the next.

/// A word or a sign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) text: String,
    pub(super) at: Place,
    pub(super) kind: Kind,
}

/// Where a token stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// Its number among the files that are read.
    pub(super) file: u16,
    /// Counted from 1, both; the column in characters.
    pub(super) line: u32,
    pub(super) column: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Word,
    /// Between quotes.
    Quoted,
    /// The end of a line, or `;`: of a statement, unless it stands within braces of a set.
    End,
}

/// All tokens of the file with this number.
pub(super) fn tokens(text: &str, file: u16) -> Vec<Token> {
    let mut tokens = Vec::new();
    for (line, content) in (1u32..).zip(text.lines()) {
        let before = tokens.len();
        let place = |column: u32| Place { file, line, column };
        split(content, place, &mut tokens);
        match tokens.last() {
            Some(last) if tokens.len() > before && last.text == "\\" => drop(tokens.pop()),
            _ => push(&mut tokens, "\n", place(content.chars().count() as u32 + 1), Kind::End),
        }
    }
    tokens
}

fn push(into: &mut Vec<Token>, text: &str, at: Place, kind: Kind) {
    into.push(Token { text: text.to_owned(), at, kind });
}

/// The tokens of a line.
fn split(content: &str, place: impl Fn(u32) -> Place, into: &mut Vec<Token>) {
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
                push(into, &text, place(begun), Kind::Quoted);
                at += 1;
            }
            ';' => push(into, ";", place(begun), Kind::End),
            '=' | '!' | '<' | '>' => {
                at += usize::from(characters.get(at) == Some(&'='));
                let text: String = characters[begun..at].iter().collect();
                push(into, &text, place(begun), Kind::Word);
            }
            '{' | '}' | ',' | '|' | '&' | '(' | ')' | '/' => push(into, &first.to_string(), place(begun), Kind::Word),
            first if first.is_whitespace() => {}
            _ => {
                while characters.get(at).is_some_and(|it| !it.is_whitespace() && !"{},;|&()=!<>#\"".contains(*it)) {
                    at += 1;
                }
                let mut text: String = characters[begun..at].iter().collect();
                // `22: accept`, but not `fe80::`.
                let ends_key = text.len() > 1 && text.ends_with(':') && !text.ends_with("::");
                if ends_key {
                    text.pop();
                }
                push(into, &text, place(begun), Kind::Word);
                if ends_key {
                    push(into, ":", place(at - 1), Kind::Word);
                }
            }
        }
    }
}
