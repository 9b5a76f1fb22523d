//! The state of a contended line: threads that spin on it, stores in progress, and waiting
//! requests.

use core::fmt;
use core::str::FromStr;
use std::collections::VecDeque;

/// The arbitration between the requests for a contended line.
///
/// Real machines differ, and few vendors document their arbitration. Published measurements lie
/// between these two policies (`docs/contention.md` in the source of coreline), so a claim about a
/// contended line should hold under both. A whole [band](crate::claim::Band::whole) has both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Arbitration {
    /// FIFO order. The request that arrived first is served first.
    #[default]
    Fifo,
    /// The order by distance. The request nearest to the core that last had the line is served
    /// first. Among equally near requests, the request that arrived first is served. This policy
    /// has a higher throughput, but a distant core may starve.
    Nearest,
}

impl Arbitration {
    /// All policies, the default first.
    pub const ALL: [Arbitration; 2] = [Arbitration::Fifo, Arbitration::Nearest];
}

impl fmt::Display for Arbitration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Arbitration::Fifo => "fifo",
            Arbitration::Nearest => "nearest",
        })
    }
}

/// The error for an unknown name of an arbitration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{asked:?} is not an arbitration; write fifo or nearest")]
pub struct ParseArbitrationError {
    /// The requested name.
    asked: String,
}

impl FromStr for Arbitration {
    type Err = ParseArbitrationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Arbitration::ALL
            .into_iter()
            .find(|arbitration| arbitration.to_string() == text)
            .ok_or_else(|| ParseArbitrationError { asked: text.to_owned() })
    }
}

/// The source of a request for a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Actor {
    /// The thread that has this CPU.
    Thread(usize),
    /// The store buffer of this CPU.
    Stores(usize),
}

/// A request that waits for its turn.
#[derive(Clone, Copy)]
pub(crate) struct Waiting {
    pub(crate) actor: Actor,
    pub(crate) core: u32,
}

/// A buffered store's number: a machine counts them in the order of their issue.
pub(crate) type StoreNumber = u64;

/// The value of a word of any type, as an address: pointers keep where they may point.
pub(crate) type Value = *mut ();

/// A store that was issued and whose line has not arrived yet.
struct Store {
    number: StoreNumber,
    cpu: usize,
    word: usize,
    /// The value of the word for requests that were under way before this store was issued, until
    /// it is complete. `None` if it stores nothing.
    before: Option<Value>,
}

/// A read that begins while a store is on its way to the word.
struct Behind {
    store: StoreNumber,
    /// The reader's CPU.
    cpu: usize,
}

/// The state of contention at one line.
#[derive(Default)]
pub(crate) struct Contention {
    /// Threads that spin on the line, in the order in which they began to.
    pub(crate) watchers: Vec<usize>,
    /// Stores on their way, in the order in which they were issued.
    stores: Vec<Store>,
    /// Requests that wait for their turn, in the order of their arrival. One of them gets the line
    /// next, and the others do not act.
    pub(crate) waiting: VecDeque<Waiting>,
    behind: Vec<Behind>,
    /// When the last access that needed no request, of those by its owners, ended.
    pub(crate) used: u64,
}

impl Contention {
    /// A CPU issued a store to `word`.
    pub(crate) fn issue(&mut self, number: StoreNumber, cpu: usize, word: usize) {
        self.stores.push(Store { number, cpu, word, before: None });
    }

    /// The latest store to `word` that another CPU issued and that is still on its way.
    pub(crate) fn foreign_store(&self, word: usize, cpu: usize) -> Option<StoreNumber> {
        let is_it = |store: &&Store| store.word == word && store.cpu != cpu;
        self.stores.iter().rev().find(is_it).map(|store| store.number)
    }

    /// Whether the latest store to `word` that is still on its way is one of this CPU.
    pub(crate) fn forwards(&self, word: usize, cpu: usize) -> bool {
        let latest = self.stores.iter().rev().find(|store| store.word == word);
        latest.is_some_and(|store| store.cpu == cpu)
    }

    /// The first of the stores to `word` that other CPUs issued after number `since` and that are
    /// on their way. A request that is older than all of them takes effect before it.
    pub(crate) fn overtaken(
        &self,
        word: usize,
        cpu: usize,
        since: StoreNumber,
    ) -> Option<StoreNumber> {
        let is_it = |store: &&Store| {
            store.word == word && store.cpu != cpu && store.number > since && store.before.is_some()
        };
        self.stores.iter().find(is_it).map(|store| store.number)
    }

    /// The value of a word before a store to it that is on its way.
    pub(crate) fn before(&mut self, number: StoreNumber) -> Option<&mut Option<Value>> {
        let store = self.stores.iter_mut().find(|store| store.number == number);
        store.map(|store| &mut store.before)
    }

    /// The thread of a CPU waits until a store is complete.
    pub(crate) fn wait_behind(&mut self, store: StoreNumber, cpu: usize) {
        self.behind.push(Behind { store, cpu });
    }

    /// A store is complete: takes the CPUs whose threads waited behind it.
    pub(crate) fn complete(&mut self, number: StoreNumber) -> Vec<usize> {
        self.stores.retain(|store| store.number != number);
        let behind = self.behind.extract_if(.., |behind| behind.store == number);
        behind.map(|behind| behind.cpu).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arbitration_reads_back() {
        for arbitration in Arbitration::ALL {
            assert_eq!(arbitration.to_string().parse(), Ok(arbitration));
        }
        let error = "random".parse::<Arbitration>().unwrap_err().to_string();
        assert!(error.contains("random") && error.contains("nearest"), "{error}");
    }

    #[test]
    fn a_read_waits_for_the_latest_store_of_another_cpu() {
        let mut contention = Contention::default();
        for (number, cpu, word) in [(1, 0, 8), (2, 1, 8), (3, 2, 16)] {
            contention.issue(number, cpu, word);
        }
        assert_eq!(contention.foreign_store(8, 2), Some(2));
        assert_eq!(contention.foreign_store(8, 1), Some(1));
        assert_eq!(contention.foreign_store(16, 2), None);
        assert!(contention.forwards(8, 1) && contention.forwards(16, 2));
        assert!(
            !contention.forwards(8, 0) && !contention.forwards(16, 0),
            "another's is later, or none"
        );
        contention.wait_behind(1, 3);
        contention.wait_behind(2, 4);
        assert_eq!(contention.complete(1), [3]);
        assert_eq!(contention.foreign_store(8, 1), None);
    }

    #[test]
    fn a_request_takes_effect_before_the_first_store_that_was_issued_since() {
        let mut contention = Contention::default();
        for (number, cpu) in [(1, 0), (2, 1), (3, 2), (4, 0)] {
            contention.issue(number, cpu, 8);
        }
        assert_eq!(contention.overtaken(8, 9, 0), None, "nothing was stored yet");
        for number in 1..=4 {
            *contention.before(number).unwrap() = Some(core::ptr::null_mut());
        }
        assert_eq!(contention.overtaken(8, 9, 0), Some(1));
        assert_eq!(contention.overtaken(8, 9, 1), Some(2), "the first was there before it");
        assert_eq!(contention.overtaken(8, 1, 1), Some(3), "its own are no others'");
        assert_eq!(contention.overtaken(16, 9, 0), None, "another word");
        contention.complete(2);
        assert_eq!(contention.overtaken(8, 9, 1), Some(3), "the second is through");
        assert_eq!(contention.overtaken(8, 9, 4), None);
    }
}
