//! The same pools with threads of the world, which get their IDs from its kernel, if at all.
//!
//! Natively this is the published benchmark, with counters and futexes in place of its mutex and
//! condition variable, and with threads that are joined. It measures how many threads are created
//! in a second, under this machine's kernel.

use std::sync::Arc;

use coreline_world::{Placement, SpawnError, Testbed};

use super::{Load, Setup, WARM_UP};
use crate::RunError;
use crate::crew::{Sign, crew};

/// A pool's words; rounds are counted from 1.
struct Pool<W: Testbed> {
    /// How many threads have arrived, of all rounds.
    arrived: Sign<W>,
    /// The last round whose threads may end.
    released: Sign<W>,
}

pub(super) fn storm<W: Testbed>(setup: &Setup) -> Result<Vec<f64>, RunError> {
    let load = Arc::new(Load::of(setup));
    let places = (0..load.pools).map(|pool| load.place(pool, 0));
    let rates = crew::<W, _, _>(&load, places, Load::create::<W>, |_| ())?;
    Ok(vec![rates.into_iter().sum::<Result<f64, SpawnError>>()?])
}

impl Load {
    fn place(&self, pool: u32, n: u32) -> Placement {
        let place = pool as usize * (self.threads as usize + 1) + n as usize;
        match self.is_pinned {
            false => Placement::Anywhere,
            true => Placement::On(self.cpus[place % self.cpus.len()]),
        }
    }

    /// A creator's part: how many threads it creates in a second.
    fn create<W: Testbed>(&self, number: usize) -> Result<f64, SpawnError> {
        let &Load { threads, rounds, .. } = self;
        let pool = Arc::new(Pool::<W> { arrived: Sign::new(0), released: Sign::new(0) });
        let mut began = W::now();
        for round in 1..=WARM_UP + rounds {
            if round == WARM_UP + 1 {
                began = W::now();
            }
            let places = (0..threads).map(|n| self.place(number as u32, n + 1));
            let live = move |pool: &Pool<W>, _| pool.live(round);
            crew::<W, _, _>(&pool, places, live, |missing| {
                let started = missing.map_or(threads, |started| started as u32);
                pool.arrived.wait(|now| now >= (round - 1) * threads + started);
                pool.released.set(round);
            })?;
        }
        let span = W::now() - began;
        Ok(f64::from(rounds) * f64::from(threads) / span.as_secs_f64())
    }
}

impl<W: Testbed> Pool<W> {
    fn live(&self, round: u32) {
        self.arrived.add();
        self.released.wait(|now| now >= round);
    }
}
