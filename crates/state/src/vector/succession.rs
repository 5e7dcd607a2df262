//! Replaces a vector by one of another length: elements beyond the new end are dropped, and elements beyond the former end keep their initial
//! value.

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
        check(self, former, |former: &Shared| former.bytes == self.bytes)
    }
}
