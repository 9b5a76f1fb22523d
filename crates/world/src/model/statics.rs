//! Statics of the model: fresh for every execution.

use core::any::{Any, TypeId};
use core::mem::ManuallyDrop;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::panicking;

use loom::sync::Mutex;

use super::Model;
use crate::{Statics, WorldLocal, WorldStatic};

/// The key's address and the object's type. Ordered maps only: loom needs every execution to be the
/// same, so no hash order may reach it.
type Key = (usize, TypeId);

type Shared = Arc<dyn Any + Send + Sync>;

/// The objects that are there. They outlive an execution that fails: loom would drop them after its
/// end, when their destructors find no execution to use statics and threads' numbers of.
struct Objects<T>(ManuallyDrop<BTreeMap<Key, T>>);

impl<T> Default for Objects<T> {
    fn default() -> Self {
        Objects(ManuallyDrop::new(BTreeMap::new()))
    }
}

impl<T> Drop for Objects<T> {
    fn drop(&mut self) {
        if !panicking() {
            // SAFETY: dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.0) };
        }
    }
}

loom::lazy_static! {
    /// The execution's objects. The lock orders the making of an object before its uses, as the
    /// `OnceLock` of a native static does.
    static ref STATICS: Mutex<Objects<Shared>> = Mutex::default();
}

loom::thread_local! {
    /// The objects of [`STATICS`] that this thread has used. Looking here first keeps the lock, and
    /// the interleavings that it multiplies, to a thread's first use of an object.
    static SEEN: RefCell<Objects<Shared>> = RefCell::default();

    /// This thread's own objects.
    static LOCALS: RefCell<Objects<Rc<dyn Any>>> = RefCell::default();
}

/// Drops what the calling thread holds of statics. The last thing that a thread of the model does:
/// loom itself drops thread-locals only after `join` has returned, and those of the first thread
/// only after the statics that their destructors may use.
pub(super) fn end_thread() {
    drop(LOCALS.with(RefCell::take));
    drop(SEEN.with(RefCell::take));
}

/// Objects are dropped at the end of the execution. Threads that outlive the first one find no
/// statics any more and make loom panic: join them.
impl Statics for Model {
    fn with_static<T: Send + Sync + 'static, R>(
        key: &'static WorldStatic,
        init: impl FnOnce() -> T,
        use_it: impl FnOnce(&T) -> R,
    ) -> R {
        let key = (core::ptr::from_ref(key).addr(), TypeId::of::<T>());
        let seen = SEEN.with(|seen| seen.borrow().0.get(&key).cloned());
        let object = seen.unwrap_or_else(|| first_use(key, init));
        use_it(object.downcast_ref().expect("the key holds the type"))
    }

    fn find_static<T: Send + Sync + 'static, R>(
        key: &'static WorldStatic,
        use_it: impl FnOnce(&T) -> R,
    ) -> Option<R> {
        let key = (core::ptr::from_ref(key).addr(), TypeId::of::<T>());
        let seen = SEEN.with(|seen| seen.borrow().0.get(&key).cloned());
        let object = seen.or_else(|| {
            let found =
                STATICS.lock().expect("no user code runs under this lock").0.get(&key).cloned();
            found
                .inspect(|it| _ = SEEN.with(|seen| seen.borrow_mut().0.insert(key, Arc::clone(it))))
        })?;
        Some(use_it(object.downcast_ref().expect("the key holds the type")))
    }

    fn with_local<T: 'static, R>(
        key: &'static WorldLocal,
        init: impl FnOnce() -> T,
        use_it: impl FnOnce(&T) -> R,
    ) -> R {
        let key = (core::ptr::from_ref(key).addr(), TypeId::of::<T>());
        let found = LOCALS.with(|locals| locals.borrow().0.get(&key).cloned());
        let object = found.unwrap_or_else(|| {
            // Not inside `with`: `init` may use other locals.
            let made: Rc<dyn Any> = Rc::new(init());
            LOCALS.with(|locals| Rc::clone(locals.borrow_mut().0.entry(key).or_insert(made)))
        });
        use_it(object.downcast_ref().expect("the key holds the type"))
    }
}

fn first_use<T: Send + Sync + 'static>(key: Key, init: impl FnOnce() -> T) -> Shared {
    let lock = || STATICS.lock().expect("no user code runs under this lock");
    let found = lock().0.get(&key).cloned();
    let object = found.unwrap_or_else(|| {
        // Not under the lock: `init` may use other statics, and the object that loses a race to be
        // first may use them when it drops.
        let made: Shared = Arc::new(init());
        Arc::clone(lock().0.entry(key).or_insert_with(|| Arc::clone(&made)))
    });
    SEEN.with(|seen| seen.borrow_mut().0.insert(key, Arc::clone(&object)));
    object
}
