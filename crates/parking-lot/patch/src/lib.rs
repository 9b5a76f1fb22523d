//! What `[patch.crates-io]` puts in the place of `parking_lot`: see `coreline-parking-lot`.

pub use coreline_parking_lot::*;
