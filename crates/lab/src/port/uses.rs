//! The imports of `use`, and their mirrors.

use super::mirrors::{Leads, is_std, leads};
use super::tokens::Tokens;

/// A name that is imported.
#[derive(Debug)]
struct Leaf {
    /// The path from the root on; its last name may be `*`.
    path: Vec<String>,
    /// `as` another name.
    rename: Option<String>,
    /// The token of the path's root.
    root: usize,
    /// The token that the name ends with.
    end: usize,
}

/// A part of a `use` that begins with one root: what becomes of it.
#[derive(Debug)]
pub(super) enum Part {
    /// The root is another, and the rest stays byte for byte.
    Root(usize),
    /// The tokens from here to there become this.
    Split(usize, usize, String),
    /// A name stays where it is, though threads share it.
    Left { token: usize, path: String, why: &'static str },
    /// A name of plain data that threads share.
    Uncharged,
    /// A name of what a system adds to its threads.
    HostThread { token: usize, path: String },
    /// A path that begins with another crate.
    Foreign { token: usize, root: String, path: String },
}

/// The replacement of the `use` whose tree begins here, and the token after the tree.
pub(super) fn use_tree(tokens: &Tokens<'_>, from: usize, keeps_arc: bool) -> (Vec<Part>, usize) {
    let mut leaves = Vec::new();
    let end = collect(tokens, from, &mut Vec::new(), None, &mut leaves);
    let mut parts = Vec::new();
    let mut rest = &leaves[..];
    while let Some(first) = rest.first() {
        let count = rest.iter().take_while(|leaf| leaf.root == first.root).count();
        let (one_root, others) = rest.split_at(count);
        rest = others;
        if is_std(&first.path[0]) {
            of_std(tokens, one_root, keeps_arc, &mut parts);
        } else {
            parts.push(Part::Foreign {
                token: first.root,
                root: first.path[0].clone(),
                path: first.path.join("::"),
            });
        }
    }
    (parts, end)
}

/// Adds the names of a tree. Returns the token after it. `root` is the token of the path before it,
/// if there is one.
fn collect(
    tokens: &Tokens<'_>,
    from: usize,
    before: &mut Vec<String>,
    root: Option<usize>,
    leaves: &mut Vec<Leaf>,
) -> usize {
    let depth = before.len();
    let mut at = if tokens.is_path(from) { from + 2 } else { from };
    let mut root = root;
    loop {
        if let Some(close) = tokens.close(at) {
            let mut inner = at + 1;
            while inner < close {
                // Behind a tree there is a comma.
                inner = collect(tokens, inner, before, root, leaves).max(inner) + 1;
            }
            at = close + 1;
            break;
        }
        let name = match tokens.word(at) {
            Some(word) => word.to_owned(),
            None if tokens.is_mark(at, '*') => "*".to_owned(),
            None => break,
        };
        let root = *root.get_or_insert(at);
        if name != "self" || before.is_empty() {
            before.push(name);
        }
        at += 1;
        if tokens.is_path(at) {
            at += 2;
            continue;
        }
        let rename =
            tokens.is_word(at, "as").then(|| tokens.word(at + 1).unwrap_or("_").to_owned());
        if rename.is_some() {
            at += 2;
        }
        leaves.push(Leaf { path: before.clone(), rename, root, end: at - 1 });
        break;
    }
    before.truncate(depth);
    at
}

/// The replacement of the names under one root of the standard library.
fn of_std(tokens: &Tokens<'_>, leaves: &[Leaf], keeps_arc: bool, parts: &mut Vec<Part>) {
    let verdict = |leaf: &Leaf| {
        let path: Vec<_> = leaf.path[1..].iter().map(String::as_str).collect();
        leads(&path, keeps_arc)
    };
    for leaf in leaves {
        let renamed = leaf.rename.as_ref().filter(|name| leaf.path.len() == 1 && *name != "_");
        if let Some(name) = renamed {
            let path = format!("{} as {name}", leaf.path[0]);
            let why = "paths that begin with another name of the standard library are not followed";
            parts.push(Part::Left { token: leaf.root, path, why });
        }
        match verdict(leaf) {
            Leads::Missing(why) => {
                parts.push(Part::Left { token: leaf.root, path: leaf.path.join("::"), why });
            }
            Leads::Uncharged => parts.push(Part::Uncharged),
            Leads::HostThread => {
                parts.push(Part::HostThread { token: leaf.root, path: leaf.path.join("::") });
            }
            _ => {}
        }
    }
    let moves = |leaf: &Leaf| matches!(verdict(leaf), Leads::Mirrored | Leads::To(_));
    if !leaves.iter().any(moves) {
        return;
    }
    let root = leaves[0].root;
    if leaves.iter().all(|leaf| matches!(verdict(leaf), Leads::Mirrored | Leads::Same)) {
        parts.push(Part::Root(root));
        return;
    }
    let listed = |root: &str, leaves: &[String]| match leaves {
        [] => None,
        [leaf] => Some(format!("{root}::{leaf}")),
        leaves => Some(format!("{root}::{{{}}}", leaves.join(", "))),
    };
    let text = |leaf: &Leaf| {
        let path = match verdict(leaf) {
            Leads::To(path) => path.to_owned(),
            // The crate itself, by `self`.
            _ if leaf.path.len() == 1 => "self".to_owned(),
            _ => leaf.path[1..].join("::"),
        };
        match &leaf.rename {
            Some(name) => format!("{path} as {name}"),
            None => path,
        }
    };
    let (go, stay): (Vec<&Leaf>, Vec<&Leaf>) = leaves.iter().partition(|leaf| moves(leaf));
    let of = |leaves: &[&Leaf]| leaves.iter().map(|leaf| text(leaf)).collect::<Vec<_>>();
    let both = [listed(&leaves[0].path[0], &of(&stay)), listed("coreline_sim", &of(&go))];
    let both: Vec<_> = both.into_iter().flatten().collect();
    let to = match &both[..] {
        [one] => one.clone(),
        both => format!("{{{}}}", both.join(", ")),
    };
    // The closing braces of groups belong to it, too.
    let mut last = leaves.iter().map(|leaf| leaf.end).max().unwrap_or(root);
    let mut at = root;
    while at <= last {
        if let Some(close) = tokens.close(at) {
            last = last.max(close);
        }
        at += 1;
    }
    parts.push(Part::Split(root, last, to));
}
