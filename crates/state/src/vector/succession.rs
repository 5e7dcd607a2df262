//! A vector that takes the place of one with another length: elements beyond the end are left behind, those beyond the former end stay
//! as they were made.

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
