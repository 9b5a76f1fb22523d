//! [`LossyBuffer`]: records that may be lost, kept by CPU until one thread takes them all.

use core::alloc::Layout;
use core::mem::{ManuallyDrop, MaybeUninit};
use core::panic::{RefUnwindSafe, UnwindSafe};

use coreline_world::{Integer, Line, MapError, Native, Ordering, Word, World};

use super::lock::SlotLock;
use super::striped::{self, Places};
use crate::panics::Panics;

/// A bounded buffer with a ring for each CPU. Any thread pushes, and one thread at a time takes all
/// values. A push never waits. If there is no room, the push returns the value, which the program
/// usually drops. Use the buffer for records if some may be lost, such as the read log of a cache,
/// or samples of a profiler.
///
/// ```
/// use coreline::percpu::LossyBuffer;
///
/// // Up to 128 records of each CPU.
/// let reads = LossyBuffer::new(128)?;
/// for key in [7_u64, 8, 7] {
///     // A lost record makes the cache a little less accurate.
///     _ = reads.push(key);
/// }
/// let mut recent = Vec::new();
/// reads.drain(|key| recent.push(key))?;
/// assert_eq!(recent.len() as u64 + reads.lost(), 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// **Law**: each pushed value is drained once, is in the buffer, or was returned by the push.
/// [`lost`](LossyBuffer::lost) counts the returned values.
///
/// **Returned values**: a push returns its value if the ring of its CPU is full or *busy*. A ring
/// is busy while another thread, or the code that a signal handler interrupts, pushes to it. This
/// time is about ten instructions and the copy of the value, or longer if that thread is preempted.
/// A thread that is killed in the middle of a push leaves its ring busy.
///
/// **Order**: a drain returns the values of each ring in the order in which they were pushed to it.
/// There is no order between rings. A thread that moves between two pushes uses two rings.
///
/// **Time**: a push makes one atomic exchange on a line of its CPU. A push reads the drain's
/// current position only if the ring seems full by the last position that a push has read. If the
/// kernel cannot wipe memory at a fork, and with the feature `portable`, a push also makes a system
/// call for the process ID.
///
/// **Memory**: for each CPU, a buffer uses 192 bytes and the memory for the CPU's values. It also
/// uses the memory of the values that fit into 128 bytes, or of one value if none fits. All of it
/// is allocated immediately, and not written. So the memory of a large ring comes from the node of
/// the CPU that first uses it.
///
/// **Thread exit**: a buffer keeps no state of threads. **CPU offline**: a drain also takes the
/// values in an offline CPU's ring.
///
/// **Panics**: a push does not panic, and runs no code of the values. If the closure of a
/// [`drain`](LossyBuffer::drain) panics, the values with which it was not called stay in the
/// buffer, and the next drain gets them. If the drop of a value panics while the buffer is dropped,
/// the other values are dropped, too.
///
/// **Signals**: a push is async-signal-safe on Linux. A drain is also async-signal-safe if its
/// closure is.
///
/// **Fork**: the child has a copy of the values. The child loses the values that other threads were
/// pushing or had drained, and drains no value twice. The rings are whole in the child. The child
/// can drain them even if another thread was draining at the time of the fork. A child that a
/// handler or the closure of a drain forks must not start threads that use the buffer before the
/// interrupted push or the whole drain has returned.
///
/// **Priorities**: a preempted thread, whatever its priority, makes no other thread wait. If it is
/// preempted in a push, the pushes of its CPU are lost meanwhile. If it is preempted in a drain,
/// other drains are refused meanwhile.
///
/// # Source
///
/// Ben Manes, the `BoundedBuffer` of [Caffeine][caffeine] (2015), which is the read buffer of a
/// cache. Its threads pick a ring by a hash, and each push makes an exchange. In a `LossyBuffer`, a
/// ring belongs to a CPU.
///
/// [caffeine]: https://github.com/ben-manes/caffeine/wiki/Design
pub struct LossyBuffer<T, W: World = Native> {
    rings: Box<[Ring<T, W>]>,
    draining: SlotLock<W>,
    /// The size of each ring, a power of two.
    capacity: usize,
}

/// The values of one CPU.
struct Ring<T, W: World> {
    pushes: Line<Pushes<W>>,
    drained: Line<W::Usize>,
    values: Places<T, W>,
}

