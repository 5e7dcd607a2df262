//! The loops that extract the keys of whole batches, either parsed before or parsed in the same loop.

use super::extract::{Form, KeyExtractor, Packed, admits, has};
use super::fast::{self, Narrow};
use super::{KeyClass, KeyHash, Keys, protocol};
use crate::batch::{BATCH_MAX, Batch};
use crate::port_set::PortSet;
use crate::raw::fours::{FOUR, Tuple, TupleV6, VisitFours};
use crate::raw::records::{Head, Seen};
use crate::record::Record;

/// For sets whose keys are not made from five-tuples.
const NO_TUPLE: Option<(OfFour, OfV6)> = None;

/// Functions that make the keys of four IPv4 packets from their five-tuples, and the key of one IPv6 packet from its.
type OfFour = fn(&[Record; FOUR], [Tuple; FOUR]) -> [Narrow; FOUR];
type OfV6 = fn(&Record, TupleV6) -> Packed;

/// Makes the keys of four packets one by one from their five-tuples.
#[inline(always)]
fn each_of_four(key: impl Fn(&Record, Narrow) -> Narrow) -> impl Fn(&[Record; FOUR], [Tuple; FOUR]) -> [Narrow; FOUR] {
    move |records, tuples| std::array::from_fn(|i| key(&records[i], Narrow(tuples[i], false)))
}

impl KeyExtractor {
    /// Writes keys and hashes of all packets of a parsed batch.
    pub fn extract_batch(&self, batch: &Batch, keys: &mut Keys) {
        self.extract_from(batch, keys);
    }

    /// Parses a batch and writes keys and hashes of all its packets: [`Batch::parse_all`] followed by
    /// [`extract_batch`](Self::extract_batch), in one loop.
    pub fn parse_and_extract(&self, batch: &mut Batch, keys: &mut Keys) {
        self.extract_from(Unparsed(batch), keys);
    }

    #[inline(always)]
    fn extract_from(&self, packets: impl Packets, keys: &mut Keys) {
        keys.shape = self.shape;
        let no_wide = |_: &Record, _: &Head| None;
        if let Some(outside) = self.outside {
            return self.extract_by_sides(outside, packets, keys);
        }
        match (self.form, self.symmetric) {
            (Form::FiveTuple, true) => {
                let four = |_: &[Record; FOUR], tuples: [Tuple; FOUR]| fast::four_by_end(tuples);
                let by_end = (four, |_: &Record, tuple: TupleV6| fast::key_of_v6::<true>(tuple));
                self.each(packets, keys, Some(by_end), fast::five_tuple::<true>, fast::five_tuple_v6::<true>);
            }
            (Form::FiveTuple, false) => {
                let itself =
                    (each_of_four(|_, tuple| tuple), |_: &Record, tuple: TupleV6| fast::key_of_v6::<false>(tuple));
                self.each(packets, keys, Some(itself), fast::five_tuple::<false>, fast::five_tuple_v6::<false>);
            }
            (Form::OneAddress(side), _) => {
                let of_v6 = move |_: &Record, tuple: TupleV6| fast::address_of_v6(tuple, side);
                let address = Some((each_of_four(move |_, tuple| tuple.address(side)), of_v6));
                let wide = |record: &Record, head: &Head| fast::one_address_v6(record, head, side);
                self.each(packets, keys, address, |packet, head| fast::one_address(packet, head, side), wide);
            }
            (Form::MacPair, true) => self.each(packets, keys, NO_TUPLE, fast::mac_pair::<true, false>, no_wide),
            (Form::MacPair, false) => self.each(packets, keys, NO_TUPLE, fast::mac_pair::<false, false>, no_wide),
            (Form::MacPairVlan, true) => self.each(packets, keys, NO_TUPLE, fast::mac_pair::<true, true>, no_wide),
            (Form::MacPairVlan, false) => self.each(packets, keys, NO_TUPLE, fast::mac_pair::<false, true>, no_wide),
            (Form::Any, _) => self.each(packets, keys, NO_TUPLE, |_, _| None, no_wide),
        }
    }

