//! Slice extension: none. No code for the extensions of a kernel is here, because none has run yet.

use crate::native::Native;
use crate::{Lacking, SliceExtension, Why, World};

impl SliceExtension for Native {
    fn enable_extension() -> Result<(), Lacking> {
        Err(Lacking {
            world: Native::NAME,
            capability: "slice extension",
            why: Why::new("this library does not use them on this system"),
            remedy: "run the program on a simulated machine",
        })
    }
}
