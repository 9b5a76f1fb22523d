//! Accesses: the steps between a simulated instruction and its line.
//!
//! A miss is two messages. The request travels to the line's home. Until it arrives, the owner
//! keeps hitting the line. Then the line travels to the requesting core. The share of request
//! flight in the whole is not known for real machines, and is a parameter of the run.
//!
//! ```text
//! issue ──request──▶ arrival ──wait for a turn──▶ start ──response──▶ completion
//! (may be preempted)                       the directory decides the source;
//!                                          the value is read or written here
//! ```
//!
//! Requests that find the line busy wait there, and [`Arbitration`](crate::Arbitration) chooses the
//! next one. A line that is fetched to be written is busy for later requests from start until one
//! flight after completion. A reader occupies the home only for `costs.directory`, because copies
//! overlap.
//!
//! From issue to completion the thread cannot be preempted: an instruction completes or has not
//! begun. The caller of [`access`] reads or writes the value right after it returns, at `start` in
//! the order of all accesses to the line, with its CPU's time already at completion.
//!
//! A plain store waits for none of this: see [`stores`]. Accesses of one thread may [`overlap`].

pub(super) mod overlap;
pub(super) mod pages;
pub(super) mod pass;
pub(super) mod stores;
mod turns;

use core::panic::Location;

use coreline_topology::NodeId;
use coreline_world::Time;
use coreline_world::native::image::{self, InImage};
use corosensei::Yielder;

use crate::engine::kernel::points::{Hold, held_up};
use crate::engine::kernel::{faults, interrupts};
use crate::engine::memory::overlap::NO_STORE;
use crate::engine::{
    Cpu, Engine, NEVER, STACK, State, Thread, inside, stop, suspend, switch_away, with,
};
use crate::hardware::coherence::{Access, Origin};
use crate::hardware::contention::{Actor, StoreNumber};
use crate::results::failure::{FailureKind, Foreign};
use crate::results::report::{Site, SourceSite};
use crate::results::statistics::Activity;
use crate::results::tape::Record;

/// Bytes of a line.
pub(crate) const LINE: usize = 64;

/// The first line number of the coroutines' stacks; the arena's lines lie below.
const FIRST_STACK_LINE: u64 = 1 << 32;

/// Line numbers for each stack: more than its lines, whatever the host's page.
const LINES_OF_A_STACK: u64 = 1 << 13;

/// One access to one line.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct Request {
    /// The word's address.
    pub(in crate::engine) word: usize,
    pub(in crate::engine) access: Access,
    pub(in crate::engine) site: Site,
    /// The line's index in the directory.
    pub(in crate::engine) line: usize,
    /// The number of the latest store in any buffer that was there when this began; a buffered
    /// store's own.
    pub(in crate::engine) since: StoreNumber,
    pub(in crate::engine) issued: u64,
    pub(in crate::engine) arrived: u64,
}

/// How far an access has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) enum Stage {
    /// Not begun; or begun, and waits for its page or for its CPU's store buffer.
    Issue,
    /// Begun, and about to send its request. Before that, it has waited for a store of another CPU
    /// that was on its way to the word, if there was one.
    Send,
    /// On its way to the line's home.
    Requested,
    /// There, waiting for its turn.
    Waiting,
}

/// How far an access, or a pass, got without others.
pub(in crate::engine) enum Progress {
    Done,
    /// Done, and the caller has to do something about this store: see [`access`].
    Beside(StoreNumber),
    /// Others come first: the thread gives the host thread back, by this way out.
    Away(*const Yielder<(), ()>),
    /// Not begun: the kernel, a fault or others come first.
    HeldUp(Hold),
}

/// Charges for one access to the word at `address`, and returns when it takes effect.
///
/// Returns the number of a store under way, if the caller has to do something about it. For a
/// store it is its own: the caller [keeps](stores::keep_before) what the word holds. For a read, it
/// is the store [before which](stores::before) the read takes effect, or [`NO_STORE`] if the caller
/// only has to say what it [found](overlap::found).
///
/// Outside of a machine it does nothing: the word is then ordinary memory.
#[track_caller]
#[inline]
pub(crate) fn access(address: usize, access: Access) -> Option<StoreNumber> {
    access_at(address, access, Location::caller())
}

/// The result of the attempt to make an access immediately.
enum Attempt {
    Done,
    HeldUp(Hold),
    /// It has begun, and asks others.
    Begun,
    /// The machine does not know the memory.
    Unknown,
}

