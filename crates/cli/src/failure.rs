//! The error of a command: what is wrong, where, and what to do about it.

use std::fmt;
use std::io::IsTerminal;
use std::ops::Range;
use std::path::Path;
use std::process::ExitCode;

use braid_control::Problem;
use braid_control::certify::CertifyError;
use braid_control::model::ModelError;
use braid_control::runtime::RunError;
use braid_control::runtime::io::{OpenError, SinkError};
use miette::{Diagnostic, GraphicalReportHandler, GraphicalTheme, LabeledSpan, NamedSource, SourceCode};

/// The kind of a failure, which determines the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A violation was found, or something failed.
    Failed = 1,
    /// The command line or the plan is wrong.
    Usage = 2,
    /// A file or device cannot be read or written.
    Io = 3,
}

/// Why a command ended early.
#[derive(Debug)]
pub struct Failure {
    kind: Kind,
    what: String,
    help: Option<String>,
    place: Option<Box<(NamedSource<String>, LabeledSpan)>>,
}

impl Failure {
    /// Makes a failure without a position.
    pub fn new(kind: Kind, what: impl Into<String>, help: impl Into<String>) -> Failure {
        let help = seen(help.into());
        Failure { kind, what: seen(what.into()), help: Some(help).filter(|help| !help.is_empty()), place: None }
    }

    /// Makes a failure for wrong usage.
    pub fn usage(what: impl Into<String>, help: impl Into<String>) -> Failure {
        Failure::new(Kind::Usage, what, help)
    }

    /// Makes a failure for a file that cannot be read or written.
    pub fn file(path: &Path, error: &std::io::Error) -> Failure {
        let help = match error.kind() {
            std::io::ErrorKind::NotFound => "check the path: nothing is there",
            std::io::ErrorKind::PermissionDenied => "check who may read and write it",
            std::io::ErrorKind::IsADirectory => "name a file in it",
            // The second error occurs when a folder was to be created.
            std::io::ErrorKind::NotADirectory | std::io::ErrorKind::AlreadyExists => {
                "check the path: a file stands where a folder would have to be"
            }
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => "make room, or name another place",
            std::io::ErrorKind::ReadOnlyFilesystem => "name a place that can be written to",
            _ => "",
        };
        Failure::new(Kind::Io, format!("{}: {error}", path.display()), help)
    }

    /// Reads a text file.
    pub fn or_text(path: &Path) -> Result<String, Failure> {
        let bytes = std::fs::read(path).map_err(|error| Failure::file(path, &error))?;
        String::from_utf8(bytes).map_err(|error| {
            let good = error.utf8_error().valid_up_to();
            let line = error.as_bytes()[..good].iter().filter(|byte| **byte == b'\n').count() + 1;
            let what = format!("{}:{line}: byte {:#04x} is no UTF-8", path.display(), error.as_bytes()[good]);
            Failure::usage(what, "save it as UTF-8 text")
        })
    }

    /// Adds a position in the plan file, if there is one.
    pub fn at(self, at: Range<usize>, file: Option<(&Path, &str)>) -> Failure {
        if self.kind != Kind::Usage || self.place.is_some() {
            return self;
        }
        Failure::of_plan(Problem::new(self.what, self.help.unwrap_or_default()).at(at), file)
    }

    /// Makes a failure from a problem of a plan, and shows its position if it is in a file.
    pub fn of_plan(problem: Problem, file: Option<(&Path, &str)>) -> Failure {
        let mut failure = Failure::usage(problem.what.clone(), problem.help.clone());
        if let (Some((path, text)), Some(at)) = (file, &problem.at) {
            let name = path.display().to_string();
            if let Some((line, column)) = problem.line_and_column(text) {
                failure.what = format!("{name}:{line}:{column}: {}", failure.what);
            }
            let label = LabeledSpan::new(Some("here".to_owned()), at.start, at.len());
            failure.place = Some(Box::new((NamedSource::new(name, quoted(text)), label)));
        }
        failure
    }

    /// Inserts the name of a plan file into a run's answer, since the run knows the lines of the text but not its name.
    pub fn in_file(mut self, path: &Path) -> Failure {
        if let Some(rest) = self.what.strip_prefix("line ") {
            self.what = format!("{}:{rest}", path.display());
        }
        self
    }

    /// Whether reading or writing failed, as opposed to a refusal.
    pub fn is_of_io(&self) -> bool {
        self.kind == Kind::Io
    }

    /// Its exit code.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.kind as u8)
    }

    /// Formats the failure for people: with colours on a terminal, and no wider than the terminal.
    pub fn render(&self) -> String {
        let is_terminal = std::io::stderr().is_terminal();
        let theme = theme(is_terminal, |name| std::env::var(name).ok());
        let wide = is_terminal.then(ratatui::crossterm::terminal::size).and_then(Result::ok);
        // Some terminals report a width of zero.
        let wide = wide.map(|(columns, _)| usize::from(columns)).filter(|columns| *columns > 0);
        let handler = GraphicalReportHandler::new_themed(theme).with_links(false);
        let handler = wide.into_iter().fold(handler, |handler, columns| handler.with_width(columns.max(COLUMNS_MIN)));
        let mut text = String::new();
        match handler.render_report(&mut text, self) {
            Ok(()) => text,
            Err(_) => self.to_string(),
        }
    }
}

/// On a narrower terminal, the terminal breaks the lines.
const COLUMNS_MIN: usize = 40;

