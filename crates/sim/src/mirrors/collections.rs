//! `std::collections`, simulated: hash maps whose order follows from the machine's seed.
//!
//! | std | here |
//! |---|---|
//! | a [`HashMap`] iterates in another order in each process | in an order that the seed decides |
//! | the system seeds a [`RandomState`] | from the machine's seed |
//! | everything else | std's own |
//!
//! The content of a map is plain data, whose accesses are not charged. The maps wrap std's maps,
//! and convert from and to them by `From`. Outside of a machine, the system seeds the maps, as it
//! seeds std's maps.

use core::fmt;
use core::hash::{BuildHasher, Hash, Hasher};
use core::ops::{BitAnd, BitOr, BitXor, Deref, DerefMut, Index, Sub};
use std::borrow::Borrow;
use std::collections as host;

pub use std::collections::{
    BTreeMap, BTreeSet, BinaryHeap, LinkedList, TryReserveError, VecDeque, binary_heap, btree_map,
    btree_set, linked_list, vec_deque,
};

use crate::engine;

/// `std::collections::hash_map`, simulated.
pub mod hash_map {
    pub use super::{HashMap, RandomState};
    pub use std::collections::hash_map::{
        Drain, Entry, IntoIter, IntoKeys, IntoValues, Iter, IterMut, Keys, OccupiedEntry,
        VacantEntry, Values, ValuesMut,
    };
    pub use std::hash::DefaultHasher;
}

/// `std::collections::hash_set`, simulated.
pub mod hash_set {
    pub use super::HashSet;
    pub use std::collections::hash_set::{
        Difference, Drain, Intersection, IntoIter, Iter, SymmetricDifference, Union,
    };
}

/// A hasher state like [`std::hash::RandomState`], but seeded by the machine. Each new state hashes
/// differently. In every run with the same seed, a program's n-th state hashes equally.
#[derive(Debug, Clone)]
pub struct RandomState(u64);

impl RandomState {
    /// Creates a state.
    pub fn new() -> RandomState {
        let outside = || std::hash::RandomState::new().hash_one(0_u64);
        RandomState(engine::with(|engine| engine.hash_seed()).unwrap_or_else(outside))
    }
}

impl Default for RandomState {
    fn default() -> Self {
        RandomState::new()
    }
}

impl BuildHasher for RandomState {
    type Hasher = std::hash::DefaultHasher;

    fn build_hasher(&self) -> std::hash::DefaultHasher {
        let mut hasher = std::hash::DefaultHasher::new();
        hasher.write_u64(self.0);
        hasher
    }
}

/// A map like [`std::collections::HashMap`], but the machine's seed determines the order of
/// iteration.
///
/// ```
/// # #[global_allocator]
/// # static ALLOCATOR: coreline_sim::Allocator = coreline_sim::Allocator;
/// use coreline_sim::Machine;
/// use coreline_sim::collections::HashMap; // was std::collections
///
/// let order = |seed| {
///     let run = Machine::preset("host-2c").unwrap().seed(seed).run(|| {
///         let squares: HashMap<u32, u32> = (0..100).map(|n| (n, n * n)).collect();
///         assert_eq!(squares[&7], 49);
///         squares.into_keys().collect::<Vec<_>>()
///     });
///     run.unwrap().value
/// };
/// assert_eq!(order(1), order(1));
/// assert_ne!(order(1), order(2));
/// ```
pub struct HashMap<K, V, S = RandomState>(host::HashMap<K, V, S>);

/// A set like [`std::collections::HashSet`], but the machine's seed determines the order of
/// iteration.
pub struct HashSet<T, S = RandomState>(host::HashSet<T, S>);

impl<K, V> HashMap<K, V> {
    /// Creates an empty map.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an empty map with room for at least `capacity` entries.
    pub fn with_capacity(capacity: usize) -> Self {
        Self::with_capacity_and_hasher(capacity, RandomState::new())
    }
}

impl<K, V, S> HashMap<K, V, S> {
    /// Returns an iterator over the keys, which consumes the map.
    pub fn into_keys(self) -> hash_map::IntoKeys<K, V> {
        self.0.into_keys()
    }

    /// Returns an iterator over the values, which consumes the map.
    pub fn into_values(self) -> hash_map::IntoValues<K, V> {
        self.0.into_values()
    }
}

impl<T> HashSet<T> {
    /// Creates an empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an empty set with room for at least `capacity` values.
    pub fn with_capacity(capacity: usize) -> Self {
        Self::with_capacity_and_hasher(capacity, RandomState::new())
    }
}

