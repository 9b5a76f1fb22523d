//! Who is at a line: threads that spin on it, stores on their way to it, requests that wait.

use core::fmt;
use core::str::FromStr;
use std::collections::VecDeque;

/// Whose request a contended line serves next.
///
/// Real machines differ, and few say what they do: a claim about a contended lock should hold under
/// both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Arbitration {
    /// The one that arrived first.
    #[default]
    Fifo,
    /// The one nearest to the core that had the line last; among equally near ones, the one that
    /// arrived first. More throughput, and who is far may starve.
    Nearest,
}

impl fmt::Display for Arbitration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Arbitration::Fifo => "fifo",
            Arbitration::Nearest => "nearest",
        })
    }
}

/// The name of an arbitration that there is not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{asked:?} is no arbitration; write fifo or nearest")]
pub struct ParseArbitrationError {
    /// What was asked.
    asked: String,
}

impl FromStr for Arbitration {
    type Err = ParseArbitrationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Arbitration::Fifo, Arbitration::Nearest]
            .into_iter()
            .find(|arbitration| arbitration.to_string() == text)
            .ok_or_else(|| ParseArbitrationError { asked: text.to_owned() })
    }
}

/// Who asks for a line.
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
    /// Requests are numbered in the order of their arrival.
    pub(crate) order: u64,
}

/// A store that was issued and whose line is not there yet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(crate) cpu: usize,
    /// Counts the stores of that CPU's buffer.
    pub(crate) number: u64,
}

/// A read of a word that a store is on its way to.
#[derive(Clone, Copy)]
pub(crate) struct Behind {
    pub(crate) store: Ticket,
    /// The reader's place among the requests, if its own request is there already.
    pub(crate) waiting: Option<Waiting>,
    /// The reader's CPU.
    pub(crate) cpu: usize,
}

/// Who is at one line.
#[derive(Default)]
pub(crate) struct Crowd {
    /// Threads that spin on the line, in the order in which they began to.
    pub(crate) watchers: Vec<usize>,
    /// Stores on their way, by word, in the order in which they were issued.
    stores: Vec<(usize, Ticket)>,
    /// Requests that wait for their turn, in the order of their arrival. One of them has it next,
    /// the others do not act.
    pub(crate) waiting: VecDeque<Waiting>,
    behind: Vec<Behind>,
}

impl Crowd {
    /// A store to `word` was issued.
    pub(crate) fn issue(&mut self, word: usize, store: Ticket) {
        self.stores.push((word, store));
    }

    /// The latest store to `word` that another CPU issued and that is still on its way.
    pub(crate) fn foreign_store(&self, word: usize, cpu: usize) -> Option<Ticket> {
        let is_it = |(stored, store): &&(usize, Ticket)| *stored == word && store.cpu != cpu;
        self.stores.iter().rev().find(is_it).map(|(_, store)| *store)
    }

    /// Whether the latest store to `word` that is still on its way is one of this CPU.
    pub(crate) fn forwards(&self, word: usize, cpu: usize) -> bool {
        let latest = self.stores.iter().rev().find(|(stored, _)| *stored == word);
        latest.is_some_and(|(_, store)| store.cpu == cpu)
    }

    /// A request waits for its turn.
    pub(crate) fn wait(&mut self, waiting: Waiting) {
        // At the end, unless it has waited behind a store.
        let place = self.waiting.partition_point(|other| other.order < waiting.order);
        self.waiting.insert(place, waiting);
    }

    pub(crate) fn wait_behind(&mut self, behind: Behind) {
        self.behind.push(behind);
    }

    /// A store is done: takes who waited behind it.
    pub(crate) fn complete(&mut self, store: Ticket) -> Vec<Behind> {
        self.stores.retain(|(_, other)| *other != store);
        self.behind.extract_if(.., |behind| behind.store == store).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arbitration_reads_back() {
        for arbitration in [Arbitration::Fifo, Arbitration::Nearest] {
            assert_eq!(arbitration.to_string().parse(), Ok(arbitration));
        }
        let error = "random".parse::<Arbitration>().unwrap_err().to_string();
        assert!(error.contains("random") && error.contains("nearest"), "{error}");
    }

    #[test]
    fn a_read_waits_for_the_latest_store_of_another_cpu() {
        let mut crowd = Crowd::default();
        let store = |cpu, number| Ticket { cpu, number };
        for (word, ticket) in [(8, store(0, 5)), (8, store(1, 0)), (16, store(2, 0))] {
            crowd.issue(word, ticket);
        }
        assert!(crowd.foreign_store(8, 2) == Some(store(1, 0)));
        assert!(crowd.foreign_store(8, 1) == Some(store(0, 5)));
        assert!(crowd.foreign_store(16, 2).is_none());
        assert!(crowd.forwards(8, 1) && crowd.forwards(16, 2));
        assert!(!crowd.forwards(8, 0) && !crowd.forwards(16, 0), "another's is later, or none");
        for cpu in [3, 4] {
            crowd.wait_behind(Behind { store: store(cpu - 3, 5), waiting: None, cpu });
        }
        let freed = crowd.complete(store(0, 5));
        assert_eq!(freed.iter().map(|behind| behind.cpu).collect::<Vec<_>>(), [3]);
        assert!(crowd.foreign_store(8, 1).is_none());
    }
}
