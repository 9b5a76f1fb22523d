//! The account of the program's blocks, and mistakes with memory.
//!
//! The arena calls a [`Keeper`] at each allocation and free of a machine that checks memory, and at
//! a mistake of any machine. The keeper decides which freed block is given out again: in most runs
//! each waits in a *quarantine* first, in which no thread has it, so that an access to it is told
//! from one to a new block. In the other runs it is given out immediately, as a real allocator
//! does, so that a program that relies on an address being new fails.
//!
//! A place in the source is known of accesses alone. So a block's account has the place of its
//! thread's last access before, or a backtrace if the machine traces. A mistake that ends the run
//! has a backtrace in any case. Backtraces are resolved when the machine has stopped, on the stack
//! of the host thread.

use core::hash::{BuildHasherDefault, Hasher};
use core::ptr;
use std::backtrace::Backtrace;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use coreline_topology::CpuId;

use super::rng::Rng;
use super::{Engine, inside, lately, stop};
use crate::hardware::shadow::{self, Found, Keeper, Wrong};
use crate::results::failure::FailureKind;
use crate::results::memory::{MemoryBlock, MemoryMistake, MemoryUse, Misuse};
use crate::results::report::{Site, SourceSite};
use crate::settings::memory::MemoryChecks;

/// The maximum number of bytes in a quarantine.
const ROOM: usize = 4 << 20;

/// As many blocks.
const BLOCKS: u64 = 1024;

/// The functions that each machine's arena calls.
pub(super) static KEEPER: Keeper = Keeper { reuse, made, freed, mistaken };

fn reuse(class: usize, align: usize) -> Option<usize> {
    let spoilt = inside(|engine| engine.reuse(class, align));
    spoilt.unwrap_or_else(|()| stop())
}

fn made(block: usize, size: usize, class: usize, room: usize) {
    inside(|engine| engine.made(block, size, class, room));
}

fn freed(block: usize, size: usize) {
    if inside(|engine| engine.freed(block, size)).is_err() {
        stop();
    }
}

fn mistaken(block: usize, wrong: Wrong) -> ! {
    inside(|engine| {
        let misuse = match wrong {
            Wrong::Twice => Misuse::DoubleFree,
            Wrong::Nothing => Misuse::InvalidFree { on_stack: false },
            Wrong::Stack => Misuse::InvalidFree { on_stack: true },
        };
        engine.fail_memory(misuse, Some(block), None);
    });
    stop()
}

