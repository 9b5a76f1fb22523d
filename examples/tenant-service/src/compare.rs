//! The verb `load`: stores beside each other, in turns.

use std::error::Error;
use std::fmt;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum, value_parser};
use serde::Serialize;
use tenant_service::load::{self, Load};
use tenant_service::measure::{Memory, Work, median, time};
use tenant_service::{OnDomains, OnMap, OnShards, Service, Store};
use tokio::runtime::Runtime;

use super::{PATIENCE, Shape, number};

#[derive(Args)]
pub(crate) struct Options {
    /// Which stores.
    #[arg(long, default_value = "all")]
    store: Stores,
    #[command(flatten)]
    shape: Shape,
    /// Connections, each with one request at a time.
    #[arg(long, default_value_t = 200, value_parser = number(1..=65_536))]
    concurrency: usize,
    /// How long each store is loaded, in all rounds together.
    #[arg(long, default_value_t = 10.0, value_parser = seconds)]
    seconds: f64,
    /// How often stores take turns.
    #[arg(long, default_value_t = 11, value_parser = value_parser!(u32).range(1..=10_000))]
    rounds: u32,
    /// How often the bookkeeping of a request is done in one turn.
    #[arg(long, default_value_t = 20_000)]
    times: u32,
    /// Bytes of each request's body.
    #[arg(long, default_value_t = 512, value_parser = number(0..=65_536))]
    body: usize,
    /// Says it as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Stores {
    Coreline,
    Dashmap,
    Sharded,
    All,
}

/// A time that can be waited for: up to a day.
fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if 0.0 < seconds && seconds <= 86_400.0 => Ok(seconds),
        _ => Err("expected a number of seconds above 0, up to 86400".to_owned()),
    }
}

/// Lines that are not in order, of this many bytes.
pub(crate) fn lines(bytes: usize) -> Vec<u8> {
    let text = (0..)
        .flat_map(|n: u32| format!("{:05x}\n", n.wrapping_mul(48_271) & 0xf_ffff).into_bytes());
    let mut lines: Vec<u8> = text.take(bytes).collect();
    if let Some(last) = lines.last_mut() {
        *last = b'\n';
    }
    lines
}

/// A store that is loaded and timed.
struct Candidate {
    name: &'static str,
    address: SocketAddr,
    time: Box<dyn Fn(usize, Work, u32) -> f64>,
}

impl Candidate {
    fn new<S: Store>(runtime: &Runtime, shape: Shape) -> Result<Self, Box<dyn Error>> {
        let service = Arc::new(Service::<S>::new(shape.tenants, shape.buffers, PATIENCE)?);
        let address = runtime.block_on(load::serve(service))?;
        // One for itself: the service's is counted in by requests alone.
        let store = Arc::new(S::new(shape.tenants, shape.buffers)?);
        let time = Box::new(move |tenants, work, times| time(&store, tenants, work, times));
        Ok(Candidate { name: S::NAME, address, time })
    }
}

/// What came of it.
#[derive(Serialize)]
pub(crate) struct Found {
    schema: &'static str,
    tenants: usize,
    buffers: usize,
    concurrency: usize,
    body: usize,
    rounds: u32,
    stores: Vec<OfStore>,
}

#[derive(Serialize)]
struct OfStore {
    name: &'static str,
    requests_per_second: f64,
    median_us: f64,
    p99_us: f64,
    bookkeeping: Vec<Bookkeeping>,
    memory: Memory,
}

/// Medians over the rounds.
#[derive(Serialize)]
struct Bookkeeping {
    work: Work,
    /// Of how many the tenant of each request is drawn.
    tenants: usize,
    ns: f64,
    /// Times what it takes with the last store: the median of each round's ratio.
    ratio: f64,
}

/// How often stores take turns at that in each round: time is short, so that most turns lie between
/// two of other programs on a CPU.
const TURNS: u32 = 5;

impl Options {
    pub(crate) fn run(&self, runtime: &Runtime) -> Result<Found, Box<dyn Error>> {
        let (shape, wanted) = (self.shape, |one| self.store == one || self.store == Stores::All);
        let mut candidates = Vec::new();
        if wanted(Stores::Coreline) {
            candidates.push(Candidate::new::<OnDomains>(runtime, shape)?);
        }
        if wanted(Stores::Dashmap) {
            candidates.push(Candidate::new::<OnMap>(runtime, shape)?);
        }
        if wanted(Stores::Sharded) {
            candidates.push(Candidate::new::<OnShards>(runtime, shape)?);
        }
        let rounds = self.rounds.max(1);
        let (load, span) = (self.load(), Duration::from_secs_f64(self.seconds / f64::from(rounds)));
        let mut requests = vec![[const { Vec::new() }; 3]; candidates.len()];
        for round in 0..rounds {
            for (candidate, figures) in candidates.iter().zip(&mut requests) {
                let done = load.run(candidate.address, span, round.into());
                let mut done = runtime.block_on(done)?;
                done.latencies.sort_unstable();
                let count = done.latencies.len();
                if count == 0 {
                    return Err(format!("no request in {span:?}; give more --seconds").into());
                }
                let at = |share: usize| done.latencies[(count * share / 100).min(count - 1)] as f64;
                figures[0].push(count as f64 / done.span.as_secs_f64());
                figures[1].push(at(50) / 1e3);
                figures[2].push(at(99) / 1e3);
            }
        }
        let mut bookkeeping = self.bookkeeping(&candidates);
        let mut stores = Vec::new();
        for (Candidate { name, .. }, figures) in candidates.iter().zip(requests) {
            let [requests_per_second, median_us, p99_us] = figures.map(median);
            let (bookkeeping, memory) = (bookkeeping.remove(0), self.memory(name)?);
            stores.push(OfStore {
                name,
                requests_per_second,
                median_us,
                p99_us,
                bookkeeping,
                memory,
            });
        }
        Ok(Found {
            schema: "tenant-service.load/1",
            tenants: shape.tenants,
            buffers: shape.buffers,
            concurrency: self.concurrency,
            body: self.body,
            rounds,
            stores,
        })
    }

