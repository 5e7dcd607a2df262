//! A distributed object that takes the place of one with another staleness: the parts come over as they are.

use braid_stm::Arena;

use super::Shared;
use crate::image::ImageError;
use crate::object::StateObject;
use crate::succession::{Brought, Succeed, check, checked, copy};

impl Succeed for Shared {
    fn elements(&self) -> &Arena {
        &self.parts
    }

    fn check(&self, former: &dyn StateObject) -> Result<(), ImageError> {
        check(self, former, |former: &Shared| former.value_bytes == self.value_bytes)
    }

    fn bring(&self, former: &dyn StateObject, index: u32) -> Brought {
        copy(&checked::<Shared>(former).parts, &self.parts, index)
    }
}
