//! Sections on words.

macro_rules! add {
    ($point:ident, $by:ident, $at:expr, $delta:expr, $no_slot:block $(, $($more:tt)+)?) => {
        section!(
            $point, $by, $at, $no_slot,
            [
                $point!("3"),
                "ldr {scratch}, [{slot}]",
                $point!("4"),
                "add {scratch}, {scratch}, {delta}",
                "str {scratch}, [{slot}]",
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
                "ldr {value}, [{slot}]",
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
                "ldr {old}, [{slot}]",
                $point!("4"),
                "mov {status}, {refused}",
                "cmp {old}, {expected}",
                "b.ne 8f",
                $point!("5"),
                "str {new}, [{slot}]",
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
                "ldr {old}, [{slot}]",
                $point!("4"),
                "mov {status}, {refused}",
                "add {sum}, {old}, {delta}",
                "eor {scratch}, {old}, {sum}",
                "tst {scratch}, {fixed}",
                "b.ne 8f",
                $point!("5"),
                "str {sum}, [{slot}]",
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
