//! [`PerCpuBag`]: values that any thread may put in and take out, kept by CPU.
//!
//! | constant or rule | with less | with more | test |
//! |---|---|---|---|
//! | `LOOKS` of an operation | `few_operations_find_..` fails | waits | `no_operation_waits_..` |
//! | `LOOKS` of a drain | none: it leaves values | waits | `no_operation_waits_..` |

use core::alloc::Layout;
use core::mem::{ManuallyDrop, MaybeUninit};
use core::panic::{RefUnwindSafe, UnwindSafe};

use coreline_world::{Line, MapError, Native, Ordering, Word, World};

use super::lock::SlotLock;
use super::striped::{self, Places};
use crate::panics::Panics;

/// How often an operation looks at all stacks, if some were busy.
const LOOKS: u32 = 4;

/// A bounded, unordered collection of values, with a stack for each CPU. Use it for spare values
/// that any thread may reuse, such as connections, buffers, or boxes of a free list.
///
/// A push puts the value onto the stack of the calling thread's CPU. A pop takes the newest value
/// of that stack. If the stack is full, empty or busy, the operation tries the other stacks in the
/// order of CPU numbers. So threads of different CPUs share no cache line as long as their own
/// stacks have values and room.
///
/// ```
/// use coreline::percpu::PerCpuBag;
///
/// /// A connection to a server.
/// struct Connection(u32);
///
/// // Up to 100 idle connections.
/// let idle = PerCpuBag::new(100)?;
/// let connection = idle.pop().unwrap_or_else(|| Connection(7));
/// // Use it, and keep it for the next request. If there are enough, close it.
/// if let Err(Connection(number)) = idle.push(connection) {
///     println!("connection {number} is one too many");
/// }
/// assert_eq!(idle.pop().map(|Connection(number)| number), Some(7));
/// assert!(idle.pop().is_none());
/// # Ok::<(), coreline::world::MapError>(())
/// ```
///
/// **Law**: each pushed value is popped once, is in the bag, or was returned by the push. There are
/// never more values in the bag than its capacity.
///
/// **What `None` and `Err` mean**: no operation waits for another thread. A stack is *busy* while a
/// thread pushes to it or pops from it. This time is about ten instructions and the copy of the
/// value, or longer if the thread is preempted. An operation that finds stacks busy checks all of
/// them again, at most four times in all. So `None` means that each stack was empty or busy when
/// the operation checked it. `Err` means that each stack was full or busy. If no other operation is
/// in progress, `None` means that the bag is empty, and `Err` means that it is full. A thread may
/// also miss a value that other threads take out and put back meanwhile.
///
/// **Order**: the bag guarantees no order. A stack returns its newest value first. A push happens
/// before the pop that returns its value. To order other accesses, use `SeqCst` fences.
///
/// **Capacity**: the capacity of the bag is divided evenly among the CPUs that the machine can
/// have. A small bag uses only the stacks of the first CPUs. One CPU can fill the whole bag,
/// because a push tries all stacks.
///
/// **Time**: an operation makes one atomic exchange on a line of its CPU. If the bag is empty, a
/// pop reads one line per CPU, or up to four lines per CPU if a stack is busy. A push to a full bag
/// reads as many lines. If the kernel cannot wipe memory at a fork, and with the feature
/// `portable`, each try also makes a system call for the process ID.
///
/// **Memory**: a bag uses 64 bytes per CPU and the memory for `capacity` values. It also uses, for
/// each CPU, the memory of the values that fit into 128 bytes, or of one value if none fits. All of
/// it is allocated immediately, and not written. So the memory of a large stack comes from the node
/// of the CPU that first uses it.
///
/// **Thread exit**: a bag keeps no state of threads. **CPU offline**: other CPUs also take the
/// values in an offline CPU's stack.
///
/// **Panics**: no operation panics, and no operation runs code of the values. If the closure of
/// [`drain`](PerCpuBag::drain) panics, the other values stay in the bag. If the drop of a value
/// panics while the bag is dropped, the other values are dropped, too.
///
/// **Signals**: push, pop and [`len`](PerCpuBag::len) are async-signal-safe on Linux. A handler
/// that interrupts an operation finds the operation's stack busy, and uses the other stacks. So the
/// handler's push may fail although there is room, and its pop may find nothing although there are
/// values.
///
/// **Fork**: the child has a copy of the values. The child loses the values that other threads were
/// pushing or had popped, and finds no value twice. A stack that another thread used at the time of
/// the fork is whole in the child. A child that a handler forks must not start threads that use the
/// bag before the interrupted operation has returned. If the kernel cannot wipe memory at a fork, a
/// child may get the process ID of an ancestor that has ended. If that ancestor's thread used a
/// stack at the time of the fork, the stack stays busy.
///
/// **Priorities**: a preempted thread, whatever its priority, makes no other thread wait.
/// Meanwhile, other threads do not reach the values of the stack that it uses.
///
/// # Source
///
/// The `ConcurrentBag` of .NET and the `ConcurrentBag` of HikariCP have a list for each thread,
/// from which other threads steal. A `PerCpuBag` has a stack for each CPU instead. Linux takes its
/// per-CPU lists by try-lock (`pcp_spin_trylock` in `mm/page_alloc.c`).
pub struct PerCpuBag<T, W: World = Native> {
    stacks: Box<[Line<Stack<T, W>>]>,
    capacity: usize,
}

