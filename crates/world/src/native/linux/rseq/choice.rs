//! The choice of this process: sections, or atomics.
//!
//! | word | meaning | written by |
//! |---|---|---|
//! | [`CHOICE`] | where the choice lies; null: it is not made | all, in one exchange |
//! | [`CHOOSING`] | the generation of the memory in which a thread makes it; 0: none does | all |
//! | [`TESTED`] | the choice of the thread that had the turn | that thread, before `CHOICE` |
//!
//! A thread that finds no choice makes it, one thread at a time; the others wait.
//!
//! There must be no deadlock, because this can be called from anywhere that a program makes its
//! first per-CPU memory: in a constructor of a library, in an allocator. So
//!
//! * signals are held off meanwhile: a handler that needs the choice never interrupts its making;
//! * what may wait for the dynamic linker is done before a thread takes its turn;
//! * the self-test, and every wait here, has an end;
//! * a thread that needs the choice while it is making it (an allocator that was called by
//!   `pthread_create`, as it counts with coreline) gets atomics, for good.
//!
//! A child that is forked while another thread chooses finds a turn of another generation, whose
//! thread cannot exist in it, and takes the turn over. Nothing here takes a lock that a fork could
//! leave behind, or allocates.

use core::cell::UnsafeCell;
use core::ffi::CStr;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use core::time::Duration;

use super::errors::{ANSWER, NoSections, SelfTestError};
use super::{SWITCH_C, keeps_cids, mapped, registration, self_test};
use crate::arch::{Area, HAS_SECTIONS, Reading};
use crate::native::Native;
use crate::native::linux::marks;
use crate::{Clock, Parked, Signals, Sleep};

/// How long a thread waits for another one's choice: the self-test, and as long again.
const TURN: Duration = ANSWER.saturating_mul(2);

type Choice = Result<Area, NoSections>;

static CHOICE: AtomicPtr<Choice> = AtomicPtr::new(ptr::null_mut());
/// Threads sleep on it.
static CHOOSING: AtomicU32 = AtomicU32::new(0);
static TESTED: Tested = Tested(UnsafeCell::new(NO_ANSWER));

/// See [`TESTED`].
struct Tested(UnsafeCell<Choice>);

// SAFETY: one thread writes it, before others are told where it lies.
unsafe impl Sync for Tested {}

// What is decided without a turn.
static NO_ANSWER: Choice = Err(NoSections::SelfTest(SelfTestError::NoAnswer));
static NESTED: Choice = Err(NoSections::SelfTest(SelfTestError::Nested));
static PROCESSOR: Choice = Err(NoSections::Processor);

/// The area of sections, if they work: the choice of this process. The first call makes it, with
/// the self-test, which takes some milliseconds, and seconds at worst.
///
/// Async-signal-safe once it was called. Before that not, as it starts threads.
pub(crate) fn sections() -> Result<Area, &'static NoSections> {
    // With the areas, though the thread that chose is about to set them: a loop over the memory
    // that the caller makes may look for its area once, before it.
    made().unwrap_or_else(|| choose()).as_ref().copied()
}

/// The choice, if it was made.
fn chosen() -> Option<&'static Choice> {
    // Acquire pairs with the release in `decide`: without it the choice could be seen unwritten.
    //
    // SAFETY: null, or a static that never changes from then on.
    unsafe { CHOICE.load(Ordering::Acquire).as_ref() }
}

/// The choice, if it was made. Its areas are set then.
pub(super) fn made() -> Option<&'static Choice> {
    let choice = chosen()?;
    set_areas(choice);
    Some(choice)
}

#[cold]
fn choose() -> &'static Choice {
    if !HAS_SECTIONS {
        return decide(&PROCESSOR);
    }
    let _held = Native::hold();
    if marks::set(marks::CHOOSING) {
        return decide(&NESTED);
    }
    let candidate = candidate();
    let choice = if take_turn() {
        // The thread that had the turn before may have chosen.
        let choice = chosen().unwrap_or_else(|| {
            let choice = candidate.and_then(proven);
            // SAFETY: only the thread that has the turn is here, and there was no choice yet, so
            // no other thread knows the place, or ever writes it again.
            unsafe { *TESTED.0.get() = choice };
            decide(TESTED.0.get())
        });
        // Release pairs with the acquire in `take_turn`. Without it the next thread might not see
        // the choice, and test again: a waste.
        CHOOSING.store(0, Ordering::Release);
        Native::wake(&raw const CHOOSING, u32::MAX);
        choice
    } else {
        decide(&NO_ANSWER)
    };
    marks::clear(marks::CHOOSING);
    choice
}

