//! One source file: only what leads into the standard library's shared things changes, and
//! everything else stays byte for byte.

use std::collections::BTreeSet;
use std::ops::Range;

use serde::Serialize;

use super::mirrors::{Leads, WAITS, is_std, leads, of_crate};
use super::statics::{self, Static};
use super::tokens::{Tokens, Unread};
use super::uses::{Part, use_tree};

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Change {
    /// From 1.
    pub(super) line: usize,
    pub(super) from: String,
    pub(super) to: String,
}

/// A place that threads share, and that stays as it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct Left {
    /// From 1.
    pub(super) line: usize,
    pub(super) what: String,
    pub(super) why: String,
}

/// The known facts about a package before its files are ported.
#[derive(Debug, Default)]
pub(super) struct Of<'a> {
    /// Its types that hold something shared.
    pub(super) shared: BTreeSet<String>,
    /// Whether a method takes `self: Arc<Self>`.
    pub(super) keeps_arc: bool,
    /// The packages that are ported with it.
    pub(super) ported: &'a [String],
}

#[derive(Debug, Default)]
pub(super) struct Ported {
    pub(super) text: String,
    pub(super) changes: Vec<Change>,
    pub(super) left: Vec<Left>,
    /// How many places name `UnsafeCell`, whose data is not charged.
    pub(super) uncharged: usize,
    /// How many places lead into loom, which is not there without its `cfg`.
    pub(super) loom: usize,
}

struct Work<'a> {
    tokens: &'a Tokens<'a>,
    of: &'a Of<'a>,
    edits: Vec<(Range<usize>, String)>,
    /// The opening and the closing token of each module around the current place.
    modules: Vec<(usize, usize)>,
    /// The opening tokens of modules that the copy does not have.
    gone: Vec<usize>,
    done: Ported,
}

pub(super) fn port(text: &str, of: &Of<'_>) -> Result<Ported, Unread> {
    let tokens = Tokens::new(text)?;
    let (modules, gone) = (Vec::new(), Vec::new());
    let done = Ported::default();
    let mut work = Work { tokens: &tokens, of, edits: Vec::new(), modules, gone, done };
    work.walk();
    let Work { mut edits, mut done, .. } = work;
    // Stable: what is put in at one place stays in its order.
    edits.sort_by_key(|(at, _)| (at.start, at.end));
    let mut end = 0;
    for (at, to) in edits {
        done.text += &text[end..at.start];
        done.text += &to;
        end = at.end;
    }
    done.text += &text[end..];
    done.left.sort();
    done.left.dedup();
    Ok(done)
}

