//! Sections on stacks. The length lies at 0, entry *i* at 8 + 8 *i*; the capacity is a constant, or
//! the word at -8.

macro_rules! stack_push {
    ($point:ident, $by:ident, const $capacity:expr, $($arguments:tt)*) => {
        stack_push!(
            @ ["cmp {len}, {capacity}", "jae {full}",], [capacity = const $capacity,],
            $point, $by, $($arguments)*
        )
    };
    ($point:ident, $by:ident, word, $($arguments:tt)*) => {
        stack_push!(
            @ ["cmp {len}, qword ptr [{slot} - 8]", "jae {full}", $point!("8"),], [],
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
                "add {slot}, {first}",
                $point!("3"),
                "mov {len}, qword ptr [{slot}]",
                $point!("4"),
                $($fits)*
                "mov qword ptr [{slot} + {len} * 8 + 8], {value}",
                $point!("5"),
                "inc {len}",
                "mov qword ptr [{slot}], {len}",
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
                "add {slot}, {first}",
                $point!("3"),
                "mov {len}, qword ptr [{slot}]",
                $point!("4"),
                "mov {status:e}, {refused}",
                "test {len}, {len}",
                "jz 8f",
                "mov {value}, qword ptr [{slot} + {len} * 8]",
                $point!("5"),
                "dec {len}",
                "mov qword ptr [{slot}], {len}",
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
            @ ["mov {count:e}, {capacity}", "sub {count}, {len}",],
            [capacity = const $capacity,],
            $point, $by, $($arguments)*
        )
    };
    ($point:ident, $by:ident, word, $($arguments:tt)*) => {
        stack_push_batch!(
            @ [
                "mov {count}, qword ptr [{slot} - 8]",
                "sub {count}, {len}",
                // There is none where more is on the stack.
                "jae 9f",
                "xor {count:e}, {count:e}",
                "9:",
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
                "add {slot}, {first}",
                $point!("3"),
                "mov {len}, qword ptr [{slot}]",
                $point!("4"),
                // As many as are wanted, or as there is room for.
                $($room)*
                "cmp {count}, {wanted}",
                "cmova {count}, {wanted}",
                "lea {to}, [{slot} + {len} * 8 + 8]",
                "xor {copied:e}, {copied:e}",
                "9:",
                $point!("5"),
                "cmp {copied}, {count}",
                "jae 9f",
                "mov {value}, qword ptr [{values} + {copied} * 8]",
                "mov qword ptr [{to} + {copied} * 8], {value}",
                "inc {copied}",
                "jmp 9b",
                "9:",
                "add {len}, {count}",
                $point!("6"),
                "mov qword ptr [{slot}], {len}",
            ],
            len = out(reg) _,
            to = out(reg) _,
            copied = out(reg) _,
            value = out(reg) _,
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
                "add {slot}, {first}",
                $point!("3"),
                "mov {len}, qword ptr [{slot}]",
                $point!("4"),
                // As many as are wanted, or as there are.
                "mov {count}, {len}",
                "cmp {count}, {wanted}",
                "cmova {count}, {wanted}",
                "lea {from}, [{slot} + {len} * 8]",
                "xor {copied:e}, {copied:e}",
                "9:",
                $point!("5"),
                "cmp {copied}, {count}",
                "jae 9f",
                "mov {value}, qword ptr [{from}]",
                "mov qword ptr [{into} + {copied} * 8], {value}",
                "sub {from}, 8",
                "inc {copied}",
                "jmp 9b",
                "9:",
                "sub {len}, {count}",
                $point!("6"),
                "mov qword ptr [{slot}], {len}",
            ],
            len = out(reg) _,
            from = out(reg) _,
            copied = out(reg) _,
            value = out(reg) _,
            count = out(reg) $count,
            into = in(reg) $into,
            wanted = in(reg) $wanted,
            $($($more)+,)?
        )
    };
}