/// The values of one CPU.
///
/// | word | meaning | written by |
/// |---|---|---|
/// | `lock` | held while a value is put here or taken | [`SlotLock`] |
/// | `len` | how many values there are: never more than `room` | the holder of `lock` |
/// | `values[i]`, `i < len` | a value | no thread |
/// | `values[i]`, `i >= len` | nothing | the holder of `lock` |
///
/// Each change is one store to `len`, so that the stack is whole at every moment: see
/// [`SlotLock`] about forks.
struct Stack<T, W: World> {
    lock: SlotLock<W>,
    len: W::Usize,
    /// How many values it takes.
    room: usize,
    values: Places<T, W>,
}

const _: () = {
    assert!(size_of::<Stack<u64, Native>>() == 40);
    assert!(size_of::<Line<Stack<u64, Native>>>() == 64);
};

// A panic leaves nothing half-way, and no reference to a value is given out.
impl<T, W: World> UnwindSafe for PerCpuBag<T, W> {}
impl<T, W: World> RefUnwindSafe for PerCpuBag<T, W> {}

/// Values that a drain has taken and not yet handed on. They go back if its closure panics.
struct Taken<'b, T, W: World> {
    bag: &'b PerCpuBag<T, W>,
    values: Vec<T>,
}

impl<T, W: World> Drop for Taken<'_, T, W> {
    fn drop(&mut self) {
        // A panic of a value that is dropped for want of room would be the second one.
        let mut panics = Panics::NONE;
        panics.drop_each(self.values.drain(..).filter_map(|value| self.bag.push(value).err()));
        panics.resume::<W>();
    }
}

/// Why an operation on a stack did nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Not {
    /// A push found it full, or a pop empty.
    Possible,
    /// A thread uses it.
    Idle,
}

impl<T> PerCpuBag<T> {
    /// Creates an empty bag for at most `capacity` values.
    ///
    /// # Errors
    ///
    /// [`MapError`] if there is no memory for this many values.
    pub fn new(capacity: usize) -> Result<Self, MapError> {
        Self::new_in(capacity)
    }
}

impl<T, W: World> PerCpuBag<T, W> {
    /// Creates an empty bag, like [`new`](PerCpuBag::new), in every world.
    ///
    /// # Errors
    ///
    /// The same errors as for [`new`](PerCpuBag::new).
    pub fn new_in(capacity: usize) -> Result<Self, MapError> {
        let cpus = W::topology().cpu_limit().clamp(1, capacity.max(1));
        let (each, more) = (capacity / cpus, capacity % cpus);
        let stack = |cpu| Stack::with_room(each + usize::from(cpu < more)).map(Line);
        let mut stacks = Vec::new();
        let none_left = |_| striped::none_left(Layout::array::<Line<Stack<T, W>>>(cpus).ok());
        stacks.try_reserve_exact(cpus).map_err(none_left)?;
        for cpu in 0..cpus {
            stacks.push(stack(cpu)?);
        }
        Ok(PerCpuBag { stacks: stacks.into_boxed_slice(), capacity })
    }

    /// Puts a value into the bag.
    ///
    /// # Errors
    ///
    /// Returns the value if each stack was full or busy: see [`PerCpuBag`].
    #[inline]
    pub fn push(&self, value: T) -> Result<(), T> {
        let value = ManuallyDrop::new(value);
        let own = striped::own::<W>(self.stacks.len());
        // SAFETY: the value is not used again if it was kept.
        if unsafe { self.stacks[own].push(&value) }.is_ok() {
            return Ok(());
        }
        self.push_elsewhere(own, value)
    }

