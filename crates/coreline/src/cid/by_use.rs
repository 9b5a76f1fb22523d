//! The law of a space that is driven by use: what is done under one ID is done by one CPU's
//! sections at a time, and those of the next CPU see it.
//!
//! Here a section runs while its CPU's lock is held, so that no two of a CPU overlap. The fence
//! waits for the section that runs on each CPU, which so comes before it. (A section that starts
//! over is as one that has not begun.) A thread that asks for an ID or scans is on no CPU: it may
//! have been moved since it read where it is.

use std::sync::Arc;

use coreline_sim::{Faults, Machine, Schedule, Sim};
use coreline_topology::{CpuId, CpuSet, Shape, Topology};
use coreline_world::model::{Checker, Model};
use coreline_world::{
    Cell, Integer, JoinHandle, Line, Native, Ordering, Placement, Testbed, Time, Word,
};

use super::hooked::Hooked;
use super::policy::{References, Sealed};
use super::{CidLayout, CidSpace, Clustered, FirstFit, Recent};
use crate::lock::RawTicketLock;

struct Scene<P: References, W: Testbed> {
    space: CidSpace<P, W>,
    /// By CPU.
    sections: Vec<Line<RawTicketLock<W>>>,
    /// By ID: 1 while a section works on its memory.
    workers: Vec<Line<W::U32>>,
    /// By ID: how many sections have worked. Plain memory: only the space orders accesses.
    memory: Vec<Line<Cell<u64, W>>>,
    /// In units of 100 ms.
    clock: W::U32,
}

impl<P, W: Testbed> Scene<P, W>
where
    P: References + Sealed<Engine<W> = Hooked<P, W>>,
{
    /// One user of a machine with this many caches.
    fn new_in(caches: u32, cores_per_cache: u32) -> Self {
        let shape = Shape { caches_per_node: caches, cores_per_cache, ..Shape::default() };
        let layout = CidLayout::new(&Topology::uniform(shape).unwrap()).unwrap();
        let ids = 0..layout.width();
        let space = CidSpace::new_in(&layout);
        space.user_enter(&CpuSet::new()).unwrap();
        Scene {
            space,
            sections: ids.clone().map(|_| Line(RawTicketLock::new_in())).collect(),
            workers: ids.clone().map(|_| Line(W::U32::new_in(0))).collect(),
            memory: ids.map(|_| Line(Cell::new_in(0))).collect(),
            clock: W::U32::new_in(1),
        }
    }

    /// Runs a section on a CPU, if the CPU has an ID. Returns whether it had one.
    fn try_section(&self, cpu: u32) -> bool {
        let section = &self.sections[cpu as usize];
        section.lock();
        let found = self.space.used_at(CpuId::new(cpu));
        let alone = found.is_none_or(|cid| self.work(cid.index()));
        // SAFETY: this thread locked it at the beginning, and has not unlocked it.
        unsafe { section.unlock() };
        assert!(alone, "two CPUs work under {found:?}");
        found.is_some()
    }

    /// The access of a section to the memory of its ID. Says whether the section was alone.
    fn work(&self, cid: usize) -> bool {
        // Relaxed: what is tested is whether the space orders sections; see `memory`.
        let others = self.workers[cid].swap(1, Ordering::Relaxed);
        // SAFETY: a section is alone with its ID's memory: that is what is tested.
        self.memory[cid].with_mut(|count| unsafe { *count += 1 });
        // Relaxed: what is tested is whether the space orders sections.
        self.workers[cid].store(0, Ordering::Relaxed);
        others == 0
    }

    fn ask(&self, cpu: u32) -> u32 {
        self.space.engine.use_at(self.space.place(CpuId::new(cpu)).unwrap()).unwrap()
    }

    fn section(&self, cpu: u32) {
        while !self.try_section(cpu) {
            self.ask(cpu);
        }
    }

    /// The next scan.
    fn scan(&self) {
        // Relaxed: a time.
        let now = self.clock.fetch_add(1, Ordering::Relaxed);
        let fence = || {
            for section in &self.sections {
                section.lock();
                // SAFETY: locked just now.
                unsafe { section.unlock() };
            }
            Ok(())
        };
        self.space
            .engine
            .expire_unused(Time::from_nanos(u64::from(now) * 100_000_000), fence)
            .unwrap();
    }

    fn sections(&self) -> u64 {
        // SAFETY: all threads have been joined.
        self.memory.iter().map(|count| count.with(|count| unsafe { *count })).sum()
    }
}

