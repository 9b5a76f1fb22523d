//! The section on buffers. The length lies at 0, byte *i* at 8 + *i*.

macro_rules! append {
    (
        $point:ident, $by:ident, $at:expr, $capacity:expr, $bytes:expr, $count:expr,
        $begin:ident, $status:ident $(, $($more:tt)+)?
    ) => {
        section!(
            $point, $by, $at, $status,
            [
                "add {slot}, {first}",
                $point!("3"),
                "mov {begin}, qword ptr [{slot}]",
                $point!("4"),
                "mov {status:e}, {refused}",
                "lea {value}, [{begin} + {count}]",
                "cmp {value}, {capacity}",
                "ja 8f",
                "lea {to}, [{slot} + {begin} + 8]",
                // Eight bytes at a time, then one at a time.
                "xor {copied:e}, {copied:e}",
                "9:",
                $point!("5"),
                "lea {value}, [{copied} + 8]",
                "cmp {value}, {count}",
                "ja 9f",
                "mov {value}, qword ptr [{bytes} + {copied}]",
                "mov qword ptr [{to} + {copied}], {value}",
                "add {copied}, 8",
                "jmp 9b",
                "9:",
                $point!("6"),
                "cmp {copied}, {count}",
                "jae 9f",
                "movzx {value:e}, byte ptr [{bytes} + {copied}]",
                "mov byte ptr [{to} + {copied}], {value:l}",
                "inc {copied}",
                "jmp 9b",
                "9:",
                $point!("7"),
                "lea {value}, [{begin} + {count}]",
                "mov qword ptr [{slot}], {value}",
            ],
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
