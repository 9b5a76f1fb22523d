//! Twelve small programs. Each has a mistake if it is told so, and is right otherwise.
//!
//! The file is compiled once for each checker, beside a module `api` with the checker's own
//! atomics, locks and threads.

use super::api::{
    Arc, AtomicBool, AtomicU32, AtomicU64, Condvar, Mutex, Ordering, RwLock, UnsafeCell, fence,
    spin_loop, thread,
};
use Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

/// Runs `one` on a second thread and `two` on this one, with one value for both.
fn beside<T: Send + Sync + 'static>(
    shared: T,
    one: impl FnOnce(&T) + Send + 'static,
    two: impl FnOnce(&T),
) -> Arc<T> {
    let shared = Arc::new(shared);
    let theirs = Arc::clone(&shared);
    let other = thread::spawn(move || one(&theirs));
    two(&shared);
    other.join().unwrap();
    shared
}

/// Two threads add with a load and a store. One addition is lost.
pub(crate) fn lost_update(mistaken: bool) {
    let add = move |sum: &AtomicU32| match mistaken {
        true => sum.store(sum.load(SeqCst) + 1, SeqCst),
        false => _ = sum.fetch_add(1, SeqCst),
    };
    let sum = beside(AtomicU32::new(0), add, add);
    assert_eq!(sum.load(SeqCst), 2);
}

/// A reader of two words does not look at their version again afterwards, and sees half a change.
pub(crate) fn torn_read(mistaken: bool) {
    #[derive(Default)]
    struct Pair {
        version: AtomicU32,
        words: [AtomicU32; 2],
    }
    let write = |pair: &Pair| {
        pair.version.store(1, SeqCst);
        pair.words.iter().for_each(|word| word.store(7, SeqCst));
        pair.version.store(2, SeqCst);
    };
    let read = move |pair: &Pair| {
        let before = pair.version.load(SeqCst);
        let [left, right] = [0, 1].map(|word| pair.words[word].load(SeqCst));
        let is_whole = before != 1 && (mistaken || pair.version.load(SeqCst) == before);
        assert!(!is_whole || left == right, "{left} and {right}");
    };
    let pair = Pair { version: AtomicU32::new(0), words: [AtomicU32::new(0), AtomicU32::new(0)] };
    beside(pair, write, read);
}

/// A gate's flag is not under its lock. If the gate opens between the look at the flag and the
/// wait, the notification wakes no thread.
pub(crate) fn lost_wake_up(mistaken: bool) {
    struct Gate {
        open: AtomicBool,
        lock: Mutex<()>,
        opened: Condvar,
    }
    let pass = |gate: &Gate| {
        let mut guard = gate.lock.lock().unwrap();
        while !gate.open.load(SeqCst) {
            guard = gate.opened.wait(guard).unwrap();
        }
    };
    let open = move |gate: &Gate| {
        let guard = (!mistaken).then(|| gate.lock.lock().unwrap());
        gate.open.store(true, SeqCst);
        drop(guard);
        gate.opened.notify_all();
    };
    let (open_at_first, lock) = (AtomicBool::new(false), Mutex::new(()));
    beside(Gate { open: open_at_first, lock, opened: Condvar::new() }, pass, open);
}

/// A thread says that it sleeps only after it has looked three times whether there is something to
/// do, and does not look again.
pub(crate) fn asleep_after_spinning(mistaken: bool) {
    struct Work {
        is_there: AtomicBool,
        sleeps: AtomicBool,
    }
    let work = Arc::new(Work { is_there: AtomicBool::new(false), sleeps: AtomicBool::new(false) });
    let theirs = Arc::clone(&work);
    let worker = thread::spawn(move || {
        for _ in 0..3 {
            if theirs.is_there.load(SeqCst) {
                return;
            }
            spin_loop();
        }
        theirs.sleeps.store(true, SeqCst);
        if mistaken || !theirs.is_there.load(SeqCst) {
            thread::park();
        }
    });
    work.is_there.store(true, SeqCst);
    if work.sleeps.load(SeqCst) {
        worker.thread().unpark();
    }
    worker.join().unwrap();
}

