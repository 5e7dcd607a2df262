//! The functions of a plan: the validated settings of each.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::path::PathBuf;

use braid_runtime::nf::packet::key::{FieldId, KeyError, KeyExtractor, SetDef};
use toml::Spanned;

use super::course::EVICT_OLDEST;
use super::file::{Config, NfFile, Problem, SetFile, place_of};
use super::named_once;
use crate::catalog::{Catalog, Entry};
use braid_runtime::nf::suggest::nearest;

/// Maximum length of a function's name, which appears in every line of a report.
const NAME_MAX: usize = 64;

/// One function of the chain.
#[derive(Clone, Debug)]
pub struct PlannedFunction {
    /// Its entry in the catalog.
    pub entry: Entry,
    /// What it is called in this plan.
    pub name: String,
    /// Its configuration as written.
    pub config: Config,
    /// A hash of the contents of the files that the configuration names, in keys that end in `_file`.
    pub files: u64,
    /// A packet set that replaces the function's own.
    pub packet_set: Option<SetDef>,
    /// Position of the packet set in the plan file.
    pub packet_set_at: Range<usize>,
    /// State objects that it shares with other functions.
    pub share: Vec<Share>,
    /// Position of the setting that full tables evict sets; empty if it comes from no file.
    pub evicts_at: Range<usize>,
    /// Position of the function in the plan file.
    pub at: Range<usize>,
}

/// A state object that several functions share.
#[derive(Clone, Debug)]
pub struct Share {
    /// The function's own name for it.
    pub own: String,
    /// Its common name in the plan.
    pub name: String,
    /// Position of the entry in the plan file.
    pub at: Range<usize>,
}

impl PlannedFunction {
    /// Validates the function's entry in a plan file.
    pub(super) fn new(nf: &NfFile, catalog: &Catalog) -> Result<PlannedFunction, Problem> {
        let function = nf.function.get_ref();
        let Some(entry) = catalog.find(function) else {
            let help = match nearest(function, catalog.names()) {
                Some(right) => format!("write `{right}`, or see `braid nf list` for all functions"),
                None => format!("possible are: {}", catalog.names().collect::<Vec<_>>().join(", ")),
            };
            return Err(Problem::new(format!("there is no function `{function}`"), help).at(nf.function.span()));
        };
        let name = nf.name.as_ref().unwrap_or(&nf.function);
        if let Some((taken, what)) = TAKEN.iter().find(|(taken, _)| name.get_ref() == taken) {
            let help = format!("give it another one: {what} stand under this name");
            return Err(Problem::new(format!("a function cannot be called `{taken}`"), help).at(name.span()));
        }
        if !is_name(name.get_ref()) {
            let help = format!(
                "use letters, digits, `_` and `-`, at most {NAME_MAX}: it stands in reports and before the keys of --set"
            );
            return Err(Problem::new(format!("`{}` is no name for a function", name.get_ref()), help).at(name.span()));
        }
        let packet_set = nf.packet_set.as_ref().map(|set| set_def(set, nf.function.span())).transpose()?;
        Ok(PlannedFunction {
            entry: entry.clone(),
            name: name.get_ref().clone(),
            config: nf.config.clone(),
            files: files(&nf.config.table(), entry),
            packet_set,
            packet_set_at: nf.packet_set.as_ref().map_or(0..0, |set| place_of(set.fields.get_ref())),
            share: nf.share.iter().map(share).collect::<Result<_, _>>()?,
            evicts_at: nf.full.as_ref().filter(|full| *full.get_ref() == EVICT_OLDEST).map_or(0..0, Spanned::span),
            at: nf.function.span(),
        })
    }
}

impl PlannedFunction {
    /// Gives it another configuration.
    pub(crate) fn configure(&mut self, config: Config) {
        self.files = files(&config.table(), &self.entry);
        self.config = config;
    }

    /// Whether the files that its configuration names hold something else than when it was read.
    pub(crate) fn have_files_changed(&self) -> bool {
        files(&self.config.table(), &self.entry) != self.files
    }
}

/// A hash of the files that a configuration names, and of those that these name; one that cannot be read is for the function to complain about.
fn files(config: &toml::Table, entry: &Entry) -> u64 {
    let named = config.iter().filter(|(key, _)| key.ends_with("_file")).filter_map(|(_, value)| value.as_str());
    let mut hasher = DefaultHasher::new();
    let more = (entry.files)(config.clone());
    for path in named.map(PathBuf::from).chain(more) {
        std::fs::read(path).ok().hash(&mut hasher);
    }
    hasher.finish()
}

/// Whether the text is a valid name.
fn is_name(text: &str) -> bool {
    let is_plain = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    (1..=NAME_MAX).contains(&text.chars().count()) && text.chars().all(is_plain)
}

