//! The objects of the machine's `WorldStatic`s, and of its threads' `WorldLocal`s.

use std::any::{Any, TypeId};
use std::rc::Rc;

use super::Engine;

/// The key of an object of [`WorldStatic`](coreline_world::WorldStatic) or `WorldLocal`. The
/// address is looked up and never ordered by, so it reaches no result.
pub(crate) type Key = (usize, TypeId);

/// The objects of the machine's `WorldStatic`s.
pub(super) type Statics = Vec<(Key, Rc<dyn Any + Send + Sync>)>;

impl Engine {
    /// The machine's statics, if it has any and has not failed.
    pub(super) fn take_statics(&mut self) -> Option<Statics> {
        let any = self.failure.is_none() && !self.statics.is_empty();
        any.then(|| std::mem::take(&mut self.statics))
    }

    pub(crate) fn find_static(&self, key: &Key) -> Option<Rc<dyn Any + Send + Sync>> {
        self.statics.iter().find(|(other, _)| other == key).map(|(_, object)| Rc::clone(object))
    }

    /// Keeps an object for a key, unless one is kept; returns the one that is. The caller drops the
    /// other value outside, because its destructor is simulated code.
    pub(crate) fn keep_static(
        &mut self,
        key: Key,
        object: &Rc<dyn Any + Send + Sync>,
    ) -> Rc<dyn Any + Send + Sync> {
        self.find_static(&key).unwrap_or_else(|| {
            self.statics.push((key, Rc::clone(object)));
            Rc::clone(object)
        })
    }

    /// Keeps an object for a key in the place of another, which the caller drops outside.
    pub(super) fn replace_static(
        &mut self,
        key: Key,
        object: Rc<dyn Any + Send + Sync>,
    ) -> Option<Rc<dyn Any + Send + Sync>> {
        if let Some((_, kept)) = self.statics.iter_mut().find(|(other, _)| *other == key) {
            return Some(std::mem::replace(kept, object));
        }
        self.statics.push((key, object));
        None
    }

    pub(crate) fn find_local(&self, key: &Key) -> Option<Rc<dyn Any>> {
        let locals = &self.threads[self.current()].locals;
        locals.iter().find(|(other, _)| other == key).map(|(_, object)| Rc::clone(object))
    }

    /// Like [`keep_static`](Engine::keep_static), for the running thread.
    pub(crate) fn keep_local(&mut self, key: Key, object: &Rc<dyn Any>) -> Rc<dyn Any> {
        self.find_local(&key).unwrap_or_else(|| {
            let current = self.current();
            self.threads[current].locals.push((key, Rc::clone(object)));
            Rc::clone(object)
        })
    }
}