/// Like [`access`], of this place in the source.
pub(crate) fn access_at(word: usize, access: Access, site: Site) -> Option<StoreNumber> {
    let mut is_watched = false;
    loop {
        let mut request = Request { word, access, site, line: 0, since: 0, issued: 0, arrived: 0 };
        match with(|engine| engine.attempt(&mut request)) {
            None | Some(Attempt::Done) => return None,
            Some(Attempt::HeldUp(hold)) => {
                // A machine that looks at accesses stops at each: no access pays for it elsewhere.
                match hold {
                    Hold::Point => {
                        is_watched = true;
                        faults::visit_point(Some((word, access, site)));
                    }
                    hold => held_up(hold),
                }
                if is_watched && !inside(|engine| engine.watch(&request)) {
                    stop();
                }
            }
            Some(Attempt::Unknown) => unregistered(word, site),
            Some(Attempt::Begun) => return access_slowly(request),
        }
    }
}

/// An access that has begun and needs a request. Out of line, so that other accesses have a small
/// frame: where many threads take turns, stacks are not in the host's nearest cache.
#[inline(never)]
fn access_slowly(mut request: Request) -> Option<StoreNumber> {
    let (mut stage, mut begun) = (Stage::Issue, true);
    until_through(|engine| match std::mem::take(&mut begun) {
        true => engine.proceed_slowly(&mut request, &mut stage),
        false => engine.proceed(&mut request, &mut stage),
    })
}

/// Takes an access on until it is complete, and lets others run in between. Does nothing outside of
/// a machine.
#[inline]
pub(in crate::engine) fn until_through(
    mut proceed: impl FnMut(&mut Engine) -> Progress,
) -> Option<StoreNumber> {
    loop {
        match with(&mut proceed) {
            None | Some(Progress::Done) => return None,
            Some(Progress::Beside(store)) => return Some(store),
            Some(Progress::Away(yielder)) => switch_away(yielder),
            Some(Progress::HeldUp(hold)) => held_up(hold),
        }
    }
}

/// Decides which node the untouched lines of a range come from. Takes no time.
pub(crate) fn set_home(address: usize, len: usize, node: Option<NodeId>) {
    let lines = (address % LINE + len).div_ceil(LINE) as u64;
    // Outside of a machine, and of its memory, nothing has a home.
    with(|engine| {
        if let Some(first) = engine.line_of(address) {
            engine.directory.set_home(first, lines, node);
        }
    });
}

/// Spins until the line of `address` is written, or the deadline comes. False outside of a machine,
/// where it cannot wait.
#[track_caller]
pub(crate) fn await_write(address: usize, deadline: Option<Time>) -> bool {
    let waited = watch(address, deadline);
    if waited {
        interrupts::deliver();
    }
    waited
}

/// Whether a thread that spins finds that the deadline has come. Only the look at the clock that
/// says so is charged. The thread's other looks are part of the spinning.
///
/// # Panics
///
/// With a deadline, outside of a simulated machine.
pub(crate) fn is_over(deadline: Option<Time>) -> bool {
    let Some(deadline) = deadline else { return false };
    inside(|engine| {
        let over = engine.now() >= deadline;
        if over {
            engine.spend_computing(engine.spec.costs().clock);
        }
        over
    })
}

/// Like [`await_write`], but leaves what ended the wait to the caller.
#[track_caller]
pub(in crate::engine) fn watch(address: usize, deadline: Option<Time>) -> bool {
    let site = Location::caller();
    let Some(Some(line)) = with(|engine| engine.line_of(address)) else {
        return false;
    };
    inside(|engine| {
        engine.settle_here();
        engine.waits_at(site);
        let line = engine.directory.intern(line);
        engine.stops_spinning();
        let current = engine.current();
        engine.directory.contention_mut(line).watchers.push(current);
        engine.threads[current].state = State::Spinning { line };
        engine.set_timer(current, deadline.map(crate::engine::picoseconds));
    });
    suspend();
    true
}

/// Rests until the line of `address` is written or an interrupt arrives.
#[track_caller]
pub(crate) fn monitor(address: usize) {
    let monitoring = |on| {
        inside(|engine| {
            let current = engine.current();
            engine.threads[current].monitoring = on;
            let cpu = engine.cpu().index();
            engine.update_kernel_event(cpu);
        });
    };
    monitoring(true);
    watch(address, None);
    // Before the handler runs, which nothing interrupts.
    monitoring(false);
    interrupts::deliver();
    inside(|engine| engine.spend(engine.spec.costs().mwait_exit));
    interrupts::deliver();
}

