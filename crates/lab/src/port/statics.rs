//! Statics, and which types hold something that threads share.

use std::collections::BTreeSet;

use super::mirrors::is_shared;
use super::tokens::Tokens;

#[derive(Debug)]
pub(super) enum Static {
    /// Threads share what it holds.
    Shared(Shared),
    /// It stays unchanged, although threads may share its value. This has its kind and the reason.
    Left(String, &'static str),
    /// Threads only read it, or it is none.
    Plain,
}

/// The places of a declaration.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) keyword: usize,
    pub(super) name: String,
    /// The first and last token of its type.
    pub(super) of_type: (usize, usize),
    /// And of its initial value.
    pub(super) value: (usize, usize),
}

/// The declaration by the keyword `static` and a name.
pub(super) fn declared(tokens: &Tokens<'_>, keyword: usize, name: usize) -> Option<Shared> {
    let text = tokens.word(name)?.to_owned();
    if !tokens.is_mark(name + 1, ':') {
        return None;
    }
    let first = name + 2;
    let mut at = first;
    // `=` in angle brackets names an associated type.
    let mut angles = 0_usize;
    loop {
        if at >= tokens.len() || tokens.is_close(at) || tokens.is_mark(at, ';') {
            return None;
        }
        let is_arrow = tokens.is_mark(at.wrapping_sub(1), '-');
        match () {
            () if tokens.is_mark(at, '<') => angles += 1,
            () if tokens.is_mark(at, '>') && !is_arrow => angles = angles.saturating_sub(1),
            () if tokens.is_mark(at, '=') && angles == 0 => break,
            () => {}
        }
        at = tokens.after(at);
    }
    let end = tokens.find(at + 1, ';')?;
    let is_whole = at > first && end > at + 1;
    is_whole.then(|| Shared {
        keyword,
        name: text,
        of_type: (first, at - 1),
        value: (at + 1, end - 1),
    })
}

/// The kind of the `static` at this token; `shared` are the package's own types that are shared.
pub(super) fn read(tokens: &Tokens<'_>, keyword: usize, shared: &BTreeSet<String>) -> Static {
    if tokens.is_word(keyword + 1, "mut") {
        let name = tokens.word(keyword + 2).unwrap_or("_");
        let why = "a static lies outside of the machine's memory; its accesses are not charged";
        return Static::Left(format!("static mut {name}"), why);
    }
    // In a macro, `static $name: Type`.
    let is_given = tokens.is_mark(keyword + 1, '$');
    let name = keyword + 1 + usize::from(is_given);
    let Some(it) = declared(tokens, keyword, name) else { return Static::Plain };
    let (first, last) = it.of_type;
    if tokens.is_word(first, "coreline_sim") && tokens.is_word(first + 3, "Static") {
        return Static::Plain;
    }
    let mut words = (first..=last).filter_map(|number| tokens.word(number));
    if !words.any(|word| is_shared(word) || shared.contains(word)) {
        return Static::Plain;
    }
    if is_given {
        let why =
            "its name is an argument of a macro; a `coreline_sim::Static` needs its name as text";
        return Static::Left(format!("static ${}", it.name), why);
    }
    if is_of_thread(tokens, keyword) {
        let why = "a simulated thread is not a thread of the host: use `thread_local!`";
        return Static::Left(format!("#[thread_local] static {}", it.name), why);
    }
    Static::Shared(it)
}

/// Whether `#[thread_local]` is among the attributes before a static.
fn is_of_thread(tokens: &Tokens<'_>, keyword: usize) -> bool {
    let near = keyword.saturating_sub(16)..keyword;
    let mut attributes = near.rev().take_while(|number| !tokens.is_mark(*number, ';'));
    attributes.any(|number| tokens.is_word(number, "thread_local") && tokens.is_close(number + 1))
}

/// Whether a method takes `self: Arc<Self>`.
pub(super) fn takes_arc(tokens: &Tokens<'_>) -> bool {
    (0..tokens.len()).any(|number| {
        let is_receiver = tokens.is_word(number, "self") && tokens.is_mark(number + 1, ':');
        let end = tokens.find(number, ',').unwrap_or(number + 12).min(number + 12);
        let mut words = (number + 2..end).filter_map(|it| tokens.word(it));
        is_receiver && !tokens.is_path(number + 1) && words.any(|word| word == "Arc")
    })
}

/// The types that a file declares, each with the words in its declaration.
pub(super) fn types(tokens: &Tokens<'_>) -> Vec<(String, BTreeSet<String>)> {
    let mut found = Vec::new();
    for number in 0..tokens.len() {
        let is_type =
            ["struct", "enum", "union", "type"].iter().any(|it| tokens.is_word(number, it));
        let Some(name) = tokens.word(number + 1).filter(|_| is_type) else { continue };
        let mut words = BTreeSet::new();
        let mut at = number + 2;
        while at < tokens.len() && !tokens.is_close(at) && !tokens.is_mark(at, ';') {
            let (begin, end) = (at, tokens.after(at));
            words.extend((begin..end).filter_map(|it| tokens.word(it)).map(str::to_owned));
            at = end;
            if tokens.is_braces(begin) {
                break;
            }
        }
        found.push((name.to_owned(), words));
    }
    found
}

/// The types among these that hold something shared, directly or through each other.
pub(super) fn shared(types: &[(String, BTreeSet<String>)]) -> BTreeSet<String> {
    let mut shared = BTreeSet::new();
    loop {
        let is_new = |name: &String, words: &BTreeSet<String>| {
            let is_one = |word: &String| is_shared(word) || shared.contains(word);
            !shared.contains(name) && words.iter().any(is_one)
        };
        let new: Vec<_> = types
            .iter()
            .filter(|(name, words)| is_new(name, words))
            .map(|it| it.0.clone())
            .collect();
        if new.is_empty() {
            return shared;
        }
        shared.extend(new);
    }
}
