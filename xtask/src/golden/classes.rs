//! The kinds of instructions that a function has: x86 in Intel syntax.

use super::listing::Line;

/// How many instructions of each class a function has.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Classes {
    total: u32,
    loads: u32,
    stores: u32,
    /// Atomic read-modify-writes, which lock the line.
    rmw: u32,
    branches: u32,
    /// Calls, and unconditional jumps out of the function.
    calls: u32,
}

/// Instructions with a memory operand that touch no memory.
const ADDRESS_ONLY: &[&str] = &["lea", "nop"];

/// Instructions that only read their first operand.
const READS_FIRST: &[&str] = &["call", "cmp", "div", "idiv", "imul", "jmp", "mul", "push", "test"];

impl Classes {
    pub(super) fn count(lines: &[Line]) -> Self {
        let mut classes = Classes::default();
        for line in lines.iter().filter(|line| !line.away && !line.is_label) {
            classes.add(&line.text);
        }
        classes
    }

    fn add(&mut self, instruction: &str) {
        let (mnemonic, operands) = instruction.split_once(' ').unwrap_or((instruction, ""));
        let first = operands.split(',').next().unwrap_or_default();
        let in_memory = |operand: &str| operand.contains('[');
        self.total += 1;
        if mnemonic == "lock" || (mnemonic == "xchg" && in_memory(operands)) {
            self.rmw += 1;
        } else if in_memory(first) && !ADDRESS_ONLY.contains(&mnemonic) {
            let reads_only = READS_FIRST.contains(&mnemonic);
            let writes_only = mnemonic.starts_with("mov") || mnemonic.starts_with("set");
            self.loads += u32::from(!writes_only);
            self.stores += u32::from(!reads_only);
        } else if in_memory(operands) && !ADDRESS_ONLY.contains(&mnemonic) {
            self.loads += 1;
        }
        self.stores += u32::from(mnemonic == "push");
        self.loads += u32::from(mnemonic == "pop");
        let local = first.starts_with('L');
        if mnemonic == "call" || (mnemonic == "jmp" && !local) {
            self.calls += 1;
        } else if mnemonic.starts_with('j') {
            self.branches += 1;
        }
    }

    /// The line of the table for the fast path `name`.
    pub(super) fn row(&self, name: &str) -> String {
        let Classes { total, loads, stores, rmw, branches, calls } = self;
        format!("{name:<21}{total:>8}{loads:>8}{stores:>8}{rmw:>8}{branches:>9}{calls:>8}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(instructions: &[&str]) -> [u32; 6] {
        let line = |text: &&str| Line { text: (*text).into(), away: false, is_label: false };
        let lines: Vec<_> = instructions.iter().map(line).collect();
        let Classes { total, loads, stores, rmw, branches, calls } = Classes::count(&lines);
        [total, loads, stores, rmw, branches, calls]
    }

    #[test]
    fn instructions_are_told_apart() {
        for (instruction, class) in [
            ("ret", [1, 0, 0, 0, 0, 0]),
            ("lea rax, [rip + L1]", [1, 0, 0, 0, 0, 0]),
            ("mov eax, dword ptr [rdi]", [1, 1, 0, 0, 0, 0]),
            ("cmp dword ptr [rdi], 0", [1, 1, 0, 0, 0, 0]),
            ("pop rbx", [1, 1, 0, 0, 0, 0]),
            ("mov qword ptr fs:[rax + 8], rcx", [1, 0, 1, 0, 0, 0]),
            ("push rbx", [1, 0, 1, 0, 0, 0]),
            ("add qword ptr [rdi + rax], rsi", [1, 1, 1, 0, 0, 0]),
            ("inc dword ptr [rdi]", [1, 1, 1, 0, 0, 0]),
            ("lock xadd dword ptr [rdi], eax", [1, 0, 0, 1, 0, 0]),
            ("xchg dword ptr [rdi], eax", [1, 0, 0, 1, 0, 0]),
            ("jne L1", [1, 0, 0, 0, 1, 0]),
            ("jmp L1", [1, 0, 0, 0, 1, 0]),
            ("jmp <1>", [1, 0, 0, 0, 0, 1]),
            ("call qword ptr [rip + <1>]", [1, 1, 0, 0, 0, 1]),
        ] {
            assert_eq!(count(&[instruction]), class, "{instruction}");
        }
        assert_eq!(count(&["pop rbx", "ret"]), [2, 1, 0, 0, 0, 0]);
    }

    #[test]
    fn what_is_not_in_the_way_is_not_counted() {
        let away = Line { text: "jmp L1".into(), away: true, is_label: false };
        let label = Line { text: "L1:".into(), away: false, is_label: true };
        assert_eq!(Classes::count(&[away, label]), Classes::default());
    }
}