/// Stops the machine because of the running thread's last access.
pub(in crate::engine) fn unregistered(address: usize, site: Site) -> ! {
    inside(|engine| engine.fail_unregistered(address, site));
    stop()
}

/// The position of a line of a stack among its lines, the highest first; an address elsewhere is
/// beyond.
#[inline]
fn stack_line(base: usize, address: usize) -> usize {
    base.wrapping_sub(address).wrapping_sub(1) / LINE
}

/// The thread on whose stack a line is, by the number that [`line_of`](Engine::line_of) gave it.
pub(in crate::engine) fn stack_of(line: u64) -> Option<usize> {
    Some((line.checked_sub(FIRST_STACK_LINE)? / LINES_OF_A_STACK) as usize)
}

impl Engine {
    /// The number of the line of an address; `None` if the machine does not know the memory.
    pub(in crate::engine) fn line_of(&self, address: usize) -> Option<u64> {
        if let Some(offset) = self.arena.offset(address) {
            return Some(offset / LINE as u64);
        }
        let (&limit, &(base, number)) = self.stacks.range(..=address).next_back()?;
        (address < base).then(|| {
            // Stacks are whole pages, so a line is never of two.
            let line = ((address - limit) / LINE) as u64;
            debug_assert!(line < LINES_OF_A_STACK, "{line} is the next stack's");
            FIRST_STACK_LINE + number as u64 * LINES_OF_A_STACK + line
        })
    }

    /// The index of the line of an address in the directory.
    #[inline(always)]
    fn line_index(&mut self, address: usize) -> Option<usize> {
        if let Some(offset) = self.arena.offset(address)
            && let Some(index) = self.directory.index(offset as usize / LINE)
        {
            return Some(index);
        }
        // Much of what a thread touches lies on its own stack.
        let current = self.current();
        let Thread { stack_base, ref stack_lines, .. } = self.threads[current];
        match stack_lines.get(stack_line(stack_base, address)) {
            Some(&index) if index != 0 => Some(index as usize - 1),
            _ => self.new_line(address),
        }
    }

    /// Like [`line_index`](Engine::line_index), for a line that the fast path does not find.
    #[inline(never)]
    fn new_line(&mut self, address: usize) -> Option<usize> {
        let line = self.line_of(address)?;
        let index = self.directory.intern(line);
        let current = self.current();
        let thread = &mut self.threads[current];
        if (thread.stack_base - STACK..thread.stack_base).contains(&address) {
            let in_stack = stack_line(thread.stack_base, address);
            if thread.stack_lines.len() <= in_stack {
                thread.stack_lines.resize(in_stack + 1, 0);
            }
            thread.stack_lines[in_stack] = index as u32 + 1;
        }
        Some(index)
    }

    /// Whether at most `most` stores are in the running CPU's buffer; if not, its thread waits for
    /// that from now on, when its other accesses are complete.
    pub(in crate::engine) fn drain_or_wait(&mut self, most: usize) -> bool {
        if self.here().buffered as usize <= most {
            return true;
        }
        self.settle_here();
        let current = self.current();
        self.threads[current].state = State::Draining { most };
        false
    }

    fn fail_unregistered(&mut self, address: usize, site: Site) {
        let (thread, cpu) = (self.current(), self.cpu());
        let memory = match image::find(address) {
            Some(InImage { image, offset }) => Foreign::Static { image, offset },
            None if self.arena.is_full() => Foreign::Exhausted,
            None => Foreign::Host,
        };
        self.fail(FailureKind::Unregistered { thread, cpu, site: SourceSite::of(site), memory });
    }

    /// Makes an access, if the thread may go on and no request is needed.
    #[inline(always)]
    fn attempt(&mut self, request: &mut Request) -> Attempt {
        if let Err(hold) = self.may_go_on() {
            return Attempt::HeldUp(hold);
        }
        let cpu = self.cpu().index();
        let Some(line) = self.line_index(request.word) else {
            return Attempt::Unknown;
        };
        request.line = line;
        if self.serve_if_hit(cpu, request) { Attempt::Done } else { Attempt::Begun }
    }

    /// Looks at an access that is attempted next. Whether it may be made.
    #[cold]
    fn watch(&mut self, request: &Request) -> bool {
        let current = self.current();
        self.threads[current].seen = Some(request.site);
        if request.access.writes() {
            self.note_write(request.word);
        }
        self.blocks.is_none() || self.may_access(request.word, request.site)
    }

