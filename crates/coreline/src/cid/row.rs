//! The word of a row: the state of a CPU in a space. The rows themselves, a word for each CPU, are
//! [`Rows`](coreline_world::restartable::Rows).
//!
//! # The word
//!
//! | bits | meaning |
//! |---|---|
//! | 31..19 | in `Kept`: when the ID was last used, in milliseconds, modulo 2^13; else 0 |
//! | 18..16 | the state |
//! | 15..0 | the ID; 0 in `None` |
//!
//! | state | value | meaning | becomes |
//! |---|---|---|---|
//! | `Held` | 0 | in use: by the task that runs here, or by this CPU's sections | `Kept` |
//! | `Put` | 1 | held, and wanted back: it goes when its holder stops | `Recent` |
//! | `Drop` | 2 | the same, and must not be remembered | `None` |
//! | `Kept` | 3 | unused; the next task or section here takes it | `Held`, `Recent`, `None` |
//! | `Recent` | 4 | the CPU has none, and remembers this one | `Held`, `Kept`, `None` |
//! | `None` | 5 | the CPU has none and remembers none | `Held`, `Kept` |
//!
//! One field is enough for the current ID and the recent one: a CPU that gets an ID remembers that
//! one.
//!
//! # What a section sees
//!
//! A word is below the number of IDs exactly if the state is `Held`. Then the word is the ID. So a
//! restartable section that works on the memory of its CPU's ID loads the pointer to the line,
//! loads the word, and compares once. All failures end in the same slow path: no line, no ID, an ID
//! without a slot, or an ID that is about to be taken away.

use coreline_world::{Ordering, Time, Word, World};

/// A word of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Row(u32);

const _: () = {
    assert!(size_of::<Row>() == 4);
    assert!(align_of::<Row>() == 4);
    assert!((State::None as u32) < 1 << (SINCE - STATE));
};

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Held,
    Put,
    Drop,
    Kept,
    Recent,
    None,
}

const STATE: u32 = 16;
const SINCE: u32 = 19;
/// A time has the remaining bits.
const TIME: u32 = u32::MAX >> SINCE;

/// How long a thread may stop between reading the clock and scanning: a second.
const AHEAD: u32 = 1000;

impl Row {
    pub(super) const NONE: Row = Row::new(State::None, 0);

    /// The word.
    pub(super) const fn word(self) -> u32 {
        self.0
    }

    const fn new(state: State, cid: u32) -> Row {
        Row((state as u32) << STATE | cid)
    }

    pub(super) const fn held(cid: u32) -> Row {
        Row::new(State::Held, cid)
    }

    pub(super) fn kept(cid: u32, now: Time) -> Row {
        Row(Row::new(State::Kept, cid).0 | millis(now) << SINCE)
    }

    /// The same ID in another state, which is not `Kept`. In `None` there is no ID.
    pub(super) const fn become_(self, state: State) -> Row {
        if matches!(state, State::None) {
            return Row::NONE;
        }
        Row::new(state, self.cid())
    }

    pub(super) const fn cid(self) -> u32 {
        self.0 & u16::MAX as u32
    }

    pub(super) fn state(self) -> State {
        match self.0 >> STATE & 7 {
            0 => State::Held,
            1 => State::Put,
            2 => State::Drop,
            3 => State::Kept,
            4 => State::Recent,
            _ => State::None,
        }
    }

    /// Whether the ID is in use.
    pub(super) fn is_in_use(self) -> bool {
        matches!(self.state(), State::Held | State::Put | State::Drop)
    }

    /// The ID, if it belongs to this row: in use, or kept.
    pub(super) fn current(self) -> Option<u32> {
        (self.is_in_use() || self.state() == State::Kept).then_some(self.cid())
    }

    /// The ID that the CPU has or had last.
    pub(super) fn recent(self) -> Option<u32> {
        (self.state() != State::None).then_some(self.cid())
    }

    /// How many milliseconds have ended since a kept ID was used. The result may be wrong by a
    /// multiple of 2^13 ms (8.192 s). A timer that looks each 100 ms finds the ID old before that.
    /// It is 0 if the ID was used since `now` was read, if that is not longer ago than [`AHEAD`].
    pub(super) fn idle_millis(self, now: Time) -> u32 {
        let idle = millis(now).wrapping_sub(self.0 >> SINCE) & TIME;
        if idle >= TIME + 1 - AHEAD { 0 } else { idle }
    }

    /// Reads a row. A thread reaches the ID's memory only after an exchange.
    pub(super) fn load<W: World>(word: &W::U32) -> Row {
        // Relaxed: the exchange that takes the ID acquires.
        Row(word.load(Ordering::Relaxed))
    }

    /// The ID, if sections may use it. It comes with everything that was done before the row
    /// [showed](Self::store) it.
    pub(super) fn shown<W: World>(word: &W::U32) -> Option<u32> {
        // Acquire: pairs with the Release in `store`: the ID's memory is there.
        let row = Row(word.load(Ordering::Acquire));
        (row.state() == State::Held).then_some(row.cid())
    }

    /// Writes a row that no other thread changes meanwhile.
    pub(super) fn store<W: World>(self, word: &W::U32) {
        // Release: pairs with the Acquire of `replace`, and of `shown`. A thread that takes the ID
        // from this row later, or uses it here, sees what was done before it came here.
        word.store(self.0, Ordering::Release);
    }

    /// Writes `new` if the row still has this value; returns whether it did.
    pub(super) fn replace<W: World>(self, word: &W::U32, new: Row) -> bool {
        // Acquire and Release pair with each other, on the same row: a thread that takes a kept ID,
        // for use or away, sees what the last holder wrote to the ID's memory before it let go.
        // Relaxed on failure: nothing was taken.
        let exchanged = word.compare_exchange(self.0, new.0, Ordering::AcqRel, Ordering::Relaxed);
        exchanged.is_ok()
    }
}

/// A time in the form that rows store.
fn millis(at: Time) -> u32 {
    (at.as_nanos() / 1_000_000) as u32 & TIME
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_the_id_exactly_if_it_is_held() {
        let held = Row::held(u32::from(u16::MAX));
        assert_eq!(held.0, u32::from(u16::MAX));
        let kept = [0, 1_234_567_890, u64::MAX].map(|now| Row::kept(0, Time::from_nanos(now)));
        for row in [held, kept[2]] {
            let others = [State::Put, State::Drop, State::Recent, State::None];
            for other in others.map(|state| row.become_(state)).into_iter().chain(kept) {
                assert!(other.0 > u32::from(u16::MAX), "{other:?}");
            }
            assert_eq!(row.become_(State::Held).0, row.cid(), "{row:?}");
        }
    }

    #[test]
    fn what_is_written_reads_back() {
        for state in [State::Held, State::Put, State::Drop, State::Recent, State::None] {
            assert_eq!(Row::held(7).become_(state).state(), state);
        }
        let at = |micros: u64| Time::from_nanos(micros * 1000);
        let kept = Row::kept(9, at(8_188_000));
        assert_eq!((kept.state(), kept.cid()), (State::Kept, 9));
        assert_eq!(kept.idle_millis(at(8_198_999)), 10, "it wraps");
        assert_eq!(kept.idle_millis(at(7_188_000)), 0, "a second ahead");
        assert_eq!(kept.idle_millis(at(7_187_999)), 7191, "no longer than that");
        assert_eq!(kept.idle_millis(at(8_188_000 + 8_192_000 + 300_000)), 300, "and once round");
        let before = Row::kept(9, at(99_999));
        assert_eq!([199_999, 200_000].map(|now| before.idle_millis(at(now))), [100, 101]);
    }
}
