//! The text of each operation's section, with the names of the registers that it uses up.
//!
//! A word has 32 bits (`half`) or 64 (`whole`); a `pointer` is one of 64. In a stack the length
//! lies at 0, entry *i* at 8 + 8 *i*; the capacity is the word at -8.

/// A value's register, by its name and the word's width.
macro_rules! register {
    (half, $name:literal) => {
        concat!("{", $name, ":e}")
    };
    ($width:ident, $name:literal) => {
        concat!("{", $name, ":r}")
    };
}

/// The word in the slot, with all of its bytes and no other.
macro_rules! word {
    (half) => {
        "dword ptr [{first} + {slot}]"
    };
    ($width:ident) => {
        "qword ptr [{first} + {slot}]"
    };
}

/// Hands the text of an operation to [`section`], with its points. The operands have the names of
/// the operation's fields, and of what it returns.
macro_rules! text {
    (add $width:ident, $point:ident, $($section:tt)*) => {
        section!($point, [
            $point!("3"),
            // Loads, adds and commits.
            concat!("add ", word!($width), ", ", register!($width, "delta")),
        ], [], $($section)*)
    };
    (load $width:ident, $point:ident, $($section:tt)*) => {
        section!($point, [
            $point!("3"),
            concat!("mov ", register!($width, "value"), ", ", word!($width)),
        ], [], $($section)*)
    };
    (exchange $width:ident, $point:ident, $($section:tt)*) => {
        section!($point, [
            // Not `xchg`, which locks the line.
            $point!("3"),
            concat!("mov ", register!($width, "old"), ", ", word!($width)),
            $point!("4"),
            concat!("mov ", word!($width), ", ", register!($width, "new")),
        ], [], $($section)*)
    };
    (store_if_equal $width:ident, $point:ident, $($section:tt)*) => {
        section!($point, [
            $point!("3"),
            concat!("mov ", register!($width, "old"), ", ", word!($width)),
            $point!("4"),
            "mov {status:e}, {refused}",
            concat!("cmp ", register!($width, "old"), ", ", register!($width, "expected")),
            "jne 8f",
            $point!("5"),
            concat!("mov ", word!($width), ", ", register!($width, "new")),
        ], [], $($section)*)
    };
    (add_if $width:ident, $point:ident, $($section:tt)*) => {
        section!($point, [
            $point!("3"),
            concat!("mov ", register!($width, "old"), ", ", word!($width)),
            $point!("4"),
            "mov {status:e}, {refused}",
            // What the sum's upper half would be is anything where the word has none.
            concat!("lea ", register!($width, "sum"), ", [{old:r} + {delta:r}]"),
            concat!("mov ", register!($width, "changed"), ", ", register!($width, "old")),
            concat!("xor ", register!($width, "changed"), ", ", register!($width, "sum")),
            concat!("test ", register!($width, "changed"), ", ", register!($width, "fixed")),
            "jnz 8f",
            $point!("5"),
            concat!("mov ", word!($width), ", ", register!($width, "sum")),
        ], [changed], $($section)*)
    };
    (stack_push, $point:ident, $($section:tt)*) => {
        section!($point, [
            "add {slot}, {first}",
            $point!("3"),
            "mov {len}, qword ptr [{slot}]",
            $point!("4"),
            // The last entry is in the room, and there is one.
            "lea {last}, [{len} - 1]",
            "cmp {last}, qword ptr [{slot} - 8]",
            "jae 12f",
            $point!("5"),
            "cmp qword ptr [{slot} + {len} * 8], 0",
            "je 9f",
            "12:",
            "cmp {len}, qword ptr [{slot} - 8]",
            "jae {full}",
            $point!("6"),
            "mov qword ptr [{slot} + {len} * 8 + 8], 0",
            "inc {len}",
            $point!("7"),
            "mov qword ptr [{slot}], {len}",
            "9:",
            $point!("8"),
            "mov qword ptr [{slot} + {len} * 8], {value}",
        ], [len last], $($section)*)
    };
    (stack_pop, $point:ident, $($section:tt)*) => {
        section!($point, [
            "add {slot}, {first}",
            $point!("3"),
            "mov {len}, qword ptr [{slot}]",
            $point!("4"),
            // Without entries it is the length that is read: null as well.
            "mov {value}, qword ptr [{slot} + {len} * 8]",
            "test {value}, {value}",
            "jnz 9f",
            "mov {status:e}, {refused}",
            "sub {len}, 1",
            "jbe 8f",
            $point!("5"),
            "mov {value}, qword ptr [{slot} + {len} * 8]",
            $point!("6"),
            "mov qword ptr [{slot}], {len}",
            "9:",
            $point!("7"),
            "mov qword ptr [{slot} + {len} * 8], 0",
        ], [len], $($section)*)
    };
    (stack_push_batch, $point:ident, $($section:tt)*) => {
        section!($point, [
            "add {slot}, {first}",
            $point!("3"),
            "mov {len}, qword ptr [{slot}]",
            $point!("4"),
            "mov {count}, qword ptr [{slot} - 8]",
            "test {len}, {len}",
            "jz 9f",
            $point!("5"),
            "cmp qword ptr [{slot} + {len} * 8], 0",
            "jne 9f",
            "dec {len}",
            "9:",
            $point!("6"),
            "mov qword ptr [{slot}], {len}",
            // As many as are wanted, or as there is room for: none where more is on the stack.
            "sub {count}, {len}",
            "jae 9f",
            "xor {count:e}, {count:e}",
            "9:",
            "cmp {count}, {wanted}",
            "cmova {count}, {wanted}",
            "lea {to}, [{slot} + {len} * 8 + 8]",
            "xor {copied:e}, {copied:e}",
            "9:",
            $point!("7"),
            "cmp {copied}, {count}",
            "jae 9f",
            "mov {value}, qword ptr [{values} + {copied} * 8]",
            "mov qword ptr [{to} + {copied} * 8], {value}",
            "inc {copied}",
            "jmp 9b",
            "9:",
            "add {len}, {count}",
            $point!("8"),
            "mov qword ptr [{slot}], {len}",
        ], [len to copied value], $($section)*)
    };
    (stack_pop_batch, $point:ident, $($section:tt)*) => {
        section!($point, [
            "add {slot}, {first}",
            $point!("3"),
            "mov {len}, qword ptr [{slot}]",
            "test {len}, {len}",
            "jz 9f",
            $point!("4"),
            "cmp qword ptr [{slot} + {len} * 8], 0",
            "jne 9f",
            "dec {len}",
            "9:",
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
        ], [len from copied value], $($section)*)
    };
}
