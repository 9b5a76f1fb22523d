//! [`BiasedRwLock`]: a readers-writer lock whose reads may nest, and that counts its readers on
//! each CPU while no thread writes.
//!
//! At first, readers count themselves in one word. After 256 reads ([`PAYS`](tally::PAYS)) that
//! followed another thread's use or met another reader, with no write in between, the lock is
//! *biased*. Readers then count themselves in their CPU's slot of per-CPU memory. A lock that one
//! thread uses is not biased, because the line of its word is in the cache of the CPU that reads.
//! Nor is a lock that is seldom read: before it gets slots, a reader must see another one read
//! within about 2 us ([`SOON`](slots::SOON)). The reader checks the clock once in 16 looks. A
//! writer takes the bias back. It moves the counts of the slots into the word, and then waits for
//! the word alone.
//!
//! The bias is that of Dice and Kogan, ["BRAVO: Biased Locking for Reader-Writer Locks"][bravo],
//! USENIX ATC 2019. There, readers of all locks share one table, and execute a fence. Here, each
//! lock has slots of its own, which it allocates when it is biased for the first time, and a
//! reader's count is a restartable section, without a fence.
//!
//! [bravo]: https://www.usenix.org/conference/atc19/presentation/dice
//!
//! # State
//!
//! | bits of `state` | name | meaning | written by |
//! |---|---|---|---|
//! | 0 | `HELD` | a writer has the lock | that writer |
//! | 1 | `CLOSED` | a writer waits, and readers that come wait | the first writer |
//! | 2 | `WANTS` | a late reader comes next | late readers |
//! | 3 | `BIASED` | readers count themselves in slots | a reader; the first writer |
//! | 4 | `SLEEPS` | readers sleep on the word, or are about to | those readers; writers |
//! | 5 | `DRAINS` | the first writer sleeps on the word, or is about to | the first writer |
//! | 8 to 31 | `READER` | how many reads, less those in slots; signed | readers; the first writer |
//!
//! | other word | meaning | written by |
//! |---|---|---|
//! | `tally` | the last thread, and how many reads slots would make cheaper | readers; writers |
//! | `writers` | which writer is next: the *first writer* has this mutex while it waits | writers |
//! | `close_at` | until when a first writer has left the lock open, in ns | the first writer |
//! | `gate` | open: sections may use the slots of these CPUs | readers; the first writer |
//! | `slots` | the address of the slots; 0: none yet | the reader that makes them |
//! | `moved` | beside the slots: what of their sum the word has | the first writer |
//! | `until` | beside the slots: from when on the lock may be biased, in ns | the first writer |
//! | `waits_at` | beside the slots: from when on readers wait for the gate, in ns | readers |
//!
//! All words of a new lock are zero. `raw.rs` has the combinations of the bits of `state`, and
//! `tally.rs` has the bits of `tally`.
//!
//! # Where a read is counted
//!
//! `unlock` knows neither whether the caller reads or writes, nor where its read was counted.
//! While a writer has the lock there is no reader, so `HELD` answers the first question. The
//! second one does not matter: a reader goes from its slot if the gate is open when it goes, else
//! from the word. The word may be negative meanwhile, and so may the sum of the slots. Only both
//! together count.
//!
//! ```text
//! readers there = word + slots - moved, less the readers that fail
//! ```
//!
//! A reader counts itself in a slot by one restartable section, which finds the [`Gate`] open and
//! adds. A writer that takes the bias back closes the gate and fences sections. After that, no
//! section adds to a slot, so the sum of the slots is exact: all readers that were counted there
//! and have not gone. The writer adds this sum to the word, and from there on the word has all
//! readers. Threads and machines without sections count in the word, and so does a thread whose
//! CPU has no slot yet.
//!
//! So a word of zero readers, without `BIASED`, says that there is none: a writer may take the lock
//! with one exchange.
//!
//! [`Gate`]: coreline_world::restartable::Gate
//!
//! # The last access
//!
//! Programs in C free a lock's memory as soon as they have taken the lock for the last time. So
//! `unlock` frees the lock by its last access: the commit of the section, the subtraction from the
//! word, or the writer's exchange. Later, it only wakes threads by the address of the word. This is
//! why the first writer and readers sleep on the same word, in two groups. It is also why the first
//! writer itself clears `DRAINS`, and the writer's exchange clears `SLEEPS`.
//!
//! # Which thread is next
//!
//! A writer that waits *closes* the lock, so new readers wait. If readers are still there after 1
//! ms ([`PATIENCE`](waits::PATIENCE)), the first writer opens the lock for 9 ms, takes it if it
//! finds no reader, and otherwise closes it again. A first writer that gives up earlier leaves the
//! lock open for nine times ([`SHARE`](waits::SHARE)) as long as it has kept readers out. The time
//! when the lock may be closed again is in the lock, for the next first writer. One that takes the
//! lock clears it.
//!
//! A reader that has waited for 1 ms is *late*. It enters a lock that no writer holds, closed or
//! not. If a writer holds the lock, a late reader sets `WANTS`. Then no waiting writer takes the
//! lock next. All readers are woken when it is free. The first late reader to enter clears `WANTS`.
//! The others ask again if a writer was faster than they were.
//!
//! No reader waits longer than that for a waiting writer. So a thread may read again while it
//! reads, and may wait for another thread that reads. The lock does not know whether a thread
//! already reads, because the counts do not say which threads they count. A count for each thread
//! would make each read slower, and would be wrong if another thread unlocks.
//!
//! # How the gate opens
//!
//! The gate has the number of slots that sections may use. A thread whose CPU is beyond that makes
//! more slots, and opens the gate to them. It makes them up to the next power of two, so few
//! threads open the gate, although each CPU needs a slot. The gate is on the line of the lock,
//! which readers without a slot write all the time. A machine that serves near requests first could
//! keep the thread that opens the gate away from this line. So readers without a slot wait a little
//! for that thread, and leave the line alone meanwhile. They keep their CPUs, because a writer may
//! wait for them. If a reader waits in vain, the thread may have no CPU, so none waits for a while.
//!
//! # How often the bias is taken back
//!
//! A writer measures how long it took to take the bias back: the wait for a thread that makes a
//! slot, the fence, and the sum over the slots. The lock then stays unbiased for
//! [`TIMES`](slots::TIMES) (9) times as long. So writers spend at most a tenth of their time on it.
//!
//! # Laws
//!
//! A writer is alone. A reader sees all writes of earlier writers. Every waiter gets the lock or
//! gives up. No wake-up is lost. A thread that reads can read again. No thread touches a lock that
//! it has freed. In the repository, `tests/laws/locks/biased.rs` checks this. The model has no
//! sections, so it checks the word, and the simulator checks the slots.

mod guard;
mod raw;
mod slots;
mod tally;
#[cfg(test)]
mod tests;
mod waits;

pub use guard::{BiasedRwLock, BiasedRwLockReadGuard, BiasedRwLockWriteGuard};
pub use raw::{RawBiasedRwLock, TooManyReads};