/// Two threads take two locks in opposite order.
pub(crate) fn opposite_order(mistaken: bool) {
    let locks = (Mutex::new(0), Mutex::new(0));
    let there = |(left, right): &(Mutex<u32>, Mutex<u32>)| {
        let (left, mut right) = (left.lock().unwrap(), right.lock().unwrap());
        *right += *left;
    };
    let back = move |(left, right): &(Mutex<u32>, Mutex<u32>)| {
        let (first, second) = if mistaken { (right, left) } else { (left, right) };
        let (first, mut second) = (first.lock().unwrap(), second.lock().unwrap());
        *second += *first;
    };
    beside(locks, there, back);
}

/// A thread reads twice under a readers-writer lock. A writer that waits in between blocks the
/// second read.
pub(crate) fn recursive_read(mistaken: bool) {
    let write = |lock: &RwLock<u32>| *lock.write().unwrap() += 1;
    let read = move |lock: &RwLock<u32>| {
        let outer = lock.read().unwrap();
        let seen = *outer;
        let outer = mistaken.then_some(outer);
        let inner = *lock.read().unwrap();
        assert!(inner >= seen);
        drop(outer);
    };
    beside(RwLock::new(0), write, read);
}

/// Takers and putters of a buffer for one value wait for one condition variable. A notification for
/// a putter wakes a taker.
pub(crate) fn wrong_waiter(mistaken: bool) {
    struct Buffer {
        value: Mutex<Option<u32>>,
        changed: Condvar,
    }
    let buffer = Arc::new(Buffer { value: Mutex::new(None), changed: Condvar::new() });
    let tell = move |buffer: &Buffer| match mistaken {
        true => buffer.changed.notify_one(),
        false => buffer.changed.notify_all(),
    };
    let take = move |buffer: &Buffer| {
        let mut value = buffer.value.lock().unwrap();
        while value.is_none() {
            value = buffer.changed.wait(value).unwrap();
        }
        *value = None;
        tell(buffer);
    };
    let takers = [0, 1].map(|_| {
        let buffer = Arc::clone(&buffer);
        thread::spawn(move || take(&buffer))
    });
    for number in 0..2 {
        let mut value = buffer.value.lock().unwrap();
        while value.is_some() {
            value = buffer.changed.wait(value).unwrap();
        }
        *value = Some(number);
        tell(&buffer);
    }
    takers.into_iter().for_each(|taker| taker.join().unwrap());
}

/// A thread that was woken does not look again whether it may go on.
pub(crate) fn if_for_while(mistaken: bool) {
    struct Slot {
        value: Mutex<Option<u32>>,
        filled: Condvar,
    }
    let take = move |slot: &Slot| {
        let mut value = slot.value.lock().unwrap();
        while value.is_none() {
            value = slot.filled.wait(value).unwrap();
            if mistaken {
                break;
            }
        }
        assert!(value.take().is_some(), "woken, but nothing is there");
    };
    let fill = |slot: &Slot| {
        *slot.value.lock().unwrap() = Some(1);
        slot.filled.notify_one();
    };
    beside(Slot { value: Mutex::new(None), filled: Condvar::new() }, take, fill);
}

/// A weak exchange is taken for one that fails only if the word has another value.
pub(crate) fn weak_exchange(mistaken: bool) {
    let claim = move |word: &AtomicU32| match mistaken {
        true => word.compare_exchange_weak(0, 1, AcqRel, Acquire).is_ok(),
        false => word.compare_exchange(0, 1, AcqRel, Acquire).is_ok(),
    };
    let claimed = beside(
        (AtomicU32::new(0), AtomicU32::new(0)),
        move |(word, claimed)| _ = claim(word).then(|| claimed.fetch_add(1, SeqCst)),
        move |(word, claimed)| _ = claim(word).then(|| claimed.fetch_add(1, SeqCst)),
    );
    assert_eq!(claimed.1.load(SeqCst), 1, "one of both claims the word");
}

