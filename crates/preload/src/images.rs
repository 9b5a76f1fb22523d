//! The library or program that has an address, and the symbol there.
//!
//! `dladdr` would wait for the loader's lock, which a thread has for as long as it runs
//! constructors of a library that it loads. At exit, such a constructor may never end.
//! `dl_iterate_phdr` takes the lock of the list of libraries alone. No constructor runs under that
//! lock, and no library on the list is unmapped meanwhile.
//!
//! A child has the locks of a parent whose other threads may have had them, and do not exist there.
//! The C library frees the loader's lock in a child, but not that of the list. So a child calls
//! `dladdr1`, which is like `dladdr`.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::{self, MaybeUninit};
use core::{ptr, slice};

use libc::{Elf64_Phdr, Elf64_Sym, dl_phdr_info};

/// What [`place`] looks for, and what it has found.
struct Search<'a> {
    address: usize,
    program: &'a str,
    found: Option<String>,
}

/// The library of an address, or `program`, with the symbol that has the address if it is exported.
/// The caller says whether this process is one that a fork made.
pub(crate) fn place(address: usize, program: &str, is_child: bool) -> String {
    if is_child {
        return place_in_child(address, program);
    }
    let mut search = Search { address, program, found: None };
    // SAFETY: `look` is such a function, and gets the live search.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
    search.found.unwrap_or_else(|| unknown(address))
}

fn place_in_child(address: usize, program: &str) -> String {
    /// What the dynamic linker knows of an image: the beginning of `struct link_map`.
    #[repr(C)]
    struct Map {
        base: usize,
        path: *const c_char,
    }
    /// `RTLD_DL_LINKMAP`
    const MAP: c_int = 2;
    let (mut found, mut map) = (MaybeUninit::<libc::Dl_info>::zeroed(), ptr::null_mut());
    let at = ptr::without_provenance::<c_void>(address);
    // SAFETY: looks the address up, and writes what it is given, of which zeros are a value.
    let (is_found, found) = unsafe {
        (libc::dladdr1(at, found.as_mut_ptr(), &raw mut map, MAP) != 0, found.assume_init())
    };
    if !is_found {
        return unknown(address);
    }
    // SAFETY: the image that was found, and strings of the dynamic linker.
    let (map, path, symbol) = unsafe {
        let map = &*map.cast::<Map>();
        let symbol = (!found.dli_sname.is_null()).then(|| CStr::from_ptr(found.dli_sname));
        (map, CStr::from_ptr(map.path), symbol)
    };
    let symbol = symbol.map(|symbol| (symbol, address - found.dli_saddr.addr()));
    known(path, program, symbol, address.wrapping_sub(map.base))
}

fn unknown(address: usize) -> String {
    format!("{address:#x}")
}

/// The text for an offset in the image with this path, and in a symbol if there is one.
fn known(path: &CStr, program: &str, symbol: Option<(&CStr, usize)>, offset: usize) -> String {
    let path = path.to_string_lossy();
    let name = path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(program);
    match symbol {
        // Names of C++ may have any length, and memory may be short.
        Some((symbol, at)) => format!("{name} {:.200}+{at:#x}", symbol.to_string_lossy()),
        None => format!("{name}+{offset:#x}"),
    }
}

unsafe extern "C" fn look(of: *mut dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
    // SAFETY: the C library describes an image that is loaded, and passes on the search of `place`.
    let (of, search, parts) = unsafe {
        let of = &*of;
        let parts = slice::from_raw_parts(of.dlpi_phdr, of.dlpi_phnum.into());
        (of, &mut *search.cast::<Search<'_>>(), parts)
    };
    let image = Image { base: of.dlpi_addr as usize, parts };
    let offset = search.address.wrapping_sub(image.base);
    if !image.has(search.address) {
        return 0;
    }
    let dynamic = parts.iter().find(|part| part.p_type == libc::PT_DYNAMIC);
    // SAFETY: the image is loaded; and its path is a string of the dynamic linker.
    let (symbol, path) = unsafe {
        let symbol = dynamic.and_then(|part| image.symbol(part.p_vaddr as usize, offset));
        (symbol, CStr::from_ptr(of.dlpi_name))
    };
    search.found = Some(known(path, search.program, symbol, offset));
    1
}

/// Entries of the dynamic section, of the ELF specification, and GNU's hash table.
const DT_NULL: usize = 0;
const DT_HASH: usize = 4;
const DT_STRTAB: usize = 5;
const DT_SYMTAB: usize = 6;
const DT_GNU_HASH: usize = 0x6fff_fef5;

/// A type of symbols whose values are no addresses.
const STT_TLS: u8 = 6;

/// A loaded image.
struct Image<'a> {
    /// Where its address 0 is: below zero, if it was linked for a higher place than it has.
    base: usize,
    parts: &'a [Elf64_Phdr],
}

