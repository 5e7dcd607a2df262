//! Reads a rule file and all files that it includes into one sequence of tokens. `include "services.nft"` is replaced by that
//! file's tokens, wherever a statement may be. Tokens remember their file, so that errors, reports and explanations can name
//! it.
//!
//! As in nftables, names may contain `*`, `?` and `[…]`; the files that match are read in alphabetical order, and there may be
//! none. A file named without such characters must exist. Names are relative to the folder of the including file.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::tokens::{Kind, Place, Texts, Token, tokens};
use crate::firewall::rule_file::{Parsed, wrong};

/// The deepest nesting of included files (`MAX_INCLUDE_DEPTH` of nftables).
const DEPTH_MAX: usize = 16;
/// The most characters of an erroneous text that are shown.
const SHOWN_MAX: usize = 24;
/// The most files of a rule set.
const FILES_MAX: usize = 1024;

/// The tokens of a file and of those that it includes.
#[derive(Debug, Default)]
pub(in crate::firewall::rule_file) struct Source {
    pub(in crate::firewall::rule_file) tokens: Vec<Token>,
    /// Each file, once for each time that it is read; the first is the rule file.
    pub(in crate::firewall::rule_file) files: Vec<PathBuf>,
    /// The files being read, each before the one that it includes.
    open: Vec<PathBuf>,
    /// The place of an error.
    at: Place,
    texts: Texts,
}

impl Source {
    /// Reads `text` as the contents of the file at `path`. An error can be located by [`at`](Self::at), whose file is among
    /// those that have been read.
    pub(in crate::firewall::rule_file) fn read(path: &Path, text: &str) -> (Source, Parsed<()>) {
        let mut source = Source::default();
        let read = source.add(path, text);
        (source, read)
    }

    /// Where reading ended.
    pub(in crate::firewall::rule_file) fn at(&self) -> Place {
        self.at
    }

    /// The names of the files, as shown to the user.
    pub(in crate::firewall::rule_file) fn names(&self) -> Vec<Arc<str>> {
        self.files.iter().map(|path| path.display().to_string().into()).collect()
    }

    fn add(&mut self, path: &Path, text: &str) -> Parsed<()> {
        let file = self.files.len() as u16;
        self.files.push(path.to_owned());
        self.open.push(path.to_owned());
        let read = tokens(text, file, &mut self.texts);
        let mut rest = read.as_slice();
        while let [token, more @ ..] = rest {
            rest = more;
            if token.kind == Kind::Unclosed {
                self.at = token.at;
                let begins: String = token.text.chars().take(SHOWN_MAX).collect();
                let quote =
                    if begins.is_empty() { "the quote".to_owned() } else { format!("the quote before `{begins}`") };
                return wrong(format!("{quote} has no end"), "write \" behind the text, on its line");
            }
            let Some(name) = included(self.tokens.last(), token, rest) else {
                self.tokens.push(token.clone());
                continue;
            };
            self.at = rest[0].at;
            rest = &rest[1..];
            for found in self.find(path, name)? {
                self.include(&found)?;
            }
        }
        self.open.pop();
        Ok(())
    }

    fn include(&mut self, path: &Path) -> Parsed<()> {
        let same = |open: &PathBuf| fs::canonicalize(open).ok() == fs::canonicalize(path).ok();
        if self.open.iter().any(same) {
            let chain: Vec<_> = self.open.iter().map(|open| open.display().to_string()).collect();
            let reason = format!("{} would include {} within itself", chain.join(" includes "), path.display());
            return wrong(reason, "include every file from one place");
        }
        if self.open.len() >= DEPTH_MAX || self.files.len() >= FILES_MAX {
            let reason = format!("files include each other more than {DEPTH_MAX} deep, or more than {FILES_MAX} times");
            return wrong(reason, "include fewer files");
        }
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) => {
                let instead = "write the name of a file, from the folder of the file that includes it";
                return wrong(format!("{}: {error}", path.display()), instead);
            }
        };
        let at = self.at;
        self.add(path, &text)?;
        self.at = at;
        Ok(())
    }

    /// The files that a name in the file at `from` stands for.
    fn find(&self, from: &Path, name: &str) -> Parsed<Vec<PathBuf>> {
        let path = from.parent().unwrap_or(Path::new("")).join(name);
        if !name.contains(['*', '?', '[']) {
            return Ok(vec![path]);
        }
        let options = glob::MatchOptions { require_literal_leading_dot: true, ..glob::MatchOptions::new() };
        // Special characters in the names of the parent folders are not part of the pattern.
        let above = from.parent().map_or_else(String::new, |above| glob::Pattern::escape(&above.display().to_string()));
        let pattern = Path::new(&above).join(name);
        match glob::glob_with(&pattern.display().to_string(), options) {
            Ok(paths) => Ok(paths.flatten().filter(|path| !path.is_dir()).collect()),
            Err(error) => {
                wrong(format!("`{name}` is no pattern of names: {}", error.msg), "write include \"nftables.d/*.nft\"")
            }
        }
    }
}

/// The name in `include "name"`, if that begins here.
fn included<'a>(before: Option<&Token>, token: &Token, rest: &'a [Token]) -> Option<&'a str> {
    let begins = before.is_none_or(|last| last.kind == Kind::End || matches!(&*last.text, "{" | "}"));
    let name = rest.first().filter(|name| name.kind == Kind::Quoted)?;
    (begins && token.kind == Kind::Word && &*token.text == "include").then_some(&*name.text)
}
