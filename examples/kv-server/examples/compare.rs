//! Requests per second on loopback: shards on workers, beside shards behind mutexes.
//!
//! ```sh
//! cargo run --release -p kv-server --example compare
//! ```

#![expect(clippy::print_stdout, reason = "it says what it found")]

use std::collections::HashMap;
use std::error::Error;
use std::future::{Future, ready};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use kv_server::Store;
use kv_server::server::{Answers, serve};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

/// The request `INCR`, on maps behind a mutex each.
#[derive(Default)]
struct Locked([Mutex<HashMap<String, i64>>; 16], RandomState);

impl Locked {
    fn add(&self, request: &str) -> Option<i64> {
        let [_, key, number] = request.split_ascii_whitespace().collect::<Vec<_>>()[..] else {
            return None;
        };
        let map = &self.0[self.1.hash_one(key) as usize % self.0.len()];
        let mut map = map.lock().unwrap_or_else(PoisonError::into_inner);
        let value = map.entry(key.to_owned()).or_default();
        *value = value.checked_add(number.parse().ok()?)?;
        Some(*value)
    }
}

impl Answers for Locked {
    fn answer(&self, request: &str) -> impl Future<Output = String> + Send {
        ready(self.add(request).map_or("ERR".into(), |sum| sum.to_string()))
    }
}

/// Requests per second of so many clients, each of which waits for its answers.
fn round(address: SocketAddr, clients: u32, requests: u32) -> io::Result<f64> {
    let client = |number: u32| {
        let mut stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let mut answers = BufReader::new(stream.try_clone()?);
        for request in 0..requests {
            let key = (number * 7 + request * 13) % 1000;
            stream.write_all(format!("INCR key-{key} 1\n").as_bytes())?;
            let mut answer = String::new();
            answers.read_line(&mut answer)?;
            if answer.trim_end().parse::<i64>().is_err() {
                return Err(io::Error::other(answer));
            }
        }
        Ok(())
    };
    let begun = Instant::now();
    thread::scope(|scope| {
        let start = |number| scope.spawn(move || client(number));
        let threads: Vec<_> = (0..clients).map(start).collect();
        let join = |it: thread::ScopedJoinHandle<'_, _>| {
            it.join().unwrap_or_else(|_| Err(io::Error::other("a client panicked")))
        };
        threads.into_iter().try_for_each(join)
    })?;
    Ok(f64::from(clients) * f64::from(requests) / begun.elapsed().as_secs_f64())
}

fn start(
    runtime: &Runtime,
    store: Arc<impl Answers>,
) -> io::Result<(SocketAddr, watch::Sender<()>)> {
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
    let address = listener.local_addr()?;
    let (stop, stopped) = watch::channel(());
    runtime.spawn(serve(listener, store, 1000, stopped));
    Ok((address, stop))
}

/// The median requests per second with workers and with mutexes, in turns.
fn compare(clients: u32, rounds: usize, requests: u32) -> Result<[f64; 2], Box<dyn Error>> {
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    let (workers, _stop) = start(&runtime, Arc::new(Store::new(1000)?))?;
    let (locked, _stop_too) = start(&runtime, Arc::new(Locked::default()))?;
    let mut rates = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        for (address, rates) in [workers, locked].into_iter().zip(&mut rates) {
            rates.push(round(address, clients, requests)?);
        }
    }
    Ok(rates.map(|mut rates| {
        rates.sort_unstable_by(f64::total_cmp);
        rates[rates.len() / 2]
    }))
}

fn main() -> Result<(), Box<dyn Error>> {
    for clients in [1, 8, 64] {
        let [workers, locked] = compare(clients, 11, 20_000 / clients)?;
        let ratio = workers / locked;
        println!(
            "{clients} clients: workers {workers:.0} requests/s, mutexes {locked:.0} ({ratio:.2})"
        );
    }
    Ok(())
}

#[test]
fn both_are_timed_and_count_alike() {
    let rates = compare(2, 1, 10).unwrap();
    assert!(rates.iter().all(|rate| rate.is_finite() && *rate > 0.0), "{rates:?}");
    let locked = Locked::default();
    assert_eq!(
        [locked.add("INCR a 2"), locked.add("INCR a 3"), locked.add("INCR a")],
        [Some(2), Some(5), None]
    );
}
