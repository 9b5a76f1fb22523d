//! What becomes of the IDs of CPUs that left a domain, while others go on.

use std::sync::Arc;
use std::time::Duration;

use coreline::cid::{EXPIRY, Recent, SCAN_DELAY};
use coreline::domain::{Domain, DomainOptions, Domains, DomainsOptions};
use coreline_sim::{Machine, Sim};
use coreline_topology::CpuId;
use coreline_world::{Clock, JoinHandle, Placement, Threads, Word, Words};

/// What the CPU that stays does each time beside its operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beside {
    Nothing,
    /// Asks whether IDs are to come back.
    Expire,
    /// Enters, as a member does.
    Enter,
}

/// One CPU uses a domain once; the other does every 10 ms.
fn ids_when_one_of_two_has_left(beside: Beside) -> usize {
    let domains = Domains::<Recent, Sim>::new_in(DomainsOptions::new()).unwrap();
    let domain: Domain<Recent, Sim> = domains.domain(DomainOptions::new());
    let local = Arc::new(domain.local(|| <Sim as Words>::U64::new_in(0)).unwrap());
    let visit = |cpu| {
        let local = Arc::clone(&local);
        Sim::spawn(Placement::On(CpuId::new(cpu)), move || local.add(1)).unwrap()
    };
    // One after the other: a CPU that finds the lock held takes the shared slot, and no ID.
    [0, 1].into_iter().for_each(|cpu| visit(cpu).join());
    assert_eq!(domain.usage().ids, 2);
    let (ours, theirs) = (Arc::clone(&local), domain.clone());
    let stay = move || {
        // A member looks after 64 entries.
        let end = Sim::now() + 15 * (EXPIRY + SCAN_DELAY);
        let mut member = theirs.join();
        while Sim::now() < end {
            let inside = (beside == Beside::Enter).then(|| member.enter());
            ours.add(1);
            drop(inside);
            if beside == Beside::Expire {
                theirs.expire(Sim::now()).unwrap();
            }
            Sim::sleep(Duration::from_millis(10));
        }
    };
    Sim::spawn(Placement::On(CpuId::new(0)), stay).unwrap().join();
    domain.usage().ids
}

fn ids_that_are_left(beside: Beside) -> usize {
    let machine = Machine::preset("host-2c").unwrap().step_limit(1_000_000);
    let run = machine.run(move || ids_when_one_of_two_has_left(beside));
    run.unwrap_or_else(|failure| panic!("{failure}")).value
}

#[test]
fn the_id_of_a_cpu_that_left_comes_back_while_others_go_on() {
    assert_eq!(ids_that_are_left(Beside::Expire), 1);
    assert_eq!(ids_that_are_left(Beside::Enter), 1);
    // What finds its ID looks at no clock.
    assert_eq!(ids_that_are_left(Beside::Nothing), 2);
}
