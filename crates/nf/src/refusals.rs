//! What the compiler rejects in a network function, each next to similar code that it accepts. The examples are
//! compiled only as documentation tests.
//!
//! The compiler cannot reject everything: a `static` atomic is safe Rust and accessible from everywhere, and
//! [`plain!`](crate::plain) does not check the type to which an author applies it. `braid certify` finds both as soon
//! as packets of two workers meet there.

/// Fields of a function may be configuration and state objects, but nothing that changes outside the framework.
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
/// Handlers cannot change a field either, because they may run again.
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

/// Packet-set state and values of state objects must be plain data, which can be copied, compared and restored.
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

/// A handler cannot find out who runs it, nor end its transaction.
///
/// ```
/// use braid_nf::prelude::*;
/// fn counted(sum: &Distributed<u64>, cx: &mut Cx<'_>) -> Result<u64, Conflict> {
///     let now = cx.now();
///     sum.update(cx, |sum| *sum += 1).map(|()| now)
/// }
/// ```
/// ```compile_fail,E0277
/// use braid_nf::prelude::*;
/// fn by_worker(cx: &mut Cx<'_>) {
///     cx.worker();
/// }
/// ```
/// ```compile_fail,E0277
/// use braid_nf::prelude::*;
/// fn by_replay(cx: &mut Cx<'_>) {
///     cx.is_replaying();
/// }
/// ```
/// ```compile_fail,E0277
/// use braid_nf::prelude::*;
/// fn half(cx: &mut Cx<'_>) {
///     cx.commit();
/// }
/// ```
/// ```compile_fail,E0061
/// use braid_nf::prelude::*;
/// fn chosen(cx: &mut Cx<'_>) {
///     cx.choice(|| 1);
/// }
/// ```
mod transaction {}

/// Nothing that a handler is given outlives the call.
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
