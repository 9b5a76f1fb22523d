//! Plain shared data whose accesses the machine sees.

use crate::Sim;

/// Like [`std::cell::UnsafeCell`], of which the machine is told each access, as loom's: `with` and
/// `with_mut` in place of `get`. It is charged for the lines of the value, and
/// [`Machine::find_races`](crate::Machine::find_races) sees whether accesses are ordered.
///
/// Unlike std's it is `Sync` if its value is `Send`: it gives out pointers alone.
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
