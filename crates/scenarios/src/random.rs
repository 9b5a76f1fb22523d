//! Random numbers and orders.

use rand_core::Rng;
use rand_pcg::Pcg64;

/// A number below `below`, all alike except for a bias of less than 2^-32.
pub(crate) fn draw(dice: &mut Pcg64, below: usize) -> usize {
    // The high half of a 64 x 64 bit product.
    ((u128::from(dice.next_u64()) * below as u128) >> 64) as usize
}

/// Puts items into a random order (Fisher and Yates).
pub fn shuffle<T>(items: &mut [T], dice: &mut Pcg64) {
    for last in (1..items.len()).rev() {
        items.swap(last, draw(dice, last + 1));
    }
}
