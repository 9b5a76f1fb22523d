//! The host's thread-locals that simulated threads share.
//!
//! A `std::thread_local!` of a package that was not ported exists once for the host thread that
//! runs the machine, so all simulated threads share it. The machine detects that one of them has
//! changed it. From the program's symbol table, it knows where each such variable lies in the host
//! thread's memory. It compares the bytes of these variables each time a thread gives the host
//! thread back. It names the variable and its package once in a process.
//!
//! It does not see variables that no simulated thread changes, such as one that host code has set
//! before. Nor does it see changes that are undone before a switch, or variables of shared
//! libraries and of other languages. Variables of more than [`LARGEST`] bytes would take longer to
//! compare than the switch, so it ignores them. It sees nothing in a program that was stripped of
//! its symbols, or that has the machine in two versions.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::{Mutex, OnceLock, PoisonError};

use super::Engine;

/// Packages whose thread-locals belong to the host thread: those of Rust itself, and of the
/// machine. All other names that begin with `coreline` are also ours.
const OF_THE_HOST: [&str; 9] = [
    "std",
    "core",
    "alloc",
    "test",
    "panic_unwind",
    "std_detect",
    "corosensei",
    "backtrace",
    "coreline",
];

/// How large a variable is at most that is watched, in bytes: it is compared at each switch.
const LARGEST: u64 = 4096;

thread_local! {
    /// This variable has a known symbol, and all others lie at known distances from it.
    static ANCHOR: Cell<u64> = const { Cell::new(1) };
}

/// A thread-local variable of the program.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Variable {
    /// Its path, such as `package::module::NAME`.
    path: String,
    /// Its offset from [`ANCHOR`], and its size, in bytes.
    offset: isize,
    size: usize,
}

/// The variables that are watched, where they are on this host thread, and what they held at the
/// start.
#[derive(Default)]
pub(super) struct Locals(Vec<(&'static Variable, usize, Vec<u64>)>);

impl Locals {
    /// The variables as they are before the first simulated thread begins.
    pub(super) fn new() -> Locals {
        let anchor = ANCHOR.with(|anchor| (&raw const *anchor).addr());
        let watched = |variable: &'static Variable| {
            let address = anchor.wrapping_add_signed(variable.offset);
            (variable, address, content(address, variable.size).collect())
        };
        Locals(variables().iter().map(watched).collect())
    }
}

/// The content of a variable of this host thread, eight bytes at a time, and the last ones alone.
fn content(address: usize, size: usize) -> impl Iterator<Item = u64> {
    (0..size / 8 + size % 8).map(move |index| part(address, size, index))
}

/// A part of it.
#[inline]
fn part(address: usize, size: usize, index: usize) -> u64 {
    let whole = size / 8;
    // SAFETY: the symbol table says that a thread-local variable of this size is there in each
    // thread, next to `ANCHOR`, for as long as the thread is. Only this thread accesses it, and not
    // now. Any bytes are valid, and volatile: the compiler knows nothing of this variable.
    unsafe {
        if index < whole {
            let from = std::ptr::with_exposed_provenance::<[u8; 8]>(address + index * 8);
            return u64::from_ne_bytes(from.read_volatile());
        }
        let from = address + whole * 8 + (index - whole);
        u64::from(std::ptr::with_exposed_provenance::<u8>(from).read_volatile())
    }
}

impl Engine {
    /// A simulated thread has given the host thread back: looks whether one has changed a variable
    /// that others share.
    #[inline]
    pub(super) fn look_at_locals(&mut self) {
        if !self.locals.0.is_empty() && self.threads.len() > 1 {
            self.locals.0.retain(|(variable, address, before)| {
                let is_same = content(*address, variable.size).eq(before.iter().copied());
                if !is_same {
                    say(&variable.path);
                }
                is_same
            });
        }
    }
}

/// Says it on stderr, once in a process for each variable: the program's results may be right.
#[cold]
fn say(path: &str) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    if SAID.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_owned()) {
        let package = path.split("::").next().unwrap_or(path);
        // A program without stderr does not need to know.
        _ = writeln!(
            io::stderr().lock(),
            "coreline-sim: all simulated threads share {path}, a `std::thread_local!` that one of \
             them changed; each should have its own: use `coreline_sim::thread_local!`, or \
             `coreline port` if {package} is not yours"
        );
    }
}

/// The program's thread-local variables that simulated threads should not share.
fn variables() -> &'static [Variable] {
    static VARIABLES: OnceLock<Vec<Variable>> = OnceLock::new();
    VARIABLES.get_or_init(|| {
        let file = File::open("/proc/self/exe").map_err(drop);
        let symbols = file.and_then(|mut file| symbols(&mut file).ok_or(())).unwrap_or_default();
        foreign(&symbols)
    })
}

/// A symbol of the thread-local kind: its name, offset and size.
type Symbol = (String, u64, u64);