    /// Takes an access, whose line is known, as far as it gets without others.
    fn proceed(&mut self, request: &mut Request, stage: &mut Stage) -> Progress {
        if *stage == Stage::Issue {
            if let Err(hold) = self.may_go_on() {
                return Progress::HeldUp(hold);
            }
            if self.serve_if_hit(self.cpu().index(), request) {
                return Progress::Done;
            }
        }
        self.proceed_slowly(request, stage)
    }

    /// Serves an access immediately, if it needs no request and no other is at the line.
    #[inline(always)]
    pub(in crate::engine) fn serve_if_hit(&mut self, cpu: usize, request: &Request) -> bool {
        let access = request.access;
        let Cpu { core, now, buffered, .. } = self.cpus[cpu];
        let ordered = buffered == 0 || matches!(access, Access::Load | Access::Own);
        if !ordered
            || !self.directory.has(request.line, core, access, now)
            || self.foreign_store(cpu, request).is_some()
        {
            return false;
        }
        if self.hits_differ {
            return self.differing_hit(cpu, request);
        }
        self.serve_hit(cpu, request, self.spec.costs().private_hit);
        true
    }

    /// Serves a hit on a machine whose hits differ, unless the page comes first. Out of line, so
    /// that the hits of all others are short.
    #[inline(never)]
    fn differing_hit(&mut self, cpu: usize, request: &Request) -> bool {
        let &Request { line, access, .. } = request;
        if self.overlaps.is_some() || (access.writes() && self.is_unwritten(line)) {
            return false;
        }
        let read = match access {
            Access::Store => self.spec.costs().private_hit,
            _ => self.directory.read_hit(line, cpu as u32, access.writes()),
        };
        if access.writes() {
            self.directory.set_writer(line, Some(cpu as u32));
        }
        self.serve_hit(cpu, request, read);
        true
    }

    /// Charges for a hit, where reading costs `read`.
    #[inline(always)]
    fn serve_hit(&mut self, cpu: usize, request: &Request, read: u64) {
        let &Request { line, access, .. } = request;
        let costs = self.spec.costs();
        let cost = match access {
            Access::Load | Access::Own => read,
            Access::Store => costs.store_issue,
            Access::Update => read + costs.locked,
        };
        // Nothing ever went on at most lines, and nothing below looks at these again.
        let is_contended = self.directory.contention(line).is_some();
        self.count_hit(cpu, request, cost);
        let place = &mut self.cpus[cpu];
        place.now += cost;
        let (core, end) = (place.core, place.now);
        self.account(cpu, Activity::Hit, cost);
        if is_contended || access.writes() {
            self.directory.used(line, core, access.writes(), end);
        }
        if is_contended && access.writes() {
            self.wake_watchers(line, end);
        }
    }

    /// Notes an access that the core's own cache served.
    #[inline]
    pub(in crate::engine) fn count_hit(&mut self, cpu: usize, request: &Request, time: u64) {
        self.report.transfers.count(Origin::Private);
        if let Some(ledger) = &mut self.ledger {
            let &Request { line, site, word, access, .. } = request;
            let (core, how) = (self.cpus[cpu].core, (Origin::Private, access.writes()));
            ledger.access(core, (line, site, word), how, 0, time);
            let now = self.cpus[cpu].now;
            self.put_down(cpu, request, now);
        }
    }

    /// Puts an access on the tape, if there is one.
    pub(in crate::engine) fn put_down(&mut self, cpu: usize, request: &Request, at: u64) {
        if self.observation.is_some() {
            let &Request { word, access, site, .. } = request;
            // A store that was in a buffer was seen when it went there.
            if access != Access::Store || self.cpus[cpu].buffered == 0 {
                self.observe_access(cpu, word, access != Access::Load, site);
            }
        }
        let Some(tape) = self.ledger.as_ref().and_then(|ledger| ledger.tape.as_ref()) else {
            return;
        };
        let line = self.directory.name(request.line) * LINE as u64;
        let address = line + (request.word % LINE) as u64;
        // A store may leave its buffer when no thread has the CPU: then it is the first's.
        let thread = self.cpus[cpu].current.unwrap_or(0) as u32;
        tape.borrow_mut().push(Record { site: request.site, address, cpu: cpu as u32, thread, at });
    }

