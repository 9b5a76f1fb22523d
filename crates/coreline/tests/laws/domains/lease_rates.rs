//! How fast leases go round where they are fewer than the CPUs that lease.

use std::sync::Arc;
use std::time::Duration;

use coreline::cid::Recent;
use coreline::domain::{DomainOptions, Domains, DomainsOptions};
use coreline_sim::{Machine, Sim};
use coreline_world::{Clock, JoinHandle, Place, Placement, Threads, Work};

/// For so long each thread leases.
const WINDOW: Duration = Duration::from_millis(2);

/// For so long a thread holds a lease, and then none.
const HELD: Duration = Duration::from_micros(1);

/// By then each CPU's first lease was made and returned: that makes its ID and slots, one CPU after
/// the other.
const BEGIN: Duration = Duration::from_millis(20);

/// A thread on each of so many CPUs leases again and again: how many leases that makes in a
/// millisecond, and the longest wait for one.
fn go_round(cpus: usize, leases: usize) -> (u64, Duration) {
    let machine = Machine::preset("epyc-9654-2s").unwrap().step_limit(200_000_000);
    let program = move || {
        let domains = Domains::<Recent, Sim>::new_in(DomainsOptions::new().leases(leases)).unwrap();
        let domain = Arc::new(domains.domain(DomainOptions::new()));
        let topology = Sim::topology();
        let places = topology.cpus().map(|cpu| Placement::On(cpu.id)).take(cpus);
        let begin = Sim::now() + BEGIN;
        let threads: Vec<_> = places
            .map(|place| {
                let domain = Arc::clone(&domain);
                let live = move || {
                    drop(domain.lease_wait().unwrap());
                    assert!(Sim::now() < begin, "the first leases take longer");
                    Sim::sleep(begin - Sim::now());
                    let (mut leased, mut longest) = (0, Duration::ZERO);
                    while Sim::now() - begin < WINDOW {
                        let asked = Sim::now();
                        let lease = domain.lease_wait().unwrap();
                        longest = longest.max(Sim::now() - asked);
                        leased += u64::from(Sim::now() - begin < WINDOW);
                        Sim::work(HELD);
                        drop(lease);
                        Sim::work(HELD);
                    }
                    (leased, longest)
                };
                Sim::spawn(place, live).unwrap()
            })
            .collect();
        let ends: Vec<(u64, Duration)> = threads.into_iter().map(JoinHandle::join).collect();
        let leased: u64 = ends.iter().map(|end| end.0).sum();
        (leased / WINDOW.as_millis() as u64, ends.iter().map(|end| end.1).max().unwrap())
    };
    machine.run(program).unwrap().value
}

/// Leases go round at a third, at least, of the speed that they would have if all were always held,
/// or as many as the threads can hold.
#[test]
#[expect(clippy::print_stdout, reason = "for docs/domains.md")]
fn short_leases_go_round_on_many_simulated_cpus() {
    for (cpus, leases) in [(16, 8), (64, 32), (64, 56), (384, 192), (384, 320), (384, 16)] {
        let (rate, longest) = go_round(cpus, leases);
        println!("| {cpus} | {leases} | {rate} | {} |", longest.as_micros());
        let most = 1_000 * leases.min(cpus / 2) as u64;
        assert!(3 * rate > most, "{cpus} CPUs, {leases} leases: {rate} in 1 ms, at most {most}");
    }
}
