//! The section on buffers. The length lies at 0, byte *i* at 8 + *i*.

macro_rules! append {
    (
        $point:ident, $by:ident, $at:expr, $capacity:expr, $bytes:expr, $count:expr,
        $begin:ident, $status:ident $(, $($more:tt)+)?
    ) => {
        section!(
            $point, $by, $at, $status,
            [
                $point!("3"),
                "ldr {begin}, [{slot}]",
                $point!("4"),
                "mov {status}, {refused}",
                "add {end}, {begin}, {count}",
                "mov {scratch}, {capacity}",
                "cmp {end}, {scratch}",
                "b.hi 8f",
                "add {to}, {slot}, {begin}",
                "add {to}, {to}, 8",
                // Eight bytes at a time, then one at a time.
                "mov {copied}, xzr",
                "9:",
                $point!("5"),
                "add {scratch}, {copied}, 8",
                "cmp {scratch}, {count}",
                "b.hi 9f",
                "ldr {value}, [{bytes}, {copied}]",
                "str {value}, [{to}, {copied}]",
                "mov {copied}, {scratch}",
                "b 9b",
                "9:",
                $point!("6"),
                "cmp {copied}, {count}",
                "b.hs 9f",
                "ldrb {value:w}, [{bytes}, {copied}]",
                "strb {value:w}, [{to}, {copied}]",
                "add {copied}, {copied}, 1",
                "b 9b",
                "9:",
                $point!("7"),
                "stlr {end}, [{slot}]",
            ],
            end = out(reg) _,
            to = out(reg) _,
            copied = out(reg) _,
            value = out(reg) _,
            begin = out(reg) $begin,
            bytes = in(reg) $bytes,
            count = in(reg) $count,
            capacity = const $capacity,
            refused = const $crate::arch::status::REFUSED,
            $($($more)+,)?
        )
    };
}