/// The methods that both have. `$item` is what goes in and comes out.
macro_rules! table {
    ($name:ident<$($param:ident),+>, $item:ty) => {
        impl<$($param,)+ S> $name<$($param,)+ S> {
            /// Creates an empty collection with this hasher.
            pub const fn with_hasher(hasher: S) -> Self {
                $name(host::$name::with_hasher(hasher))
            }

            /// Creates an empty collection with room for at least `capacity` entries, and with this
            /// hasher.
            pub fn with_capacity_and_hasher(capacity: usize, hasher: S) -> Self {
                $name(host::$name::with_capacity_and_hasher(capacity, hasher))
            }

            /// Removes all entries, like std's method. The method is defined here because otherwise
            /// a path call would find a trait's method of this name before std's.
            pub fn clear(&mut self) {
                self.0.clear();
            }
        }

        impl<$($param,)+ S> Deref for $name<$($param,)+ S> {
            type Target = host::$name<$($param,)+ S>;

            fn deref(&self) -> &Self::Target {
                &self.0
            }
        }

        impl<$($param,)+ S> DerefMut for $name<$($param,)+ S> {
            fn deref_mut(&mut self) -> &mut Self::Target {
                &mut self.0
            }
        }

        impl<$($param,)+ S: Default> Default for $name<$($param,)+ S> {
            fn default() -> Self {
                $name(Default::default())
            }
        }

        impl<$($param: Clone,)+ S: Clone> Clone for $name<$($param,)+ S> {
            fn clone(&self) -> Self {
                $name(self.0.clone())
            }
        }

        impl<$($param: fmt::Debug,)+ S> fmt::Debug for $name<$($param,)+ S> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }

        impl<$($param,)+ S> PartialEq for $name<$($param,)+ S>
        where
            host::$name<$($param,)+ S>: PartialEq,
        {
            fn eq(&self, other: &Self) -> bool {
                self.0 == other.0
            }
        }

        impl<$($param,)+ S> Eq for $name<$($param,)+ S> where host::$name<$($param,)+ S>: Eq {}

        impl<$($param,)+ S> From<host::$name<$($param,)+ S>> for $name<$($param,)+ S> {
            fn from(table: host::$name<$($param,)+ S>) -> Self {
                $name(table)
            }
        }

        impl<$($param,)+ S> From<$name<$($param,)+ S>> for host::$name<$($param,)+ S> {
            fn from(table: $name<$($param,)+ S>) -> Self {
                table.0
            }
        }

        impl<$($param,)+ S, I> Extend<I> for $name<$($param,)+ S>
        where
            host::$name<$($param,)+ S>: Extend<I>,
        {
            fn extend<A: IntoIterator<Item = I>>(&mut self, items: A) {
                self.0.extend(items);
            }
        }

        impl<$($param,)+ S> FromIterator<$item> for $name<$($param,)+ S>
        where
            host::$name<$($param,)+ S>: FromIterator<$item>,
        {
            fn from_iter<I: IntoIterator<Item = $item>>(items: I) -> Self {
                $name(items.into_iter().collect())
            }
        }

        impl<$($param,)+ const N: usize> From<[$item; N]> for $name<$($param,)+ RandomState>
        where
            Self: FromIterator<$item>,
        {
            fn from(items: [$item; N]) -> Self {
                items.into_iter().collect()
            }
        }

        impl<$($param,)+ S> IntoIterator for $name<$($param,)+ S> {
            type Item = <host::$name<$($param,)+ S> as IntoIterator>::Item;
            type IntoIter = <host::$name<$($param,)+ S> as IntoIterator>::IntoIter;

            fn into_iter(self) -> Self::IntoIter {
                self.0.into_iter()
            }
        }

        impl<'a, $($param,)+ S> IntoIterator for &'a $name<$($param,)+ S> {
            type Item = <&'a host::$name<$($param,)+ S> as IntoIterator>::Item;
            type IntoIter = <&'a host::$name<$($param,)+ S> as IntoIterator>::IntoIter;

            fn into_iter(self) -> Self::IntoIter {
                (&self.0).into_iter()
            }
        }
    };
}

table!(HashMap<K, V>, (K, V));
table!(HashSet<T>, T);

impl<'a, K, V, S> IntoIterator for &'a mut HashMap<K, V, S> {
    type Item = (&'a K, &'a mut V);
    type IntoIter = hash_map::IterMut<'a, K, V>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter_mut()
    }
}

impl<K, Q, V, S> Index<&Q> for HashMap<K, V, S>
where
    K: Eq + Hash + Borrow<Q>,
    Q: ?Sized + Eq + Hash,
    S: BuildHasher,
{
    type Output = V;

    fn index(&self, key: &Q) -> &V {
        &self.0[key]
    }
}

macro_rules! operators {
    ($($operator:ident $method:ident)+) => {$(
        impl<T, S> $operator<&HashSet<T, S>> for &HashSet<T, S>
        where
            T: Eq + Hash + Clone,
            S: BuildHasher + Default,
        {
            type Output = HashSet<T, S>;

            fn $method(self, other: &HashSet<T, S>) -> HashSet<T, S> {
                HashSet((&self.0).$method(&other.0))
            }
        }
    )+};
}

operators! {
    BitOr bitor
    BitAnd bitand
    BitXor bitxor
    Sub sub
}
