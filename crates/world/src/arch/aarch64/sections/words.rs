//! Sections on words, of 32 bits (`half`) and of 64 (`whole`); a `pointer` is one of 64.

/// A value's register, by its name and the word's width: accesses are as wide as it is.
macro_rules! register {
    (half, $name:literal) => {
        concat!("{", $name, ":w}")
    };
    ($width:ident, $name:literal) => {
        concat!("{", $name, ":x}")
    };
}

/// Commits a value. A pointer carries what it points to, as a list does; an integer only itself.
macro_rules! commit {
    (pointer, $name:literal) => {
        concat!("stlr ", register!(pointer, $name), ", [{slot}]")
    };
    ($width:ident, $name:literal) => {
        concat!("str ", register!($width, $name), ", [{slot}]")
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
                concat!("ldr ", register!($width, "scratch"), ", [{slot}]"),
                $point!("4"),
                "add {scratch}, {scratch}, {delta:x}",
                commit!($width, "scratch"),
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
                concat!("ldr ", register!($width, "value"), ", [{slot}]"),
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
                $point!("3"),
                concat!("ldr ", register!($width, "old"), ", [{slot}]"),
                $point!("4"),
                commit!($width, "new"),
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
                concat!("ldr ", register!($width, "old"), ", [{slot}]"),
                $point!("4"),
                "mov {status}, {refused}",
                concat!("cmp ", register!($width, "old"), ", ", register!($width, "expected")),
                "b.ne 8f",
                $point!("5"),
                commit!($width, "new"),
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
                concat!("ldr ", register!($width, "old"), ", [{slot}]"),
                $point!("4"),
                "mov {status}, {refused}",
                "add {sum:x}, {old:x}, {delta:x}",
                "eor {scratch}, {old:x}, {sum:x}",
                // Where the word has no upper half, that of the sum is anything, and not looked at.
                concat!("tst ", register!($width, "scratch"), ", ", register!($width, "fixed")),
                "b.ne 8f",
                $point!("5"),
                commit!($width, "sum"),
            ],
            old = out(reg) $old,
            sum = out(reg) $sum,
            delta = in(reg) $delta,
            fixed = in(reg) $fixed,
            refused = const $crate::arch::status::REFUSED,
            $($($more)+,)?
        )
    };
}
