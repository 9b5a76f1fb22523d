//! Plain shared data with observed accesses.

use crate::Sim;

/// Like [`std::cell::UnsafeCell`], but the machine observes each access. As with loom's cell, use
/// `with` and `with_mut` instead of `get`. The machine charges for the lines of the value, and
/// [`Machine::find_races`](crate::Machine::find_races) checks whether accesses are ordered.
///
/// Unlike std's cell, it is `Sync` if its value is `Send`, because it only gives out pointers.
///
/// ```
/// use coreline_sim::cell::UnsafeCell;
///
/// let cell = UnsafeCell::new(1);
/// // SAFETY: no other thread has the cell.
/// cell.with_mut(|it| unsafe { *it += 1 });
/// // SAFETY: no other thread has it.
/// assert_eq!(cell.with(|it| unsafe { *it }), 2);
/// ```
pub type UnsafeCell<T> = coreline_world::Cell<T, Sim>;
