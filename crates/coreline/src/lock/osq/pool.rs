//! [`Pool`]: numbered objects that are lent out, for threads that have four bytes to name one.
//!
//! They belong to no thread, so a thread that ends leaves nothing behind.
//!
//! ```text
//! shard 0     first -> object -> object       free ones, through their own links
//! shard 1     first -> object
//! chunk 0     |object|object|...|             made when the first of its objects is taken
//! ```
//!
//! | word | meaning | written by |
//! |---|---|---|
//! | `shards` | the first free object and, in the upper half, how often that changed | exchanges |
//! | `made` | how many objects were ever taken for the first time | `fetch_add`s |
//! | `chunks` | the objects; null until made | the first exchange |
//!
//! An exchange fails where another thread's did not, or on some processors by chance, and is tried
//! again at once: a thread that is stopped, killed or left behind by a fork holds up none.

use core::ptr;

use coreline_world::{Integer, Line, Ordering, Word, World};

/// The number of an object. Zero is none.
pub(super) type Number = u32;

/// None, as a number and as a link.
pub(super) const NONE: Number = 0;

/// What a pool can hold.
pub(super) trait Pooled<W: World>: Send + Sync + 'static {
    fn new_in() -> Self;

    /// What free objects are linked by.
    fn link(&self) -> &W::U32;
}

/// The objects of a chunk.
const PER_CHUNK: usize = 64;

/// Lists of free objects. A thread looks at that of its CPU first.
const SHARDS: usize = 64;

/// A pool of one kind.
pub(super) struct Pool<T: Pooled<W>, W: World> {
    shards: Box<[Line<W::U64>]>,
    made: W::U32,
    /// As long as fewer were made, one is made before those of other shards are looked for.
    spread: u32,
    /// The first object of each chunk.
    chunks: Box<[W::Ptr<Line<T>>]>,
}

impl<T: Pooled<W>, W: World> Pool<T, W> {
    /// A pool of at most `most` objects, a multiple of 64. The first `spread` of them are made
    /// where the shard of the CPU is empty, the others only where all shards are.
    pub(super) fn new_in(most: usize, spread: usize) -> Self {
        // The model pays for each word in each interleaving, and has few threads.
        let [shards, chunks] = if W::RUNS { [SHARDS, most / PER_CHUNK] } else { [1, 1] };
        Pool {
            shards: (0..shards).map(|_| Line(W::U64::new_in(0))).collect(),
            made: W::U32::new_in(0),
            spread: spread.min(chunks * PER_CHUNK) as u32,
            chunks: (0..chunks).map(|_| W::Ptr::new_in(ptr::null_mut())).collect(),
        }
    }

    /// An object. Only numbers that [`take`](Pool::take) gave may be asked for.
    pub(super) fn get(&self, number: Number) -> &T {
        let at = number as usize - 1;
        // Acquire: pairs with the Release in `chunk`. Without it, the object could be seen
        // unwritten.
        let chunk = self.chunks[at / PER_CHUNK].load(Ordering::Acquire);
        // SAFETY: a number was given out only after its chunk, of so many objects, was made; and
        // chunks stay.
        unsafe { &(*chunk.add(at % PER_CHUNK)).0 }
    }

    fn home(&self) -> usize {
        W::cpu_hint().index() % self.shards.len()
    }

    /// An object that no thread has; `None` if all are taken.
    pub(super) fn take(&self) -> Option<Number> {
        let home = self.home();
        let elsewhere = || {
            let others = (1..self.shards.len()).map(|step| (home + step) % self.shards.len());
            { others }.find_map(|shard| self.pop(shard))
        };
        self.pop(home)
            .or_else(|| self.make(self.spread))
            .or_else(elsewhere)
            .or_else(|| self.make(self.most()))
    }

    fn most(&self) -> u32 {
        (self.chunks.len() * PER_CHUNK) as u32
    }

