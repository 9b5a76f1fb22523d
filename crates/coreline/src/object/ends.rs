//! The end of a life, and the fate of an object that cannot or must not be reused: it is destroyed
//! immediately, by the thread that returned it, or quarantined.

use coreline_world::{Integer, Ordering, World};

use super::builder::AnyError;
use super::cache::{Body, Held, ObjectCache};
use super::leaf;
use super::quarantine::Aside;
use crate::panics::Panics;

/// Whether an object whose life has ended lives again.
enum Verdict {
    Lives,
    /// It could, but its thread panics.
    Discarded,
    Failed(AnyError),
}

impl<T: Send + 'static, L: Send + 'static, W: World> ObjectCache<T, L, W> {
    /// Like [`put`](ObjectCache::put), in all cases.
    ///
    /// # Safety
    ///
    /// As for [`put`](ObjectCache::put).
    pub(super) unsafe fn end(&self, body: Held<T, L, W>) {
        let mut panics = Panics::NONE;
        let mut verdict = None;
        panics.run(|| {
            // SAFETY: the promise of `put`; the life is not used any more.
            unsafe { (*body.as_ptr()).life.assume_init_drop() };
            verdict = Some(if self.attended { self.judge(body) } else { Verdict::Lives });
        });
        self.uncharge();
        // Contained, as what fails in turn: the thread may unwind already.
        match verdict {
            Some(Verdict::Lives) if self.push_usually(body) => {}
            Some(Verdict::Lives) => panics.run(|| self.push(body)),
            Some(Verdict::Discarded) => self.discard(body, &mut panics),
            Some(Verdict::Failed(why)) => panics.run(|| self.fail(body, why)),
            None => panics.run(|| self.fail(body, "it panicked when it was given back".into())),
        }
        panics.resume::<W>();
        // At the end: the object is back, and nothing is lost by the panic.
        leaf::no_cache_in_a_destructor::<W>(self.name());
    }

    /// Judges an object whose life has ended.
    fn judge(&self, body: Held<T, L, W>) -> Verdict {
        if self.discards_on_panic && W::is_unwinding() {
            return Verdict::Discarded;
        }
        // SAFETY: the caller of `put` has the body alone.
        let kept = unsafe { &mut (*body.as_ptr()).kept };
        match self.check.as_ref().map(|check| check(kept)) {
            Some(Err(why)) => Verdict::Failed(why),
            Some(Ok(())) | None => Verdict::Lives,
        }
    }

    /// Ends an object that cannot live again: the hook is told, and then it is destroyed or put
    /// aside, also if the hook panics.
    fn fail(&self, body: Held<T, L, W>, why: AnyError) {
        // Relaxed: a count.
        self.state.0.failed.fetch_add(1, Ordering::Relaxed);
        let mut panics = Panics::NONE;
        if let Some(hook) = &self.on_failure {
            // SAFETY: the caller of `put` has the body alone.
            let kept = unsafe { &mut (*body.as_ptr()).kept };
            panics.run(|| leaf::in_a_destructor::<W>(|| hook(kept, &*why)));
        }
        if let Some(aside) = self.quarantine.push(body, why) {
            self.destroy_aside(aside, &mut panics);
        }
        panics.resume::<W>();
    }

    /// Ends an object without a life that could live again.
    #[inline]
    fn discard(&self, body: Held<T, L, W>, panics: &mut Panics) {
        self.parts.field(|part| &part.discarded).add(1);
        panics.run(|| self.destroy(body));
        self.vacate(body);
    }

    /// Ends a life, and destroys the object.
    ///
    /// # Safety
    ///
    /// As for [`put`](ObjectCache::put).
    pub(super) unsafe fn end_and_discard(&self, body: Held<T, L, W>) {
        let mut panics = Panics::NONE;
        // SAFETY: the caller's promise; the life is not used any more.
        panics.run(|| unsafe { (*body.as_ptr()).life.assume_init_drop() });
        self.uncharge();
        self.discard(body, &mut panics);
        panics.resume::<W>();
        // At the end: the object is gone, and nothing is lost by the panic.
        leaf::no_cache_in_a_destructor::<W>(self.name());
    }

    /// Destroys what was put aside; returns how many objects there were.
    pub(super) fn empty_quarantine(&self, panics: &mut Panics) -> usize {
        let mut count = 0;
        for aside in self.quarantine.drain() {
            self.quarantine.forget();
            self.destroy_aside(aside, panics);
            count += 1;
        }
        count
    }

    /// Destroys an object, and the reason why it was put aside, whose drop may panic, too.
    fn destroy_aside(&self, Aside { body, why }: Aside<Body<T, L, W>>, panics: &mut Panics) {
        panics.run(|| self.unmake(body));
        panics.run(|| drop(why));
    }
}
