//! Where a page has its blocks: comments that say what a table is made of, and the end of it.

use std::path::{Path, PathBuf};

use super::spec::Spec;
use crate::error::Error;

/// What begins a block. The specification goes on to the end of the comment.
const BEGIN: &str = concat!("<!--", " table:");
const COMMENT_END: &str = "-->";
/// What ends a block, on a line of its own.
const END: &str = concat!("<!--", " end of table -->");

/// A page with the tables to make.
#[derive(Debug)]
pub(super) struct Page {
    path: PathBuf,
    text: String,
    blocks: Vec<Block>,
}

#[derive(Debug)]
pub(super) struct Block {
    /// Of its beginning, from 1.
    pub(super) line: usize,
    pub(super) spec: Spec,
    /// Where its table is in the text, between the two comments.
    from: usize,
    to: usize,
}

impl Page {
    pub(super) fn new(path: &Path, text: &str) -> Result<Page, Error> {
        let blocks = blocks(text).map_err(|(line, what)| fault(path, line, what))?;
        Ok(Page { path: path.to_owned(), text: text.to_owned(), blocks })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// What is wrong in a line of it.
    pub(super) fn fault(&self, line: usize, what: String) -> Error {
        fault(&self.path, line, what)
    }

    /// The page with the tables that `table` makes.
    pub(super) fn filled(
        &self,
        mut table: impl FnMut(&Spec) -> Result<String, String>,
    ) -> Result<String, Error> {
        let mut filled = String::new();
        let mut done = 0;
        for block in &self.blocks {
            filled += &self.text[done..block.from];
            let made = table(&block.spec).map_err(|what| self.fault(block.line, what))?;
            filled += &format!("\n{made}\n");
            done = block.to;
        }
        Ok(filled + &self.text[done..])
    }
}

fn fault(path: &Path, line: usize, what: String) -> Error {
    Error::Table { page: path.to_owned(), line, what }
}

/// What is wrong with the blocks of a text, with the line: for `cargo xtask tidy`.
pub(crate) fn faults(text: &str) -> Option<(usize, String)> {
    blocks(text).err()
}

/// The blocks of a text; or the line of one that is wrong, and what is wrong with it.
fn blocks(text: &str) -> Result<Vec<Block>, (usize, String)> {
    let mut blocks = Vec::new();
    let mut at = 0;
    loop {
        let begin = line_that_starts(text, at, BEGIN);
        let end = line_that_starts(text, at, END);
        let Some(begin) = begin else {
            let alone = |end| (line_of(text, end), format!("no `{BEGIN}` comes before this end"));
            return end.map_or(Ok(blocks), |end| Err(alone(end)));
        };
        let line = line_of(text, begin);
        let wrong = |what: String| (line, what);
        if let Some(end) = end.filter(|end| *end < begin) {
            return Err((line_of(text, end), format!("no `{BEGIN}` comes before this end")));
        }
        let inner = begin + BEGIN.len();
        let Some(length) = text[inner..].find(COMMENT_END) else {
            return Err(wrong(format!("the comment has no `{COMMENT_END}`")));
        };
        let spec = Spec::parse(&text[inner..inner + length]).map_err(wrong)?;
        let comment_end = inner + length + COMMENT_END.len();
        let from = text[comment_end..].find('\n').map_or(text.len(), |it| comment_end + it + 1);
        let next = line_that_starts(text, from, BEGIN).unwrap_or(text.len());
        let to = line_that_starts(text, from, END).filter(|end| *end < next);
        let to = to.ok_or_else(|| wrong(format!("the table has no `{END}` after it")))?;
        blocks.push(Block { line, spec, from, to });
        at = to + END.len();
    }
}

/// Where the first line from `at` on is that starts so.
fn line_that_starts(text: &str, at: usize, start: &str) -> Option<usize> {
    let mut found = text[at..].match_indices(start).map(|(offset, _)| at + offset);
    found.find(|&offset| offset == 0 || text[..offset].ends_with('\n'))
}

/// The number of the line at `offset`, from 1.
fn line_of(text: &str, offset: usize) -> usize {
    text[..offset].matches('\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEC: &str = "coreline run x | rows threads | columns variant | metric op_ns";

    fn made_of(text: &str) -> String {
        let page = Page::new(Path::new("docs/a.md"), text).expect("the blocks are right");
        page.filled(|_| Ok("| new |\n".to_owned())).expect("each table is made")
    }

    #[test]
    fn what_is_between_the_comments_is_replaced_and_nothing_else() {
        let text = format!("a\n\n{BEGIN} {SPEC} {COMMENT_END}\n\n| old |\n\n{END}\nb\n");
        let filled = format!("a\n\n{BEGIN} {SPEC} {COMMENT_END}\n\n| new |\n\n{END}\nb\n");
        assert_eq!(made_of(&text), filled);
        // A second time it changes nothing; nor does it matter how the comment is broken.
        assert_eq!(made_of(&filled), filled);
        let broken = filled.replace(" | ", "\n| ");
        assert_eq!(made_of(&broken), broken);
        assert_eq!(made_of("no table\n"), "no table\n");
    }

    #[test]
    fn a_block_that_is_not_whole_is_found_with_its_line() {
        let begin = format!("{BEGIN} {SPEC} {COMMENT_END}\n");
        let cases = [
            (format!("a\n{begin}b\n"), 2, "no `"),
            (format!("a\n{begin}b\n{begin}c\n{END}\n"), 2, "no `"),
            (format!("a\n{END}\n{begin}c\n{END}\n"), 2, "comes before"),
            (format!("{begin}c\n{END}\n{END}\n"), 4, "comes before"),
            (format!("{BEGIN} {SPEC}\n"), 1, "no `-->`"),
            (format!("{BEGIN} coreline run x {COMMENT_END}\n{END}\n"), 1, "rows"),
        ];
        for (text, line, what) in cases {
            let (found, message) = faults(&text).expect("the text is wrong");
            assert_eq!(found, line, "{text}");
            assert!(message.contains(what), "{message}");
        }
        // In prose it is not a block.
        assert_eq!(faults(&format!("A block begins with `{BEGIN}`.\n")), None);
    }
}
