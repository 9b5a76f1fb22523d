//! [`Pool`]: numbered objects that are lent out, for words that have four bytes to name one; and
//! [`List`], what such objects wait in.
//!
//! They belong to no thread, so a thread that ends leaves nothing behind.
//!
//! ```text
//! shard 0     first -> object -> object       free ones, through their own links
//! shard 1     first -> object
//! chunk 0     |object|object|...|             made when the first of its objects is taken
//! far 0       |object|object|...|             as many as all chunks hold; the next one, twice
//!                                             as many
//! ```
//!
//! | word | meaning | written by |
//! |---|---|---|
//! | a list | its first object and, in the upper half, how often that changed | exchanges |
//! | `made` | how many objects were ever taken for the first time | exchanges |
//! | `chunks`, `far` | the objects; null until made | the first exchange |
//!
//! | constant or rule | with less | with more | test |
//! |---|---|---|---|
//! | `SHARDS` | all CPUs change one word | 64 bytes each | `cpus_that_take_and_put_back_..` |
//! | the own list first | the same | | that test |
//! | `spread` | few objects go to and fro | unused objects | that test |
//! | `PAGE` | a page is partly unused | the same | `a_chunk_of_small_objects_..` |
//!
//! An exchange fails where another thread's did not, or on some processors by chance, and is tried
//! again immediately: a thread that is stopped, killed or left behind by a fork holds up none.

use core::alloc::Layout;
use core::ptr::{self, NonNull};

use coreline_world::{Line, Ordering, Word, World};

/// The number of an object. Zero is none.
pub(crate) type Number = u32;

/// None, as a number and as a link.
pub(crate) const NONE: Number = 0;

/// An object that a pool can hold. Objects lie side by side: those that should share no line are
/// aligned to one.
pub(crate) trait Pooled<W: World>: Send + Sync + 'static {
    fn new_in() -> Self;

    /// The word that links the objects of a list.
    fn link(&self) -> &W::U32;
}

/// Lists of free objects. A thread looks at that of its CPU first.
const SHARDS: usize = 64;

/// Of most machines. On others a chunk takes a larger one.
const PAGE: usize = 4096;

/// A pool of one kind.
pub(crate) struct Pool<T: Pooled<W>, W: World> {
    shards: Box<[Line<List<W>>]>,
    made: W::U32,
    /// As long as fewer were made, one is made before those of other shards are looked for.
    spread: u32,
    /// The first object of each chunk.
    chunks: Box<[W::Ptr<T>]>,
    /// The first object of each chunk of those that are more than these hold.
    far: Box<[W::Ptr<T>]>,
}

impl<T: Pooled<W>, W: World> Pool<T, W> {
    /// The objects of a chunk: 64, or a page full of small ones, as a chunk is mapped. The model
    /// pays for each word in each interleaving.
    const PER_CHUNK: usize = match (W::RUNS, PAGE / size_of::<T>()) {
        (false, _) => 8,
        (true, 0..64) => 64,
        (true, many) => many,
    };

    /// A pool of at least `most` objects, in whole chunks. The first `spread` of them are made
    /// where the shard of the CPU is empty, the others only where all shards are.
    pub(crate) fn new_in(most: usize, spread: usize) -> Self {
        // The model has few threads.
        let [shards, chunks] =
            if W::RUNS { [SHARDS, most.div_ceil(Self::PER_CHUNK)] } else { [1, 1] };
        Pool {
            shards: (0..shards).map(|_| Line(List::new_in())).collect(),
            made: W::U32::new_in(0),
            spread: spread.min(chunks * Self::PER_CHUNK) as u32,
            chunks: (0..chunks).map(|_| W::Ptr::new_in(ptr::null_mut())).collect(),
            far: Box::new([]),
        }
    }

    /// A pool of `2^doublings` times as many objects. The additional objects are made in large
    /// chunks, each twice as large as the previous one. So they cost nothing if they are not
    /// needed. The model has no use for more.
    pub(crate) fn growing(mut self, doublings: usize) -> Self {
        let doublings = if W::RUNS { doublings } else { 0 };
        self.far = (0..doublings).map(|_| W::Ptr::new_in(ptr::null_mut())).collect();
        self
    }

    /// An object. Only numbers that [`take`](Pool::take) gave may be asked for.
    pub(crate) fn get(&self, number: Number) -> &T {
        let at = number as usize - 1;
        let Some(chunk) = self.chunks.get(at / Self::PER_CHUNK) else {
            return self.get_far(at);
        };
        // Acquire: pairs with the Release in `make_in`. Without it, the object could be seen
        // unwritten.
        let chunk = chunk.load(Ordering::Acquire);
        // SAFETY: a number was given out only after its chunk, of this many objects, was made; and
        // chunks stay.
        unsafe { &*chunk.add(at % Self::PER_CHUNK) }
    }

