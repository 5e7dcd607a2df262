//! The loops that make the keys of whole batches, of parsed packets or on the parser's way.

use super::extract::{Form, KeyExtractor, Packed, admits};
use super::fast::{self, Narrow};
use super::{KeyClass, Keys};
use crate::batch::Batch;
use crate::port_set::PortSet;
use crate::raw::held::{Head, Seen};
use crate::record::Record;

impl KeyExtractor {
    /// Writes keys and hashes of all packets of a parsed batch.
    pub fn extract_batch(&self, batch: &Batch, keys: &mut Keys) {
        self.extract_from(batch, keys);
    }

    /// Parses a batch, and writes keys and hashes of all its packets: [`Batch::parse_all`] and then
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
            (Form::FiveTuple, true) => self.each(packets, keys, fast::five_tuple::<true>, fast::five_tuple_v6::<true>),
            (Form::FiveTuple, false) => {
                self.each(packets, keys, fast::five_tuple::<false>, fast::five_tuple_v6::<false>);
            }
            (Form::OneAddress(side), _) => {
                let wide = |record: &Record, head: &Head| fast::one_address_v6(record, head, side);
                self.each(packets, keys, |packet, head| fast::one_address(packet, head, side), wide);
            }
            (Form::MacPair, true) => self.each(packets, keys, fast::mac_pair::<true, false>, no_wide),
            (Form::MacPair, false) => self.each(packets, keys, fast::mac_pair::<false, false>, no_wide),
            (Form::MacPairVlan, true) => self.each(packets, keys, fast::mac_pair::<true, true>, no_wide),
            (Form::MacPairVlan, false) => self.each(packets, keys, fast::mac_pair::<false, true>, no_wide),
            (Form::Any, _) => self.each(packets, keys, |_, _| None, no_wide),
        }
    }

    fn extract_by_sides(&self, outside: PortSet, packets: impl Packets, keys: &mut Keys) {
        let symmetric = self.symmetric;
        if let Form::FiveTuple = self.form {
            let narrow = |packet: &Seen<'_>, head: &Head| {
                let from_outside = outside.has(packet.record().port);
                fast::five_tuple::<false>(packet, head).map(|key| key.by_side(symmetric, from_outside))
            };
            let wide = |record: &Record, head: &Head| {
                fast::five_tuple_v6::<false>(record, head).map(|key| key.by_side(symmetric, outside.has(record.port)))
            };
            self.each(packets, keys, narrow, wide);
        } else {
            self.each(packets, keys, |_, _| None, |_, _| None);
        }
    }

    /// Writes key and hash of packet `i` of a parsed batch alone; of those of all others nothing is known then.
    pub fn extract_at(&self, batch: &Batch, i: usize, keys: &mut Keys) {
        keys.shape = self.shape;
        let record = &batch.records()[i];
        let belongs = self.protocols.is_none_or(|protocols| admits(&protocols, record));
        self.elsewhere(belongs, record, batch.bytes(i), keys, i);
        keys.of_all = KeyClass::None;
    }

    /// The loop over a batch: first the narrow way, then the wide one, then the general one, which decides on orphans.
    #[inline(always)]
    fn each(
        &self,
        packets: impl Packets,
        keys: &mut Keys,
        narrow: impl Fn(&Seen<'_>, &Head) -> Option<Narrow>,
        wide: impl Fn(&Record, &Head) -> Option<Packed>,
    ) {
        // Two loops, so that sets without protocols do not ask for them.
        match self.protocols {
            None => self.each_of(packets, keys, |_| true, narrow, wide),
            Some(protocols) => self.each_of(packets, keys, |record| admits(&protocols, record), narrow, wide),
        }
    }

    #[inline(always)]
    fn each_of(
        &self,
        packets: impl Packets,
        keys: &mut Keys,
        admits: impl Fn(&Record) -> bool,
        narrow: impl Fn(&Seen<'_>, &Head) -> Option<Narrow>,
        wide: impl Fn(&Record, &Head) -> Option<Packed>,
    ) {
        let hash = self.hash;
        // What nearly all are; the others write their own.
        let (len, mut wides, mut nones) = (packets.len(), 0, 0);
        keys.class[..len].fill(KeyClass::Narrow);
        packets.each(|i, packet| {
            let belongs = admits(packet.record());
            if belongs
                && let Some(head) = packet.head()
                && let Some(Narrow(key, swapped)) = narrow(&packet, head)
            {
                keys.swapped[i] = swapped;
                keys.narrow[i] = key;
                keys.hash[i] = hash.narrow(&key);
                return;
            }
            match packet.head().filter(|_| belongs).and_then(|head| wide(packet.record(), head)) {
                Some(Packed { words, swapped, .. }) => {
                    keys.class[i] = KeyClass::Wide;
                    wides += 1;
                    keys.swapped[i] = swapped;
                    keys.wide[i] = words;
                    keys.hash[i] = hash.wide(&words);
                }
                None => match self.elsewhere(belongs, packet.record(), packet.bytes(), keys, i) {
                    KeyClass::Narrow => {}
                    KeyClass::Wide => wides += 1,
                    KeyClass::None => nones += 1,
                },
            }
        });
        keys.of_all = match (wides, nones) {
            (0, 0) => KeyClass::Narrow,
            (wides, _) if wides == len => KeyClass::Wide,
            _ => KeyClass::None,
        };
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

/// The packets of a batch, parsed on the way if they are not yet.
trait Packets {
    fn len(&self) -> usize;
    fn each(self, visit: impl FnMut(usize, Seen<'_>));
}

impl Packets for &Batch {
    fn len(&self) -> usize {
        Batch::len(self)
    }

    #[inline(always)]
    fn each(self, visit: impl FnMut(usize, Seen<'_>)) {
        Batch::each(self, visit);
    }
}

struct Unparsed<'a>(&'a mut Batch);

impl Packets for Unparsed<'_> {
    fn len(&self) -> usize {
        self.0.len()
    }

    #[inline(always)]
    fn each(self, visit: impl FnMut(usize, Seen<'_>)) {
        self.0.parse_each(visit);
    }
}