    /// The store of another CPU, still on its way, whose value an access would read.
    #[inline]
    fn foreign_store(&self, cpu: usize, request: &Request) -> Option<StoreNumber> {
        let contention = self.directory.contention(request.line)?;
        let reads = matches!(request.access, Access::Load | Access::Update);
        if reads { contention.foreign_store(request.word, cpu) } else { None }
    }

    /// Whether a load is served by the CPU's own store buffer.
    fn forwards(&self, cpu: usize, request: &Request) -> bool {
        let contention = self.directory.contention(request.line);
        contention.is_some_and(|contention| contention.forwards(request.word, cpu))
    }

    /// Like [`proceed`](Engine::proceed), for an access that misses.
    #[inline(never)]
    fn proceed_slowly(&mut self, request: &mut Request, stage: &mut Stage) -> Progress {
        let cpu = self.cpu().index();
        let core = self.cpus[cpu].core;
        loop {
            match *stage {
                Stage::Issue => {
                    if self.overlaps.is_some()
                        && let Some(progress) = self.begin_overlapped(cpu, request)
                    {
                        return progress;
                    }
                    let reached = self.reach_page(cpu, request);
                    if reached > 0 {
                        self.settle(cpu);
                        self.spend_on(Activity::Miss, reached);
                        if let Err(hold) = self.may_go_on() {
                            return Progress::HeldUp(hold);
                        }
                        continue;
                    }
                    match request.access {
                        Access::Load if self.forwards(cpu, request) => {
                            let cost = self.spec.costs().private_hit;
                            self.count_hit(cpu, request, cost);
                            self.spend_on(Activity::Hit, cost);
                            return Progress::Done;
                        }
                        Access::Update if !self.drain_or_wait(0) => {
                            return Progress::Away(self.yielder);
                        }
                        // Where a chooser picks the thread that runs next, an access is one step:
                        // there is no time in which a store could be under way.
                        Access::Store if self.chooser.is_some() => request.access = Access::Own,
                        Access::Store => {
                            let most = self.spec.costs().store_queue as usize - 1;
                            if !self.drain_or_wait(most) {
                                return Progress::Away(self.yielder);
                            }
                            return Progress::Beside(self.buffer_store(*request));
                        }
                        _ => {}
                    }
                    *stage = Stage::Send;
                    request.since = self.buffered;
                    if let Some(store) = self.foreign_store(cpu, request) {
                        self.settle(cpu);
                        self.directory.contention_mut(request.line).wait_behind(store, cpu);
                        self.set_state(cpu, State::Waiting { turn: NEVER });
                        return Progress::Away(self.yielder);
                    }
                }
                Stage::Send => {
                    let (now, node) = (self.cpus[cpu].now, self.cpus[cpu].node);
                    if now > self.horizon {
                        return Progress::Away(self.yielder);
                    }
                    let source = self.directory.request_to(
                        request.line,
                        (core, node),
                        request.access,
                        self.arbitration,
                    );
                    let flight = source.cost * self.request_percent / 100;
                    (request.issued, request.arrived) = self.sets_out(cpu, flight);
                    self.set_state(cpu, State::Accessing);
                    self.spend_on(Activity::Miss, request.arrived - now);
                    *stage = Stage::Requested;
                }
                Stage::Requested => {
                    let now = self.cpus[cpu].now;
                    if now > self.horizon {
                        return Progress::Away(self.yielder);
                    }
                    *stage = Stage::Waiting;
                    if !self.arrive(request.line, Actor::Thread(cpu), core, now) {
                        return Progress::Away(self.yielder);
                    }
                    return self.served(cpu, request, now);
                }
                Stage::Waiting => {
                    let Some(turn) = self.claim_turn(request.line, cpu) else {
                        return Progress::Away(self.yielder);
                    };
                    return self.served(cpu, request, turn);
                }
            }
        }
    }

    /// A thread's request is served from `start` on: charges for the wait and for the transfer.
    fn served(&mut self, cpu: usize, request: &Request, start: u64) -> Progress {
        let completion = self.serve(cpu, request, start, true);
        self.account(cpu, Activity::Queue, start - request.arrived);
        let goes_on = self.goes_on(cpu, request.issued, start, completion);
        if !goes_on {
            self.account(cpu, Activity::Miss, completion - start);
            self.cpus[cpu].now = completion;
        }
        self.set_state(cpu, State::Running);
        let beside = self.overtaken(cpu, request).or(goes_on.then_some(NO_STORE));
        beside.map_or(Progress::Done, Progress::Beside)
    }
}
