//! The common part of per-CPU collections of whole values: one stripe for each CPU, which any
//! thread may use, and memory for its values.
//!
//! A stripe is not a slot, and operations on it are not restartable sections. Its owner is the
//! thread that holds its lock, on whichever CPU that thread runs by now.
//!
//! | constant or rule | with less | with more | test |
//! |---|---|---|---|
//! | `APART` | two CPUs write one pair of lines | memory only | `stripes_share_no_pair_of_lines` |

use core::alloc::Layout;
use core::mem::MaybeUninit;

use coreline_world::{Cell, MapError, Words, World};

use crate::heap;

/// Memory for values. Each value exists or does not exist.
pub(super) type Places<T, W> = Box<[Cell<MaybeUninit<T>, W>]>;

/// A line, and the one that processors fetch with it.
const APART: usize = 128;

/// Memory for this many values, on lines that no other stripe has. It is not written, so its pages
/// come from the node of the thread that first uses them.
///
/// # Errors
///
/// [`MapError`] if the allocator has no memory left.
pub(super) fn places<T, W: Words>(values: usize) -> Result<Places<T, W>, MapError> {
    // Unused ones at the end keep the next allocation off the last line.
    let apart = if values == 0 { 0 } else { APART.div_ceil(size_of::<T>().max(1)) };
    let mut places = Vec::new();
    let all = values.checked_add(apart).filter(|&all| places.try_reserve_exact(all).is_ok());
    let all = all.ok_or_else(|| none_left(Layout::array::<Cell<T, W>>(values).ok()))?;
    if size_of::<Cell<MaybeUninit<T>, W>>() == 0 {
        // A loop over all would take years without optimisation.
        // SAFETY: there is room for all, and places without a size need no initialisation.
        unsafe { places.set_len(all) };
    }
    places.resize_with(all, || Cell::new_in(MaybeUninit::uninit()));
    Ok(places.into_boxed_slice())
}

/// `None` if this is more than any memory has.
pub(super) fn none_left(layout: Option<Layout>) -> MapError {
    MapError { remedy: "ask for a smaller capacity", ..heap::none_left(layout) }
}

/// A stripe of this many for the calling thread: that of its CPU. It is a hint.
#[inline(always)]
pub(crate) fn own<W: World>(stripes: usize) -> usize {
    let cpu = W::cpu_hint().index();
    // As a rule there is a stripe for each CPU, so nothing is divided.
    if cpu < stripes { cpu } else { cpu % stripes }
}

#[cfg(test)]
mod tests {
    use coreline_world::Native;

    use super::*;

    #[test]
    fn stripes_share_no_pair_of_lines() {
        let stripes: Vec<_> = (0..64).map(|_| places::<u64, Native>(3).unwrap()).collect();
        let mut pairs: Vec<_> = stripes
            .iter()
            .map(|stripe| [0, 2].map(|at| (&raw const stripe[at]).addr() / 128))
            .collect();
        pairs.sort_unstable();
        assert!(pairs.windows(2).all(|two| two[0][1] < two[1][0]), "{pairs:?}");
    }
}
