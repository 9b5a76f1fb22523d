//! The shards, and what runs on the workers that own them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use coreline::call::{CallError, FutureReply, Replies, Reply, StartError};
use coreline::{CpuId, CpuSet, Workers};

use crate::Refusal;

/// The keys of one worker.
#[derive(Debug, Default)]
pub struct Shard(HashMap<String, String>);

thread_local! {
    /// It lives as long as its worker, and outlives each call and future that uses it. None of them
    /// keeps it borrowed while it waits.
    static SHARD: RefCell<Shard> = RefCell::default();
}

impl Shard {
    /// The largest sum that `add` leaves. There is room above it for what goes back to its shard:
    /// 2^30 requests would have to do so at the same time to exceed that. `SET` may leave a larger
    /// number.
    const LARGEST: i64 = i64::MAX / 2;

    /// How many keys there is room for. A key and its value are no longer than a line, so this
    /// bounds the memory.
    const KEYS: usize = 100_000;

    /// The value of a key.
    pub fn get(&mut self, key: &str) -> Option<String> {
        self.0.get(key).cloned()
    }

    /// Sets the value of a key.
    ///
    /// # Errors
    ///
    /// [`Refusal::Keys`] if the key is new, and there is no room for it.
    pub fn set(&mut self, key: &str, value: String) -> Result<(), Refusal> {
        if self.0.len() >= Self::KEYS && !self.0.contains_key(key) {
            return Err(Refusal::Keys);
        }
        self.0.insert(key.to_owned(), value);
        Ok(())
    }

    /// Removes a key. Whether it was there.
    pub fn delete(&mut self, key: &str) -> bool {
        self.0.remove(key).is_some()
    }

    /// The number of a key, which is 0 if it has no value.
    fn number(&self, key: &str) -> Result<i64, Refusal> {
        self.0.get(key).map_or(Ok(0), |value| value.parse().map_err(|_| Refusal::Number))
    }

    /// Adds to the number of a key.
    ///
    /// # Errors
    ///
    /// [`Refusal::Number`] if the value is no number, or the sum is too large; [`Refusal::Keys`].
    pub fn add(&mut self, key: &str, number: i64) -> Result<i64, Refusal> {
        let sum = self.number(key)?.checked_add(number).ok_or(Refusal::Number)?;
        if sum.unsigned_abs() > Self::LARGEST.unsigned_abs() {
            return Err(Refusal::Number);
        }
        self.set(key, sum.to_string())?;
        Ok(sum)
    }

    /// Subtracts from the number of a key, which does not become negative.
    fn take(&mut self, key: &str, number: i64) -> Result<(), Refusal> {
        let rest = self.number(key)?.checked_sub(number).filter(|rest| *rest >= 0);
        self.set(key, rest.ok_or(Refusal::Short)?.to_string())
    }

    /// Undoes `take`. If the key has a text by now, that has replaced the number. If it was
    /// deleted, it comes back even if there is no room, so that nothing is lost.
    fn give_back(&mut self, key: &str, number: i64) {
        if let Ok(rest) = self.number(key) {
            self.0.insert(key.to_owned(), rest.saturating_add(number).to_string());
        }
    }
}

/// The shards of all workers.
#[derive(Debug)]
pub struct Store {
    workers: Arc<Workers>,
    cpus: Vec<CpuId>,
    hasher: RandomState,
}

impl Store {
    /// Starts a worker with a shard on each CPU that the process may use. At most `queue` moves
    /// wait for each worker.
    ///
    /// # Errors
    ///
    /// [`StartError`] if a worker cannot be started.
    pub fn new(queue: usize) -> Result<Self, StartError> {
        let workers = Arc::new(Workers::builder().name("shard").queue_limit(queue).start()?);
        let cpus = workers.cpus().collect();
        Ok(Store { workers, cpus, hasher: RandomState::new() })
    }

    fn owner(&self, key: &str) -> CpuId {
        self.cpus[self.hasher.hash_one(key) as usize % self.cpus.len()]
    }