    /// Apart, so that the usual way stays short.
    #[cold]
    #[inline(never)]
    fn push_elsewhere(&self, own: usize, value: ManuallyDrop<T>) -> Result<(), T> {
        // SAFETY: the value is not used again if it was kept.
        match self.elsewhere(own, |stack| unsafe { stack.push(&value) }) {
            Some(()) => Ok(()),
            None => Err(ManuallyDrop::into_inner(value)),
        }
    }

    /// Takes a value out of the bag. Returns `None` if each stack was empty or busy: see
    /// [`PerCpuBag`].
    #[inline]
    pub fn pop(&self) -> Option<T> {
        let own = striped::own::<W>(self.stacks.len());
        match self.stacks[own].pop() {
            Ok(value) => Some(value),
            Err(_) => self.elsewhere(own, Stack::pop),
        }
    }

    /// Tries all stacks, from the one behind `own` on; and again, if some are busy.
    #[cold]
    #[inline(never)]
    fn elsewhere<R>(
        &self,
        own: usize,
        mut run: impl FnMut(&Stack<T, W>) -> Result<R, Not>,
    ) -> Option<R> {
        // In the model, where a thread may stop anywhere, one look is all.
        for look in 0..if W::RUNS { LOOKS } else { 1 } {
            if look > 0 {
                W::relax();
            }
            let (before, from) = self.stacks.split_at(own + 1);
            let mut busy = false;
            for stack in from.iter().chain(before) {
                match run(stack) {
                    Ok(done) => return Some(done),
                    Err(not) => busy |= not == Not::Idle,
                }
            }
            if !busy {
                break;
            }
        }
        None
    }

    /// Takes the values out, stack by stack, and calls `f` with each value. Returns their number.
    /// Other threads may push and pop meanwhile, so the bag may not be empty afterwards. The call
    /// leaves the values of a stack that stays busy. `f` may push a value. `f` is not called with
    /// that value again, unless the value goes to a stack of another CPU.
    ///
    /// If `f` panics, the values with which it was not called go back into the bag. Values for
    /// which there is no room any more are dropped.
    ///
    /// The call allocates a list of the values of a stack. If there is no memory for it, the call
    /// takes the values one by one. Then `f` may be called again with a value that it pushed.
    pub fn drain(&self, mut f: impl FnMut(T)) -> usize {
        let mut drained = 0;
        let mut f = |value| {
            drained += 1;
            f(value);
        };
        for stack in &self.stacks {
            let mut taken = Taken { bag: self, values: Vec::new() };
            let most = stack.len();
            if taken.values.try_reserve_exact(most).is_err() {
                Self::take(stack, most, &mut f);
                continue;
            }
            Self::take(stack, most, |value| taken.values.push(value));
            while let Some(value) = taken.values.pop() {
                f(value);
            }
        }
        drained
    }

    /// Takes up to this many values.
    fn take(stack: &Stack<T, W>, most: usize, mut f: impl FnMut(T)) {
        let (mut taken, mut looks) = (0, LOOKS);
        while taken < most && looks > 0 {
            match stack.pop() {
                Ok(value) => {
                    f(value);
                    taken += 1;
                    looks = LOOKS;
                }
                Err(Not::Possible) => break,
                Err(Not::Idle) => {
                    looks -= 1;
                    W::relax();
                }
            }
        }
    }

    /// Returns the number of values. The number is exact if no thread pushes or pops meanwhile.
    pub fn len(&self) -> usize {
        self.stacks.iter().map(|stack| stack.len()).sum()
    }

    /// Returns whether there are no values, like [`len`](PerCpuBag::len).
    pub fn is_empty(&self) -> bool {
        self.stacks.iter().all(|stack| stack.len() == 0)
    }

    /// Returns the number of values for which the bag has room.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the number of values for which the stack of a CPU has room. If the bag's capacity
    /// does not divide evenly, it is the room of the largest stack.
    pub fn capacity_of_cpu(&self) -> usize {
        self.stacks.first().map_or(0, |stack| stack.room)
    }
}

impl<T, W: World> Stack<T, W> {
    fn with_room(room: usize) -> Result<Self, MapError> {
        let values = striped::places(room)?;
        Ok(Stack { lock: SlotLock::new_in(), len: W::Usize::new_in(0), room, values })
    }

    fn len(&self) -> usize {
        // Relaxed: a hint, behind which nothing is read.
        self.len.load(Ordering::Relaxed)
    }

