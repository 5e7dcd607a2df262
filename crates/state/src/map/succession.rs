//! Replaces a map by one with another capacity: entries keep their numbers, so handles stay valid.

use braid_stm::Arena;

use super::{Shared, entry};
use crate::buckets::Home;
use crate::image::ImageError;
use crate::object::StateObject;
use crate::succession::{Brought, Succeed, check, checked};

impl Succeed for Shared {
    fn elements(&self) -> &Arena {
        &self.entries
    }

    fn check(&self, former: &dyn StateObject) -> Result<(), ImageError> {
        let sizes = |map: &Shared| (map.key_bytes, map.value_bytes);
        check(self, former, |former: &Shared| sizes(former) == sizes(self))
    }

    fn touch(&self, former: &dyn StateObject) {
        self.entries.touch(former.elements().objects());
        self.buckets.main.touch(self.buckets.main.objects());
    }

    fn bring(&self, former: &dyn StateObject, index: u32) -> Brought {
        let former: &Shared = checked(former);
        let mut words = vec![0; former.entries.payload_words()];
        former.entries.snapshot(index, &mut words);
        if index >= self.free.numbers() {
            return if entry::is_live(&words) { Brought::Beyond } else { Brought::Nothing };
        }
        let mut before = vec![0; words.len()];
        self.entries.snapshot(index, &mut before);
        if words == before {
            return Brought::Nothing;
        }
        self.put(index, &before, &words);
        Brought::Whole
    }
}

impl Shared {
    /// Replaces the words of an entry and updates its buckets and the free numbers, before any transaction uses the map. Two entries may
    /// have the same key for a while, because buckets refer to entries by number.
    fn put(&self, index: u32, before: &[u64], words: &[u64]) {
        let (was, is) = (entry::is_live(before), entry::is_live(words));
        let stays = was && is && self.content(before)[0] == self.content(words)[0];
        if was && !stays {
            self.buckets.displace_entry(self.home(before), index);
        }
        if was && !is {
            self.free.put_back(index);
        }
        if is && !was {
            let is_free = self.free.remove(0, index);
            assert!(is_free, "entry {index} was free");
        }
        if is && !stays {
            self.buckets.place_entry(self.home(words), index);
        }
        self.entries.initialise(index, words);
    }

    /// The buckets of an entry's key.
    fn home(&self, words: &[u64]) -> Home {
        Home::new((self.hash)(self.content(words)[0], self.seed), self.buckets.main.objects())
    }
}
