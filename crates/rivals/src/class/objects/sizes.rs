//! The form `sizes`: objects whose sizes leave holes, beside those that leave none.
//!
//! A pair does not look at the size, so its figures have no goal here. An object that is made and
//! discarded each time is found by its size, and written. So it is compared with an object of an
//! even size, and with a box. A box does the same work by the same means: the C library keeps
//! freed memory for the thread, as a cache keeps it for the CPU, without an atomic instruction.
//!
//! A box takes two calls. An object takes five restartable sections, and a call of its constructor
//! through a pointer. The sections look for an idle object, take vacant memory, put it back, and
//! count what is constructed and what is discarded.

use std::hint::black_box;
use std::sync::Arc;

use coreline::Lacking;
use coreline::object::ObjectCache;

use super::{Candidate, Form, Goal, Most, Params, Role, Subject, candidate, fence, rounds};

/// The goal, set in advance, of what is made: times the even size beside.
const MADE_MOST: f64 = 2.0;
/// Times the box of the same size.
const BOX_MOST: f64 = 2.0;

/// By size in bytes: the words of 32 bits, and the even size beside it.
macro_rules! sizes {
    ($($bytes:literal $words:literal $even:literal),*) => {
        [$(Size {
            bytes: $bytes,
            even: $even,
            pair: pairs::<$words, true>,
            made: pairs::<$words, false>,
            boxed: boxes::<$words>,
        }),*]
    };
}

const SIZES: [Size; 8] = sizes![
    24 6 32, 32 8 32, 36 9 32, 40 10 32, 64 16 64, 72 18 64, 128 32 128, 136 34 128
];

type Make = fn() -> Result<Arc<dyn Subject>, Lacking>;

struct Size {
    bytes: usize,
    even: usize,
    pair: Make,
    made: Make,
    boxed: Make,
}

fn pair(bytes: usize) -> String {
    format!("coreline ObjectCache, {bytes} bytes")
}

fn made(bytes: usize) -> String {
    format!("coreline ObjectCache, discarded, {bytes} bytes")
}

fn boxed(bytes: usize) -> String {
    format!("Box, {bytes} bytes")
}

impl Size {
    fn candidates(&self) -> [Candidate; 3] {
        [
            candidate(&pair(self.bytes), Role::Ours, self.pair),
            candidate(&made(self.bytes), Role::Ours, self.made),
            candidate(&boxed(self.bytes), Role::Rival, self.boxed),
        ]
    }

    fn goals(&self) -> Vec<Goal> {
        let goal = |name: String, most, other| Goal::everywhere(&name, Most::Times(most, other));
        let by_box = goal(made(self.bytes), BOX_MOST, boxed(self.bytes));
        if self.bytes == self.even {
            return vec![by_box];
        }
        vec![goal(made(self.bytes), MADE_MOST, made(self.even)), by_box]
    }
}

pub(super) fn form() -> Form {
    Form {
        title: "sizes",
        threads: vec![1],
        window: None,
        params: Params::default(),
        candidates: SIZES.iter().flat_map(Size::candidates).collect(),
        reference: boxed(64),
        goals: SIZES.iter().flat_map(Size::goals).collect(),
    }
}

/// The content of an object. Not zeros, which an allocator could have at hand.
fn new<const WORDS: usize>() -> [u32; WORDS] {
    [black_box(7); WORDS]
}

/// A cache whose objects are given back, or discarded.
fn pairs<const WORDS: usize, const KEEPS: bool>() -> Result<Arc<dyn Subject>, Lacking> {
    let cache = ObjectCache::builder("rivals, sizes").build(|| Ok::<_, Lacking>(new()));
    let cache = cache.map_err(|why| super::cached::lacking("object cache", &why))?;
    Ok(Arc::new(Pairs::<WORDS, KEEPS>(cache)))
}

struct Pairs<const WORDS: usize, const KEEPS: bool>(ObjectCache<[u32; WORDS]>);

impl<const WORDS: usize, const KEEPS: bool> Subject for Pairs<WORDS, KEEPS> {
    fn run(&self, _: usize, ops: u64) {
        rounds(ops, |number| {
            let mut object = self.0.get().expect("there is memory for an object");
            black_box(&mut object)[0] = number as u32;
            fence();
            if !KEEPS {
                object.discard();
            }
        });
    }
}

fn boxes<const WORDS: usize>() -> Result<Arc<dyn Subject>, Lacking> {
    Ok(Arc::new(Boxes::<WORDS>))
}

/// A box of the process's allocator, made and dropped.
struct Boxes<const WORDS: usize>;

impl<const WORDS: usize> Subject for Boxes<WORDS> {
    fn run(&self, _: usize, ops: u64) {
        rounds(ops, |number| {
            let mut object = Box::new(new::<WORDS>());
            black_box(&mut object)[0] = number as u32;
            fence();
        });
    }
}
