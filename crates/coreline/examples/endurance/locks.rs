//! Locks of all kinds, with and without deadlines, nested, and with sections that panic.

use std::cell::UnsafeCell;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use coreline::cid::{CidLayout, CidSpace, Recent};
use coreline::lock::{
    BiasedRwLock, Condvar, Fifo, Mutex, Near, Osq, ReadMostly, RwLock, TicketLock, TimedOut,
};
use coreline::topology::{CpuId, CpuSet, Shape, Topology};
use coreline::world::{Clock, Native, Time};

use crate::{Hand, Settings, crew, panicked, panics};

/// What a lock guards: two numbers that differ only inside of a turn.
#[derive(Default)]
struct Data {
    before: u64,
    after: u64,
}

/// How a thread asks.
#[derive(Clone, Copy)]
enum Ask {
    Try,
    By(Time),
    Wait,
}

/// A lock of some kind. The functions return whether they had the lock.
trait Place: Sync {
    fn turn(&self, ask: Ask, f: &mut dyn FnMut(&mut Data)) -> bool;

    /// Shared, where the lock has that.
    fn look(&self, ask: Ask, f: &mut dyn FnMut(&Data)) -> bool {
        self.turn(ask, &mut |data| f(data))
    }
}

/// Calls `f` with the guard, if there is one.
macro_rules! with {
    ($guard:expr, $f:ident, $reference:ident) => {{
        // Not `mut` where it is shared.
        #[allow(unused_mut, reason = "for shared guards")]
        let mut guard = $guard;
        guard.as_deref().is_some().then(|| with!(@$reference guard, $f)).is_some()
    }};
    (@write $guard:ident, $f:ident) => { $f($guard.as_deref_mut().expect("a guard")) };
    (@read $guard:ident, $f:ident) => { $f($guard.as_deref().expect("a guard")) };
}

macro_rules! place {
    ($lock:ty, $ask:ident, $it:ident: $try:expr, $by:expr, $wait:expr
     $(; $try_read:expr, $read_by:expr, $read:expr)?) => {
        impl Place for $lock {
            fn turn(&self, $ask: Ask, f: &mut dyn FnMut(&mut Data)) -> bool {
                let $it = self;
                match $ask {
                    Ask::Try => with!($try, f, write),
                    Ask::By($ask) => with!($by, f, write),
                    Ask::Wait => with!(Some($wait), f, write),
                }
            }

            $(fn look(&self, $ask: Ask, f: &mut dyn FnMut(&Data)) -> bool {
                let $it = self;
                match $ask {
                    Ask::Try => with!($try_read, f, read),
                    Ask::By($ask) => with!($read_by, f, read),
                    Ask::Wait => with!(Some($read), f, read),
                }
            })?
        }
    };
}

place!(Mutex<Data, Near>, by, it: it.try_lock(), it.lock_by(by), it.lock());
place!(Mutex<Data, Fifo>, by, it: it.try_lock(), it.lock_by(by), it.lock());
place!(TicketLock<Data>, by, it: it.try_lock(),
    loop {
        let turn = it.try_lock();
        if turn.is_some() || Native::now() >= by {
            break turn;
        }
        thread::yield_now();
    }, it.lock());
place!(RwLock<Data>, by, it: it.try_write(), it.write_by(by), it.write();
    it.try_read(), it.read_by(by), it.read());
place!(BiasedRwLock<Data>, by, it: it.try_write(), it.write_by(by), it.write();
    it.try_read(), it.read_by(by), it.read());
place!(ReadMostly<Data>, by, it: it.try_write(), it.write_by(by).expect("fences"),
    it.write().expect("fences"); it.try_read(), it.read_by(by), it.read());

/// A queue, and what its turns guard.
struct Turns {
    queue: Osq,
    data: UnsafeCell<Data>,
}

// SAFETY: only the thread that has the queue's turn uses the data.
unsafe impl Sync for Turns {}

impl Place for Turns {
    fn turn(&self, ask: Ask, f: &mut dyn FnMut(&mut Data)) -> bool {
        let turn = match ask {
            Ask::Try => self.queue.try_lock(),
            Ask::By(deadline) => self.queue.lock_by(deadline),
            Ask::Wait => Some(self.queue.lock()),
        };
        // SAFETY: this thread has the turn.
        turn.as_ref().map(|_turn| f(unsafe { &mut *self.data.get() })).is_some()
    }
}

/// Tokens that threads take and give back.
#[derive(Default)]
struct Pool {
    tokens: Mutex<u32>,
    given: Condvar,
}

const TOKENS: u32 = 5;

impl Pool {
    /// Takes a token for a while. Returns whether there was one in time.
    fn take(&self, hand: &mut Hand) -> bool {
        let deadline = hand.deadline();
        let mut tokens = self.tokens.lock();
        let is_none = |tokens: &mut u32| *tokens == 0;
        if hand.one_in(3) {
            self.given.wait_while(&mut tokens, is_none);
        } else if self.given.wait_while_by(&mut tokens, is_none, deadline) == TimedOut(true) {
            // It may have taken a notification from another thread.
            drop(tokens);
            self.given.notify_one();
            return false;
        }
        *tokens -= 1;
        drop(tokens);
        hand.work();
        *self.tokens.lock() += 1;
        if hand.one_in(8) {
            self.given.notify_all()
        } else {
            self.given.notify_one()
        }
        true
    }
}

