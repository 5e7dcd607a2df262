//! What the compiler refuses in a network function, each refusal beside the same code that it accepts: compiled as
//! documentation tests and only then.
//!
//! What it cannot refuse: a `static` with an atomic in it is safe Rust from everywhere, and a type for which an author writes
//! [`plain!`](crate::plain) is taken at its word. `braid certify` finds both, as soon as packets of two workers meet in it.

/// The fields of a function: configuration and state objects, and nothing that changes behind the framework's back.
///
/// ```
/// use braid_nf::prelude::*;
/// network_function! { struct Allowed { limit: u64, hosts: Vec<std::net::IpAddr>, seen: Map<u64, u64>, sum: Distributed<u64> } }
/// ```
/// ```compile_fail,E0277
/// use braid_nf::prelude::*;
/// network_function! { struct Refused { count: std::cell::Cell<u64> } }
/// ```
/// ```compile_fail,E0277
/// use braid_nf::prelude::*;
/// network_function! { struct Refused { count: std::sync::atomic::AtomicU64 } }
/// ```
/// ```compile_fail,E0277
/// use braid_nf::prelude::*;
/// network_function! { struct Refused { count: std::sync::Mutex<u64> } }
/// ```
/// ```compile_fail,E0277
/// use braid_nf::prelude::*;
/// network_function! { struct Refused { count: std::sync::Arc<std::sync::Mutex<u64>> } }
/// ```
/// ```compile_fail,E0277
/// use braid_nf::prelude::*;
/// network_function! { struct Refused { count: *mut u64 } }
/// ```
/// ```compile_fail,E0277
/// use braid_nf::prelude::*;
/// network_function! { struct Refused { count: &'static std::sync::RwLock<u64> } }
/// ```
/// ```compile_fail,E0277
/// use braid_nf::prelude::*;
/// network_function! { struct Refused { to_another_thread: Option<std::sync::mpsc::Sender<u64>> } }
/// ```
///
/// Handlers cannot change a field either: they may run again.
///
/// ```compile_fail,E0594
/// use braid_nf::prelude::*;
/// network_function! { struct Refused { count: u64 } }
/// impl NetworkFunction for Refused {
///     type Set = ();
///     const NAME: &'static str = "refused";
///     fn orphan(&self, cx: &mut Cx<'_>, _: &mut Packet<'_>) -> Handled {
///         self.count += 1;
///         Ok(cx.pass())
///     }
/// }
/// ```
mod fields {}

/// The state of a packet set and the values of state objects: plain data, which can be copied, compared and taken back.
///
/// ```
/// use braid_nf::prelude::*;
/// #[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
/// #[repr(C)]
/// struct Flow { packets: u64, bytes: u64 }
/// network_function! { struct Allowed { flows: Map<u64, Flow> } }
/// impl NetworkFunction for Allowed {
///     type Set = Flow;
///     const NAME: &'static str = "allowed";
/// }
/// ```
/// ```compile_fail,E0277
/// use braid_nf::prelude::*;
/// network_function! { struct Refused {} }
/// impl NetworkFunction for Refused {
///     type Set = Vec<u8>;
///     const NAME: &'static str = "refused";
/// }
/// ```
/// ```compile_fail,E0277
/// use braid_nf::prelude::*;
/// network_function! { struct Refused {} }
/// impl NetworkFunction for Refused {
///     type Set = &'static std::sync::atomic::AtomicU64;
///     const NAME: &'static str = "refused";
/// }
/// ```
/// ```compile_fail,E0277
/// use braid_nf::prelude::*;
/// network_function! { struct Refused {} }
/// impl NetworkFunction for Refused {
///     type Set = std::sync::atomic::AtomicU64;
///     const NAME: &'static str = "refused";
/// }
/// ```
/// ```compile_fail,E0277
/// use braid_nf::prelude::*;
/// network_function! { struct Refused { flows: Map<u64, std::sync::Arc<std::sync::Mutex<u64>>> } }
/// ```
mod plain_data {}

/// What a handler is given stays on its thread.
///
/// ```
/// use braid_nf::prelude::*;
/// fn here(seen: &Map<u64, u64>, cx: &mut Cx<'_>, packet: &mut Packet<'_>, set: &mut NewSet<'_, u64>) -> Result<(), Conflict> {
///     let bytes = packet.bytes().len() as u64;
///     set.register(cx, bytes);
///     seen.get(cx, &bytes).map(drop)
/// }
/// ```
/// ```compile_fail,E0277
/// use braid_nf::prelude::*;
/// fn elsewhere(seen: &Map<u64, u64>, cx: &mut Cx<'_>) {
///     std::thread::scope(|threads| drop(threads.spawn(|| seen.get(cx, &1))));
/// }
/// ```
/// ```compile_fail,E0277
/// use braid_nf::prelude::*;
/// fn elsewhere(packet: &mut Packet<'_>) {
///     std::thread::scope(|threads| drop(threads.spawn(|| packet.bytes_mut().fill(0))));
/// }
/// ```
/// ```compile_fail,E0277
/// use braid_nf::prelude::*;
/// fn elsewhere(packet: &Packet<'_>) {
///     std::thread::scope(|threads| drop(threads.spawn(|| packet.bytes().len())));
/// }
/// ```
/// ```compile_fail,E0277
/// use braid_nf::prelude::*;
/// fn elsewhere(set: &mut NewSet<'_, u64>) {
///     std::thread::scope(|threads| drop(threads.spawn(|| set.key())));
/// }
/// ```
mod threads {}

/// Nothing that a handler is given outlives it.
///
/// ```
/// use braid_nf::prelude::*;
/// fn copied(packet: &Packet<'_>, set: &u64) -> (Vec<u8>, u64) {
///     (packet.bytes().to_vec(), *set)
/// }
/// ```
/// ```compile_fail
/// use braid_nf::prelude::*;
/// fn kept(packet: &Packet<'_>, place: &mut Option<&'static [u8]>) {
///     *place = Some(packet.bytes());
/// }
/// ```
/// ```compile_fail
/// use braid_nf::prelude::*;
/// fn kept(set: &mut u64, place: &mut Option<&'static mut u64>) {
///     *place = Some(set);
/// }
/// ```
/// ```compile_fail
/// use braid_nf::prelude::*;
/// fn kept(cx: &mut Cx<'_>, place: &mut Option<&'static mut Cx<'static>>) {
///     *place = Some(cx);
/// }
/// ```
mod references {}