    #[cold]
    #[inline(never)]
    fn get_far(&self, at: usize) -> &T {
        let (far, in_it) = self.place_far(at);
        // Acquire: as in `get`.
        let chunk = self.far[far].load(Ordering::Acquire);
        // SAFETY: as in `get`.
        unsafe { &*chunk.add(in_it) }
    }

    /// The far chunk of an object that `chunks` does not hold, and where in it the object is.
    fn place_far(&self, at: usize) -> (usize, usize) {
        let far = (at / self.near()).ilog2() as usize;
        (far, at - self.len_far(far))
    }

    /// The objects of a far chunk, as many as those before it.
    fn len_far(&self, far: usize) -> usize {
        self.near() << far
    }

    /// How many objects `chunks` holds.
    fn near(&self) -> usize {
        self.chunks.len() * Self::PER_CHUNK
    }

    fn home(&self) -> usize {
        W::cpu_hint().index() % self.shards.len()
    }

    /// An object that no thread has; `None` if all are taken.
    pub(crate) fn take(&self) -> Option<Number> {
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
        self.len_far(self.far.len()) as u32
    }

    fn pop(&self, shard: usize) -> Option<Number> {
        self.shards[shard].0.pop(self).0
    }

    /// The next object that was never taken, if fewer than `few` were.
    fn make(&self, few: u32) -> Option<Number> {
        // Relaxed: the exchange looks again.
        let mut at = self.made.load(Ordering::Relaxed);
        // Counted only when it has memory: threads that try again and again while memory is refused
        // would use up all numbers.
        while at < few.min(self.most()) && self.has_chunk(at) {
            // Relaxed, twice: a count; `get` acquires what the number stands for.
            let (counted, failed) = (Ordering::Relaxed, Ordering::Relaxed);
            match self.made.compare_exchange_weak(at, at + 1, counted, failed) {
                Ok(_) => return Some(at + 1),
                Err(found) => at = found,
            }
        }
        None
    }

    /// Makes the chunk of an object if it does not exist. Returns whether it exists now.
    fn has_chunk(&self, at: u32) -> bool {
        let at_chunk = at as usize / Self::PER_CHUNK;
        match self.chunks.get(at_chunk) {
            Some(chunk) => Self::make_in(chunk, Self::PER_CHUNK),
            None => {
                let far = self.place_far(at as usize).0;
                Self::make_in(&self.far[far], self.len_far(far))
            }
        }
    }

    /// Makes a chunk of this many objects if it is not there; says whether it is there now. It is
    /// not if there is no memory for it.
    fn make_in(chunk: &W::Ptr<T>, len: usize) -> bool {
        // Relaxed: `get` looks again.
        if !chunk.load(Ordering::Relaxed).is_null() {
            return true;
        }
        let Ok(layout) = Layout::array::<T>(len) else {
            return false;
        };
        // Not from the global allocator, which a lock may guard whose queue needs the objects, and
        // which the calling thread may hold.
        let Ok(memory) = W::map(layout) else {
            return false;
        };
        let ours = memory.cast::<T>().as_ptr();
        // SAFETY: mapped above, for this many, and no other thread has seen it.
        (0..len).for_each(|at| unsafe { Self::write_new(ours.add(at)) });
        // Release: pairs with the Acquire in `get`. Relaxed, where it fails: `get` looks again.
        let put =
            chunk.compare_exchange(ptr::null_mut(), ours, Ordering::Release, Ordering::Relaxed);
        if put.is_err() {
            // SAFETY: made above, of this many, and no other thread has seen it.
            unsafe { Self::drop_chunk(memory.cast(), len) };
        }
        true
    }

    /// Apart, so that an object is on the stack only where there is memory for it.
    ///
    /// # Safety
    ///
    /// There is memory for an object, which no other thread uses.
    #[inline(never)]
    unsafe fn write_new(at: *mut T) {
        // SAFETY: the caller's promise.
        unsafe { at.write(T::new_in()) };
    }

    /// How many objects were ever taken for the first time.
    pub(crate) fn made(&self) -> u32 {
        // Relaxed: a count.
        self.made.load(Ordering::Relaxed)
    }

    /// The bytes of the chunks that were made.
    pub(crate) fn bytes(&self) -> usize {
        let made = self.made() as usize;
        let objects = match made <= self.near() {
            true => made.div_ceil(Self::PER_CHUNK) * Self::PER_CHUNK,
            false => self.near() * made.div_ceil(self.near()).next_power_of_two(),
        };
        objects * size_of::<T>()
    }