    fn pop(&self, shard: usize) -> Option<Number> {
        let first = &self.shards[shard].0;
        // Acquire: pairs with the Release in `put_back`. Without it, the link could be that of an
        // earlier time, and an object in use would become the first free one.
        let mut seen = first.load(Ordering::Acquire);
        loop {
            let (changes, number) = (seen >> 32, seen as Number);
            if number == NONE {
                return None;
            }
            // Relaxed: ordered by `seen`. If another thread takes the object meanwhile, the link is
            // of no use, and the exchange fails by the number of changes, unless a multiple of 2^32
            // came in between.
            let next = self.get(number).link().load(Ordering::Relaxed);
            let new = changes.wrapping_add(1) << 32 | u64::from(next);
            // Acquire, twice: as the load above.
            match first.compare_exchange_weak(seen, new, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => return Some(number),
                Err(now) => seen = now,
            }
        }
    }

    /// The next object that was never taken, if fewer than `few` were.
    fn make(&self, few: u32) -> Option<Number> {
        // Relaxed: a count. It stops near its end, so that it does not wrap.
        if self.made.load(Ordering::Relaxed) >= few {
            return None;
        }
        // Relaxed: as the load.
        let at = self.made.fetch_add(1, Ordering::Relaxed);
        if at >= self.most() {
            return None;
        }
        self.chunk(at as usize / PER_CHUNK);
        Some(at + 1)
    }

    /// Makes a chunk if it is not there.
    fn chunk(&self, number: usize) {
        // Relaxed: `get` looks again.
        if !self.chunks[number].load(Ordering::Relaxed).is_null() {
            return;
        }
        let objects: Box<[Line<T>]> = (0..PER_CHUNK).map(|_| Line(T::new_in())).collect();
        let ours = Box::into_raw(objects).cast::<Line<T>>();
        // Release: pairs with the Acquire in `get`. Relaxed, where it fails: `get` looks again.
        let put = self.chunks[number].compare_exchange(
            ptr::null_mut(),
            ours,
            Ordering::Release,
            Ordering::Relaxed,
        );
        if put.is_err() {
            // SAFETY: made above, and no other thread has seen it.
            unsafe { drop_chunk(ours) };
        }
    }

    /// Gives an object back, which is the caller's.
    pub(super) fn put_back(&self, number: Number) {
        let first = &self.shards[self.home()].0;
        let next = self.get(number).link();
        // Relaxed: the exchange tells whether it still holds.
        let mut seen = first.load(Ordering::Relaxed);
        loop {
            // Relaxed: the exchange publishes it.
            next.store(seen as Number, Ordering::Relaxed);
            let new = (seen >> 32).wrapping_add(1) << 32 | u64::from(number);
            // Release: pairs with the Acquire in `pop`; also of what the caller read in the object.
            match first.compare_exchange_weak(seen, new, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }
}

impl<T: Pooled<W>, W: World> Drop for Pool<T, W> {
    fn drop(&mut self) {
        for chunk in &mut self.chunks {
            chunk.with_mut(|chunk| {
                if !chunk.is_null() {
                    // SAFETY: from `chunk`, and no lock of this world is in use any more.
                    unsafe { drop_chunk(*chunk) };
                }
            });
        }
    }
}

/// # Safety
///
/// The chunk was made by [`Pool::chunk`], and nothing uses it any more.
unsafe fn drop_chunk<T>(first: *mut Line<T>) {
    let objects = ptr::slice_from_raw_parts_mut(first, PER_CHUNK);
    // SAFETY: it was a box of so many objects; and the caller's promise.
    drop(unsafe { Box::from_raw(objects) });
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use coreline_sim::{Machine, Sim};
    use coreline_topology::CpuId;
    use coreline_world::{JoinHandle, Placement, Threads};

    use super::super::nodes::Board;
    use super::*;

    #[test]
    fn objects_that_are_put_back_elsewhere_are_found() {
        let program = || {
            let pool = Arc::new(Pool::<Board<Sim>, Sim>::new_in(1024, 0));
            for _ in 0..100 {
                let theirs = Arc::clone(&pool);
                let on = |cpu| Placement::On(CpuId::new(cpu));
                let take = Sim::spawn(on(0), move || theirs.take()).expect("one thread");
                let number = take.join().expect("all others are free");
                let theirs = Arc::clone(&pool);
                let put_back = move || theirs.put_back(number);
                Sim::spawn(on(1), put_back).expect("one thread").join();
            }
            // Relaxed: all threads have been joined.
            pool.made.load(Ordering::Relaxed)
        };
        let run = Machine::preset("host-2c").expect("a preset").run(program);
        assert_eq!(run.expect("it ends").value, 1, "as many as were ever in use at one time");
    }
}