    /// Runs a function on the shard of a key. It must not use the store.
    ///
    /// # Errors
    ///
    /// [`CallError::Closed`] after [`close`](Store::close).
    pub fn on<R: Send + 'static>(
        &self,
        key: &str,
        function: impl FnOnce(&mut Shard, &str) -> R + Send + 'static,
    ) -> Result<Reply<R>, CallError> {
        let (owner, key) = (self.owner(key), key.to_owned());
        let call = move || SHARD.with_borrow_mut(|shard| function(shard, &key));
        Ok(self.workers.call_async(owner, call)?)
    }

    /// Subtracts from one number and adds to another, which may be on another worker. A future of
    /// the first worker does it, and goes on if its reply is dropped: a client that goes away in
    /// the middle loses nothing. Meanwhile, others may see the number in neither place.
    ///
    /// # Errors
    ///
    /// [`CallError::Full`] if too much waits for the first worker; [`CallError::Closed`].
    pub fn transfer(
        &self,
        from: &str,
        to: &str,
        number: u32,
    ) -> Result<FutureReply<Result<(), Refusal>>, CallError> {
        let (owner, other, number) = (self.owner(from), self.owner(to), i64::from(number));
        let (from, to) = (from.to_owned(), to.to_owned());
        let workers = Arc::clone(&self.workers);
        let future = async move || {
            SHARD.with_borrow_mut(|shard| shard.take(&from, number))?;
            let add = move || SHARD.with_borrow_mut(|shard| shard.add(&to, number));
            let added = match workers.call_async(other, add) {
                Ok(reply) => reply.await,
                Err(refused) => Err(refused.why.into()),
            };
            if added.is_err() {
                SHARD.with_borrow_mut(|shard| shard.give_back(&from, number));
            }
            added.map(drop)
        };
        Ok(self.workers.spawn_local_on(owner, future)?)
    }

    /// The number of keys of each shard.
    ///
    /// # Errors
    ///
    /// [`CallError::Closed`] after [`close`](Store::close).
    pub fn len(&self) -> Result<Replies<usize>, CallError> {
        let all: CpuSet = self.cpus.iter().copied().collect();
        self.workers.call_many_async(&all, |_| SHARD.with_borrow(|shard| shard.0.len()))
    }

    /// Refuses further requests, and waits until the workers have ended, with their shards.
    pub fn close(&self) {
        self.workers.close_and_wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_added_taken_and_given_back() {
        let mut shard = Shard::default();
        assert_eq!((shard.add("a", 5), shard.take("a", 6)), (Ok(5), Err(Refusal::Short)));
        assert_eq!((shard.take("a", 5), shard.take("b", 0)), (Ok(()), Ok(())));
        shard.give_back("a", 5);
        assert_eq!(shard.get("a").as_deref(), Some("5"));
        shard.set("a", "text".into()).unwrap();
        shard.give_back("a", 5);
        assert_eq!(
            (shard.add("a", 1), shard.take("a", 1)),
            (Err(Refusal::Number), Err(Refusal::Number))
        );
        assert_eq!(shard.get("a").as_deref(), Some("text"));
    }

    #[test]
    fn a_number_that_is_too_large_is_refused_and_stays() {
        let mut shard = Shard::default();
        for large in [Shard::LARGEST, -Shard::LARGEST] {
            assert_eq!(shard.add("a", large), Ok(large));
            assert_eq!(shard.add("a", large.signum()), Err(Refusal::Number));
            assert_eq!(shard.get("a"), Some(large.to_string()));
            shard.delete("a");
        }
        shard.set("a", i64::MAX.to_string()).unwrap();
        assert_eq!(shard.add("a", i64::MAX), Err(Refusal::Number));
    }

    #[test]
    fn a_full_shard_refuses_new_keys_and_takes_back_what_it_gave() {
        let mut shard = Shard::default();
        (0..Shard::KEYS).for_each(|key| shard.set(&key.to_string(), "5".into()).unwrap());
        let full = Refusal::Keys;
        assert_eq!((shard.set("a", "5".into()), shard.add("a", 5)), (Err(full), Err(full)));
        assert_eq!((shard.take("a", 0), shard.get("a")), (Err(full), None));
        assert_eq!((shard.add("0", 5), shard.set("0", "5".into())), (Ok(10), Ok(())));
        assert_eq!((shard.take("0", 5), shard.delete("0")), (Ok(()), true));
        assert_eq!(shard.set("a", "5".into()), Ok(()));
        shard.give_back("0", 5);
        assert_eq!(shard.get("0").as_deref(), Some("5"));
    }
}
