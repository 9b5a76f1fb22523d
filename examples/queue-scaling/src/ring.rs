//! [`Ring`]: what one writes next.
//!
//! Dmitry Vyukov's bounded queue for many producers and consumers. Each place has a turn, which
//! says what may be done there next: at turn `n` the thread that got ticket `n` from `tail` puts
//! its value in and makes it `n + 1`; then the one that got ticket `n` from `head` takes it out and
//! makes it `n + places`, for the next round.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;

use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::{Queue, TooLarge};

/// First in, first out, without locks. All that put in change one word, and all that take out
/// another.
pub struct Ring<T> {
    head: Line<AtomicUsize>,
    tail: Line<AtomicUsize>,
    /// As many as a power of two.
    places: Box<[Line<Place<T>>]>,
}

/// On cache lines of its own; two, as processors fetch them in pairs.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Line<T>(pub(crate) T);

struct Place<T> {
    turn: AtomicUsize,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: a value is put in by one thread and taken out by one; `turn` hands it on.
unsafe impl<T: Send> Send for Ring<T> {}
// SAFETY: the same.
unsafe impl<T: Send> Sync for Ring<T> {}

impl<T> Ring<T> {
    /// The place of the next ticket of `counter`, whose turn must be `ahead` of the ticket, and the
    /// ticket; `None` if it is not its turn.
    fn claim(&self, counter: &AtomicUsize, ahead: usize) -> Option<(&Place<T>, usize)> {
        // Relaxed: a guess, which the exchange checks.
        let mut ticket = counter.load(Ordering::Relaxed);
        loop {
            let place = &self.places[ticket & (self.places.len() - 1)].0;
            // Acquire: pairs with the Release of the thread that made it this turn, in `push` or
            // `pop`: what it did to the value is done.
            let turn = place.turn.load(Ordering::Acquire);
            let off = turn.wrapping_sub(ticket.wrapping_add(ahead)).cast_signed();
            if off < 0 {
                return None;
            }
            if off > 0 {
                // Another thread got this ticket. Relaxed: a guess, which the exchange checks.
                ticket = counter.load(Ordering::Relaxed);
                continue;
            }
            let (relaxed, next) = (Ordering::Relaxed, ticket.wrapping_add(1));
            // Relaxed: the turn orders what is done to the value.
            match counter.compare_exchange_weak(ticket, next, relaxed, relaxed) {
                Ok(_) => return Some((place, ticket)),
                Err(now) => ticket = now,
            }
        }
    }
}

impl<T: Send> Queue<T> for Ring<T> {
    fn new(capacity: usize) -> Result<Self, TooLarge> {
        // With one place, its turn after a `push` would be that of the next one.
        let count = capacity.checked_next_power_of_two().ok_or(TooLarge { capacity })?.max(2);
        let mut places = Vec::new();
        places.try_reserve_exact(count).map_err(|_| TooLarge { capacity })?;
        let place = |ticket| {
            let value = UnsafeCell::new(MaybeUninit::uninit());
            Line(Place { turn: AtomicUsize::new(ticket), value })
        };
        places.extend((0..count).map(place));
        Ok(Ring { head: Line::default(), tail: Line::default(), places: places.into() })
    }

    fn push(&self, value: T) -> Result<(), T> {
        let Some((place, ticket)) = self.claim(&self.tail.0, 0) else { return Err(value) };
        // SAFETY: this thread alone has the ticket, and it is its turn.
        unsafe { (*place.value.get()).write(value) };
        // Release: pairs with the Acquire in `claim`: the thread that takes it out sees the value.
        place.turn.store(ticket.wrapping_add(1), Ordering::Release);
        Ok(())
    }

    fn pop(&self) -> Option<T> {
        let (place, ticket) = self.claim(&self.head.0, 1)?;
        // SAFETY: this thread alone has the ticket, and its turn comes when the value is there.
        let value = unsafe { (*place.value.get()).assume_init_read() };
        // Release: pairs with the Acquire in `claim`: the next value is put in after this one was
        // taken out.
        place.turn.store(ticket.wrapping_add(self.places.len()), Ordering::Release);
        Some(value)
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        while let Some((place, ticket)) = self.claim(&self.head.0, 1) {
            // SAFETY: as in `pop`; no other thread has the queue.
            unsafe { (*place.value.get()).assume_init_drop() };
            // Relaxed: the same.
            place.turn.store(ticket.wrapping_add(self.places.len()), Ordering::Relaxed);
        }
    }
}
