//! Sections on words.

macro_rules! add {
    ($point:ident, $by:ident, $at:expr, $delta:expr, $no_slot:block $(, $($more:tt)+)?) => {
        section!(
            $point, $by, $at, $no_slot,
            [
                $point!("3"),
                // Loads, adds and commits.
                "add qword ptr [{first} + {slot}], {delta}",
            ],
            delta = in(reg) $delta,
            $($($more)+,)?
        )
    };
}

macro_rules! load {
    ($point:ident, $by:ident, $at:expr, $value:ident, $status:ident $(, $($more:tt)+)?) => {
        section!(
            $point, $by, $at, $status,
            [
                $point!("3"),
                "mov {value}, qword ptr [{first} + {slot}]",
            ],
            value = out(reg) $value,
            $($($more)+,)?
        )
    };
}

macro_rules! store_if_equal {
    (
        $point:ident, $by:ident, $at:expr, $expected:expr, $new:expr, $old:ident, $status:ident
        $(, $($more:tt)+)?
    ) => {
        section!(
            $point, $by, $at, $status,
            [
                $point!("3"),
                "mov {old}, qword ptr [{first} + {slot}]",
                $point!("4"),
                "mov {status:e}, {refused}",
                "cmp {old}, {expected}",
                "jne 8f",
                $point!("5"),
                "mov qword ptr [{first} + {slot}], {new}",
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
        $point:ident, $by:ident, $at:expr, $delta:expr, $fixed:expr, $old:ident, $sum:ident,
        $status:ident $(, $($more:tt)+)?
    ) => {
        section!(
            $point, $by, $at, $status,
            [
                $point!("3"),
                "mov {old}, qword ptr [{first} + {slot}]",
                $point!("4"),
                "mov {status:e}, {refused}",
                "lea {sum}, [{old} + {delta}]",
                "mov {changed}, {old}",
                "xor {changed}, {sum}",
                "test {changed}, {fixed}",
                "jnz 8f",
                $point!("5"),
                "mov qword ptr [{first} + {slot}], {sum}",
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
