//! The library or program that has an address, and the symbol there.
//!
//! `dladdr` would wait for the loader's lock, which a thread has for as long as it runs
//! constructors of a library that it loads. At exit, such a constructor may never end.
//! `dl_iterate_phdr` takes the lock of the list of libraries alone. No constructor runs under that
//! lock, and no library on the list is unmapped meanwhile.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::{mem, slice};

use libc::{Elf64_Phdr, Elf64_Sym, dl_phdr_info};

/// What [`place`] looks for, and what it has found.
struct Search<'a> {
    address: usize,
    program: &'a str,
    found: Option<String>,
}

/// The library of an address, or `program`, with the symbol that has the address if it is exported.
pub(crate) fn place(address: usize, program: &str) -> String {
    let mut search = Search { address, program, found: None };
    // SAFETY: `look` is such a function, and gets the live search.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
    search.found.unwrap_or_else(|| format!("{address:#x}"))
}

unsafe extern "C" fn look(of: *mut dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
    // SAFETY: the C library describes an image that is loaded, and passes on the search of `place`.
    let (of, search, parts) = unsafe {
        let of = &*of;
        let parts = slice::from_raw_parts(of.dlpi_phdr, of.dlpi_phnum.into());
        (of, &mut *search.cast::<Search<'_>>(), parts)
    };
    let image = Image { base: of.dlpi_addr as usize };
    let offset = search.address.wrapping_sub(image.base);
    let has = |part: &&Elf64_Phdr| {
        part.p_type == libc::PT_LOAD
            && offset
                .checked_sub(part.p_vaddr as usize)
                .is_some_and(|at| at < part.p_memsz as usize)
    };
    if !parts.iter().any(|part| has(&part)) {
        return 0;
    }
    // SAFETY: a string of the dynamic linker.
    let path = unsafe { CStr::from_ptr(of.dlpi_name) }.to_string_lossy();
    let name = path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(search.program);
    let dynamic = parts.iter().find(|part| part.p_type == libc::PT_DYNAMIC);
    // SAFETY: the image is loaded.
    let symbol = dynamic.and_then(|part| unsafe { image.symbol(part.p_vaddr as usize, offset) });
    search.found = Some(match symbol {
        // Names of C++ may have any length, and memory may be short.
        Some((symbol, at)) => format!("{name} {:.200}+{at:#x}", symbol.to_string_lossy()),
        None => format!("{name}+{offset:#x}"),
    });
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
struct Image {
    /// Where its address 0 is.
    base: usize,
}

impl Image {
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
            let mut entry = self.at::<[usize; 2]>(self.base.wrapping_add(dynamic));
            while (*entry)[0] != DT_NULL {
                let [tag, value] = *entry;
                match tag {
                    DT_STRTAB => strings = Some(self.at::<c_char>(value)),
                    DT_SYMTAB => symbols = Some(self.at::<Elf64_Sym>(value)),
                    DT_HASH => hash = Some(self.at::<u32>(value)),
                    DT_GNU_HASH => gnu = Some(self.at::<u32>(value)),
                    _ => {}
                }
                entry = entry.add(1);
            }
        }
        // SAFETY: a loaded image has such tables, if any, with as many symbols as they say.
        let symbols = unsafe {
            let count = match (hash, gnu) {
                (Some(hash), _) => *hash.add(1) as usize,
                (None, gnu) => count_of(gnu?),
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

    /// The address that an entry says. The dynamic linker has added the base to it, except in the
    /// image that the kernel maps.
    fn at<T>(&self, value: usize) -> *const T {
        let at = if value < self.base { value.wrapping_add(self.base) } else { value };
        core::ptr::with_exposed_provenance(at)
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
