//! [`Operand`]: the values that a word in a slot can hold.

use core::fmt::Debug;

use crate::{Word, Words};

/// The values of words in per-CPU memory, and of the arguments of operations on them: a `u32`, a
/// `u64`, a `usize`, or a pointer.
///
/// A pointer stays a pointer throughout an operation, so it keeps its provenance.
pub trait Operand: Copy + PartialEq + Debug {
    /// The word of world `W` that holds the value.
    type Word<W: Words>: Word<Value = Self>;
}

impl Operand for u32 {
    type Word<W: Words> = W::U32;
}

impl Operand for u64 {
    type Word<W: Words> = W::U64;
}

impl Operand for usize {
    type Word<W: Words> = W::Usize;
}

impl<T: 'static> Operand for *mut T {
    type Word<W: Words> = W::Ptr<T>;
}

/// A word of world `W` on which operations work: its `U32`, `U64`, `Usize` or `Ptr`.
///
/// No other type with the same value qualifies, because a section relies on the layout of the
/// world's own words.
///
/// ```compile_fail
/// use coreline_world::model::Model; // feature `model`
/// use coreline_world::restartable::WordOf;
/// use coreline_world::{Native, Words};
///
/// fn is_word_of<F: WordOf<Native>>() {}
/// is_word_of::<<Native as Words>::U32>();
/// is_word_of::<<Model as Words>::U32>();
/// ```
pub trait WordOf<W: Words>: Word<Value: Operand<Word<W> = Self>> {}

impl<W: Words, F: Word<Value: Operand<Word<W> = F>>> WordOf<W> for F {}