/// Concurrency IDs, and which of them a task has.
struct Ids {
    space: CidSpace<Recent>,
    cpus: CpuSet,
    taken: Box<[AtomicBool]>,
}

impl Ids {
    fn new(threads: u32) -> Self {
        let shape = Shape {
            sockets: 1,
            nodes_per_socket: 1,
            caches_per_node: 1,
            cores_per_cache: threads,
            threads_per_core: 1,
        };
        let topology = Topology::uniform(shape).expect("a topology");
        Ids {
            space: CidSpace::new(&CidLayout::new(&topology).expect("a layout")),
            cpus: topology.cpus().map(|cpu| cpu.id).collect(),
            taken: (0..threads).map(|_| AtomicBool::new(false)).collect(),
        }
    }

    /// Takes and gives back an ID.
    fn take(&self, hand: &mut Hand) {
        let task = self.space.user_enter(&self.cpus).expect("a task");
        let (now, cpu) = (Native::now(), CpuId::new(hand.number));
        let id = self.space.switch_in(now, cpu, &task).expect("an ID");
        let taken = &self.taken[id.index()];
        // Relaxed, both: the space orders the turns of an ID.
        assert!(!taken.swap(true, Ordering::Relaxed), "two tasks have {id:?}");
        hand.work();
        taken.store(false, Ordering::Relaxed);
        self.space.switch_out(now, cpu, &task);
        assert!(self.space.user_leave(task).is_ok());
    }
}

/// A turn at place `first`, and sometimes in it at a later one. Adds to what this thread has done.
fn turn(places: &[Box<dyn Place>], first: usize, hand: &mut Hand, done: &mut [u64]) {
    let ask = match hand.below(8) {
        0 => Ask::Try,
        1..5 => Ask::By(hand.deadline()),
        _ => Ask::Wait,
    };
    // A place that a thread does not get is not given up early.
    let check = |has_got: bool| match ask {
        Ask::By(deadline) => assert!(has_got || Native::now() >= deadline, "early at {first}"),
        Ask::Wait => assert!(has_got, "no turn at {first}"),
        Ask::Try => {}
    };
    let (shares, nests, fails) = (hand.one_in(3), hand.one_in(6), hand.one_in(200));
    if shares {
        check(places[first].look(ask, &mut |data| {
            let before = data.before;
            hand.work();
            let data = black_box(data);
            assert_eq!((data.before, data.after), (before, before), "a torn read at {first}");
        }));
        return;
    }
    let mut own = 0;
    let has_panicked = panicked(|| {
        check(places[first].turn(ask, &mut |data| {
            assert_eq!(data.before, data.after, "two turns at once at {first}");
            data.before += 1;
            if nests && first + 1 < places.len() {
                let next = first + 1 + hand.below((places.len() - first - 1) as u64) as usize;
                turn(places, next, hand, done);
            } else {
                hand.work();
            }
            data.after += 1;
            own += 1;
            if fails {
                panics();
            }
        }));
    });
    assert_eq!(has_panicked, fails && own == 1, "a panic at {first}");
    done[first] += own;
}

pub(crate) fn run(settings: &Settings) {
    let mut places: Vec<Box<dyn Place>> = Vec::new();
    for _ in 0..2 {
        places.push(Box::new(Mutex::<Data, Near>::new_in(Data::default())));
        places.push(Box::new(Mutex::<Data, Fifo>::new_in(Data::default())));
        places.push(Box::new(RwLock::<Data>::new_in(Data::default())));
        places.push(Box::new(BiasedRwLock::<Data>::new_in(Data::default())));
        places.push(Box::new(ReadMostly::new(Data::default()).expect("memory")));
        places.push(Box::new(TicketLock::<Data>::new_in(Data::default())));
        places.push(Box::new(Turns { queue: Osq::new_in(), data: UnsafeCell::default() }));
    }
    let pool = Pool::default();
    *pool.tokens.lock() = TOKENS;
    let ids = Ids::new(settings.threads);
    let all = crew(settings, |mut hand| {
        let mut done = vec![0; places.len()];
        while hand.goes_on() {
            match hand.below(20) {
                0 => _ = hand.step("tokens", |hand| pool.take(hand)),
                1 => hand.step("a concurrency ID", |hand| ids.take(hand)),
                _ => {
                    let first = hand.below(places.len() as u64) as usize;
                    hand.step(KINDS[first % KINDS.len()], |hand| {
                        turn(&places, first, hand, &mut done);
                    });
                }
            }
        }
        done
    });
    let mut total = 0;
    for (index, place) in places.iter().enumerate() {
        let sum: u64 = all.iter().map(|done| done[index]).sum();
        place.turn(Ask::Wait, &mut |data| {
            assert_eq!((data.before, data.after), (sum, sum), "turns are lost at {index}");
        });
        assert!(sum > 0, "no turn at {index}");
        total += sum;
    }
    assert_eq!(*pool.tokens.lock(), TOKENS, "a token is lost");
    assert_eq!(ids.space.users(), 0, "an ID is lost");
    println!("locks: {total} turns, none lost");
}

/// What the places are, in their order.
const KINDS: [&str; 7] =
    ["Mutex", "Mutex, FIFO", "RwLock", "BiasedRwLock", "ReadMostly", "TicketLock", "Osq"];
