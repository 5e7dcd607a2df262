//! Declaration of a function's fields, such that a data race does not compile.
//!
//! [`network_function!`](crate::network_function) defines a struct whose every field is a [`Part`]: plain configuration
//! or a state object. Cells, mutexes, atomics, raw pointers and thread handles do not implement `Part`, so the compiler
//! rejects a function that shares state outside the framework. The state objects found in the fields are those that
//! `braid plan` prints, the profiler names and the certificate compares.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use braid_state::{Allocator, Distributed, DistributedVector, Map, Plain, StateObject, Vector};

/// A type that is allowed as a field of a network function: plain configuration, a state object, or a list, array, pair
/// or option of these.
#[diagnostic::on_unimplemented(
    message = "`{Self}` may not stand in a network function",
    label = "neither plain configuration nor a state object of Braid",
    note = "state that several packets share belongs into a `Map`, `Vector`, `Allocator` or `Distributed`; \
            configuration into plain types, for which `braid_nf::plain!` implements `Part`"
)]
pub trait Part {
    /// Adds the state objects that it contains to `into`; none for plain configuration.
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>);
}

/// The state objects of a whole function; implemented by [`network_function!`](crate::network_function).
pub trait Declare {
    /// Returns the state objects in the order of declaration.
    fn objects(&self) -> Vec<Arc<dyn StateObject>>;
}

/// Declares the function's own types as plain configuration, so that they may be fields: `plain!(Config, Backend);`.
/// Their fields are not checked unless [`network_function!`](crate::network_function) defines the type, so use only
/// plain data.
#[macro_export]
macro_rules! plain {
    ($($type:ty),+ $(,)?) => { $(
        impl $crate::Part for $type {
            #[inline]
            fn objects(&self, _: &mut Vec<std::sync::Arc<dyn $crate::state::StateObject>>) {}
        }
    )+ };
}

plain!(bool, u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize, f32, f64, char, (), String, &'static str);
plain!(IpAddr, Ipv4Addr, Ipv6Addr, Duration, crate::Reason, braid_packet::key::SetDef);

impl<T: Part> Part for Vec<T> {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.iter().for_each(|part| part.objects(into));
    }
}

impl<T: Part> Part for Box<[T]> {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.iter().for_each(|part| part.objects(into));
    }
}

impl<T: Part> Part for Option<T> {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.iter().for_each(|part| part.objects(into));
    }
}

impl<T: Part, const N: usize> Part for [T; N] {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.iter().for_each(|part| part.objects(into));
    }
}

impl<A: Part, B: Part> Part for (A, B) {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.0.objects(into);
        self.1.objects(into);
    }
}

impl<T> Part for braid_packet::Field<T> {
    fn objects(&self, _: &mut Vec<Arc<dyn StateObject>>) {}
}

impl<K: Plain, V: Plain> Part for Map<K, V> {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        into.push(self.object());
    }
}

impl<T: Plain> Part for Vector<T> {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        into.push(self.object());
    }
}

impl Part for Allocator {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        into.push(self.object());
    }
}

impl<T: Plain> Part for Distributed<T> {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        into.push(self.object());
    }
}

impl<T: Plain> Part for DistributedVector<T> {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        into.push(self.object());
    }
}

/// Defines the struct of a network function: its configuration and its state objects. Every field must be a [`Part`].
/// The handlers are in an `impl` of [`NetworkFunction`](crate::NetworkFunction).
///
/// ```
/// use braid_nf::prelude::*;
/// network_function! {
///     /// Counts packets by source address.
///     pub struct Counter {
///         limit: u64,
///         seen: Map<[u8; 16], u64>,
///     }
/// }
/// ```
///
/// Fields that could race do not compile:
///
/// ```compile_fail
/// use braid_nf::prelude::*;
/// network_function! {
///     pub struct Racy { count: std::sync::atomic::AtomicU64 }
/// }
/// ```
///
/// ```compile_fail
/// use braid_nf::prelude::*;
/// network_function! {
///     pub struct Locked { count: std::sync::Mutex<u64> }
/// }
/// ```
#[macro_export]
macro_rules! network_function {
    ($(#[$meta:meta])* $vis:vis struct $name:ident {
        $($(#[$field_meta:meta])* $field_vis:vis $field:ident : $type:ty),* $(,)?
    }) => {
        $(#[$meta])*
        $vis struct $name { $($(#[$field_meta])* $field_vis $field: $type),* }

        impl $crate::Declare for $name {
            fn objects(&self) -> Vec<std::sync::Arc<dyn $crate::state::StateObject>> {
                #[allow(unused_mut)]
                let mut objects = Vec::new();
                $( <$type as $crate::Part>::objects(&self.$field, &mut objects); )*
                objects
            }
        }
    };
}
