//! Replaces a distributed vector by one with the same number of elements; with another number the meaning of an index would change.

use braid_stm::Arena;

use super::Shared;
use crate::image::ImageError;
use crate::object::StateObject;
use crate::succession::{Succeed, check};

impl Succeed for Shared {
    fn elements(&self) -> &Arena {
        &self.elements
    }

    fn check(&self, former: &dyn StateObject) -> Result<(), ImageError> {
        check(self, former, |former: &Shared| (former.bytes, former.len) == (self.bytes, self.len))
    }
}
