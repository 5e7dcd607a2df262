//! One value or a list of them, as written in a plan file: `53` or `[53, "1024-2047"]`.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::de::{Deserialize, Deserializer, IntoDeserializer, SeqAccess, Visitor};

/// Values of which one must match; an empty list matches everything. Copies share the values: a long list may be a condition of
/// thousands of rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Many<T>(pub Arc<[T]>);

impl<T> Many<T> {
    /// A list of these values.
    pub fn of(values: impl IntoIterator<Item = T>) -> Many<T> {
        Many(values.into_iter().collect())
    }

    /// Whether `fits` holds for one of the values, or the list is empty.
    pub fn any(&self, fits: impl FnMut(&T) -> bool) -> bool {
        self.0.is_empty() || self.0.iter().any(fits)
    }
}

impl<T> Default for Many<T> {
    fn default() -> Many<T> {
        Many(Arc::default())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Many<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Many<T>, D::Error> {
        deserializer.deserialize_any(OneOrList(PhantomData)).map(Many::of)
    }
}

struct OneOrList<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for OneOrList<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("one value or a list of them")
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Vec<T>, E> {
        Ok(vec![T::deserialize(value.into_deserializer())?])
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Vec<T>, E> {
        Ok(vec![T::deserialize(value.into_deserializer())?])
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = list.next_element()? {
            values.push(value);
        }
        if values.is_empty() {
            return Err(serde::de::Error::custom(
                "an empty list fits nothing, expected one value or more, or no such key",
            ));
        }
        Ok(values)
    }
}
