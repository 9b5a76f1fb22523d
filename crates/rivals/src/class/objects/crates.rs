//! Queues and pools of other crates, as pools.

use coreline::Lacking;
use crossbeam_queue::{ArrayQueue, SegQueue};
use lockfree_object_pool::{LinearObjectPool, LinearReusable};
use object_pool::Reusable;
use opool::{PoolAllocator, RefGuard};
use sharded_slab::Clear;

use super::{Object, Pool, STOCK};

/// A queue of boxes, the oldest first.
macro_rules! queue_of_boxes {
    ($($queue:ty, $new:expr, $push:expr;)*) => {$(
        impl Pool for $queue {
            type Taken = Box<Object>;

            fn new() -> Result<Self, Lacking> {
                let queue = $new;
                for _ in 0..STOCK {
                    $push(&queue, Box::default());
                }
                Ok(queue)
            }

            #[inline(always)]
            fn take(&'static self, word: u64) -> Box<Object> {
                let mut object = self.pop().unwrap_or_default();
                object.write(word);
                object
            }

            #[inline(always)]
            fn word(&'static self, taken: &Box<Object>) -> u64 {
                taken.word()
            }

            #[inline(always)]
            fn give(&'static self, taken: Box<Object>) {
                $push(self, taken);
            }
        }
    )*};
}

queue_of_boxes! {
    // One that is full drops what it is given.
    ArrayQueue<Box<Object>>, ArrayQueue::new(STOCK), |queue: &Self, object| _ = queue.push(object);
    SegQueue<Box<Object>>, SegQueue::new(), |queue: &Self, object| queue.push(object);
}

/// Pools whose guards give back what they hold when they are dropped.
macro_rules! by_guard {
    ($($pool:ty, $guard:ty, $new:expr, $take:expr;)*) => {$(
        impl Pool for $pool {
            type Taken = $guard;

            fn new() -> Result<Self, Lacking> {
                Ok($new)
            }

            #[inline(always)]
            fn take(&'static self, word: u64) -> Self::Taken {
                let mut object = $take(self);
                object.write(word);
                object
            }

            #[inline(always)]
            fn word(&'static self, taken: &Self::Taken) -> u64 {
                taken.word()
            }

            #[inline(always)]
            fn give(&'static self, taken: Self::Taken) {
                drop(taken);
            }
        }
    )*};
}

by_guard! {
    object_pool::Pool<Box<Object>>, Reusable<'static, Box<Object>>,
        object_pool::Pool::new(STOCK, Box::default), |pool: &'static Self| pool.pull(Box::default);
    opool::Pool<Boxes, Box<Object>>, RefGuard<'static, Boxes, Box<Object>>,
        opool::Pool::new_prefilled(STOCK, Boxes), |pool: &'static Self| pool.get();
    // The fastest of its three. It keeps objects by value, in pages of 32, and makes them as they
    // are needed.
    LinearObjectPool<Object>, LinearReusable<'static, Object>,
        LinearObjectPool::new(Object::default, |_| ()), |pool: &'static Self| pool.pull();
}

/// The functions that opool needs for objects.
pub(super) struct Boxes;

impl PoolAllocator<Box<Object>> for Boxes {
    fn allocate(&self) -> Box<Object> {
        Box::default()
    }
}

impl Clear for Object {
    /// As in the other pools: nothing is reset.
    fn clear(&mut self) {}
}

/// An object stays in the slab and is known by its key. Its guard cannot go to another thread, so
/// the one that gives the object back looks it up again.
impl Pool for sharded_slab::Pool<Object> {
    type Taken = usize;

    fn new() -> Result<Self, Lacking> {
        Ok(sharded_slab::Pool::new())
    }

    #[inline(always)]
    fn take(&'static self, word: u64) -> usize {
        self.create_with(|object| object.write(word)).expect("there is room for few objects")
    }

    #[inline(always)]
    fn word(&'static self, key: &usize) -> u64 {
        self.get(*key).map_or(u64::MAX, |object| object.word())
    }

    #[inline(always)]
    fn give(&'static self, key: usize) {
        self.clear(key);
    }
}