/// Threads that are on another CPU in each round, and scan.
fn law<P, W: Testbed>(threads: u32, rounds: u32)
where
    P: References + Sealed<Engine<W> = Hooked<P, W>>,
{
    let scene = Arc::new(Scene::<P, W>::new_in(2, 2));
    let live = |number: u32| {
        let scene = Arc::clone(&scene);
        move || {
            let mut dice = number;
            for _ in 0..rounds {
                dice = dice.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                if dice >> 29 < 3 {
                    scene.scan();
                }
                scene.section(dice >> 16 & 3);
            }
        }
    };
    let others = (1..threads).map(|number| W::spawn(Placement::Anywhere, live(number)).unwrap());
    let others: Vec<_> = others.collect();
    live(0)();
    others.into_iter().for_each(JoinHandle::join);
    assert_eq!(scene.sections(), u64::from(threads * rounds), "two sections lost a count");
}

fn laws<W: Testbed>(threads: u32, rounds: u32) {
    law::<FirstFit, W>(threads, rounds);
    law::<Recent, W>(threads, rounds);
    law::<Clustered, W>(threads, rounds);
}

#[test]
fn sections_share_no_id_natively() {
    laws::<Native>(4, 3000);
}

#[test]
fn sections_share_no_id_under_schedules_that_look_for_mistakes() {
    let machines = (0..400).map(|seed| {
        let depth = 1 + seed / 2 % 4;
        let schedule =
            if seed % 2 == 0 { Schedule::Random } else { Schedule::Pct { depth, steps: 2000 } };
        let faults = Faults { preempt_access: 5 * (seed % 3), ..Faults::NONE };
        let machine = Machine::preset("host-2c").unwrap().seed(seed.into()).faults(faults);
        machine.schedule(schedule).step_limit(1_000_000)
    });
    coreline_sim::search(machines, || laws::<Sim>(3, 6)).unwrap();
}

fn checker() -> Checker {
    Checker::new().preemption_bound(3).max_branches(20_000)
}

/// Two CPUs. The first one has an ID. One thread runs the first closure, and the other thread runs
/// the second.
fn race(this: fn(&Scene<FirstFit, Model>), that: fn(&Scene<FirstFit, Model>)) {
    checker().check(move || {
        // Never dropped: an execution that fails would fail again there, and abort the process.
        let scene: &Scene<FirstFit, Model> = Box::leak(Box::new(Scene::new_in(1, 2)));
        assert_eq!(scene.ask(0), 0);
        let other = <Model as coreline_world::Threads>::spawn(Placement::Anywhere, move || {
            this(scene);
        });
        that(scene);
        other.unwrap().join();
    });
}

#[test]
fn an_id_goes_to_another_cpu_after_the_last_section_in_every_interleaving() {
    race(
        |scene| scene.section(0),
        |scene| {
            (0..2).for_each(|_| scene.scan());
            scene.section(1);
        },
    );
}

#[test]
fn a_section_sees_what_was_done_under_an_id_that_was_asked_for_in_every_interleaving() {
    race(
        |scene| {
            scene.try_section(1);
        },
        |scene| {
            scene.section(0);
            (0..2).for_each(|_| scene.scan());
            assert_eq!(scene.ask(1), 0);
        },
    );
}