impl Work<'_> {
    fn walk(&mut self) {
        let tokens = self.tokens;
        let mut number = 0;
        // Behind this token, statics are no longer those of a `thread_local!`.
        let mut of_thread = 0;
        while number < tokens.len() {
            let Some(word) = tokens.word(number) else {
                number += 1;
                continue;
            };
            self.modules.retain(|(_, close)| number < *close);
            let is_macro = tokens.is_mark(number + 1, '!') && tokens.close(number + 2).is_some();
            match word {
                "use" if !tokens.is_mark(number + 1, '<') => {
                    let (parts, end) = use_tree(tokens, number + 1, self.of.keeps_arc);
                    parts.into_iter().for_each(|part| self.part(part));
                    number = end.max(number + 1);
                    continue;
                }
                "mod" => {
                    let modules = &mut self.modules;
                    modules.extend(tokens.close(number + 2).map(|close| (number + 2, close)));
                }
                "asm" | "global_asm" | "naked_asm" if is_macro => {
                    let why = "assembly takes no simulated time, and its accesses are not charged";
                    self.left(number, format!("{word}!"), why);
                }
                "thread_local" if is_macro => {
                    of_thread = tokens.after(number + 2);
                    if !tokens.is_led_to(number) {
                        self.change(number, "thread_local!", "coreline_sim::thread_local!");
                        self.edits.push((tokens.at(number), "coreline_sim::thread_local".into()));
                    }
                }
                "lazy_static" if is_macro => self.lazy_static(number),
                "static"
                    if !tokens.is_mark(number.wrapping_sub(1), '\'') && number >= of_thread =>
                {
                    match statics::read(tokens, number, &self.of.shared) {
                        Static::Shared(it) => self.shared(&it),
                        Static::Left(what, why) => self.left(number, what, why),
                        Static::Plain => {}
                    }
                }
                _ if tokens.begins_path(number) => {
                    number = self.path(number);
                    continue;
                }
                _ => {}
            }
            number += 1;
        }
    }

    /// Handles a path that is not imported. Returns the token after it.
    fn path(&mut self, root: usize) -> usize {
        let tokens = self.tokens;
        let mut path = vec![tokens.word(root).unwrap_or_default()];
        let mut end = root + 1;
        while tokens.is_path(end) {
            let Some(name) = tokens.word(end + 2) else { break };
            path.push(name);
            end += 3;
        }
        // These macros are looked at by their own names.
        let name = path.last().copied().unwrap_or_default();
        let is_macro = matches!(name, "thread_local" | "lazy_static");
        let macro_or = |end| if is_macro { end - 1 } else { end };
        let (whole, first) = (path.join("::"), path[0].to_owned());
        if !is_std(&first) {
            self.foreign(root, &first, whole);
            return macro_or(end);
        }
        match leads(&path[1..], self.of.keeps_arc) {
            Leads::Mirrored => {
                let to = whole.replacen(&first, "coreline_sim", 1);
                self.change(root, &whole, &to);
                self.edits.push((tokens.at(root), "coreline_sim".to_owned()));
            }
            Leads::To(to) => {
                let to = format!("coreline_sim::{to}");
                // What comes behind is the type's own.
                let at = tokens.at(root).start..tokens.at(root + 6).end;
                self.change(root, &whole, &to);
                self.edits.push((at, to));
            }
            Leads::Missing(why) => self.left(root, whole, why),
            Leads::Uncharged => self.done.uncharged += 1,
            Leads::HostThread => self.host_thread(root, whole),
            Leads::Same | Leads::Elsewhere => {}
        }
        macro_or(end)
    }

    fn part(&mut self, part: Part) {
        let tokens = self.tokens;
        match part {
            Part::Root(root) => {
                let end = tokens.find(root, ';').unwrap_or(root + 1) - 1;
                let from = tokens.source(root, end);
                let name = tokens.word(root).unwrap_or_default();
                self.change(root, &from, &from.replacen(name, "coreline_sim", 1));
                self.edits.push((tokens.at(root), "coreline_sim".to_owned()));
            }
            Part::Split(from, end, to) => {
                self.change(from, &tokens.source(from, end), &to);
                self.edits.push((tokens.at(from).start..tokens.at(end).end, to));
            }
            Part::Left { token, path, why } => self.left(token, path, why),
            Part::HostThread { token, path } => self.host_thread(token, path),
            Part::Uncharged => self.done.uncharged += 1,
            Part::Foreign { token, root, path } => self.foreign(token, &root, path),
        }
    }

    /// If code uses what an operating system adds to threads, the whole enclosing module is
    /// removed. Such a module mostly has no other purpose.
    fn host_thread(&mut self, token: usize, path: String) {
        match self.modules.last() {
            Some((open, _)) if self.gone.contains(open) => {}
            Some(&(open, _)) => {
                self.gone.push(open);
                let name = self.tokens.word(open - 1).unwrap_or_default();
                self.change(
                    open - 2,
                    &format!("mod {name}"),
                    "left out because it is about threads of the host",
                );
                let behind = self.tokens.at(open).end;
                self.edits.push((behind..behind, "#![cfg(any())]".to_owned()));
            }
            None => self.left(token, path, "a simulated thread is not a thread of the host"),
        }
    }

    /// A path that begins with a crate other than std.
    fn foreign(&mut self, token: usize, root: &str, path: String) {
        match root {
            "loom" => self.done.loom += 1,
            "libc"
                if ["futex", "syscall", "pthread", "sched"].iter().any(|it| path.contains(it)) =>
            {
                self.left(token, path, "a wait on the host stops the whole machine");
            }
            // Of packages that only meet in their words the manifest's report speaks.
            _ if self.of.ported.iter().any(|name| name.replace('-', "_") == root) => {}
            _ => {
                if let Some(why) = of_crate(root).filter(|why| *why == WAITS) {
                    self.left(token, path, why);
                }
            }
        }
    }

    /// A static that threads share becomes one of the machine.
    fn shared(&mut self, it: &statics::Shared) {
        let tokens = self.tokens;
        let of_type = tokens.source(it.of_type.0, it.of_type.1);
        self.change(
            it.keyword,
            &format!("static {}: {of_type}", it.name),
            &format!("static {}: coreline_sim::Static<{of_type}>", it.name),
        );
        let mut put = |at: usize, text: String| self.edits.push((at..at, text));
        put(tokens.at(it.of_type.0).start, "coreline_sim::Static<".to_owned());
        put(tokens.at(it.of_type.1).end, ">".to_owned());
        let new = format!("unsafe {{ coreline_sim::Static::new(\"{}\", || ", it.name);
        put(tokens.at(it.value.0).start, new);
        put(tokens.at(it.value.1).end, ") }".to_owned());
    }

    /// The statics of a `lazy_static!` are the machine's, whatever they hold: they are made while
    /// it runs.
    fn lazy_static(&mut self, name: usize) {
        let tokens = self.tokens;
        let (open, begin) = (name + 2, tokens.path_begin(name));
        let close = tokens.close(open).unwrap_or(open);
        let first = self.done.changes.len();
        let mut number = open + 1;
        while number < close {
            if tokens.is_word(number, "static")
                && tokens.is_word(number + 1, "ref")
                && let Some(it) = statics::declared(tokens, number, number + 2)
            {
                let behind_ref = tokens.at(number + 2).start;
                self.edits.push((tokens.at(number + 1).start..behind_ref, String::new()));
                self.shared(&it);
                // What is in its value is looked at by itself: it may be a `lazy_static!`, too.
                number = it.value.1;
            }
            number += 1;
        }
        if self.done.changes.len() == first {
            self.left(begin, "lazy_static!".to_owned(), "its declarations are not understood");
            return;
        }
        self.change(begin, "lazy_static! { .. }", "its statics themselves");
        self.edits.push((tokens.at(begin).start..tokens.at(open).end, String::new()));
        let end = if tokens.is_mark(close + 1, ';') { close + 1 } else { close };
        self.edits.push((tokens.at(close).start..tokens.at(end).end, String::new()));
    }

    fn change(&mut self, token: usize, from: &str, to: &str) {
        let line = self.tokens.line(token);
        self.done.changes.push(Change { line, from: from.to_owned(), to: to.to_owned() });
    }

    fn left(&mut self, token: usize, what: String, why: &str) {
        let line = self.tokens.line(token);
        self.done.left.push(Left { line, what, why: why.to_owned() });
    }
}
