//! Measurements of scaling: threads that start together, a table over numbers of threads, and the
//! comparison of two tables.
//!
//! [`parallel`] and [`roles`] run in a machine. Their times exclude the creation of threads, their
//! first accesses, and the skew between their starts. [`Until`] says when a measurement ends.
//! [`scaling`] runs a program with several numbers of threads over a band. [`compare`] compares two
//! programs at each number of threads.
//!
//! ```
//! use coreline_sim::claim::Band;
//! use coreline_sim::measure::{Parallel, compare, parallel, scaling};
//! use coreline_sim::sync::Mutex; // was std::sync
//! use coreline_sim::{Allocator, Spec};
//! use std::collections::VecDeque;
//!
//! #[global_allocator]
//! static ALLOCATOR: Allocator = Allocator;
//!
//! fn locked(threads: usize) -> Parallel {
//!     let queue = Mutex::new(VecDeque::new());
//!     parallel(threads, 20, |n| {
//!         queue.lock().unwrap().push_back(n);
//!         queue.lock().unwrap().pop_front();
//!     })
//! }
//!
//! #[derive(Default)]
//! #[repr(align(64))] // else neighbours share a line
//! struct Apart(Mutex<VecDeque<usize>>);
//!
//! fn apart(threads: usize) -> Parallel {
//!     let queues: Vec<Apart> = (0..threads).map(|_| Apart::default()).collect();
//!     parallel(threads, 20, |n| {
//!         queues[n].0.lock().unwrap().push_back(n);
//!         queues[n].0.lock().unwrap().pop_front();
//!     })
//! }
//!
//! let band = Band::quick(&Spec::preset("epyc-9654-2s")?, 1);
//! let threads = [1, 8, 24, 96];
//! let locked = scaling(&band, "one queue", &threads, locked)?;
//! let apart = scaling(&band, "a queue each", &threads, apart)?;
//! println!("{locked}\n{apart}\n{}", compare(&apart, &locked));
//! assert_eq!(locked.scales_to(), 1);
//! assert_eq!(apart.scales_to(), 96, "{apart}");
//! apart.rate(96).unwrap().at_least(10.0, locked.rate(96).unwrap())?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod comparison;
mod course;
mod record;
mod roles;
mod scaling;

pub use comparison::{Comparison, Faster, Side, compare};
pub use course::Until;
pub use roles::{Parallel, Role, RoleRun, ThreadRun, parallel, roles};
pub use scaling::{Row, Scaling, Spread, scaling, short};
