//! The assembly of each operation's section, with the names of its scratch registers.
//!
//! A word has 32 bits (`half`) or 64 (`whole`); a `pointer` is one of 64. In a stack the length
//! lies at 0, entry *i* at 8 + 8 *i*; the capacity is the word at -8.

/// A value's register, by its name and the word's width: accesses are as wide as it is.
macro_rules! register {
    (half, $name:literal) => {
        concat!("{", $name, ":w}")
    };
    ($width:ident, $name:literal) => {
        concat!("{", $name, ":x}")
    };
}

/// Commits a value. A pointer carries what it points to; an integer only itself.
macro_rules! commit {
    (pointer, $name:literal) => {
        concat!("stlr ", register!(pointer, $name), ", [{slot}]")
    };
    ($width:ident, $name:literal) => {
        concat!("str ", register!($width, $name), ", [{slot}]")
    };
}

/// Hands the text of an operation to [`section`], with its points. The operands have the names of
/// the operation's fields, and of what it returns.
macro_rules! text {
    (add $width:ident, $point:ident, $($section:tt)*) => {
        section!($point, [
            $point!("3"),
            concat!("ldr ", register!($width, "scratch"), ", [{slot}]"),
            $point!("4"),
            "add {scratch}, {scratch}, {delta:x}",
            commit!($width, "scratch"),
        ], [], $($section)*)
    };
    (load $width:ident, $point:ident, $($section:tt)*) => {
        section!($point, [
            $point!("3"),
            concat!("ldr ", register!($width, "value"), ", [{slot}]"),
        ], [], $($section)*)
    };
    (exchange $width:ident, $point:ident, $($section:tt)*) => {
        section!($point, [
            $point!("3"),
            concat!("ldr ", register!($width, "old"), ", [{slot}]"),
            $point!("4"),
            commit!($width, "new"),
        ], [], $($section)*)
    };
    (store_if_equal $width:ident, $point:ident, $($section:tt)*) => {
        section!($point, [
            $point!("3"),
            concat!("ldr ", register!($width, "old"), ", [{slot}]"),
            $point!("4"),
            "mov {status}, {refused}",
            concat!("cmp ", register!($width, "old"), ", ", register!($width, "expected")),
            "b.ne 8f",
            $point!("5"),
            commit!($width, "new"),
        ], [], $($section)*)
    };
    (add_if $width:ident, $point:ident, $($section:tt)*) => {
        section!($point, [
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
        ], [], $($section)*)
    };
    (stack_push, $point:ident, $($section:tt)*) => {
        section!($point, [
            $point!("3"),
            "ldr {len}, [{slot}]",
            $point!("4"),
            "ldr {room}, [{slot}, -8]",
            "add {to}, {slot}, {len}, lsl 3",
            // The last entry is in the room, and there is one.
            "sub {scratch}, {len}, 1",
            "cmp {scratch}, {room}",
            "b.hs 12f",
            $point!("5"),
            "ldr {scratch}, [{to}]",
            "cbz {scratch}, 9f",
            "12:",
            "cmp {len}, {room}",
            "b.hs {full}",
            "add {len}, {len}, 1",
            $point!("6"),
            "str xzr, [{to}, 8]!",
            $point!("7"),
            "str {len}, [{slot}]",
            "9:",
            $point!("8"),
            "stlr {value}, [{to}]",
        ], [len to room], $($section)*)
    };
    (stack_pop, $point:ident, $($section:tt)*) => {
        section!($point, [
            $point!("3"),
            "ldr {len}, [{slot}]",
            $point!("4"),
            "add {scratch}, {slot}, {len}, lsl 3",
            // Without entries it is the length that is read: null as well.
            "ldr {value}, [{scratch}]",
            "cbnz {value}, 9f",
            "mov {status}, {refused}",
            "subs {len}, {len}, 1",
            "b.ls 8f",
            $point!("5"),
            "ldr {value}, [{scratch}, -8]!",
            $point!("6"),
            "str {len}, [{slot}]",
            "9:",
            $point!("7"),
            "stlr xzr, [{scratch}]",
        ], [len], $($section)*)
    };
    (stack_push_batch, $point:ident, $($section:tt)*) => {
        section!($point, [
            $point!("3"),
            "ldr {len}, [{slot}]",
            $point!("4"),
            "ldr {count}, [{slot}, -8]",
            "cbz {len}, 9f",
            $point!("5"),
            "ldr {scratch}, [{slot}, {len}, lsl 3]",
            "cbnz {scratch}, 9f",
            "sub {len}, {len}, 1",
            "9:",
            $point!("6"),
            "str {len}, [{slot}]",
            // As many as are wanted, or as there is room for: none where more is on the stack.
            "subs {count}, {count}, {len}",
            "csel {count}, {count}, xzr, hs",
            "cmp {count}, {wanted}",
            "csel {count}, {count}, {wanted}, lo",
            "add {to}, {slot}, {len}, lsl 3",
            "add {to}, {to}, 8",
            "mov {copied}, xzr",
            "9:",
            $point!("7"),
            "cmp {copied}, {count}",
            "b.hs 9f",
            "ldr {scratch}, [{values}, {copied}, lsl 3]",
            "str {scratch}, [{to}, {copied}, lsl 3]",
            "add {copied}, {copied}, 1",
            "b 9b",
            "9:",
            "add {len}, {len}, {count}",
            $point!("8"),
            "stlr {len}, [{slot}]",
        ], [len to copied], $($section)*)
    };
    (stack_pop_batch, $point:ident, $($section:tt)*) => {
        section!($point, [
            $point!("3"),
            "ldr {len}, [{slot}]",
            "cbz {len}, 9f",
            $point!("4"),
            "ldr {scratch}, [{slot}, {len}, lsl 3]",
            "cbnz {scratch}, 9f",
            "sub {len}, {len}, 1",
            "9:",
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
        ], [len from copied], $($section)*)
    };
}