    /// # Safety
    ///
    /// The chunk was made by [`make_in`](Pool::make_in), of this many objects, and nothing uses it
    /// any more.
    unsafe fn drop_chunk(first: NonNull<T>, len: usize) {
        let layout = Layout::array::<T>(len).expect("it was mapped with this layout");
        // SAFETY: this many objects were written there; and the caller's promise.
        unsafe {
            ptr::drop_in_place(ptr::slice_from_raw_parts_mut(first.as_ptr(), len));
            W::unmap(first.cast(), layout);
        }
    }

    /// Gives an object back, which is the caller's.
    pub(crate) fn put_back(&self, number: Number) {
        self.shards[self.home()].0.push(self, number);
    }
}

/// A list of objects of one pool. The object that was added last comes first.
pub(crate) struct List<W: World>(W::U64);

impl<W: World> List<W> {
    pub(crate) fn new_in() -> Self {
        List(W::U64::new_in(u64::from(NONE)))
    }

    /// Whether no object is in the list, at this moment.
    pub(crate) fn is_empty(&self) -> bool {
        // Relaxed: a hint.
        self.0.load(Ordering::Relaxed) as Number == NONE
    }

    /// Takes the first object, which is the caller's then; and says whether another thread changed
    /// the list meanwhile.
    pub(crate) fn pop<T: Pooled<W>>(&self, pool: &Pool<T, W>) -> (Option<Number>, bool) {
        let mut contended = false;
        // Acquire: pairs with the Release in `push`. Without it, the link could be that of an
        // earlier time, and an object in use would become the first one.
        let mut seen = self.0.load(Ordering::Acquire);
        loop {
            let (changes, number) = (seen >> 32, seen as Number);
            if number == NONE {
                return (None, contended);
            }
            // Relaxed: ordered by `seen`. If another thread takes the object meanwhile, the link is
            // of no use, and the exchange fails by the number of changes, unless a multiple of 2^32
            // came in between.
            let next = pool.get(number).link().load(Ordering::Relaxed);
            let new = changes.wrapping_add(1) << 32 | u64::from(next);
            // Acquire, twice: as the load above.
            match self.0.compare_exchange_weak(seen, new, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => return (Some(number), contended),
                Err(now) => {
                    contended |= now != seen;
                    seen = now;
                }
            }
        }
    }

    /// Makes an object of the pool, which is the caller's, the first one; says whether another
    /// thread changed the list meanwhile.
    pub(crate) fn push<T: Pooled<W>>(&self, pool: &Pool<T, W>, number: Number) -> bool {
        let mut contended = false;
        let next = pool.get(number).link();
        // Relaxed: the exchange tells whether it still holds.
        let mut seen = self.0.load(Ordering::Relaxed);
        loop {
            // Relaxed: the exchange publishes it.
            next.store(seen as Number, Ordering::Relaxed);
            let new = (seen >> 32).wrapping_add(1) << 32 | u64::from(number);
            // Release: pairs with the Acquire in `pop`; also of what the caller read in the object.
            match self.0.compare_exchange_weak(seen, new, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return contended,
                Err(now) => {
                    contended |= now != seen;
                    seen = now;
                }
            }
        }
    }
}

