//! [`Slots::blank`]: slots of which no section ever finds one, for what a static begins as.

use core::mem;
use core::ptr::NonNull;

use coreline_world::native::Section;
use coreline_world::restartable::{Limits, Slot};
use coreline_world::{ConstWords, Native};

use super::Word64;
use super::indexing::OwnIndex;
use super::lock::SlotLock;
use super::slots::{Init, Slots};

/// Words in the one slot that blank slots have.
const WORDS: usize = 512;

/// No operation reads or writes it.
static ZEROS: [Word64; WORDS] = [const { Native::U64_ZERO }; WORDS];

static BLANK: Slots<Word64, Native> = {
    let zeros = (&raw const ZEROS).cast_mut().cast();
    // SAFETY: the address of a static. Without indexes there is one slot, the shared one, of
    // zeros.
    unsafe {
        Slots::from_parts(
            Limits::const_new(),
            OwnIndex::const_new(),
            SlotLock::const_new(),
            Section::ATOMICS,
            0,
            NonNull::new_unchecked(zeros),
            Init::Function(zero),
        )
    }
};

fn zero() -> Word64 {
    Native::U64_ZERO
}

impl<T: Slot> Slots<T, Native> {
    /// Slots without an index, the same for all values: [`Field::try_add`](super::Field::try_add)
    /// and its likes find no slot there. They are good for nothing else.
    ///
    /// # Safety
    ///
    /// A `T` consists of [`Word64`]s, and nothing else.
    pub(crate) const unsafe fn blank() -> *mut Self {
        const {
            assert!(size_of::<T>() <= size_of_val(&ZEROS), "more counters than a static may have");
            assert!(align_of::<T>() <= align_of::<Word64>());
            assert!(size_of::<Self>() == size_of::<Slots<Word64, Native>>());
            // SAFETY: if it is laid out otherwise for a `T`, this does not compile.
            let init: Init<T> = unsafe { mem::transmute_copy(&Init::Function(zero)) };
            let is_function = matches!(init, Init::Function(_));
            mem::forget(init);
            assert!(is_function);
        }
        // `Slots` is laid out as C says. For another `T` only `init` is of another type, and that
        // was looked at.
        (&raw const BLANK).cast_mut().cast()
    }
}