    fn load(&self) -> Load {
        let Options { shape, concurrency, body, .. } = self;
        Load { tenants: shape.tenants, concurrency: *concurrency, lines: lines(*body).into() }
    }

    /// Of each candidate, all work; all candidates in turns.
    fn bookkeeping(&self, candidates: &[Candidate]) -> Vec<Vec<Bookkeeping>> {
        let mut of_each: Vec<Vec<_>> = candidates.iter().map(|_| Vec::new()).collect();
        for tenants in [self.shape.tenants, 1] {
            for work in Work::ALL {
                let turn =
                    |_| candidates.iter().map(|it| (it.time)(tenants, work, self.times)).collect();
                // One round more, to warm up.
                let turns: Vec<Vec<f64>> =
                    (0..=TURNS * self.rounds.max(1)).map(turn).skip(1).collect();
                for (which, figures) in of_each.iter_mut().enumerate() {
                    let ns = median(turns.iter().map(|turn| turn[which]).collect());
                    let last = candidates.len() - 1;
                    let ratio = median(turns.iter().map(|turn| turn[which] / turn[last]).collect());
                    figures.push(Bookkeeping { work, tenants, ns, ratio });
                }
            }
        }
        of_each
    }

    /// In a process of its own, so that no other store's memory is used again.
    fn memory(&self, store: &str) -> Result<Memory, Box<dyn Error>> {
        let numbers = [self.shape.tenants, self.body].map(|number| number.to_string());
        let [tenants, body] = &numbers;
        let arguments = ["memory", "--store", store, "--tenants", tenants, "--body", body];
        let output = Command::new(std::env::current_exe()?).args(arguments).output()?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into());
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Found { tenants, buffers, concurrency, body, rounds, stores, .. } = self;
        writeln!(f, "{tenants} tenants with {buffers} buffers each; {concurrency} connections;")?;
        writeln!(f, "bodies of {body} bytes; medians of {rounds} rounds\n")?;
        writeln!(f, "{:<10}{:>12}{:>12}{:>12}", "", "requests/s", "median, us", "99 %, us")?;
        for it in stores {
            let OfStore { name, requests_per_second, median_us, p99_us, .. } = it;
            writeln!(f, "{name:<10}{requests_per_second:>12.0}{median_us:>12.0}{p99_us:>12.0}")?;
        }
        writeln!(f, "\nthe bookkeeping of a request alone, in ns, and times the last")?;
        let what = ["1 counter", "4 counters", "a buffer", "all of it"];
        let of = |tenants| format!("of {tenants} tenants");
        for (part, of) in [of(tenants), "of one tenant".to_owned()].into_iter().enumerate() {
            let [one, four, buffer, all] = what;
            writeln!(f, "{of:<18}{one:>15}{four:>15}{buffer:>15}{all:>15}")?;
            for OfStore { name, bookkeeping, .. } in stores {
                write!(f, "  {name:<16}")?;
                for Bookkeeping { ns, ratio, .. } in
                    bookkeeping.chunks(Work::ALL.len()).nth(part).unwrap_or(&[])
                {
                    write!(f, "{ns:>8.1}{:>7}", format!("({ratio:.2})"))?;
                }
                writeln!(f)?;
            }
        }
        writeln!(f, "\nbytes of a tenant, after every CPU has counted; and has had a buffer")?;
        let [heap, resident, stated] = ["heap", "resident", "by itself"];
        let head = format!("{heap:>10}{resident:>10}{stated:>11}");
        writeln!(f, "{:<10}{head}  {head}", "")?;
        let stated = |it: Option<f64>| it.map_or("-".to_owned(), |bytes| format!("{bytes:.0}"));
        for OfStore { name, memory, .. } in stores {
            let Memory { heap, resident, .. } = memory;
            let (more, all) = (memory.heap_with_buffers, memory.resident_with_buffers);
            let [first, then] = [memory.stated, memory.stated_with_buffers].map(stated);
            write!(f, "{name:<10}{heap:>10.0}{resident:>10.0}{first:>11}")?;
            writeln!(f, "{more:>12.0}{all:>10.0}{then:>11}")?;
        }
        Ok(())
    }
}