impl<T: Pooled<W>, W: World> Drop for Pool<T, W> {
    fn drop(&mut self) {
        let near = self.near();
        let chunks = self.chunks.iter_mut().map(|chunk| (chunk, Self::PER_CHUNK));
        let far = self.far.iter_mut().enumerate().map(|(far, chunk)| (chunk, near << far));
        for (chunk, len) in chunks.chain(far) {
            chunk.with_mut(|chunk| {
                if let Some(chunk) = NonNull::new(*chunk) {
                    // SAFETY: from `make_in`, and no lock of this world is in use any more.
                    unsafe { Self::drop_chunk(chunk, len) };
                }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;
    use std::collections::HashSet;
    use std::sync::Arc;

    use coreline_sim::{Machine, Sim};
    use coreline_topology::CpuId;
    use coreline_world::{Clock, JoinHandle, Native, Placement, Threads, Words};

    use super::*;

    struct Object(<Sim as Words>::U32);

    impl Pooled<Sim> for Object {
        fn new_in() -> Self {
            Object(Word::new_in(NONE))
        }

        fn link(&self) -> &<Sim as Words>::U32 {
            &self.0
        }
    }

    #[test]
    fn objects_that_are_put_back_elsewhere_are_found() {
        let program = || {
            let pool = Arc::new(Pool::<Object, Sim>::new_in(1024, 0));
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

    /// An object so large that no process has memory for a chunk.
    struct Huge([u64; 1 << 42]);

    impl Pooled<Native> for Huge {
        fn new_in() -> Self {
            unreachable!("there is memory for it")
        }

        fn link(&self) -> &<Native as Words>::U32 {
            unreachable!("{:p}: none was made", &raw const self.0)
        }
    }

    #[test]
    fn an_object_whose_memory_is_refused_is_not_counted() {
        let pool = Pool::<Huge, Native>::new_in(128, 128);
        assert!((0..1_000).all(|_| pool.take().is_none()));
        assert_eq!(pool.made(), 0);
    }

    /// The number of nodes in a page is not a power of two.
    struct Odd([<Native as Words>::U32; 3]);

    impl Pooled<Native> for Odd {
        fn new_in() -> Self {
            Odd([(); 3].map(|()| Word::new_in(NONE)))
        }

        fn link(&self) -> &<Native as Words>::U32 {
            &self.0[0]
        }
    }

    #[test]
    fn a_pool_says_what_its_chunks_take() {
        let pool = Pool::<Odd, Native>::new_in(1, 0).growing(1);
        let near = pool.most() as usize / 2;
        for (objects, made) in [(near, near), (1, 2 * near)] {
            for _ in 0..objects {
                pool.take().expect("there is memory");
            }
            assert_eq!(pool.bytes(), made * size_of::<Odd>());
        }
    }

    #[test]
    fn a_pool_grows_and_each_object_has_a_number_of_its_own() {
        let program = || {
            let pool = Pool::<Object, Sim>::new_in(128, 0).growing(3);
            let taken: Vec<Number> = std::iter::from_fn(|| pool.take()).collect();
            assert_eq!(taken, (1..=pool.most()).collect::<Vec<_>>());
            assert!(taken.len() >= 128 << 3);
            let places: HashSet<_> =
                taken.iter().map(|number| ptr::from_ref(pool.get(*number))).collect();
            assert_eq!(places.len(), taken.len(), "two numbers name one object");
            assert_eq!(pool.bytes(), taken.len() * size_of::<Object>());
            taken.iter().for_each(|number| pool.put_back(*number));
            assert_eq!(std::iter::from_fn(|| pool.take()).count(), taken.len());
        };
        Machine::preset("host-2c").expect("a preset").run(program).expect("it ends");
    }

    #[test]
    fn a_chunk_of_small_objects_fills_a_page() {
        let pool = Pool::<Odd, Native>::new_in(1, 0);
        pool.take().expect("there is memory");
        assert_eq!(pool.bytes(), 4096 / size_of::<Odd>() * size_of::<Odd>());
    }

    /// An object on a line of its own.
    struct Apart(Line<<Sim as Words>::U32>);

    impl Pooled<Sim> for Apart {
        fn new_in() -> Self {
            Apart(Line(Word::new_in(NONE)))
        }

        fn link(&self) -> &<Sim as Words>::U32 {
            &self.0.0
        }
    }

    /// Takes an object on each of these CPUs and puts it back, a hundred times, at the same time;
    /// returns the longest time, and how many objects were made.
    fn used_by(cpus: u32) -> (Duration, u32) {
        let program = move || {
            let pool = Arc::new(Pool::<Apart, Sim>::new_in(1024, 1024));
            let each = |cpu| {
                let pool = Arc::clone(&pool);
                let turn = move |pool: &Pool<Apart, Sim>| {
                    pool.put_back(pool.take().expect("there is memory"));
                };
                let work = move || {
                    turn(&pool);
                    let begun = Sim::now();
                    (0..100).for_each(|_| turn(&pool));
                    Sim::now() - begun
                };
                Sim::spawn(Placement::On(CpuId::new(cpu)), work).expect("one thread for each CPU")
            };
            let threads: Vec<_> = (0..cpus).map(each).collect();
            let longest = threads.into_iter().map(JoinHandle::join).max();
            (longest.expect("there are CPUs"), pool.made())
        };
        let run = Machine::preset("kunpeng920-96c-4n").expect("a preset").run(program);
        run.expect("it ends").value
    }

    #[test]
    fn cpus_that_take_and_put_back_do_not_meet() {
        let ((alone, _), (beside, made)) = (used_by(1), used_by(16));
        assert!(beside < 2 * alone, "{beside:?} beside 15 others, {alone:?} alone");
        assert_eq!(made, 16, "each CPU has made its own");
    }
}