/// Scope of the names of shared objects.
const SHARED: &str = "shared";

/// Reserved names of reports and metrics, with their meaning there.
const TAKEN: [(&str, &str); 4] = [
    (SHARED, "objects that functions share"),
    ("source", "packets that could not be received"),
    ("sink", "packets that no device or file took"),
    ("runtime", "drops that no function decided"),
];

fn share((own, name): (&Spanned<String>, &Spanned<String>)) -> Result<Share, Problem> {
    let common = name.get_ref();
    if !is_name(common) {
        let help = "use letters, digits, `_` and `-`; functions that write the same name have one object together";
        return Err(Problem::new(format!("`{common}` is no name for a shared object"), help).at(name.span()));
    }
    let at = own.span().start..name.span().end;
    Ok(Share { own: own.get_ref().clone(), name: format!("{SHARED}.{common}"), at })
}

/// The header field with this name, as reports print it (`ip.src`) or as identifiers are usually written (`ip_src`, `src_ip`).
pub fn field(name: &str) -> Result<FieldId, Problem> {
    let by_name = FieldId::by_name(name).or_else(|| FieldId::by_name(&name.replace('_', ".")));
    let turned = || name.split_once('_').and_then(|(end, kind)| FieldId::by_name(&format!("{kind}.{end}")));
    by_name.or_else(turned).ok_or_else(|| {
        // Only a function knows what segments are, so the list of suggestions omits them.
        let known = FieldId::ALL.into_iter().filter(|field| *field != FieldId::Segment);
        let known: Vec<&str> = known.map(FieldId::name).collect();
        let help = match nearest(name, known.iter().copied()) {
            Some(right) => format!("write `{right}`; all fields: {}", known.join(", ")),
            None => format!("possible are: {}", known.join(", ")),
        };
        Problem::new(format!("there is no header field `{name}`"), help)
    })
}

/// The name in reports of a packet set that the plan specifies.
const GIVEN: &str = "plan's own";

/// Validates the packet set of the function at position `at` in the file.
fn set_def(set: &SetFile, at: Range<usize>) -> Result<SetDef, Problem> {
    let named =
        |name: &Spanned<String>| field(name.get_ref()).map_err(|problem| Problem { at: Some(name.span()), ..problem });
    let written = set.fields.get_ref();
    let fields = written.iter().map(named).collect::<Result<Vec<_>, _>>()?;
    if let Some(twice) = (1..fields.len()).find(|&i| fields[..i].contains(&fields[i])) {
        let what = format!("the packet set names {} twice", fields[twice].name());
        return Err(Problem::new(what, "name it once").at(written[twice].span()));
    }
    let mut def = SetDef::new(GIVEN, &fields);
    def.symmetric = set.symmetric;
    def.protocols = set.protocols.as_ref().map(|list| protocols(list, &at)).transpose()?;
    let help = |error: &KeyError| match error {
        KeyError::Empty(_) => "write for example fields = [\"ip.src\"], or leave [nf.packet_set] out".to_owned(),
        KeyError::TooWide { .. } => "name fewer fields".to_owned(),
        KeyError::OneSided { other, .. } => format!("add \"{}\", or leave `symmetric` out", other.name()),
        KeyError::NoSegments(_) | KeyError::NoDirection(_) => "leave `symmetric` out".to_owned(),
    };
    let place = Some(place_of(written)).filter(|place| !place.is_empty()).unwrap_or(set.fields.span());
    let what = |error: &KeyError| error.to_string().replace(&format!("packet set `{GIVEN}`"), "the packet set");
    KeyExtractor::compile(&def).map_err(|error| Problem::new(what(&error), help(&error)).at(place))?;
    Ok(def)
}

/// Validates IP protocol numbers, for the packet set of the function at position `at` in the file.
fn protocols(list: &[Spanned<i64>], at: &Range<usize>) -> Result<Vec<u8>, Problem> {
    if list.is_empty() {
        let what = "a packet set of no protocols has no packets";
        return Err(Problem::new(what, "name at least one, or leave `protocols` out for all").at(at.clone()));
    }
    let number = |number: &Spanned<i64>| {
        u8::try_from(*number.get_ref()).map_err(|_| {
            let what = format!("{} is no IP protocol", number.get_ref());
            Problem::new(what, "write a number from 0 to 255: 6 is TCP, 17 UDP, 1 ICMP").at(number.span())
        })
    };
    let numbers = list.iter().map(number).collect::<Result<Vec<_>, _>>()?;
    named_once(list, |protocol| format!("the packet set names protocol {protocol} twice"))?;
    Ok(numbers)
}