impl Image<'_> {
    /// Whether the address is in it.
    fn has(&self, address: usize) -> bool {
        let offset = address.wrapping_sub(self.base);
        self.parts.iter().filter(|part| part.p_type == libc::PT_LOAD).any(|part| {
            offset.checked_sub(part.p_vaddr as usize).is_some_and(|at| at < part.p_memsz as usize)
        })
    }

    /// The exported symbol that has this offset, and how far into it that is.
    ///
    /// # Safety
    ///
    /// The image is loaded, and has its dynamic section at this offset.
    unsafe fn symbol(&self, dynamic: usize, offset: usize) -> Option<(&CStr, usize)> {
        let (mut strings, mut symbols) = (None, None);
        let [mut hash, mut gnu] = [None; 2];
        // SAFETY: the caller's promise. The section ends with an entry of this tag.
        unsafe {
            let at = self.base.wrapping_add(dynamic);
            let mut entry = ptr::with_exposed_provenance::<[usize; 2]>(at);
            while (*entry)[0] != DT_NULL {
                let [tag, value] = *entry;
                match tag {
                    DT_STRTAB => strings = self.at::<c_char>(value),
                    DT_SYMTAB => symbols = self.at::<Elf64_Sym>(value),
                    DT_HASH => hash = self.at::<u32>(value),
                    DT_GNU_HASH => gnu = self.at::<u32>(value),
                    _ => {}
                }
                entry = entry.add(1);
            }
        }
        // SAFETY: a loaded image has such tables, if any, with as many symbols as they say.
        let symbols = unsafe {
            // The dynamic linker does not look at the other table if there is GNU's.
            let count = match gnu {
                Some(gnu) => count_of(gnu),
                None => *hash?.add(1) as usize,
            };
            slice::from_raw_parts(symbols?, count)
        };
        let into = |symbol: &Elf64_Sym| {
            let into = offset.checked_sub(symbol.st_value as usize)?;
            let is_here = symbol.st_shndx != 0 && symbol.st_info & 0xf != STT_TLS;
            (is_here && into < symbol.st_size as usize).then_some(into)
        };
        let found = symbols.iter().filter_map(|symbol| Some((into(symbol)?, symbol)));
        let (into, symbol) = found.min_by_key(|&(into, _)| into)?;
        // SAFETY: the name is an offset into the image's strings.
        Some((unsafe { CStr::from_ptr(strings?.add(symbol.st_name as usize)) }, into))
    }

    /// The address that an entry says. The dynamic linker has added the base to it, except where it
    /// cannot write, as in the image that the kernel maps.
    fn at<T>(&self, value: usize) -> Option<*const T> {
        let at = [value, value.wrapping_add(self.base)].into_iter().find(|&at| self.has(at));
        at.map(ptr::with_exposed_provenance)
    }
}

/// How many symbols an image has, by GNU's hash table: those before the first that it lists, and
/// all up to the end of the last chain.
///
/// # Safety
///
/// It is the table of a loaded image.
unsafe fn count_of(table: *const u32) -> usize {
    /// Words of the filter are as wide as addresses.
    const WORD: usize = mem::size_of::<usize>() / mem::size_of::<u32>();
    // SAFETY: the caller's promise. A chain ends with a word whose lowest bit is set.
    unsafe {
        let [buckets, first, filter] = [0, 1, 2].map(|at| *table.add(at) as usize);
        let begins = table.add(4 + filter * WORD);
        let chains = begins.add(buckets);
        let last = slice::from_raw_parts(begins, buckets).iter().max();
        let Some(mut last) = last.map(|&last| last as usize).filter(|&last| last >= first) else {
            return first;
        };
        while *chains.add(last - first) & 1 == 0 {
            last += 1;
        }
        last + 1
    }
}
