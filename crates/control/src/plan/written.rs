//! A value of a plan file with the positions of everything inside it, so that an error about
//! `service[1].backends` points to the second service and not to the first.

use std::fmt::{self, Formatter};
use std::ops::Range;

use serde::de::{Error, MapAccess, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use toml::{Spanned, Value};

/// A value whose inner values have positions. Its own position is kept by its owner.
#[derive(Clone, Debug)]
pub(crate) enum Written {
    /// A string, number or boolean.
    One(Value),
    List(Vec<Spanned<Written>>),
    Table(Vec<(String, Spanned<Written>)>),
}

impl Written {
    /// The plain value without positions.
    pub(crate) fn value(&self) -> Value {
        match self {
            Written::One(value) => value.clone(),
            Written::List(list) => Value::Array(list.iter().map(|one| one.get_ref().value()).collect()),
            Written::Table(table) => {
                Value::Table(table.iter().map(|(key, one)| (key.clone(), one.get_ref().value())).collect())
            }
        }
    }

    /// The position to which a path such as `[1].backends` or `.via` leads, as far as it can be followed;
    /// `None` if its first step does not exist.
    pub(crate) fn place(&self, path: &str) -> Option<Range<usize>> {
        let path = path.trim_start_matches(['.', '[', ']']);
        let (step, rest) = path.split_at(path.find(['.', '[', ']']).unwrap_or(path.len()));
        match self {
            Written::One(_) => None,
            Written::Table(table) => {
                let (_, one) = table.iter().find(|(key, _)| key == step)?;
                Some(one.get_ref().place(rest).unwrap_or(one.span()))
            }
            Written::List(list) => match step.parse::<usize>() {
                Ok(number) => list.get(number).map(|one| one.get_ref().place(rest).unwrap_or(one.span())),
                // Without an index the path is unambiguous only if the list has one element.
                Err(_) => list.first().filter(|_| list.len() == 1)?.get_ref().place(path),
            },
        }
    }
}

/// Makes a value that has no position in a file.
impl From<Value> for Written {
    fn from(value: Value) -> Written {
        Written::One(value)
    }
}

impl<'de> Deserialize<'de> for Written {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Written, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Written;

    fn expecting(&self, to: &mut Formatter<'_>) -> fmt::Result {
        to.write_str("a text, a number, true or false, a list or a table")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Written, E> {
        Ok(Written::One(value.into()))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Written, E> {
        Ok(Written::One(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Written, E> {
        let whole =
            i64::try_from(value).map_err(|_| E::invalid_value(Unexpected::Unsigned(value), &"a smaller number"));
        whole.map(|value| Written::One(value.into()))
    }

    fn visit_i128<E: Error>(self, value: i128) -> Result<Written, E> {
        Err(E::invalid_type(Unexpected::Other(&format!("integer `{value}`")), &"a whole number"))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Written, E> {
        Ok(Written::One(value.into()))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Written, E> {
        Ok(Written::One(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Written, A::Error> {
        let mut list = Vec::new();
        while let Some(one) = items.next_element()? {
            list.push(one);
        }
        Ok(Written::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Written, A::Error> {
        let mut table = Vec::new();
        while let Some(key) = entries.next_key::<String>()? {
            // The reader presents a date as a table with one private key. Functions accept no dates and report what they expect.
            if key == "$__toml_private_datetime" {
                return entries.next_value::<String>().map(|date| Written::One(date.into()));
            }
            table.push((key, entries.next_value()?));
        }
        Ok(Written::Table(table))
    }
}