/// The theme: colours on a terminal that supports them unless NO_COLOR is set (no-color.org); ASCII frames if the locale is not UTF-8.
fn theme(is_terminal: bool, variable: impl Fn(&str) -> Option<String>) -> GraphicalTheme {
    let said = |name: &str| variable(name).filter(|value| !value.is_empty());
    let coloured = is_terminal && said("NO_COLOR").is_none() && said("TERM").is_none_or(|term| term != "dumb");
    // The first variable that is set counts: locale(7).
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(said).map(|locale| locale.to_ascii_lowercase());
    let is_utf8 = locale.is_none_or(|locale| locale.contains("utf-8") || locale.contains("utf8"));
    match (coloured, is_utf8 || !is_terminal) {
        (true, true) => GraphicalTheme::unicode(),
        (false, true) => GraphicalTheme::unicode_nocolor(),
        (true, false) => GraphicalTheme::ascii(),
        (false, false) => GraphicalTheme::none(),
    }
}

/// Makes control characters visible that would otherwise affect a terminal, because names of plans and files are repeated as written.
fn seen(text: String) -> String {
    let steers = |c: char| c.is_control() && c != '\n';
    if !text.contains(steers) {
        return text;
    }
    text.chars().fold(String::with_capacity(text.len() + 8), |mut out, c| {
        if steers(c) {
            out.extend(c.escape_default())
        } else {
            out.push(c)
        }
        out
    })
}

/// The text of a file as it is shown: a question mark for each byte that would steer a terminal, so that positions stay.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() && !matches!(c, '\n' | '\r' | '\t') {
            out.extend(std::iter::repeat_n('?', c.len_utf8()));
        } else {
            out.push(c);
        }
    }
    out
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Failure {}

impl Diagnostic for Failure {
    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.help.as_ref().map(|help| Box::new(help) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.place.as_ref().map(|place| &place.0 as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        self.place.as_ref().map(|place| Box::new(std::iter::once(place.1.clone())) as Box<dyn Iterator<Item = _>>)
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Failure {
        match &error {
            OpenError::Device { mend, .. } => return Failure::new(Kind::Io, error.to_string(), mend),
            OpenError::Io { path, source } => return Failure::file(path, source),
            OpenError::Compression { path, method } => {
                let reader = match *method {
                    "bzip2" => "bzcat",
                    "xz" => "xzcat",
                    "lz4" => "lz4cat",
                    _ => "zstdcat",
                };
                let help = format!("or decompress it on the way: {reader} {} | braid run --in - …", path.display());
                return Failure::new(Kind::Io, error.to_string(), help);
            }
            _ => {}
        }
        let kind = match error {
            OpenError::Config(_) | OpenError::Nothing { .. } => Kind::Usage,
            _ => Kind::Io,
        };
        Failure::new(kind, error.to_string(), "")
    }
}

impl From<SinkError> for Failure {
    fn from(error: SinkError) -> Failure {
        Failure::new(Kind::Io, error.to_string(), "what was written before is readable")
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Failure {
        match error {
            RunError::Open(error) => error.into(),
            RunError::Memory(error) => {
                Failure::usage(error.to_string(), "ask for fewer packet sets (--sets) or fewer workers")
            }
            RunError::Thread(_) => {
                let help = "ask for fewer workers (-w), or allow more threads: ulimit -u, TasksMax= of a unit, --pids-limit of a container";
                Failure::new(Kind::Io, error.to_string(), help)
            }
            error => Failure::usage(error.to_string(), "`braid plan` shows what the chain needs"),
        }
    }
}

impl From<ModelError> for Failure {
    fn from(error: ModelError) -> Failure {
        match error {
            ModelError::Plan(problem) => Failure::of_plan(problem, None),
            ModelError::Run(error) => error.into(),
        }
    }
}

impl From<CertifyError> for Failure {
    fn from(error: CertifyError) -> Failure {
        match error {
            CertifyError::Plan(problem) => Failure::of_plan(problem, None),
            CertifyError::Run(error) => error.into(),
            CertifyError::Replay(_) => {
                let help =
                    "ask for fewer packet sets (--sets): the replay has tables of its own, for all workers' sets";
                Failure::usage(error.to_string(), help)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_and_colours_are_those_of_the_terminal() {
        let check = |is_terminal, set: &[(&str, &str)], coloured: bool, unicode: bool| {
            let value = |name: &str| set.iter().find(|(set, _)| *set == name).map(|(_, value)| (*value).to_owned());
            let theme = theme(is_terminal, value);
            let mut text = String::new();
            let failure = Failure::usage("no", "yes");
            GraphicalReportHandler::new_themed(theme).render_report(&mut text, &failure).expect("text");
            assert_eq!((text.contains('\u{1b}'), text.contains('×')), (coloured, unicode), "{set:?}: {text:?}");
        };
        check(true, &[], true, true);
        check(true, &[("LANG", "de_DE.UTF-8"), ("TERM", "xterm")], true, true);
        check(true, &[("LANG", "en_GB.utf8"), ("NO_COLOR", "1")], false, true);
        check(true, &[("NO_COLOR", "")], true, true);
        check(true, &[("TERM", "dumb")], false, true);
        check(true, &[("LANG", "de_DE.UTF-8"), ("LC_ALL", "C")], true, false);
        check(true, &[("LANG", "de_DE.ISO-8859-1"), ("TERM", "dumb")], false, false);
        check(false, &[("LANG", "C")], false, true);
    }

    #[test]
    fn what_a_file_has_in_it_does_not_steer_the_terminal() {
        let text = "a\u{1b}[31m\u{85}\0\nb\tc é";
        assert_eq!(quoted(text), "a?[31m???\nb\tc é");
        assert_eq!(quoted(text).len(), text.len(), "positions stay");
    }
}
