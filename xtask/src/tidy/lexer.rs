//! Blanks out comments and literals in Rust source, so that rules about code ignore prose.
//!
//! It is not a parser: it knows comments (nested), strings (escaped, raw, byte) and character literals, and keeps line breaks.

/// The code alone: every character of a comment or literal becomes a space, while line breaks stay.
pub fn code_of(source: &str) -> String {
    let bytes = source.as_bytes();
    let mut code = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = match token_end(bytes, at) {
            Some(end) => end,
            None => {
                at += 1;
                continue;
            }
        };
        for byte in &mut code[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end;
    }
    String::from_utf8_lossy(&code).into_owned()
}

/// The end of the comment or literal that begins here; `None` if code begins here.
fn token_end(bytes: &[u8], at: usize) -> Option<usize> {
    let rest = &bytes[at..];
    if rest.starts_with(b"//") {
        return Some(rest.iter().position(|&b| b == b'\n').map_or(bytes.len(), |n| at + n));
    }
    if rest.starts_with(b"/*") {
        return Some(block_comment_end(bytes, at));
    }
    match rest[0] {
        b'"' => Some(quoted_end(bytes, at)),
        b'r' if !follows_word(bytes, at) => raw_string_end(bytes, at),
        b'\'' => character_end(bytes, at),
        _ => None,
    }
}

fn follows_word(bytes: &[u8], at: usize) -> bool {
    // br"..." is also a raw string.
    at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_') && bytes[at - 1] != b'b'
}

fn block_comment_end(bytes: &[u8], at: usize) -> usize {
    let (mut depth, mut i) = (1, at + 2);
    while i < bytes.len() && depth > 0 {
        match &bytes[i..] {
            [b'/', b'*', ..] => (depth, i) = (depth + 1, i + 2),
            [b'*', b'/', ..] => (depth, i) = (depth - 1, i + 2),
            _ => i += 1,
        }
    }
    i.min(bytes.len())
}

fn quoted_end(bytes: &[u8], at: usize) -> usize {
    let mut i = at + 1;
    while i < bytes.len() && bytes[i] != b'"' {
        i += if bytes[i] == b'\\' { 2 } else { 1 };
    }
    (i + 1).min(bytes.len())
}

fn raw_string_end(bytes: &[u8], at: usize) -> Option<usize> {
    let hashes = bytes[at + 1..].iter().take_while(|&&b| b == b'#').count();
    let open = at + 1 + hashes;
    if bytes.get(open) != Some(&b'"') {
        return None;
    }
    let mut close = vec![b'#'; hashes + 1];
    close[0] = b'"';
    let found = bytes[open + 1..].windows(close.len()).position(|window| window == close);
    Some(found.map_or(bytes.len(), |n| open + 1 + n + close.len()))
}

/// A quote begins either a character literal or a lifetime, which is code.
fn character_end(bytes: &[u8], at: usize) -> Option<usize> {
    match bytes.get(at + 1)? {
        b'\\' => bytes[at + 3..].iter().position(|&b| b == b'\'').map(|n| at + 3 + n + 1),
        _ => {
            let text = std::str::from_utf8(&bytes[at + 1..]).ok()?;
            let width = text.chars().next()?.len_utf8();
            (bytes.get(at + 1 + width) == Some(&b'\'')).then_some(at + width + 2)
        }
    }
}

/// Removes the items marked `#[cfg(test)]` but keeps their line breaks; takes the result of [`code_of`].
pub fn without_tests(code: &str) -> String {
    const MARK: &str = "#[cfg(test)]";
    let mut rest = code.to_owned();
    while let Some(start) = rest.find(MARK) {
        let end = item_end(&rest, start + MARK.len());
        let blank: String = rest[start..end].chars().filter(|c| *c == '\n').collect();
        rest.replace_range(start..end, &blank);
    }
    rest
}

/// The end of an item: its closing brace, or a semicolon if no brace has opened before.
fn item_end(code: &str, from: usize) -> usize {
    let mut depth = 0;
    for (i, c) in code[from..].char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth <= 1 => return from + i + 1,
            '}' => depth -= 1,
            ';' if depth == 0 => return from + i + 1,
            _ => {}
        }
    }
    code.len()
}

/// The words of the code, each with its line, counted from 1.
pub fn words(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    code.lines().enumerate().flat_map(move |(n, line)| {
        line.split(move |c| !is_word(c)).filter(|word| !word.is_empty()).map(move |word| (n + 1, word))
    })
}