/// A stack of three nodes does not count its changes. A node that was taken and put back makes an
/// exchange succeed with an old successor (ABA).
pub(crate) fn aba(mistaken: bool) {
    struct Stack {
        /// The first node's number and 1, or 0 for none. The upper half counts changes.
        head: AtomicU64,
        next: [AtomicU32; 3],
        out: [AtomicBool; 3],
        counts: bool,
    }
    impl Stack {
        fn replace(&self, old: u64, node: u32) -> bool {
            let count = if self.counts { (old >> 32) + 1 } else { 0 };
            self.head.compare_exchange(old, count << 32 | u64::from(node), SeqCst, SeqCst).is_ok()
        }
        fn push(&self, node: usize) {
            self.out[node].store(false, SeqCst);
            loop {
                let head = self.head.load(SeqCst);
                self.next[node].store(head as u32, SeqCst);
                if self.replace(head, node as u32 + 1) {
                    return;
                }
            }
        }
        fn pop(&self) -> Option<usize> {
            loop {
                let head = self.head.load(SeqCst);
                let node = (head as u32).checked_sub(1)? as usize;
                let next = self.next[node].load(SeqCst);
                if self.replace(head, next) {
                    assert!(!self.out[node].swap(true, SeqCst), "node {node} is taken twice");
                    return Some(node);
                }
            }
        }
    }
    let stack = Stack {
        head: AtomicU64::new(3),
        next: [0, 1, 2].map(AtomicU32::new),
        out: [false; 3].map(AtomicBool::new),
        counts: !mistaken,
    };
    let take_two = |stack: &Stack| {
        stack.pop();
        stack.pop();
    };
    let take_two_and_put_back = |stack: &Stack| {
        let first = stack.pop();
        stack.pop();
        first.into_iter().for_each(|node| stack.push(node));
    };
    beside(stack, take_two, take_two_and_put_back);
}

/// A flag says that plain data is complete, without a release.
pub(crate) fn unpublished(mistaken: bool) {
    struct Message {
        is_there: AtomicBool,
        text: UnsafeCell<u32>,
    }
    // SAFETY: the flag orders the accesses to the text, if it is not mistaken. A checker that does
    // not look at orderings runs one thread at a time.
    unsafe impl Sync for Message {}
    let order = if mistaken { Relaxed } else { Release };
    let send = move |message: &Message| {
        // SAFETY: no other thread reads the text before it sees the flag.
        message.text.with_mut(|text| unsafe { *text = 7 });
        message.is_there.store(true, order);
    };
    let receive = |message: &Message| {
        if message.is_there.load(Acquire) {
            // SAFETY: the writer has stored the flag, and does not access the text any more.
            message.text.with(|text| assert_eq!(unsafe { *text }, 7));
        }
    };
    beside(Message { is_there: AtomicBool::new(false), text: UnsafeCell::new(0) }, send, receive);
}

/// Two threads each raise their flag and look at the other's, without a fence in between. Both
/// enter.
pub(crate) fn both_enter(mistaken: bool) {
    let enter = move |mine: usize, (flags, entered): &([AtomicU32; 2], AtomicU32)| {
        flags[mine].store(1, Release);
        if !mistaken {
            fence(SeqCst);
        }
        if flags[1 - mine].load(Acquire) == 0 {
            entered.fetch_add(1, SeqCst);
        }
    };
    let shared = ([AtomicU32::new(0), AtomicU32::new(0)], AtomicU32::new(0));
    let shared = beside(shared, move |shared| enter(0, shared), move |shared| enter(1, shared));
    assert!(shared.1.load(SeqCst) < 2, "both threads entered");
}