/// Positions count on and on; a value is at its position modulo the capacity.
///
/// | word | meaning | written by |
/// |---|---|---|
/// | `lock` | held during a push | [`SlotLock`] |
/// | `tail` | the position of the next push | the holder of `lock` |
/// | `known` | a value that `drained` had | the holder of `lock` |
/// | `lost` | how many pushes gave their values back | additions |
/// | `drained`, of the ring | the position of the next value to drain | the holder of `draining` |
/// | `draining`, of the buffer | held during a drain | [`SlotLock`] |
///
/// From `drained` to `tail`, at most the capacity, there are values; elsewhere there is nothing.
/// Each change is one store to `tail` or `drained`, so that a ring is whole at every moment: see
/// [`SlotLock`] about forks.
struct Pushes<W: World> {
    lock: SlotLock<W>,
    tail: W::Usize,
    known: W::Usize,
    lost: W::U64,
}

const _: () = {
    assert!(size_of::<Pushes<Native>>() == 32);
    assert!(size_of::<Line<Pushes<Native>>>() == 64);
    assert!(size_of::<Ring<u64, Native>>() == 192);
};

// A panic leaves nothing half-way, and no reference to a value is given out.
impl<T, W: World> UnwindSafe for LossyBuffer<T, W> {}
impl<T, W: World> RefUnwindSafe for LossyBuffer<T, W> {}

/// The error if the buffer is already being drained, by another thread or by a caller of the
/// present function. That drain takes the values that it finds when it reaches their rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("another call is already draining the buffer; leave the values to that call, or try again")]
pub struct Draining;

impl<T> LossyBuffer<T> {
    /// Creates an empty buffer with room for `capacity` values of each CPU, rounded up to a power
    /// of two.
    ///
    /// # Errors
    ///
    /// [`MapError`] if there is no memory for this many values.
    pub fn new(capacity: usize) -> Result<Self, MapError> {
        Self::new_in(capacity)
    }
}

impl<T, W: World> LossyBuffer<T, W> {
    /// Creates an empty buffer, like [`new`](LossyBuffer::new), in every world.
    ///
    /// # Errors
    ///
    /// The same errors as for [`new`](LossyBuffer::new).
    pub fn new_in(capacity: usize) -> Result<Self, MapError> {
        // Differences of positions are signed.
        let most = capacity.checked_next_power_of_two().filter(|&it| isize::try_from(it).is_ok());
        let capacity = most.ok_or_else(|| striped::none_left(None))?;
        let cpus = W::topology().cpu_limit().max(1);
        let mut rings = Vec::new();
        let none_left = |_| striped::none_left(Layout::array::<Ring<T, W>>(cpus).ok());
        rings.try_reserve_exact(cpus).map_err(none_left)?;
        for _ in 0..cpus {
            rings.push(Ring::with_room(capacity)?);
        }
        let rings = rings.into_boxed_slice();
        Ok(LossyBuffer { rings, draining: SlotLock::new_in(), capacity })
    }

    /// Puts a value into the ring of the calling thread's CPU, without waiting.
    ///
    /// # Errors
    ///
    /// Returns the value if the ring was full or busy: see [`LossyBuffer`]. The value is counted as
    /// [lost](LossyBuffer::lost).
    #[inline]
    pub fn push(&self, value: T) -> Result<(), T> {
        let ring = &self.rings[striped::own::<W>(self.rings.len())];
        let value = ManuallyDrop::new(value);
        // SAFETY: the value is not used again if it was kept.
        if unsafe { ring.push(&value, self.capacity) } {
            return Ok(());
        }
        // Relaxed: a count.
        ring.pushes.lost.fetch_add(1, Ordering::Relaxed);
        Err(ManuallyDrop::into_inner(value))
    }

    /// Calls `f` with the values of one ring after another, and returns their number. The drain
    /// takes the values that a ring has when the drain reaches it, in the order of their pushes.
    /// These include values that `f` itself pushed to a later ring.
    ///
    /// If `f` panics, the values with which it was not called stay in the buffer.
    ///
    /// # Errors
    ///
    /// [`Draining`] if a drain is in progress, even if `f` itself makes the call.
    pub fn drain(&self, mut f: impl FnMut(T)) -> Result<usize, Draining> {
        let _guard = self.draining.try_lock_in_handlers().ok_or(Draining)?;
        let mut drained = 0;
        for ring in &self.rings {
            // Acquire: pairs with the Release in `Ring::push`: the values below it are written.
            let tail = ring.pushes.tail.load(Ordering::Acquire);
            // Relaxed: the holder of `draining` alone writes it, and the lock orders its holders.
            let mut position = ring.drained.load(Ordering::Relaxed);
            while position != tail {
                // SAFETY: from `drained` to `tail` there are values, and pushes do not use their
                // places until the store below gives this one back.
                let value = ring.values[position & (self.capacity - 1)]
                    .with(|place| unsafe { (*place).assume_init_read() });
                position = position.wrapping_add(1);
                // Release: pairs with the Acquire in `Ring::push`: the value was read. Before `f`,
                // so that neither a drain after a panic nor a forked child has the value again.
                ring.drained.store(position, Ordering::Release);
                drained += 1;
                f(value);
            }
        }
        Ok(drained)
    }

