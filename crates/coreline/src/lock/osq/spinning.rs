//! The queue for threads that spin until their turns.

use coreline_world::{Ordering, Word, World};

use super::super::count::{Event, count};
use super::super::spin::doze;
use super::nodes::TURN;
use super::{Order, Osq, try_with_tables, with_tables};
use crate::node_pool::Number;

/// How a thread came to its turn, in the node of this number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::lock) enum Came {
    /// The queue was empty.
    First(Number),
    /// The thread that had the turn before passed it on.
    Next(Number),
}

impl<O: Order, W: World> Osq<O, W> {
    /// Waits for a turn, spinning. If all nodes are taken, first waits for one, asleep.
    pub(in crate::lock) fn come(&self) -> Came {
        let take = || try_with_tables::<W, _>(|tables| tables.nodes.take());
        let number = doze::<W, _>(None, take).expect("it waits for as long as it takes");
        with_tables::<W, _>(|tables| {
            if self.arrive(tables, number) {
                return Came::First(number);
            }
            count::<W>(Event::Wait);
            let state = &tables.nodes.get(number).state;
            // Acquire: pairs with the Release in `grant`. Without it, the turn could begin before
            // the last one's writes are seen.
            state.wait_until(Ordering::Acquire, |state| state == TURN);
            Came::Next(number)
        })
    }

    /// Passes on the turn, in a queue in which no thread sleeps; returns whether there was a thread
    /// to pass it to. If not, the queue was empty for a moment.
    pub(in crate::lock) fn pass_if_waited(&self, number: Number) -> bool {
        with_tables::<W, _>(|tables| O::pass(self, tables, number)).is_some()
    }
}