    /// Puts the value here, whose bits are then the stack's, or leaves it.
    ///
    /// # Safety
    ///
    /// The caller does not use the value any more if this succeeds.
    #[inline(always)]
    unsafe fn push(&self, value: &ManuallyDrop<T>) -> Result<(), Not> {
        // A thread that finds it full does not write to the line.
        if self.len() >= self.room {
            return Err(Not::Possible);
        }
        let _guard = self.lock.try_lock_in_handlers().ok_or(Not::Idle)?;
        let len = self.len();
        if len >= self.room {
            return Err(Not::Possible);
        }
        // SAFETY: the holder of the lock alone uses this place, which holds nothing; the caller
        // gives the value up.
        self.values[len].with_mut(|place| unsafe {
            let bits = core::ptr::from_ref(value).cast::<MaybeUninit<T>>();
            place.copy_from_nonoverlapping(bits, 1);
        });
        // Release: a forked child has the value with the length, or neither. Other threads take the
        // lock first.
        self.len.store(len + 1, Ordering::Release);
        Ok(())
    }

    /// Takes the newest value.
    #[inline(always)]
    fn pop(&self) -> Result<T, Not> {
        // A thread that finds it empty does not write to the line.
        if self.len() == 0 {
            return Err(Not::Possible);
        }
        let _guard = self.lock.try_lock_in_handlers().ok_or(Not::Idle)?;
        let len = self.len();
        if len == 0 {
            return Err(Not::Possible);
        }
        // SAFETY: the holder of the lock alone uses this place, which holds a value; it is nothing
        // from the store below on.
        let value = self.values[len - 1].with_mut(|place| unsafe { (*place).assume_init_read() });
        // Release: a forked child has the value here, or the thread that is no more had it. Other
        // threads take the lock first.
        self.len.store(len - 1, Ordering::Release);
        Ok(value)
    }
}

impl<T, W: World> Drop for Stack<T, W> {
    fn drop(&mut self) {
        if !core::mem::needs_drop::<T>() {
            return;
        }
        let len = self.len.with_mut(core::mem::take);
        let mut panics = Panics::NONE;
        for place in &mut self.values[..len] {
            // SAFETY: below the length there are values, and this is the last use of each.
            panics.run(|| unsafe { place.get_mut().assume_init_drop() });
        }
        panics.resume::<W>();
    }
}

impl_debug!([T, W: World] PerCpuBag<T, W> as it { len: it.len(), capacity: it.capacity, .. });

#[cfg(test)]
mod tests {
    use coreline_sim::{Machine, Sim};
    use coreline_topology::CpuId;
    use coreline_world::{Clock, JoinHandle, Placement, Threads};
    use std::sync::Arc;

    use super::*;

    /// A stack whose holder is stopped stays busy.
    #[test]
    fn no_operation_waits_for_one_that_is_stopped() {
        let program = || {
            let bag = PerCpuBag::<u32, Sim>::new_in(10).unwrap();
            bag.push(1).unwrap();
            let held: Vec<_> =
                bag.stacks.iter().map(|stack| stack.0.lock.try_lock_in_handlers()).collect();
            let begun = Sim::now();
            assert_eq!((bag.pop(), bag.push(2), bag.drain(|_| ())), (None, Err(2), 0));
            drop(held);
            assert_eq!(bag.pop(), Some(1));
            Sim::now() - begun
        };
        let run = Machine::preset("host-2c").expect("a preset").step_limit(100_000).run(program);
        let spent = run.expect("it ends").value;
        assert!(spent < core::time::Duration::from_micros(10), "{spent:?}");
    }

    /// A thread takes values from the stack of another CPU, whose thread uses it all the time.
    #[test]
    fn few_operations_find_each_stack_busy_at_each_look() {
        let program = || {
            let bag = Arc::new(PerCpuBag::<u32, Sim>::new_in(2_000).unwrap());
            let on = |cpu| Placement::On(CpuId::new(cpu));
            let (fills, theirs) = (Arc::clone(&bag), Arc::clone(&bag));
            let fill = move || (0..900).for_each(|value| fills.push(value).unwrap());
            Sim::spawn(on(1), fill).expect("one thread").join();
            let turns = move || (0..2_000).for_each(|_| _ = theirs.push(theirs.pop().unwrap_or(0)));
            let owner = Sim::spawn(on(1), turns).expect("one thread");
            let take = move || (0..500).filter(|_| bag.pop().is_none()).count();
            let missed = Sim::spawn(on(0), take).expect("one thread").join();
            owner.join();
            missed
        };
        let missed = Machine::preset("host-2c").expect("a preset").run(program);
        let missed = missed.expect("it ends").value;
        assert!(missed <= 25, "{missed} of 500 found nothing");
    }
}