    fn extract_by_sides(&self, outside: PortSet, packets: impl Packets, keys: &mut Keys) {
        let Form::FiveTuple = self.form else {
            return self.each(packets, keys, NO_TUPLE, |_, _| None, |_, _| None);
        };
        let symmetric = self.symmetric;
        let by_side = |record: &Record, tuple: Narrow| tuple.by_side(symmetric, outside.has(record.port));
        let narrow = |packet: &Seen<'_>, head: &Head| {
            fast::five_tuple::<false>(packet, head).map(|key| by_side(packet.record(), key))
        };
        let wide_by_side = |record: &Record, key: Packed| key.by_side(symmetric, outside.has(record.port));
        let wide = |record: &Record, head: &Head| {
            fast::five_tuple_v6::<false>(record, head).map(|key| wide_by_side(record, key))
        };
        let of_v6 = |record: &Record, tuple: TupleV6| wide_by_side(record, fast::key_of_v6::<false>(tuple));
        self.each(packets, keys, Some((each_of_four(by_side), of_v6)), narrow, wide);
    }

    /// Writes key and hash of packet `i` of a parsed batch; [`Keys::of_all`] is then unknown.
    pub fn extract_at(&self, batch: &Batch, i: usize, keys: &mut Keys) {
        keys.shape = self.shape;
        let record = &batch.records()[i];
        let belongs = self.protocols.is_none_or(|protocols| admits(&protocols, record));
        self.elsewhere(belongs, record, batch.bytes(i), keys, i);
        keys.of_all = KeyClass::None;
    }

    /// The loop over a batch. It tries the tuples of four packets at a time (if `tuple` is given), then `narrow`, then
    /// `wide`, then the generic path, which decides about orphans.
    #[inline(always)]
    fn each(
        &self,
        packets: impl Packets,
        keys: &mut Keys,
        tuple: Option<(impl Fn(&[Record; FOUR], [Tuple; FOUR]) -> [Narrow; FOUR], impl Fn(&Record, TupleV6) -> Packed)>,
        narrow: impl Fn(&Seen<'_>, &Head) -> Option<Narrow>,
        wide: impl Fn(&Record, &Head) -> Option<Packed>,
    ) {
        // Two loops, so that sets without protocols do not test for them.
        match self.protocols {
            None => self.each_of(packets, keys, Ways { admits: |_: &Record| true, tuple, narrow, wide }),
            Some(protocols) => {
                // Plainest packets are TCP or UDP; if the set admits both, they need no test.
                let both = [protocol::TCP, protocol::UDP].into_iter().all(|number| has(&protocols, number));
                let (admits, tuple) = (|record: &Record| admits(&protocols, record), tuple.filter(|_| both));
                self.each_of(packets, keys, Ways { admits, tuple, narrow, wide });
            }
        }
    }

    #[inline(always)]
    fn each_of<A, T, S, N, W>(&self, packets: impl Packets, keys: &mut Keys, ways: Ways<A, T, S, N, W>)
    where
        A: Fn(&Record) -> bool,
        T: Fn(&[Record; FOUR], [Tuple; FOUR]) -> [Narrow; FOUR],
        S: Fn(&Record, TupleV6) -> Packed,
        N: Fn(&Seen<'_>, &Head) -> Option<Narrow>,
        W: Fn(&Record, &Head) -> Option<Packed>,
    {
        // The class of nearly all keys; other packets overwrite theirs.
        let len = packets.len();
        keys.class[..len].fill(KeyClass::Narrow);
        let fours = ways.tuple.is_some();
        let made = packets.each(Making { extractor: self, keys, ways, wides: 0, nones: 0 }, fours);
        let of_all = match (made.wides, made.nones) {
            (0, 0) => KeyClass::Narrow,
            (wides, _) if wides == len => KeyClass::Wide,
            _ => KeyClass::None,
        };
        made.keys.of_all = of_all;
    }

    #[inline(never)]
    fn elsewhere(&self, belongs: bool, record: &Record, frame: &[u8], keys: &mut Keys, i: usize) -> KeyClass {
        let key = if belongs { self.pack(record, frame) } else { None };
        let Packed { words, class, swapped } = key.unwrap_or_default();
        keys.class[i] = class;
        keys.swapped[i] = swapped;
        keys.hash[i] = self.hash.of(class, &words);
        match class {
            KeyClass::Wide => keys.wide[i] = words,
            _ => keys.narrow[i] = [words[0], words[1]],
        }
        class
    }
}

/// The ways to make a key, fastest first.
struct Ways<A, T, S, N, W> {
    /// Returns whether a packet belongs to the set.
    admits: A,
    /// From the five-tuples of four plainest IPv4 packets, and from that of one IPv6 packet.
    tuple: Option<(T, S)>,
    narrow: N,
    wide: W,
}

/// The keys of a batch under construction.
struct Making<'a, A, T, S, N, W> {
    extractor: &'a KeyExtractor,
    keys: &'a mut Keys,
    ways: Ways<A, T, S, N, W>,
    wides: usize,
    nones: usize,
}

