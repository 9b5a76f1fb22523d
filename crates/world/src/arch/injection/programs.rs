//! The programs for the slot: states of it, operations on them, and intrusions, each with each.

use super::bench::{NO_INDEX, Op, STACK, WordKind};

pub(super) struct Family {
    pub(super) setups: &'static [&'static [Op]],
    pub(super) ops: &'static [Op],
    pub(super) intrusions: &'static [&'static [Op]],
}

/// A row that shows the index whose slot is worked on.
pub(super) const HOME: u32 = 2;
/// A row that shows another index.
pub(super) const OTHER: u32 = 1;
/// A row that shows none, and that index to a read of half of it.
pub(super) const HALF: u32 = 0xdead << 16 | HOME;
/// Words that hold integers of a type; `$signed` is the type of the same size.
macro_rules! integers {
    ($kind:expr, $value:ty, $signed:ty) => {{
        const SIGN: u64 = <$signed>::MIN.cast_unsigned() as u64;
        const MOST: u64 = <$signed>::MAX as u64;
        const MINUS_ONE: u64 = <$value>::MAX as u64;
        Family {
            setups: &[
                &[],
                &[Op::Add($kind, 5)],
                &[Op::Add($kind, MOST)],
                &[Op::Add($kind, SIGN)],
                &[Op::Add($kind, MINUS_ONE)],
            ],
            ops: &[
                Op::Add($kind, 3),
                Op::Add($kind, MINUS_ONE),
                Op::Load($kind),
                Op::Exchange($kind, 7),
                Op::Exchange($kind, MINUS_ONE),
                Op::StoreIfEqual($kind, 0, 7),
                Op::StoreIfEqual($kind, 5, MINUS_ONE),
                Op::StoreIfEqual($kind, SIGN, 0),
                Op::AddIf($kind, 1, SIGN),
                Op::AddIf($kind, MINUS_ONE, SIGN),
                Op::AddIf($kind, SIGN, SIGN),
                Op::AddIf($kind, MOST, SIGN),
                Op::AddIf($kind, 3, !7),
                Op::AddIf($kind, 1, 0),
                Op::AddIf($kind, 0, MINUS_ONE),
            ],
            intrusions: &[
                &[],
                &[Op::Add($kind, 1)],
                &[Op::Add($kind, MINUS_ONE)],
                &[Op::Add($kind, 1), Op::Add($kind, MINUS_ONE)],
                &[Op::StoreIfEqual($kind, 5, 0), Op::StoreIfEqual($kind, 0, 5)],
                &[Op::AddIf($kind, MINUS_ONE, SIGN), Op::Exchange($kind, 9), Op::Load($kind)],
                &[Op::Stop],
            ],
        }
    }};
}

/// How many slots there are behind rows.
pub(super) const SLOTS: usize = 4;

/// Other intrusions if indexes are in rows: the index is taken away, the CPU is given another, or
/// the same again, and another thread works with it.
pub(super) const CHANGES: &[&[Op]] = &[
    &[Op::Show(NO_INDEX)],
    &[Op::Show(SLOTS as u32)],
    &[Op::Show(HALF)],
    &[Op::Show(OTHER)],
    &[Op::Show(NO_INDEX), Op::Show(HOME)],
    &[
        Op::Show(OTHER),
        Op::Add(WordKind::Whole, 9),
        Op::Resize(2),
        Op::StackPush(30),
        Op::Show(HOME),
    ],
    &[Op::Load(WordKind::Half), Op::Show(OTHER), Op::Add(WordKind::Half, 1)],
    &[Op::Exchange(WordKind::Pointer, 1), Op::Resize(1), Op::Show(OTHER), Op::Resize(2)],
    &[Op::StackPush(30), Op::Show(OTHER), Op::Resize(1), Op::StackPush(31)],
];

pub(super) const FAMILIES: &[Family] = &[
    integers!(WordKind::Half, u32, i32),
    integers!(WordKind::Whole, u64, i64),
    integers!(WordKind::Size, usize, isize),
    POINTERS,
    STACKS,
];

const POINTERS: Family = Family {
    setups: &[&[], &[Op::Exchange(WordKind::Pointer, FAR)]],
    ops: &[
        Op::Load(WordKind::Pointer),
        Op::Exchange(WordKind::Pointer, 0),
        Op::Exchange(WordKind::Pointer, FAR + 8),
        Op::StoreIfEqual(WordKind::Pointer, 0, FAR + 8),
        Op::StoreIfEqual(WordKind::Pointer, FAR, 0),
        // Equal in the last 32 bits.
        Op::StoreIfEqual(WordKind::Pointer, FAR as u32 as u64, 0),
    ],
    intrusions: &[
        &[],
        &[Op::Exchange(WordKind::Pointer, 0)],
        &[Op::Exchange(WordKind::Pointer, FAR + 16)],
        &[Op::Exchange(WordKind::Pointer, 24), Op::StoreIfEqual(WordKind::Pointer, 24, FAR)],
        &[Op::Stop],
    ],
};

/// An address that takes more than 32 bits.
const FAR: u64 = 0x7123_4567_89ab_cde0;

pub(super) const STACKS: Family = Family {
    setups: &[
        &[],
        &[Op::Resize(3)],
        &[Op::Resize(3), Op::StackPush(0)],
        &[Op::Resize(3), Op::StackPush(0), Op::StackPop],
        &[Op::Resize(3), Op::StackPushBatch(3)],
        &[Op::Resize(STACK), Op::StackPushBatch(STACK - 1)],
        &[Op::Resize(STACK), Op::StackPushBatch(STACK - 1), Op::StackPop],
        &[Op::Resize(STACK), Op::StackPushBatch(STACK)],
        // More is on it than it takes now.
        &[Op::Resize(STACK), Op::StackPushBatch(STACK), Op::Resize(2)],
        // The last entry is empty: there is room in it, and there is none.
        &[Op::Resize(3), Op::StackPushBatch(3), Op::StackPop],
        &[Op::Resize(3), Op::StackPushBatch(3), Op::StackPop, Op::Resize(2)],
        &[Op::Resize(1), Op::StackPush(0), Op::StackPop],
    ],
    ops: &[
        Op::StackPush(9),
        Op::StackPop,
        Op::StackPushBatch(0),
        Op::StackPushBatch(1),
        Op::StackPushBatch(2),
        Op::StackPushBatch(3),
        Op::StackPushBatch(STACK + 4),
        Op::StackPopBatch(0),
        Op::StackPopBatch(1),
        Op::StackPopBatch(2),
        Op::StackPopBatch(3),
        Op::StackPopBatch(STACK + 4),
        Op::Resize(0),
        Op::Resize(4),
        Op::Resize(STACK + 9),
        Op::Resize(usize::MAX),
    ],
    intrusions: &[
        &[],
        &[Op::StackPush(20)],
        &[Op::StackPop],
        &[Op::StackPop, Op::StackPush(20)],
        &[Op::StackPop, Op::StackPop, Op::StackPush(20)],
        &[Op::StackPushBatch(STACK + 1)],
        &[Op::StackPopBatch(STACK + 1)],
        &[Op::StackPopBatch(STACK), Op::StackPushBatch(STACK)],
        &[Op::Resize(0)],
        &[Op::Resize(STACK)],
        &[Op::Resize(STACK), Op::StackPush(20), Op::Resize(1)],
        &[Op::Stop],
    ],
};