    /// Returns the number of values that pushes have returned since the buffer was created.
    pub fn lost(&self) -> u64 {
        // Relaxed: a count.
        let lost = |ring: &Ring<T, W>| ring.pushes.lost.load(Ordering::Relaxed);
        self.rings.iter().map(lost).sum()
    }

    /// Returns the number of values in the buffer. The number is exact if no thread pushes or
    /// drains meanwhile.
    pub fn len(&self) -> usize {
        self.rings.iter().map(|ring| ring.len(self.capacity)).sum()
    }

    /// Returns whether there are no values, like [`len`](LossyBuffer::len).
    pub fn is_empty(&self) -> bool {
        self.rings.iter().all(|ring| ring.len(self.capacity) == 0)
    }

    /// Returns the number of values for which the ring of each CPU has room.
    pub fn capacity_of_cpu(&self) -> usize {
        self.capacity
    }
}

impl<T, W: World> Ring<T, W> {
    fn with_room(capacity: usize) -> Result<Self, MapError> {
        // Positions wrap; from here on the first values already do.
        let start = || W::Usize::new_in(usize::MAX - 1);
        let pushes = Pushes {
            lock: SlotLock::new_in(),
            tail: start(),
            known: start(),
            lost: W::U64::new_in(0),
        };
        let values = striped::places(capacity)?;
        Ok(Ring { pushes: Line(pushes), drained: Line(start()), values })
    }

    /// How many values there are, of at most this many.
    fn len(&self, capacity: usize) -> usize {
        // Relaxed: a hint, behind which nothing is read.
        let drained = self.drained.load(Ordering::Relaxed);
        // Relaxed: a hint, too.
        let tail = self.pushes.tail.load(Ordering::Relaxed);
        // A push and a drain in between, or an old value, can make it anything.
        tail.wrapping_sub(drained).cast_signed().clamp(0, capacity.cast_signed()).cast_unsigned()
    }

    /// Puts the value here, whose bits are then the ring's, or leaves it; returns whether it is
    /// here.
    ///
    /// # Safety
    ///
    /// The caller does not use the value any more if it is here. The capacity is the ring's.
    #[inline(always)]
    unsafe fn push(&self, value: &ManuallyDrop<T>, capacity: usize) -> bool {
        let Pushes { lock, tail, known, .. } = &self.pushes.0;
        let Some(_guard) = lock.try_lock_in_handlers() else { return false };
        // Relaxed: the holder of the lock alone writes it.
        let position = tail.load(Ordering::Relaxed);
        // Relaxed: the holder of the lock alone writes it.
        if position.wrapping_sub(known.load(Ordering::Relaxed)) >= capacity {
            // Acquire: pairs with the Release in `drain`: the values below it were read.
            let drained = self.drained.load(Ordering::Acquire);
            // Relaxed: the next holder takes the lock first.
            known.store(drained, Ordering::Relaxed);
            if position.wrapping_sub(drained) >= capacity {
                return false;
            }
        }
        // SAFETY: this place is not between `drained` and `tail`, so it holds nothing, and the
        // holder of the lock alone uses it; the caller gives the value up.
        self.values[position & (capacity - 1)].with_mut(|place| unsafe {
            let bits = core::ptr::from_ref(value).cast::<MaybeUninit<T>>();
            place.copy_from_nonoverlapping(bits, 1);
        });
        // Release: pairs with the Acquire in `drain`: the value is written.
        tail.store(position.wrapping_add(1), Ordering::Release);
        true
    }
}

impl<T, W: World> Drop for LossyBuffer<T, W> {
    fn drop(&mut self) {
        if !core::mem::needs_drop::<T>() {
            return;
        }
        let mut panics = Panics::NONE;
        for Ring { pushes, drained, values } in &mut self.rings {
            let tail = pushes.tail.with_mut(|tail| *tail);
            let mut position = drained.with_mut(|drained| core::mem::replace(drained, tail));
            while position != tail {
                let place = values[position & (self.capacity - 1)].get_mut();
                // SAFETY: from `drained` to `tail` there are values, and this is the last use of
                // each.
                panics.run(|| unsafe { place.assume_init_drop() });
                position = position.wrapping_add(1);
            }
        }
        panics.resume::<W>();
    }
}

impl_debug!([T, W: World] LossyBuffer<T, W> as it {
    len: it.len(), lost: it.lost(), capacity_of_cpu: it.capacity, ..
});