impl<A, T, S, N, W> Making<'_, A, T, S, N, W> {
    #[inline(always)]
    fn put(&mut self, i: usize, Narrow(key, swapped): Narrow) {
        self.keys.swapped[i] = swapped;
        self.keys.narrow[i] = key;
        self.keys.hash[i] = self.extractor.hash.narrow(&key);
    }
}

impl<A, T, S, N, W> VisitFours for Making<'_, A, T, S, N, W>
where
    A: Fn(&Record) -> bool,
    T: Fn(&[Record; FOUR], [Tuple; FOUR]) -> [Narrow; FOUR],
    S: Fn(&Record, TupleV6) -> Packed,
    N: Fn(&Seen<'_>, &Head) -> Option<Narrow>,
    W: Fn(&Record, &Head) -> Option<Packed>,
{
    #[inline(always)]
    fn four(&mut self, first: usize, records: &[Record; FOUR], tuples: [Tuple; FOUR]) {
        let Keys { swapped, hash, narrow, .. } = &mut *self.keys;
        let places = (four_of(narrow, first), four_of(hash, first), four_of(swapped, first));
        let (Some((way, _)), (Some(narrow), Some(hash), Some(swapped))) = (&self.ways.tuple, places) else { return };
        let keys = way(records, tuples);
        *swapped = keys.each_ref().map(|key| key.1);
        *narrow = keys.each_ref().map(|key| key.0);
        *hash = keys.map(|key| self.extractor.hash.narrow(&key.0));
    }

    #[inline(always)]
    fn four_v6(&mut self, first: usize, records: &[Record; FOUR], tuples: [TupleV6; FOUR]) {
        let Making { extractor, keys, ways, wides, .. } = self;
        let Some((_, way)) = &ways.tuple else { return };
        for (i, (record, tuple)) in records.iter().zip(tuples).enumerate() {
            keys.put_wide((first + i) % BATCH_MAX, &way(record, tuple), extractor.hash);
        }
        *wides += FOUR;
    }

    #[inline(always)]
    fn one(&mut self, i: usize, packet: Seen<'_>) {
        // Numbers are always in range; the modulo removes the bounds checks.
        let i = i % BATCH_MAX;
        let belongs = (self.ways.admits)(packet.record());
        if belongs
            && let Some(head) = packet.head()
            && let Some(key) = (self.ways.narrow)(&packet, head)
        {
            return self.put(i, key);
        }
        match packet.head().filter(|_| belongs).and_then(|head| (self.ways.wide)(packet.record(), head)) {
            Some(key) => {
                self.keys.put_wide(i, &key, self.extractor.hash);
                self.wides += 1;
            }
            None => match self.extractor.elsewhere(belongs, packet.record(), packet.bytes(), self.keys, i) {
                KeyClass::Narrow => {}
                KeyClass::Wide => self.wides += 1,
                KeyClass::None => self.nones += 1,
            },
        }
    }
}

impl Keys {
    #[inline(always)]
    fn put_wide(&mut self, i: usize, key: &Packed, hash: KeyHash) {
        self.class[i] = KeyClass::Wide;
        self.swapped[i] = key.swapped;
        self.wide[i] = key.words;
        self.hash[i] = hash.wide(&key.words);
    }
}

/// Returns the places of four packets, starting with `first`.
#[inline(always)]
fn four_of<T>(all: &mut [T; BATCH_MAX], first: usize) -> Option<&mut [T; FOUR]> {
    all.get_mut(first..)?.first_chunk_mut()
}

/// The packets of a batch, parsed during the visit if they are not yet.
trait Packets {
    fn len(&self) -> usize;
    /// Visits the packets; with `fours`, plainest packets four at a time. Returns the visitor.
    fn each<V: VisitFours>(self, visit: V, fours: bool) -> V;
}

impl Packets for &Batch {
    fn len(&self) -> usize {
        Batch::len(self)
    }

    #[inline(always)]
    fn each<V: VisitFours>(self, mut visit: V, fours: bool) -> V {
        if fours {
            return self.each_in_fours(visit);
        }
        Batch::each(self, |i, packet| visit.one(i, packet));
        visit
    }
}

struct Unparsed<'a>(&'a mut Batch);

impl Packets for Unparsed<'_> {
    fn len(&self) -> usize {
        self.0.len()
    }

    #[inline(always)]
    fn each<V: VisitFours>(self, mut visit: V, fours: bool) -> V {
        if fours {
            return self.0.parse_in_fours(visit);
        }
        self.0.parse_each(|i, packet| visit.one(i, packet));
        visit
    }
}
