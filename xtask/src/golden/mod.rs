//! `cargo xtask golden`: the world is a type parameter and costs nothing.
//!
//! The crate `fastpaths` holds every fast path: `x_generic` calls the primitive.
//! Where there is an `x_by_hand`, it spells out what a programmer would write for this machine
//! alone, and both must compile to the same instructions. The number of instructions of each class
//! stands in a committed table, so that no fast path grows unnoticed.

mod classes;
mod listing;

use std::path::{Path, PathBuf};
use std::{env, fs};

use classes::Classes;
use listing::{Line, function, names};

use crate::error::Error;
use crate::workspace;

/// Whether [`classes`] knows the instructions of the machine that we compile for.
const CLASSES_KNOWN: bool = cfg!(target_arch = "x86_64");

/// What the names of the two functions of a pair end in.
const GENERIC: &str = "_generic";
const BY_HAND: &str = "_by_hand";

/// Builds the fast paths, compares the pairs, and compares the counts with the table; or writes the
/// table if `bless`.
pub(crate) fn run(bless: bool) -> Result<(), Error> {
    let assembler = assembler()?;
    let mut unequal = 0;
    let mut table = String::from(HEADER);
    let by_hand = names(&assembler, BY_HAND);
    for name in names(&assembler, GENERIC) {
        let generic = function(&assembler, &format!("{name}{GENERIC}"))?;
        table.push_str(&Classes::count(&generic).row(name));
        if !by_hand.contains(&name) {
            continue;
        }
        let by_hand = function(&assembler, &format!("{name}{BY_HAND}"))?;
        if generic != by_hand {
            unequal += 1;
            println!("{name}: generic code | what hand-written code compiles to");
            println!("{}", side_by_side(&generic, &by_hand));
        }
    }
    print!("{table}");
    if unequal > 0 {
        return Err(Error::Unequal(unequal));
    }
    let pairs = by_hand.join(", ");
    println!("golden: instruction by instruction what hand-written code compiles to: {pairs}");
    if !CLASSES_KNOWN {
        println!("golden: no table of counts exists for {}", env::consts::ARCH);
        return Ok(());
    }
    let file = Path::new("docs/golden").join(env::consts::ARCH).with_extension("txt");
    if bless {
        return workspace::write(&file, &table);
    }
    // A missing table counts as a table with other counts: the remedy is to write one.
    let committed = workspace::read(&file).unwrap_or_default();
    if committed != table {
        println!("{} says:\n{committed}", file.display());
        return Err(Error::Counts(file));
    }
    Ok(())
}

const HEADER: &str = "\
# Instructions of each fast path, by class. Cold ends of the function are counted, what is out of
# line is one call. An instruction that reads and writes memory is a load and a store; if it is
# atomic it is an rmw only. Written by `cargo xtask golden --bless`.
fast path               total   loads  stores     rmw branches   calls
";

/// Compiles the program for this machine's baseline processor, runs it, and returns its assembler
/// text.
fn assembler() -> Result<String, Error> {
    // A folder of its own: the settings differ from those of any other build.
    let target = workspace::target_folder()?.join("golden");
    let mut cargo = workspace::cargo(&[
        "rustc",
        "--quiet",
        "--release",
        "--package=coreline-fastpaths",
        // Without whole-program optimisation only what the crates themselves mark as inline is
        // inlined. That is the harder test.
        "--config=profile.release.lto=\"off\"",
        "--config=profile.release.codegen-units=1",
        "--config=profile.release.debug=false",
        "--",
        "--emit=asm",
        // Slow paths lie in another crate on one side and in the same on the other. At fixed
        // addresses, both are called in the same way.
        "-Crelocation-model=static",
    ]);
    if CLASSES_KNOWN {
        cargo.arg("-Cllvm-args=-x86-asm-syntax=intel");
    }
    cargo.env("CARGO_TARGET_DIR", &target);
    // Flags of the caller, such as a processor to tune for, would change the code. Set but empty,
    // this variable outranks every other source of flags.
    cargo.env("CARGO_ENCODED_RUSTFLAGS", "");
    workspace::run(&mut cargo)?;
    let folder = target.join("release");
    workspace::run(&mut workspace::command(folder.join("fastpaths"), &[]))?;
    workspace::read(newest_listing(&folder.join("deps"))?)
}

/// The assembler text that was written last: those of other compilers may lie beside it.
fn newest_listing(folder: &Path) -> Result<PathBuf, Error> {
    let files = fs::read_dir(folder)
        .map_err(|source| Error::Read { path: folder.to_owned(), source })?
        .filter_map(|entry| Some(entry.ok()?.path()));
    let is_listing = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("fastpaths-") && name.ends_with(".s")
    };
    files
        .filter(is_listing)
        .max_by_key(|path| path.metadata().and_then(|data| data.modified()).ok())
        .ok_or_else(|| Error::NoListing(folder.to_owned()))
}

/// Two listings in columns, with a mark where they differ.
fn side_by_side(left: &[Line], right: &[Line]) -> String {
    let mut out = String::new();
    for at in 0..left.len().max(right.len()) {
        let text = |side: &[Line]| side.get(at).map(|line| line.text.clone()).unwrap_or_default();
        let mark = if left.get(at) == right.get(at) { ' ' } else { '|' };
        out += &format!("  {:<48} {mark} {}\n", text(left), text(right));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAME: &str = "\
a_generic:
	mov	eax, 1
	jmp	_RNv1a4slow
.Lfunc_end0:
a_by_hand:
	mov	eax, 1
	jmp	_RNv1b9slow_hand
.Lfunc_end1:
";

    fn pair(text: &str) -> (Vec<Line>, Vec<Line>) {
        let function = |name| function(text, name).expect("the function is there");
        (function("a_generic"), function("a_by_hand"))
    }

    #[test]
    fn equal_code_is_equal() {
        let (generic, by_hand) = pair(SAME);
        assert_eq!(generic, by_hand);
        assert_eq!(generic.len(), 2);
    }

    #[test]
    fn a_planted_difference_is_seen_and_shown() {
        for (from, to) in
            [("eax, 1\n\tjmp\t_RNv1b", "eax, 2\n\tjmp\t_RNv1b"), ("9slow_hand\n", "\n\tret\n")]
        {
            let planted = SAME.replace(from, to);
            assert_ne!(planted, SAME);
            let (generic, by_hand) = pair(&planted);
            assert_ne!(generic, by_hand, "{to:?}");
            assert!(side_by_side(&generic, &by_hand).contains(" | "), "{to:?}");
        }
    }
}
