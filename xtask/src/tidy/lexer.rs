//! Just enough of Rust's lexical rules to tell code from comments and literals.

/// Rust source as two texts of the same lines: what is not part of one is blank in it.
///
/// Literals are in neither, except for the quotes of strings, which stay in `code`.
pub(crate) struct Lexed {
    pub(crate) code: String,
    pub(crate) comments: String,
}

#[derive(Clone, Copy, PartialEq)]
enum TextKind {
    Code,
    Comment,
    Literal,
}

impl Lexed {
    /// Splits `source`. An unterminated comment or literal reaches to the end.
    pub(crate) fn new(source: &str) -> Self {
        let mut lexed = Lexed { code: String::new(), comments: String::new() };
        let mut rest = source;
        while let Some(first) = rest.chars().next() {
            let (kind, length) = if rest.starts_with("//") {
                (TextKind::Comment, rest.find('\n').unwrap_or(rest.len()))
            } else if rest.starts_with("/*") {
                (TextKind::Comment, block_comment(rest))
            } else if first == '"' {
                (TextKind::Literal, quoted(rest, '"'))
            } else if first == '\'' {
                char_or_lifetime(rest)
            } else if is_word(first) {
                word_or_prefixed_literal(rest)
            } else {
                (TextKind::Code, first.len_utf8())
            };
            let (token, tail) = rest.split_at(length);
            lexed.push(kind, token);
            rest = tail;
        }
        lexed
    }

    fn push(&mut self, kind: TextKind, token: &str) {
        for c in token.chars() {
            let keep = |wanted| if kind == wanted || c == '\n' { c } else { ' ' };
            self.code.push(if kind == TextKind::Literal && c == '"' {
                c
            } else {
                keep(TextKind::Code)
            });
            self.comments.push(keep(TextKind::Comment));
        }
    }

    /// The tokens of the code, each with its line (from 1): words, `::`, and single characters.
    pub(crate) fn tokens(&self) -> Vec<(usize, &str)> {
        let mut tokens = Vec::new();
        for (index, line) in self.code.lines().enumerate() {
            let mut rest = line.trim_start();
            while let Some(first) = rest.chars().next() {
                let length = if is_word(first) {
                    word(rest)
                } else if rest.starts_with("::") {
                    2
                } else {
                    first.len_utf8()
                };
                let (token, tail) = rest.split_at(length);
                tokens.push((index + 1, token));
                rest = tail.trim_start();
            }
        }
        tokens
    }

    /// Whether each line (from 0) belongs to an item under `#[cfg(test)]`, or under a
    /// `#[cfg(all(test, ..))]`.
    pub(crate) fn test_lines(&self) -> Vec<bool> {
        let mut lines = vec![false; self.code.lines().count()];
        let tokens = self.tokens();
        for start in 0..tokens.len() {
            let text = |at: usize| tokens.get(at).map(|&(_, token)| token);
            let begins = |attribute: &[&str]| {
                attribute.iter().enumerate().all(|(i, &want)| text(start + i) == Some(want))
            };
            let alone = ["#", "[", "cfg", "(", "test", ")", "]"];
            if !begins(&alone) && !begins(&["#", "[", "cfg", "(", "all", "(", "test", ","]) {
                continue;
            }
            let mut depth = 0;
            let end = tokens[start + alone.len()..].iter().find(|&&(_, token)| {
                depth += i32::from(token == "{") - i32::from(token == "}");
                depth == 0 && (token == "}" || token == ";")
            });
            let last = end.map_or(lines.len(), |&(line, _)| line);
            lines[tokens[start].0 - 1..last].fill(true);
        }
        lines
    }
}

/// The paths that begin with one of `roots` in the tokens, use-groups spelled out, each with the
/// line of its last segment: `use std::{fs, sync::{self, Mutex}}` names `std::fs`, `std::sync` and
/// `std::sync::Mutex`.
pub(crate) fn paths<'a>(tokens: &[(usize, &'a str)], roots: &[&str]) -> Vec<(usize, Vec<&'a str>)> {
    let mut found: Vec<Import<'_>> = Vec::new();
    for at in 0..tokens.len() {
        // `super::super::a` is one path.
        let goes_on = at > 1 && tokens[at - 1].1 == "::" && roots.contains(&tokens[at - 2].1);
        let leads = tokens.get(at + 1).is_some_and(|next| next.1 == "::");
        if roots.contains(&tokens[at].1) && leads && !goes_on {
            use_tree(tokens, at, &[], &mut found);
        }
    }
    found.into_iter().map(|Import { line, path, .. }| (line, path)).collect()
}