/// Of all thread-local symbols of a program, those of packages of others, and of the program
/// itself. None if [`ANCHOR`] is not among the symbols, as it is another program's table; nor if
/// there are two, of two versions of this package: from the other one, offsets would lead to memory
/// that is no variable.
fn foreign(symbols: &[Symbol]) -> Vec<Variable> {
    let mut anchors = symbols.iter().filter(|(name, ..)| {
        path(name).is_some_and(|path| path == "coreline_sim::engine::locals::ANCHOR")
    });
    let (Some(&(_, anchor, _)), None) = (anchors.next(), anchors.next()) else {
        return Vec::new();
    };
    let variable = |(name, offset, size): &Symbol| {
        let path = path(name)?;
        let package = path.split("::").next()?;
        let is_ours = package.starts_with("coreline_");
        let is_others = !is_ours && !OF_THE_HOST.contains(&package);
        let is_watched = is_others && (1..=LARGEST).contains(size);
        let offset = offset.wrapping_sub(anchor).cast_signed() as isize;
        is_watched.then_some(Variable { path, offset, size: *size as usize })
    };
    symbols.iter().filter_map(variable).collect()
}

/// The path in a symbol's name, which is mangled in the legacy way or in that of version 0, up to
/// what the macro `thread_local!` has added. `None` if it is not Rust's.
fn path(symbol: &str) -> Option<String> {
    let (mut rest, is_legacy) = match symbol.strip_prefix("_ZN") {
        Some(rest) => (rest, true),
        None => (symbol.strip_prefix("_R")?, false),
    };
    let mut parts: Vec<&str> = Vec::new();
    if !is_legacy {
        // The name of the package is the first identifier, behind `C` and a hash in base 62.
        let (_, package) = rest.split_once("Cs")?;
        rest = package.split_once('_')?.1;
    }
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let Some(length) = rest[..digits].parse::<usize>().ok().filter(|length| *length > 0) else {
            break;
        };
        // Version 0 separates the length from a name that begins with a digit or an underscore.
        let behind = &rest[digits..];
        let behind = if is_legacy { behind } else { behind.strip_prefix('_').unwrap_or(behind) };
        let (part, left) = behind.split_at_checked(length)?;
        rest = left;
        let is_hash = is_legacy && length == 17 && part.starts_with('h');
        if part.contains("$u7b$") || part.starts_with("__RUST_STD") || is_hash {
            break;
        }
        parts.push(part);
    }
    (!parts.is_empty()).then(|| parts.join("::"))
}

/// The thread-local symbols of a program of 64 bits in this processor's byte order: those of type
/// `STT_TLS` in its table of kind `SHT_SYMTAB` (the format ELF, System V ABI, chapter 4).
fn symbols(file: &mut (impl Read + Seek)) -> Option<Vec<Symbol>> {
    const SHT_SYMTAB: u32 = 2;
    let head = read(file, 0, 64)?;
    let order = if cfg!(target_endian = "little") { 1 } else { 2 };
    if !head.starts_with(&[0x7f, b'E', b'L', b'F', 2, order]) {
        return None;
    }
    let (size, count) = (number::<2>(&head, 58)?, number::<2>(&head, 60)?);
    let sections = read(file, number::<8>(&head, 40)?, size * count)?;
    let section = |index: u64| {
        let from = usize::try_from(index * size).ok()?;
        sections.get(from..from + 64)
    };
    let is_table = |section: &&[u8]| number::<4>(section, 4) == Some(SHT_SYMTAB.into());
    let table = (0..count).filter_map(section).find(is_table)?;
    let content = |file: &mut _, section: &[u8]| {
        read(file, number::<8>(section, 24)?, number::<8>(section, 32)?)
    };
    let names = content(file, section(number::<4>(table, 40)?)?)?;
    let table = content(file, table)?;
    let block = block_of_threads(file, &head)?;
    let symbol = |entry: &[u8]| {
        let (offset, size) = place_of(entry, block)?;
        let name = names.get(usize::try_from(number::<4>(entry, 0)?).ok()?..)?;
        let name = name.split(|&byte| byte == 0).next()?;
        Some((String::from_utf8_lossy(name).into_owned(), offset, size))
    };
    Some(table.chunks_exact(24).filter_map(symbol).collect())
}

/// How large each thread's block of thread-local variables is: the segment `PT_TLS`.
fn block_of_threads(file: &mut (impl Read + Seek), head: &[u8]) -> Option<u64> {
    const PT_TLS: u64 = 7;
    let (size, count) = (number::<2>(head, 54)?, number::<2>(head, 56)?);
    let segments = read(file, number::<8>(head, 32)?, size * count)?;
    let mut segments = segments.chunks_exact(usize::try_from(size).ok().filter(|it| *it > 0)?);
    number::<8>(segments.find(|segment| number::<4>(segment, 0) == Some(PT_TLS))?, 40)
}

