//! Sections on stacks. The length lies at 0, entry *i* at 8 + 8 *i*; the capacity is a constant, or
//! the word at -8.

macro_rules! stack_push {
    ($point:ident, $by:ident, const $capacity:expr, $($arguments:tt)*) => {
        stack_push!(
            @ ["mov {scratch}, {capacity}", "cmp {len}, {scratch}", "b.hs {full}",],
            [capacity = const $capacity,],
            $point, $by, $($arguments)*
        )
    };
    ($point:ident, $by:ident, word, $($arguments:tt)*) => {
        stack_push!(
            @ ["ldr {scratch}, [{slot}, -8]", "cmp {len}, {scratch}", "b.hs {full}", $point!("8"),],
            [],
            $point, $by, $($arguments)*
        )
    };
    (
        @ [$($fits:tt)*], [$($capacity:tt)*], $point:ident, $by:ident, $at:expr, $value:expr,
        $no_slot:block, $full:block $(, $($more:tt)+)?
    ) => {
        section!(
            $point, $by, $at, $no_slot,
            [
                $point!("3"),
                "ldr {len}, [{slot}]",
                $point!("4"),
                $($fits)*
                "add {scratch}, {slot}, {len}, lsl 3",
                "str {value}, [{scratch}, 8]",
                $point!("5"),
                "add {len}, {len}, 1",
                "stlr {len}, [{slot}]",
            ],
            len = out(reg) _,
            value = in(reg) $value,
            full = label $full,
            $($capacity)*
            $($($more)+,)?
        )
    };
}

macro_rules! stack_pop {
    ($point:ident, $by:ident, $at:expr, $value:ident, $status:ident $(, $($more:tt)+)?) => {
        section!(
            $point, $by, $at, $status,
            [
                $point!("3"),
                "ldr {len}, [{slot}]",
                $point!("4"),
                "mov {status}, {refused}",
                "cbz {len}, 8f",
                "add {scratch}, {slot}, {len}, lsl 3",
                "ldr {value}, [{scratch}]",
                $point!("5"),
                "sub {len}, {len}, 1",
                "stlr {len}, [{slot}]",
            ],
            len = out(reg) _,
            value = out(reg) $value,
            refused = const $crate::arch::status::REFUSED,
            $($($more)+,)?
        )
    };
}

macro_rules! stack_push_batch {
    ($point:ident, $by:ident, const $capacity:expr, $($arguments:tt)*) => {
        stack_push_batch!(
            @ ["mov {count}, {capacity}", "sub {count}, {count}, {len}",],
            [capacity = const $capacity,],
            $point, $by, $($arguments)*
        )
    };
    ($point:ident, $by:ident, word, $($arguments:tt)*) => {
        stack_push_batch!(
            @ [
                "ldr {count}, [{slot}, -8]",
                "subs {count}, {count}, {len}",
                // There is none where more is on the stack.
                "csel {count}, {count}, xzr, hs",
            ],
            [],
            $point, $by, $($arguments)*
        )
    };
    (
        @ [$($room:tt)*], [$($capacity:tt)*], $point:ident, $by:ident, $at:expr, $values:expr,
        $wanted:expr, $count:ident, $status:ident $(, $($more:tt)+)?
    ) => {
        section!(
            $point, $by, $at, $status,
            [
                $point!("3"),
                "ldr {len}, [{slot}]",
                $point!("4"),
                // As many as are wanted, or as there is room for.
                $($room)*
                "cmp {count}, {wanted}",
                "csel {count}, {count}, {wanted}, lo",
                "add {to}, {slot}, {len}, lsl 3",
                "add {to}, {to}, 8",
                "mov {copied}, xzr",
                "9:",
                $point!("5"),
                "cmp {copied}, {count}",
                "b.hs 9f",
                "ldr {scratch}, [{values}, {copied}, lsl 3]",
                "str {scratch}, [{to}, {copied}, lsl 3]",
                "add {copied}, {copied}, 1",
                "b 9b",
                "9:",
                "add {len}, {len}, {count}",
                $point!("6"),
                "stlr {len}, [{slot}]",
            ],
            len = out(reg) _,
            to = out(reg) _,
            copied = out(reg) _,
            count = out(reg) $count,
            values = in(reg) $values,
            wanted = in(reg) $wanted,
            $($capacity)*
            $($($more)+,)?
        )
    };
}

macro_rules! stack_pop_batch {
    (
        $point:ident, $by:ident, $at:expr, $into:expr, $wanted:expr, $count:ident, $status:ident
        $(, $($more:tt)+)?
    ) => {
        section!(
            $point, $by, $at, $status,
            [
                $point!("3"),
                "ldr {len}, [{slot}]",
                $point!("4"),
                // As many as are wanted, or as there are.
                "cmp {len}, {wanted}",
                "csel {count}, {len}, {wanted}, lo",
                "add {from}, {slot}, {len}, lsl 3",
                "mov {copied}, xzr",
                "9:",
                $point!("5"),
                "cmp {copied}, {count}",
                "b.hs 9f",
                "ldr {scratch}, [{from}], -8",
                "str {scratch}, [{into}, {copied}, lsl 3]",
                "add {copied}, {copied}, 1",
                "b 9b",
                "9:",
                "sub {len}, {len}, {count}",
                $point!("6"),
                "stlr {len}, [{slot}]",
            ],
            len = out(reg) _,
            from = out(reg) _,
            copied = out(reg) _,
            count = out(reg) $count,
            into = in(reg) $into,
            wanted = in(reg) $wanted,
            $($($more)+,)?
        )
    };
}
