//! What is done to the slot: states of it, operations on them, and intrusions, each with each.

use super::bench::{BUFFER, NO_INDEX, Op, STACK};

pub(super) struct Family {
    pub(super) setups: &'static [&'static [Op]],
    pub(super) ops: &'static [Op],
    pub(super) intrusions: &'static [&'static [Op]],
}

const SIGN: u64 = 1 << 63;
const MOST: u64 = i64::MAX as u64;
const MINUS_ONE: u64 = u64::MAX;

/// A row that shows the index whose slot is worked on.
pub(super) const HOME: u32 = 2;
/// A row that shows another index.
pub(super) const OTHER: u32 = 1;
/// A row that shows none, and that index to a read of half of it.
pub(super) const HALF: u32 = 0xdead << 16 | HOME;
/// How many slots there are behind rows.
pub(super) const SLOTS: usize = 4;

/// What else can come between where indexes are in rows: the index is taken away, the CPU is given
/// another, or the same again, and another thread works with it.
pub(super) const CHANGES: &[&[Op]] = &[
    &[Op::Show(NO_INDEX)],
    &[Op::Show(SLOTS as u32)],
    &[Op::Show(HALF)],
    &[Op::Show(OTHER)],
    &[Op::Show(NO_INDEX), Op::Show(HOME)],
    &[Op::Show(OTHER), Op::Add(9), Op::StackPush(30), Op::Append(2), Op::Show(HOME)],
    &[Op::ListPop, Op::Show(OTHER), Op::ListPushPopped, Op::Add(1)],
    &[Op::Append(3), Op::StackPush(30), Op::Show(OTHER), Op::Append(2), Op::StackPush(31)],
];

pub(super) const FAMILIES: &[Family] = &[WORDS, LISTS, STACKS, BUFFERS];

const WORDS: Family = Family {
    setups: &[&[], &[Op::Add(5)], &[Op::Add(MOST)], &[Op::Add(SIGN)], &[Op::Add(MINUS_ONE)]],
    ops: &[
        Op::Add(3),
        Op::Add(MINUS_ONE),
        Op::Load,
        Op::StoreIfEqual(0, 7),
        Op::StoreIfEqual(5, MINUS_ONE),
        Op::StoreIfEqual(SIGN, 0),
        Op::AddIf(1, SIGN),
        Op::AddIf(MINUS_ONE, SIGN),
        Op::AddIf(SIGN, SIGN),
        Op::AddIf(MOST, SIGN),
        Op::AddIf(3, !7),
        Op::AddIf(1, 0),
        Op::AddIf(0, MINUS_ONE),
    ],
    intrusions: &[
        &[],
        &[Op::Add(1)],
        &[Op::Add(MINUS_ONE)],
        &[Op::Add(1), Op::Add(MINUS_ONE)],
        &[Op::StoreIfEqual(5, 0), Op::StoreIfEqual(0, 5)],
        &[Op::AddIf(MINUS_ONE, SIGN), Op::Load],
        &[Op::Stop],
    ],
};

const LISTS: Family = Family {
    setups: &[
        &[],
        &[Op::ListPush(0)],
        &[Op::ListPush(1), Op::ListPush(0)],
        &[Op::ListPush(2), Op::ListPush(1), Op::ListPush(0)],
    ],
    ops: &[Op::ListPush(3), Op::ListPop],
    intrusions: &[
        &[],
        &[Op::ListPush(4)],
        &[Op::ListPop],
        &[Op::ListPop, Op::ListPushPopped],
        // ABA: the first node is the first again, but not the second the second.
        &[Op::ListPop, Op::ListPop, Op::ListPushPopped],
        &[Op::ListPop, Op::ListPop, Op::ListPop, Op::ListPop],
        &[Op::Stop],
    ],
};

const STACKS: Family = Family {
    setups: &[
        &[],
        &[Op::StackPush(0)],
        &[Op::StackPushBatch(STACK - 1)],
        &[Op::StackPushBatch(STACK)],
    ],
    ops: &[
        Op::StackPush(9),
        Op::StackPop,
        Op::StackPushBatch(0),
        Op::StackPushBatch(1),
        Op::StackPushBatch(3),
        Op::StackPushBatch(STACK + 4),
        Op::StackPopBatch(0),
        Op::StackPopBatch(1),
        Op::StackPopBatch(3),
        Op::StackPopBatch(STACK + 4),
    ],
    intrusions: &[
        &[],
        &[Op::StackPush(20)],
        &[Op::StackPop],
        &[Op::StackPop, Op::StackPush(20)],
        &[Op::StackPushBatch(STACK + 1)],
        &[Op::StackPopBatch(STACK + 1)],
        &[Op::StackPopBatch(STACK), Op::StackPushBatch(STACK)],
        &[Op::Stop],
    ],
};

const BUFFERS: Family = Family {
    setups: &[&[], &[Op::Append(5)], &[Op::Append(BUFFER - 1)], &[Op::Append(BUFFER)]],
    ops: &[
        Op::Append(0),
        Op::Append(1),
        Op::Append(7),
        Op::Append(8),
        Op::Append(9),
        Op::Append(BUFFER),
        Op::Append(BUFFER + 1),
    ],
    intrusions: &[
        &[],
        &[Op::Append(1)],
        &[Op::Append(3), Op::Append(8)],
        &[Op::Append(BUFFER)],
        &[Op::Stop],
    ],
};
