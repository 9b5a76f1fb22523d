//! Sections on words, of 32 bits (`half`) and of 64 (`whole`); a `pointer` is one of 64.

/// A value's register, by its name and the word's width.
macro_rules! register {
    (half, $name:literal) => {
        concat!("{", $name, ":e}")
    };
    ($width:ident, $name:literal) => {
        concat!("{", $name, ":r}")
    };
}

/// The word in the slot, with all of its bytes and no other.
macro_rules! word {
    (half) => {
        "dword ptr [{first} + {slot}]"
    };
    ($width:ident) => {
        "qword ptr [{first} + {slot}]"
    };
}

macro_rules! add {
    (
        $point:ident, $by:ident, $width:ident, $at:expr, $delta:expr, $no_slot:block
        $(, $($more:tt)+)?
    ) => {
        section!(
            $point, $by, $at, $no_slot,
            [
                $point!("3"),
                // Loads, adds and commits.
                concat!("add ", word!($width), ", ", register!($width, "delta")),
            ],
            delta = in(reg) $delta,
            $($($more)+,)?
        )
    };
}

macro_rules! load {
    (
        $point:ident, $by:ident, $width:ident, $at:expr, $value:ident, $status:ident
        $(, $($more:tt)+)?
    ) => {
        section!(
            $point, $by, $at, $status,
            [
                $point!("3"),
                concat!("mov ", register!($width, "value"), ", ", word!($width)),
            ],
            value = out(reg) $value,
            $($($more)+,)?
        )
    };
}

macro_rules! exchange {
    (
        $point:ident, $by:ident, $width:ident, $at:expr, $new:expr, $old:ident, $status:ident
        $(, $($more:tt)+)?
    ) => {
        section!(
            $point, $by, $at, $status,
            [
                // Not `xchg`, which locks the line.
                $point!("3"),
                concat!("mov ", register!($width, "old"), ", ", word!($width)),
                $point!("4"),
                concat!("mov ", word!($width), ", ", register!($width, "new")),
            ],
            old = out(reg) $old,
            new = in(reg) $new,
            $($($more)+,)?
        )
    };
}

macro_rules! store_if_equal {
    (
        $point:ident, $by:ident, $width:ident, $at:expr, $expected:expr, $new:expr, $old:ident,
        $status:ident $(, $($more:tt)+)?
    ) => {
        section!(
            $point, $by, $at, $status,
            [
                $point!("3"),
                concat!("mov ", register!($width, "old"), ", ", word!($width)),
                $point!("4"),
                "mov {status:e}, {refused}",
                concat!("cmp ", register!($width, "old"), ", ", register!($width, "expected")),
                "jne 8f",
                $point!("5"),
                concat!("mov ", word!($width), ", ", register!($width, "new")),
            ],
            old = out(reg) $old,
            expected = in(reg) $expected,
            new = in(reg) $new,
            refused = const $crate::arch::status::REFUSED,
            $($($more)+,)?
        )
    };
}

macro_rules! add_if {
    (
        $point:ident, $by:ident, $width:ident, $at:expr, $delta:expr, $fixed:expr, $old:ident,
        $sum:ident, $status:ident $(, $($more:tt)+)?
    ) => {
        section!(
            $point, $by, $at, $status,
            [
                $point!("3"),
                concat!("mov ", register!($width, "old"), ", ", word!($width)),
                $point!("4"),
                "mov {status:e}, {refused}",
                // What the sum's upper half would be is anything where the word has none.
                concat!("lea ", register!($width, "sum"), ", [{old:r} + {delta:r}]"),
                concat!("mov ", register!($width, "changed"), ", ", register!($width, "old")),
                concat!("xor ", register!($width, "changed"), ", ", register!($width, "sum")),
                concat!("test ", register!($width, "changed"), ", ", register!($width, "fixed")),
                "jnz 8f",
                $point!("5"),
                concat!("mov ", word!($width), ", ", register!($width, "sum")),
            ],
            changed = out(reg) _,
            old = out(reg) $old,
            sum = out(reg) $sum,
            delta = in(reg) $delta,
            fixed = in(reg) $fixed,
            refused = const $crate::arch::status::REFUSED,
            $($($more)+,)?
        )
    };
}