/// What a `use` brings into its module.
pub(crate) struct Import<'a> {
    /// The line of the path's last segment.
    line: usize,
    /// The path, without `self`: `*` is its last segment if all of a module comes.
    pub(crate) path: Vec<&'a str>,
    /// The name behind `as`; otherwise the path's last segment.
    pub(crate) name: &'a str,
}

/// What the `use` declarations in the tokens bring, use-groups spelled out. A path that begins with
/// `self` is returned without it.
pub(crate) fn imports<'a>(tokens: &[(usize, &'a str)]) -> Vec<Import<'a>> {
    let mut found = Vec::new();
    for at in 0..tokens.len() {
        // Not the `use<..>` that says which lifetimes a type captures.
        if tokens[at].1 == "use" && tokens.get(at + 1).is_some_and(|next| next.1 != "<") {
            use_tree(tokens, at + 1, &[], &mut found);
        }
    }
    found
}

/// Reads the use-tree that begins at token `at`, below `prefix`; returns the index behind it.
fn use_tree<'a>(
    tokens: &[(usize, &'a str)],
    mut at: usize,
    prefix: &[&'a str],
    found: &mut Vec<Import<'a>>,
) -> usize {
    let mut path = prefix.to_vec();
    let mut line = tokens[at].0;
    while let Some(&(here, token)) = tokens.get(at) {
        if token == "{" {
            return use_group(tokens, at + 1, &path, found);
        }
        if token != "*" && !token.chars().all(is_word) {
            break;
        }
        line = here;
        if token != "self" {
            path.push(token);
        }
        at += 1;
        if tokens.get(at).is_none_or(|next| next.1 != "::") {
            break;
        }
        at += 1;
    }
    let renamed = tokens.get(at).zip(tokens.get(at + 1)).filter(|(word, _)| word.1 == "as");
    let name = renamed.map(|(_, name)| name.1).or(path.last().copied()).unwrap_or_default();
    found.push(Import { line, path, name });
    at
}

/// Reads the use-trees from token `at` to the closing brace; returns the index behind it.
fn use_group<'a>(
    tokens: &[(usize, &'a str)],
    mut at: usize,
    prefix: &[&'a str],
    found: &mut Vec<Import<'a>>,
) -> usize {
    let ends = |at: usize| tokens.get(at).is_none_or(|token| matches!(token.1, "," | "}"));
    while at < tokens.len() {
        match tokens[at].1 {
            "}" => return at + 1,
            "," => at += 1,
            _ => {
                at = use_tree(tokens, at, prefix, found);
                // What is left of the element is `as` and a name.
                while !ends(at) {
                    at += 1;
                }
            }
        }
    }
    at
}

fn is_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

fn word(text: &str) -> usize {
    text.find(|c| !is_word(c)).unwrap_or(text.len())
}

/// The length of the block comment, with those nested in it, that `text` begins with.
fn block_comment(text: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        if rest.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

/// The length of the literal with escapes that `text` begins with: it opens and closes with
/// `quote`.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        if !escaped && c == quote {
            return at + c.len_utf8();
        }
        escaped = !escaped && c == '\\';
    }
    text.len()
}

/// `'x'` and `'\n'` are literals; `'a` is a lifetime or label.
fn char_or_lifetime(text: &str) -> (TextKind, usize) {
    let mut chars = text.chars().skip(1);
    match (chars.next(), chars.next()) {
        (Some('\\'), _) | (Some(_), Some('\'')) => (TextKind::Literal, quoted(text, '\'')),
        _ => (TextKind::Code, 1),
    }
}

/// A word, or the literal that a prefix such as `r`, `b` or `cr` begins.
fn word_or_prefixed_literal(text: &str) -> (TextKind, usize) {
    let length = word(text);
    let (prefix, rest) = text.split_at(length);
    let raw = matches!(prefix, "r" | "br" | "cr");
    let hashes = rest.len() - rest.trim_start_matches('#').len();
    if raw && rest[hashes..].starts_with('"') {
        let close = format!("\"{}", "#".repeat(hashes));
        let body = length + hashes + 1;
        let end = text[body..].find(&close).map_or(text.len(), |at| body + at + close.len());
        (TextKind::Literal, end)
    } else if matches!(prefix, "b" | "c") && rest.starts_with('"') {
        (TextKind::Literal, length + quoted(rest, '"'))
    } else if prefix == "b" && rest.starts_with('\'') {
        (TextKind::Literal, length + quoted(rest, '\''))
    } else {
        (TextKind::Code, length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words of `source` that are code.
    fn code(source: &str) -> Vec<String> {
        let lexed = Lexed::new(source);
        assert_eq!(lexed.code.lines().count(), source.lines().count(), "lines are kept");
        assert_eq!(lexed.comments.lines().count(), source.lines().count(), "lines are kept");
        let words = lexed.tokens().into_iter().filter(|(_, t)| t.chars().all(is_word));
        words.map(|(_, token)| token.to_owned()).collect()
    }

    #[test]
    fn comments_are_not_code() {
        assert_eq!(code("a // b\nc /* d\n e /* f */ g */ h\n//! i\n/// j"), ["a", "c", "h"]);
        assert_eq!(code("a /* b"), ["a"]);
        assert!(Lexed::new("a // why").comments.contains("// why"));
    }

    #[test]
    fn strings_are_not_code() {
        assert_eq!(code(r#"a "b \" c" d b"e" c"f \\" g"#), ["a", "d", "g"]);
        assert_eq!(code("a r\"b\\\" c r#\"d \" e\"# f br##\"g \"# h\"## i"), ["a", "c", "f", "i"]);
        assert_eq!(code("a \"// b\nc\" d // e"), ["a", "d"]);
    }

    #[test]
    fn a_raw_identifier_is_code() {
        assert_eq!(code("r#type r#\"x\"#"), ["r", "type"]);
    }

    #[test]
    fn chars_and_lifetimes_are_told_apart() {
        assert_eq!(
            code(r"fn f<'a>(x: &'a u8) { '\'' ; b'\\' ; '/' ; 'y' ; 'b: loop {} }"),
            ["fn", "f", "a", "x", "a", "u8", "b", "loop"]
        );
        assert_eq!(code("'\"' a '\"' b"), ["a", "b"]);
        assert_eq!(code(r"'\u{2f}' a"), ["a"]);
    }

    #[test]
    fn tokens_know_their_lines() {
        let lexed = Lexed::new("use a::b;\n\n  c!(d)");
        let tokens = lexed.tokens();
        assert_eq!(tokens[..5], [(1, "use"), (1, "a"), (1, "::"), (1, "b"), (1, ";")]);
        assert_eq!(tokens[5..], [(3, "c"), (3, "!"), (3, "("), (3, "d"), (3, ")")]);
    }

    #[test]
    fn use_groups_are_spelled_out() {
        let lexed = Lexed::new("use std::{fs,\n sync::{self, Mutex as M, atomic::*}, io::Read};");
        let found: Vec<_> = paths(&lexed.tokens(), &["std"])
            .into_iter()
            .map(|(line, path)| format!("{line} {}", path.join("::")))
            .collect();
        assert_eq!(
            found,
            [
                "1 std::fs",
                "2 std::sync",
                "2 std::sync::Mutex",
                "2 std::sync::atomic::*",
                "2 std::io::Read"
            ]
        );
    }

    #[test]
    fn imports_have_the_names_that_they_bring() {
        let lexed =
            Lexed::new("pub use a::{self, b as c, d::*};\nfn f() -> impl use<'_> + a::B {}");
        let found: Vec<_> = imports(&lexed.tokens())
            .into_iter()
            .map(|import| format!("{} as {}", import.path.join("::"), import.name))
            .collect();
        assert_eq!(found, ["a as a", "a::b as c", "a::d::* as *"]);
    }

    #[test]
    fn only_items_under_cfg_test_are_test_lines() {
        let lexed = Lexed::new("a\n#[cfg(test)]\nmod tests {\n { }\n}\nb\n#[cfg(test)]\nmod c;\nd");
        let lines = lexed.test_lines();
        assert_eq!(lines, [false, true, true, true, true, false, true, true, false]);
        let lexed =
            Lexed::new("#[cfg(all(test, not(miri)))]\nmod a;\n#[cfg(any(test, b))]\nfn c() {}");
        assert_eq!(lexed.test_lines(), [true, true, false, false]);
    }
}
