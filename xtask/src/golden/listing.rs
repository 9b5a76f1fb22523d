//! Functions in the compiler's assembler text, with everything taken out that is not an
//! instruction.

use std::collections::{HashMap, HashSet};

use crate::error::Error;

/// An instruction, or a label that an instruction refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    /// With names replaced: local labels are `L1`, `L2` and other symbols `<1>`, `<2>`, in the
    /// order in which the function refers to them. So code is equal if it differs in names only.
    pub(super) text: String,
    /// Whether it lies in another section than the function: an abort handler, off the fast path.
    pub(super) away: bool,
    pub(super) is_label: bool,
}

/// The names that functions or their aliases in the text have before `suffix`, sorted.
pub(super) fn names<'a>(assembler: &'a str, suffix: &str) -> Vec<&'a str> {
    let aliases = assembler.lines().filter_map(alias).map(|(name, _)| name);
    let labels = assembler.lines().filter_map(|line| line.strip_suffix(':'));
    let mut names: Vec<_> =
        labels.chain(aliases).filter_map(|name| name.strip_suffix(suffix)).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// The instructions of the function `name`.
pub(super) fn function(assembler: &str, name: &str) -> Result<Vec<Line>, Error> {
    // The compiler folds functions that are equal into one, with an alias.
    let alias = assembler.lines().filter_map(alias).find(|(alias, _)| *alias == name);
    let label = alias.map_or(name, |(_, target)| target);
    let mut section = "";
    let mut home = None;
    let mut lines: Vec<(&str, bool)> = Vec::new();
    let mut left_out = false;
    for line in assembler.lines() {
        let line = code(line);
        // The compiler hands the text of `asm!` on as it is, conditions and all.
        if let Some(condition) = line.strip_prefix(".if ") {
            left_out = !holds(condition);
        } else if line == ".endif" {
            left_out = false;
        } else if left_out {
            continue;
        } else if let Some(name) = line.strip_prefix(".section") {
            section = name.split(',').next().unwrap_or_default().trim();
        } else if line.strip_suffix(':') == Some(label) {
            home = Some(section);
        } else if line.starts_with(".Lfunc_end") && home.is_some() {
            return Ok(rename(&lines));
        } else if let Some(home) = home
            && !line.is_empty()
            && (line.ends_with(':') || !line.starts_with('.'))
        {
            lines.push((line, section != home));
        }
    }
    Err(Error::NoFunction(name.to_owned()))
}

/// Whether a condition of the form `4 == 24` holds. Others are not in use.
fn holds(condition: &str) -> bool {
    condition.split_once("==").is_some_and(|(left, right)| left.trim() == right.trim())
}

/// The two names of a line that makes the first an alias of the second.
fn alias(line: &str) -> Option<(&str, &str)> {
    match line.strip_prefix("\t.set\t") {
        Some(names) => names.split_once(", "),
        None if line.starts_with(char::is_whitespace) => None,
        None => line.split_once(" = "),
    }
}

/// A line without comments. `#` begins one on x86 and an immediate on other processors.
fn code(line: &str) -> &str {
    let line = line.split("//").next().unwrap_or_default();
    let line = if super::CLASSES_KNOWN { line.split('#').next() } else { Some(line) };
    line.unwrap_or_default().trim()
}

/// Replaces names, and drops the labels that nothing refers to.
fn rename(lines: &[(&str, bool)]) -> Vec<Line> {
    let labels: HashSet<_> = lines.iter().filter_map(|(line, _)| line.strip_suffix(':')).collect();
    let mut local = HashMap::new();
    let mut foreign = HashMap::new();
    let mut renamed = Vec::new();
    for &(line, away) in lines.iter().filter(|(line, _)| !line.ends_with(':')) {
        renamed.push(instruction(line, away, |name| {
            let (known, open, close) = if labels.contains(name) {
                (&mut local, "L", "")
            } else if name.starts_with('_') || name.contains(['.', '$', '@']) {
                (&mut foreign, "<", ">")
            } else {
                return name.to_owned();
            };
            let next = known.len() + 1;
            format!("{open}{}{close}", known.entry(name.to_owned()).or_insert(next))
        }));
    }
    let mut renamed = renamed.into_iter();
    let with_labels = lines.iter().filter_map(|&(line, away)| match line.strip_suffix(':') {
        Some(label) => local.get(label).map(|number| {
            let text = format!("L{number}:");
            Line { text, away, is_label: true }
        }),
        None => renamed.next(),
    });
    with_labels.collect()
}

/// One instruction, its white space made even and each name in its operands given to `rename`.
fn instruction(line: &str, away: bool, mut rename: impl FnMut(&str) -> String) -> Line {
    let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '$' | '@');
    let mut words = line.split_whitespace();
    let mut text = words.next().unwrap_or_default().to_owned();
    for word in words {
        text.push(' ');
        let mut rest = word;
        while !rest.is_empty() {
            let length = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
            let (name, tail) = rest.split_at(length);
            text += &rename(name);
            let length = tail.find(is_name).unwrap_or(tail.len());
            let (between, tail) = tail.split_at(length);
            text += between;
            rest = tail;
        }
    }
    Line { text, away, is_label: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
	.section	.text.slow,\"ax\",@progbits
slow:
	ret
.Lfunc_end0:
	.section	.text.f_generic,\"ax\",@progbits
	.globl	f_generic
f_generic:
	.cfi_startproc
	mov	eax, 1
	#APP
.Ltmp7:
	.section	__rseq_cs,\"aw\",@progbits
.Ltmp8:
	.long	0
	.section	__rseq_failure,\"ax\",@progbits
	jmp	.Ltmp7
	.section	.text.f_generic,\"ax\",@progbits
.Ltmp9:
	#NO_APP
	lea	rcx, [rip + .Ltmp8]
	lock		xadd	dword ptr [rdi], eax
	mov	rdx, qword ptr [rip + _RNv1a4FLAG@GOTPCREL]
	jne	.LBB1_2
	call	_RNv1a4slow
	call	_RNv1a4slow
.LBB1_2:
	jmp	_RNv1a5other
.Lfunc_end1:
	.size	f_generic, .Lfunc_end1-f_generic
	.type	g_generic,@function
g_generic = slow
";

    fn texts(name: &str) -> Vec<String> {
        let lines = function(TEXT, name).expect("the function is there");
        lines.into_iter().map(|line| line.text).collect()
    }

    #[test]
    fn instructions_remain_and_names_go() {
        let mut expected = vec![
            "mov eax, 1",
            "L1:",
            "L2:",
            "jmp L1",
            "lea rcx, [rip + L2]",
            "lock xadd dword ptr [rdi], eax",
            "mov rdx, qword ptr [rip + <1>]",
            "jne L3",
            "call <2>",
            "call <2>",
            "L3:",
            "jmp <3>",
        ];
        assert_eq!(texts("f_generic"), expected);
        let away = function(TEXT, "f_generic").expect("the function is there");
        expected.retain(|text| away.iter().any(|line| line.away && line.text == *text));
        assert_eq!(expected, ["L2:", "jmp L1"]);
    }

    #[test]
    fn an_alias_is_the_function_it_stands_for() {
        assert_eq!(texts("g_generic"), ["ret"]);
        assert_eq!(names(TEXT, "_generic"), ["f", "g"]);
    }

    #[test]
    fn a_missing_function_is_named() {
        let error = function(TEXT, "h_generic").expect_err("there is none");
        assert!(error.to_string().contains("h_generic"));
    }
}
