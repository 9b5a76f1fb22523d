//! Sections on lists.

macro_rules! list_push {
    ($point:ident, $by:ident, $at:expr, $node:expr, $no_slot:block $(, $($more:tt)+)?) => {
        section!(
            $point, $by, $at, $no_slot,
            [
                $point!("3"),
                "ldr {scratch}, [{slot}]",
                $point!("4"),
                "str {scratch}, [{node}]",
                $point!("5"),
                "stlr {node}, [{slot}]",
            ],
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
                "ldr {node}, [{slot}]",
                $point!("4"),
                "mov {status}, {refused}",
                "cbz {node}, 8f",
                $point!("5"),
                "ldr {scratch}, [{node}]",
                $point!("6"),
                "stlr {scratch}, [{slot}]",
            ],
            node = out(reg) $node,
            refused = const $crate::arch::status::REFUSED,
            $($($more)+,)?
        )
    };
}