/// Waits for the calling thread's turn; `false` if it did not come.
fn take_turn() -> bool {
    // Before the word names it, so that a child of this memory has another one.
    let generation = Native::generation().get();
    let deadline = Native::now() + TURN;
    // The clock is asked, too: a filter can have the kernel never wait.
    while Native::now() < deadline {
        // Relaxed: the exchange below is what takes the turn.
        let seen = CHOOSING.load(Ordering::Relaxed);
        if seen == generation {
            match Native::park(&CHOOSING, seen, Some(deadline)) {
                Parked::TimedOut => return false,
                _ => continue,
            }
        }
        // Acquire pairs with the release at the end of a turn. Relaxed: nothing is read after a
        // failure.
        let taken =
            CHOOSING.compare_exchange(seen, generation, Ordering::Acquire, Ordering::Relaxed);
        if taken.is_ok() {
            return true;
        }
    }
    false
}

/// Makes this the choice, unless there is one; the one there is.
///
/// It is a static, which nothing writes any more.
fn decide(choice: *const Choice) -> &'static Choice {
    // Release pairs with the acquire in `chosen`: the choice is written. Acquire, where another
    // thread was faster: so is that thread's.
    let order = (Ordering::AcqRel, Ordering::Acquire);
    let decided = CHOICE.compare_exchange(ptr::null_mut(), choice.cast_mut(), order.0, order.1);
    let choice = decided.map_or_else(|theirs| theirs.cast_const(), |_| choice);
    // SAFETY: a static that never changes from then on.
    let choice = unsafe { &*choice };
    set_areas(choice);
    choice
}

fn set_areas(choice: &Choice) {
    find_published();
    if let Ok(area) = choice {
        area.read_in(Reading::Sections);
        read_in(*area);
    }
}

fn read_in(area: Area) {
    area.read_in(Reading::Cpu);
    if keeps_cids() {
        area.read_in(Reading::Cid);
    }
}

/// The area to prove: the C library's, else our own. Its sections stay mapped.
fn candidate() -> Choice {
    if is_switched_off() {
        return Err(NoSections::SwitchedOff);
    }
    mapped::stay_mapped();
    find_published();
    Ok(registration::published_area().unwrap_or_else(Area::own))
}

/// The area, if the self-test proves that sections work on it.
fn proven(area: Area) -> Choice {
    self_test::run(area)?;
    if area == Area::own() {
        registration::prepare_own().map_err(NoSections::NoKey)?;
    }
    Ok(area)
}

/// Looks for the C library's area, to read IDs there, unless a thread has looked before.
pub(crate) fn find_published() {
    static LOOKED: AtomicBool = AtomicBool::new(false);
    // Acquire, partner: the release below. A thread that finds the mark finds the words of the
    // areas, too. One that misses the change looks again and finds the same.
    if LOOKED.load(Ordering::Acquire) {
        return;
    }
    if HAS_SECTIONS
        && !is_switched_off()
        && let Some(area) = registration::published_area()
    {
        read_in(area);
    }
    // Release, partner: the acquire above. Otherwise, on a weakly ordered processor:
    //
    // Thread 1: LOOKED = true, seen before READING
    // Thread 2: finds LOOKED, reads the blank area, and says that there is none
    LOOKED.store(true, Ordering::Release);
}

pub(crate) fn is_switched_off() -> bool {
    switch() == Some(c"off")
}

/// The value of the environment variable. This does not use `std`, which allocates, and takes a
/// lock that may stay locked in a forked child.
pub(crate) fn switch<'a>() -> Option<&'a CStr> {
    // SAFETY: the name is a C string. It is up to a thread that changes the environment that no
    // other reads it at the same time.
    let value = unsafe { libc::getenv(SWITCH_C.as_ptr()) };
    // SAFETY: the environment's values are C strings, and no thread changes it meanwhile.
    (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::linux::signals::tests::in_a_child;

    /// As in the moment between a choice and the words of its areas, in a process of its own: no
    /// other test may find them in this state.
    #[test]
    fn the_area_of_a_choice_that_another_thread_made_is_set() {
        let Ok(area) = sections() else { return };
        let set = in_a_child(|| {
            Area::blank().read_in(Reading::Sections);
            (sections() == Ok(area) && Area::of_sections() == area).into()
        });
        assert_eq!(set, 1, "sections still run on the blank area");
    }
}
