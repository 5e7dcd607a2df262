//! Replaces a distributed object by one with another staleness: the parts are copied unchanged.

use braid_stm::Arena;

use super::Shared;
use crate::image::ImageError;
use crate::object::StateObject;
use crate::succession::{Succeed, check};

impl Succeed for Shared {
    fn elements(&self) -> &Arena {
        &self.parts
    }

    fn check(&self, former: &dyn StateObject) -> Result<(), ImageError> {
        check(self, former, |former: &Shared| former.value_bytes == self.value_bytes)
    }
}