/// Spreads the numbers of blocks over a table. The order of the table reaches no result.
#[derive(Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_usize(byte.into()));
    }

    fn write_usize(&mut self, number: usize) {
        self.0 = (self.0 ^ number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// An allocation or a free.
#[derive(Clone)]
struct Event {
    thread: usize,
    cpu: u32,
    /// The source location of the thread's last access.
    site: Option<Site>,
    trace: Option<Rc<Backtrace>>,
}

#[derive(Clone)]
struct Block {
    /// The size that the program asked for.
    size: usize,
    class: usize,
    /// The size that it takes.
    room: usize,
    made: Event,
    freed: Option<Event>,
    /// Whether something leads to it that lasts as long as the run.
    is_kept: bool,
}

/// The account of a machine that checks memory.
pub(super) struct Blocks {
    checks: MemoryChecks,
    /// By address.
    known: HashMap<usize, Block, BuildHasherDefault<Spread>>,
    /// The freed blocks that may be given out again, by class.
    free: Vec<Vec<usize>>,
    /// Freed blocks that may not yet, and how many bytes they have.
    quarantine: VecDeque<usize>,
    bytes: usize,
    /// How many blocks the quarantine holds.
    most: usize,
}

impl Blocks {
    pub(super) fn new(checks: MemoryChecks, rng: &mut Rng) -> Option<Blocks> {
        if checks == MemoryChecks::Off {
            return None;
        }
        let most = match rng.below(4) {
            0 => 0,
            _ => 1 + rng.below(BLOCKS) as usize,
        };
        let (known, free, quarantine) = Default::default();
        Some(Blocks { checks, known, free, quarantine, bytes: 0, most })
    }

    fn event(&self, thread: usize, cpu: u32, site: Option<Site>) -> Event {
        let is_traced = self.checks == MemoryChecks::Traced;
        let trace = is_traced.then(|| Rc::new(Backtrace::force_capture()));
        Event { thread, cpu, site, trace }
    }
}

/// A mistake whose places are not resolved yet.
pub(super) struct Unresolved {
    misuse: Misuse,
    by: Option<Event>,
    is_access: bool,
    block: Option<(usize, Block)>,
}

impl Unresolved {
    /// The mistake, with the places of backtraces if `resolves`: that takes a large stack.
    pub(super) fn mistake(&self, resolves: bool) -> MemoryMistake {
        let by = self.by.as_ref().map(|by| {
            let by = by.place(resolves);
            MemoryUse { is_exact: by.is_exact || self.is_access, ..by }
        });
        let block = self.block.as_ref().map(|(offset, block)| MemoryBlock {
            offset: *offset as u64,
            size: block.size,
            allocated: block.made.place(resolves),
            freed: block.freed.as_ref().map(|freed| freed.place(resolves)),
        });
        MemoryMistake { misuse: self.misuse.clone(), by, block }
    }
}

impl Event {
    fn place(&self, resolves: bool) -> MemoryUse {
        let trace = self.trace.as_ref().filter(|_| resolves);
        let exact = trace.and_then(|trace| user_site(&trace.to_string()));
        let (thread, cpu, is_exact) = (self.thread, CpuId::new(self.cpu), exact.is_some());
        let site = exact.or_else(|| self.site.map(SourceSite::of));
        MemoryUse { thread, cpu, site, is_exact }
    }
}

/// This package's source, as the compiler named it, and where that is.
const OWN: [&str; 2] = [file!(), concat!(env!("CARGO_MANIFEST_DIR"), "/src/engine/blocks.rs")];

/// The first place in a printed backtrace that is neither in std nor in this package.
pub(super) fn user_site(trace: &str) -> Option<SourceSite> {
    let here = std::env::current_dir().unwrap_or_default();
    let own = OWN.map(|file| file.strip_suffix("engine/blocks.rs").unwrap_or(file));
    let is_users = |place: &str| {
        // A backtrace names a file below the current folder from there on.
        let place = place.strip_prefix("./").map_or(place.into(), |rest| here.join(rest));
        let place = place.to_string_lossy();
        let foreign =
            ["/rustc/", "/library/", "corosensei", "/src/native/looks.rs", own[0], own[1]];
        !foreign.iter().any(|part| place.contains(part))
    };
    let mut symbol = "";
    let mut places = trace.lines().filter_map(|line| match line.trim_start().strip_prefix("at ") {
        // A call into the global allocator has the place of that allocator's `static`.
        Some(place) => Some(place).filter(|_| !symbol.contains(": __rust")),
        None => {
            symbol = line;
            None
        }
    });
    let place = places.find(|place| place.contains(".rs:") && is_users(place))?;
    let (file, position) = place.split_once(".rs:")?;
    let line = position.split(':').next()?.parse().ok()?;
    Some(SourceSite::named(&format!("{file}.rs"), line))
}

impl Engine {
    /// An allocation or free of the running thread.
    fn event(&self) -> Option<Event> {
        let current = self.current();
        let site = self.threads[current].seen;
        Some(self.blocks.as_ref()?.event(current, self.cpu().get(), site))
    }

    /// A block of a class that may be given out again. An error if it was written since it was
    /// freed.
    fn reuse(&mut self, class: usize, align: usize) -> Result<Option<usize>, ()> {
        let Some(blocks) = &mut self.blocks else { return Ok(None) };
        let Some(list) = blocks.free.get_mut(class) else { return Ok(None) };
        let Some(block) = list.pop_if(|block| block.is_multiple_of(align)) else { return Ok(None) };
        self.look_at_poison(block)?;
        Ok(Some(block))
    }

    fn look_at_poison(&mut self, block: usize) -> Result<(), ()> {
        let size = self.blocks.as_ref().and_then(|blocks| blocks.known.get(&block));
        let size = size.map_or(0, |block| block.size);
        // SAFETY: a freed block of this size, which lies in the arena and no thread has.
        let spoilt = unsafe { shadow::spoilt(self.arena.pointer(block), size) };
        let Some(offset) = spoilt else { return Ok(()) };
        self.fail_memory(Misuse::WrittenAfterFree { offset }, Some(block), None);
        Err(())
    }

    fn made(&mut self, block: usize, size: usize, class: usize, room: usize) {
        let made = self.event();
        if let (Some(blocks), Some(made)) = (&mut self.blocks, made) {
            blocks
                .known
                .insert(block, Block { size, class, room, made, freed: None, is_kept: false });
        }
    }

    /// A block was given back.
    fn freed(&mut self, address: usize, size: usize) -> Result<(), ()> {
        let event = self.event();
        let Some(blocks) = &mut self.blocks else { return Ok(()) };
        let Some(block) = blocks.known.get_mut(&address) else { return Ok(()) };
        if block.size != size {
            self.fail_memory(Misuse::WrongSize { freed: size }, Some(address), None);
            return Err(());
        }
        block.freed = event;
        self.arena.shadow().take_all(self.arena.to_offset(address), block.room);
        // SAFETY: the block has this size, and its owner has given it up.
        unsafe { shadow::poison(self.arena.pointer(address), size) };
        blocks.quarantine.push_back(address);
        blocks.bytes += size;
        while blocks.quarantine.len() > blocks.most || blocks.bytes > ROOM {
            let Some(oldest) = blocks.quarantine.pop_front() else { break };
            let Some(block) = blocks.known.get(&oldest) else { continue };
            blocks.bytes -= block.size;
            if blocks.free.len() <= block.class {
                blocks.free.resize(block.class + 1, Vec::new());
            }
            blocks.free[block.class].push(oldest);
        }
        Ok(())
    }

    /// Whether an access is to a block that is in use. Otherwise the machine fails.
    pub(super) fn may_access(&mut self, address: usize, site: Site) -> bool {
        let Some(offset) = self.arena.offset(address) else { return true };
        let shadow = self.arena.shadow();
        let found = shadow.find(offset as usize);
        if found == Found::Live {
            return true;
        }
        let block = self.arena.block(offset as usize);
        let offset = block.map_or(0, |block| address - block);
        let misuse = match found {
            Found::Freed => Misuse::UseAfterFree { offset },
            _ => Misuse::OutOfBounds { offset },
        };
        self.fail_memory(misuse, block, Some(site));
        false
    }

    /// Like [`may_access`](Engine::may_access), of a range.
    pub(super) fn may_access_all(&mut self, address: usize, len: usize, site: Site) -> bool {
        let mut steps = (address..address + len).step_by(16).chain([address + len - 1]);
        self.blocks.is_none() || len == 0 || steps.all(|address| self.may_access(address, site))
    }

    /// Stops the machine because of a mistake with a block. `site` is the place of an access.
    pub(super) fn fail_memory(&mut self, misuse: Misuse, block: Option<usize>, site: Option<Site>) {
        let (thread, cpu) = (self.current(), self.cpu().get());
        let trace = site.is_none().then(|| Rc::new(Backtrace::force_capture()));
        let seen = self.threads[thread].seen;
        let by = Event { thread, cpu, site: site.or(seen), trace };
        self.fail_by_mistake(misuse, Some(by), block, site.is_some());
    }

    /// Stops the machine because of a mistake of the running thread, on a small stack.
    pub(super) fn fail_without_trace(&mut self, misuse: Misuse) {
        let (thread, cpu) = (self.current(), self.cpu().get());
        let by = Event { thread, cpu, site: self.threads[thread].seen, trace: None };
        self.fail_by_mistake(misuse, Some(by), None, false);
    }

    fn fail_by_mistake(
        &mut self,
        misuse: Misuse,
        by: Option<Event>,
        block: Option<usize>,
        is_access: bool,
    ) {
        if self.failure.is_some() {
            return;
        }
        let block = block.and_then(|address| {
            let block = self.blocks.as_ref()?.known.get(&address)?.clone();
            Some((self.arena.to_offset(address), block))
        });
        let mistake = Unresolved { misuse, by, is_access, block };
        self.fail(FailureKind::Memory(Box::new(mistake.mistake(false))));
        self.mistake = Some(mistake);
    }

    /// The machine has stopped: the places of the mistake that stopped it, if one did.
    pub(super) fn resolve_mistake(&mut self) {
        if let (Some(FailureKind::Memory(kind)), Some(mistake)) =
            (&mut self.failure, self.mistake.take())
        {
            **kind = mistake.mistake(true);
        }
    }

    /// A block to which statics lead stays until the end, and is not lost.
    pub(super) fn keep_what_statics_have(&mut self) {
        let objects = self.statics.iter().map(|(_, object)| {
            let object = &**object;
            (ptr::from_ref(object).addr(), size_of_val(object))
        });
        let roots = objects.collect();
        self.keep_reachable(roots);
    }

    /// The program has ended. Fails if blocks are left that are reachable neither from statics nor
    /// from the memory `kept`, which has the run's value.
    pub(super) fn fail_if_blocks_leak(&mut self, kept: (usize, usize)) {
        self.keep_reachable(vec![kept]);
        let Some(blocks) = &self.blocks else { return };
        // What the engine itself has freed, in no thread, only the shadow knows.
        let is_live =
            |address| self.arena.shadow().find(self.arena.to_offset(address)) != Found::Freed;
        let is_lost = |(address, block): &(&usize, &Block)| {
            block.freed.is_none() && !block.is_kept && is_live(**address)
        };
        let lost = blocks.known.iter().filter(is_lost);
        let (count, bytes) =
            lost.clone().fold((0, 0), |(count, bytes), (_, block)| (count + 1, bytes + block.size));
        if let Some((&first, _)) = lost.min_by_key(|(address, _)| **address) {
            let misuse = Misuse::Leak { blocks: count, bytes };
            self.fail_by_mistake(misuse, None, Some(first), false);
        }
    }

    /// Fails if a block that is free was written after its free.
    pub(super) fn fail_if_spoilt(&mut self) {
        let Some(blocks) = &self.blocks else { return };
        let freed = blocks.known.iter().filter(|(_, block)| block.freed.is_some());
        let spoilt = freed.filter_map(|(&address, block)| {
            // SAFETY: a freed block of this size, which lies in the arena and no thread has.
            let spoilt = unsafe { shadow::spoilt(self.arena.pointer(address), block.size) };
            Some((address, spoilt?))
        });
        if let Some((address, offset)) = spoilt.min() {
            self.fail_by_mistake(Misuse::WrittenAfterFree { offset }, None, Some(address), false);
        }
    }

    /// Marks the blocks to which words in these ranges lead, and so on.
    fn keep_reachable(&mut self, mut ranges: Vec<(usize, usize)>) {
        let Some(blocks) = &mut self.blocks else { return };
        while let Some((start, len)) = ranges.pop() {
            for word in (start.next_multiple_of(8)..(start + len).saturating_sub(7)).step_by(8) {
                let Some(offset) = self.arena.offset(lately::peek(word) as usize) else { continue };
                let block = self.arena.block(offset as usize);
                if let Some(address) = block
                    && let Some(block) = blocks.known.get_mut(&address)
                    && !std::mem::replace(&mut block.is_kept, true)
                {
                    ranges.push((address, block.size));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_a_backtrace_is_the_users() {
        let trace = format!(
            "   0: std::backtrace::Backtrace::create\n             at /rustc/5980/library/std/src/\
             backtrace.rs:331:13\n   1: coreline_sim::engine\n             at {}:7:9\n   2: \
             __rustc::__rust_dealloc\n             at ./src/main.rs:4:5\n   3: \
             program::drop2\n             at ./tests/program.rs:12:34\n   4: main\n",
            file!()
        );
        assert_eq!(user_site(&trace).unwrap().to_string(), "tests/program.rs:12");
        assert_eq!(user_site("disabled backtrace"), None);
    }
}
