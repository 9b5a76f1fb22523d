//! The hardware: machine files, the machine's memory, and the coherence of cache lines.

pub(crate) mod arena;
pub(crate) mod class;
pub(crate) mod coherence;
pub(crate) mod contention;
pub(crate) mod costs;
pub(crate) mod digest;
pub(crate) mod distances;
pub(crate) mod overlap;
pub(crate) mod places;
pub(crate) mod presets;
pub(crate) mod shadow;
pub(crate) mod spec;
pub(crate) mod stack;
