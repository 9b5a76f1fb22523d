//! The same pools with threads of the world, which get their IDs from its kernel, if at all.
//!
//! Natively this is the published benchmark, with counters and futexes in place of its mutex and
//! condition variable, and with threads that are joined. It measures how many threads are created
//! in a second, under this machine's kernel.

use std::sync::Arc;

use coreline_world::{Integer, JoinHandle, Line, Ordering, Placement, SpawnError, Testbed, Word};

use super::{Placing, Storms, ThreadstormParams, WARM_UP};
use crate::scenario::RunError;

/// A pool's words; rounds are counted from 1.
struct Pool<W: Testbed> {
    /// How many threads have arrived, of all rounds.
    arrived: Line<W::U32>,
    /// The last round whose threads may end.
    released: Line<W::U32>,
}

pub(super) fn storm<W: Testbed>(params: &ThreadstormParams) -> Result<Storms, RunError> {
    let mut creators = Vec::new();
    let mut spawned = Ok(());
    for number in 0..params.size.pools {
        let params = params.clone();
        let placement = placement(&params, number, 0);
        match W::spawn(placement, move || create::<W>(&params, number)) {
            Ok(creator) => creators.push(creator),
            Err(error) => {
                spawned = Err(error);
                break;
            }
        }
    }
    let rates: Vec<_> = creators.into_iter().map(JoinHandle::join).collect();
    spawned?;
    let rate = rates.into_iter().sum::<Result<f64, SpawnError>>()?;
    Ok(Storms { rate, costs: None })
}

fn placement(params: &ThreadstormParams, pool: u32, n: u32) -> Placement {
    let place = pool as usize * (params.size.threads as usize + 1) + n as usize;
    match params.place {
        Placing::Roaming => Placement::Anywhere,
        Placing::Pinned => Placement::On(params.cpus[place % params.cpus.len()]),
    }
}

/// A creator's part: how many threads it creates in a second.
fn create<W: Testbed>(params: &ThreadstormParams, number: u32) -> Result<f64, SpawnError> {
    let word = || Line(W::U32::new_in(0));
    let pool = Arc::new(Pool::<W> { arrived: word(), released: word() });
    let mut began = W::now();
    for round in 1..=WARM_UP + params.rounds {
        if round == WARM_UP + 1 {
            began = W::now();
        }
        let mut threads = Vec::new();
        let mut spawned = Ok(());
        for n in 1..=params.size.threads {
            let theirs = Arc::clone(&pool);
            match W::spawn(placement(params, number, n), move || theirs.live(round)) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    spawned = Err(error);
                    break;
                }
            }
        }
        let before = (round - 1) * params.size.threads;
        pool.wait(&pool.arrived, before + threads.len() as u32);
        // Release: pairs with the Acquire in `wait`.
        pool.released.store(round, Ordering::Release);
        W::wake(&raw const pool.released.0, u32::MAX);
        threads.into_iter().for_each(JoinHandle::join);
        spawned?;
    }
    let span = W::now() - began;
    let created = f64::from(params.rounds) * f64::from(params.size.threads);
    Ok(created / span.as_secs_f64())
}

impl<W: Testbed> Pool<W> {
    /// A created thread's part.
    fn live(&self, round: u32) {
        // Release: pairs with the Acquire in `wait`.
        self.arrived.fetch_add(1, Ordering::Release);
        W::wake(&raw const self.arrived.0, 1);
        self.wait(&self.released, round);
    }

    /// Sleeps until a word is at least `least`.
    fn wait(&self, word: &W::U32, least: u32) {
        loop {
            // Acquire: pairs with the Release in `live` and in `create`.
            let now = word.load(Ordering::Acquire);
            if now >= least {
                return;
            }
            W::park(word, now, None);
        }
    }
}
