//! Sections on lists.

macro_rules! list_push {
    ($point:ident, $by:ident, $at:expr, $node:expr, $no_slot:block $(, $($more:tt)+)?) => {
        section!(
            $point, $by, $at, $no_slot,
            [
                $point!("3"),
                "mov {below}, qword ptr [{first} + {slot}]",
                $point!("4"),
                "mov qword ptr [{node}], {below}",
                $point!("5"),
                "mov qword ptr [{first} + {slot}], {node}",
            ],
            below = out(reg) _,
            node = in(reg) $node,
            $($($more)+,)?
        )
    };
}

macro_rules! list_pop {
    ($point:ident, $by:ident, $at:expr, $node:ident, $status:ident $(, $($more:tt)+)?) => {
        section!(
            $point, $by, $at, $status,
            [
                $point!("3"),
                "mov {node}, qword ptr [{first} + {slot}]",
                $point!("4"),
                "mov {status:e}, {refused}",
                "test {node}, {node}",
                "jz 8f",
                $point!("5"),
                "mov {below}, qword ptr [{node}]",
                $point!("6"),
                "mov qword ptr [{first} + {slot}], {below}",
            ],
            below = out(reg) _,
            node = out(reg) $node,
            refused = const $crate::arch::status::REFUSED,
            $($($more)+,)?
        )
    };
}