/// The offset and size of the variable that an entry of a symbol table defines in a block of this
/// size. `None` if it is of another kind, is only referred to, or is not all in the block.
fn place_of(entry: &[u8], block: u64) -> Option<(u64, u64)> {
    const STT_TLS: u8 = 6;
    const SHN_UNDEF: u64 = 0;
    let (offset, size) = (number::<8>(entry, 8)?, number::<8>(entry, 16)?);
    let is_here = entry[4] & 0xf == STT_TLS && number::<2>(entry, 6)? != SHN_UNDEF;
    (is_here && offset.checked_add(size)? <= block).then_some((offset, size))
}

/// A part of a file; `None` if it is not there, or too long for a table of symbols.
fn read(file: &mut (impl Read + Seek), from: u64, len: u64) -> Option<Vec<u8>> {
    const MOST: u64 = 1 << 30;
    file.seek(SeekFrom::Start(from)).ok()?;
    let mut bytes = Vec::new();
    file.take(len.min(MOST)).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 == len).then_some(bytes)
}

/// A number of this many bytes in this processor's byte order.
fn number<const BYTES: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + BYTES)?;
    let mut all = [0; 8];
    match cfg!(target_endian = "little") {
        true => all[..BYTES].copy_from_slice(bytes),
        false => all[8 - BYTES..].copy_from_slice(bytes),
    }
    Some(u64::from_ne_bytes(all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_symbol_tells_its_path() {
        for (symbol, expected) in [
            (
                "_ZN15crossbeam_epoch7default6HANDLE29_$u7b$$u7b$constant$u7d$$u7d$28_$u7b$$u7b$\
                 closure$u7d$$u7d$23__RUST_STD_INTERNAL_VAL17h96f342964a5138b2E",
                Some("crossbeam_epoch::default::HANDLE"),
            ),
            (
                "_RNvNCNKNvNtNtCsjrHSEGnQ3l9_3std2io5stdio14OUTPUT_CAPTURE0023___RUST_STD_\
                 INTERNAL_VAL",
                Some("std::io::stdio::OUTPUT_CAPTURE"),
            ),
            (
                "_RNvNtNtCsjrHSEGnQ3l9_3std6thread7current7CURRENT",
                Some("std::thread::current::CURRENT"),
            ),
            ("errno", None),
            ("_ZN", None),
        ] {
            assert_eq!(path(symbol).as_deref(), expected, "{symbol}");
        }
    }

    #[test]
    fn only_what_packages_of_others_have_is_watched() {
        let symbol = |path: &str, offset, size| {
            let parts: String =
                path.split("::").map(|part| format!("{}{part}", part.len())).collect();
            (format!("_ZN{parts}17h96f342964a5138b2E"), offset, size)
        };
        let mut symbols = vec![
            symbol("std::thread::CURRENT", 0, 8),
            symbol("flume::QUEUE", 8, 24),
            symbol("coreline_world::HAS", 32, 1),
        ];
        assert_eq!(foreign(&symbols), [], "another program's table");
        symbols.push(symbol("coreline_sim::engine::locals::ANCHOR", 40, 8));
        let found = foreign(&symbols);
        let expected = Variable { path: "flume::QUEUE".to_owned(), offset: -32, size: 24 };
        assert_eq!(found, [expected]);
        symbols.push(symbol("flume::BUFFER", 48, LARGEST + 1));
        assert_eq!(foreign(&symbols), found, "a large one");
        symbols.push(symbol("coreline_sim::engine::locals::ANCHOR", 5000, 8));
        assert_eq!(foreign(&symbols), [], "two versions of the machine");
    }

    #[test]
    fn only_what_is_in_the_block_of_a_thread_has_a_place() {
        let entry = |kind: u8, section: u16, offset: u64, size: u64| {
            let (offset, size) = (offset.to_ne_bytes(), size.to_ne_bytes());
            [&[0; 4][..], &[kind, 0], &section.to_ne_bytes(), &offset, &size].concat()
        };
        assert_eq!(place_of(&entry(0x16, 5, 24, 8), 32), Some((24, 8)));
        for (entry, why) in [
            (entry(0x11, 5, 24, 8), "not of threads"),
            (entry(0x16, 0, 24, 8), "another file's"),
            (entry(0x16, 5, 25, 8), "beyond the end"),
            (entry(0x16, 5, u64::MAX, 8), "far beyond the end"),
        ] {
            assert_eq!(place_of(&entry, 32), None, "{why}");
        }
    }

    #[test]
    fn the_table_of_this_program_has_the_anchor() {
        if cfg!(miri) {
            return;
        }
        let symbols = symbols(&mut File::open("/proc/self/exe").unwrap()).unwrap();
        let is_it =
            |name: &str| path(name).as_deref() == Some("coreline_sim::engine::locals::ANCHOR");
        assert_eq!(symbols.iter().filter(|(name, ..)| is_it(name)).count(), 1, "{symbols:?}");
        assert_eq!(symbols.iter().find(|(name, ..)| is_it(name)).unwrap().2, 8);
    }
}
