//! A table of a verb that fits a terminal of any width.
//!
//! There are four layouts. The first one that fits is used:
//!
//! 1. a line for each row;
//! 2. the same, and columns of text are narrower: their cells are wrapped;
//! 3. the last column, if it has text, is below its row;
//! 4. each row is a paragraph that names the columns.
//!
//! Numbers are never broken before the last layout. A column in which no row has anything is left
//! out. Cells may have colours, which take no room.

use console::measure_text_width;

use crate::text::{Form, wrapped};

/// Between columns.
const GAP: usize = 2;

/// A column of text is not made narrower than this.
const NARROWEST: usize = 20;

/// A remark below its row begins this many columns to the right of the row.
const REMARK: usize = 4;

/// A column's head, and whether it has numbers, which are set to the right.
pub(crate) type Column<'a> = (&'a str, bool);

#[derive(Debug)]
enum Line {
    /// Begins this many columns from the left.
    Text(usize, String),
    Row(Vec<String>),
}

#[derive(Debug)]
pub(crate) struct Listing<'a> {
    columns: Vec<Column<'a>>,
    /// Rows begin this many columns from the left.
    indent: usize,
    lines: Vec<Line>,
}

impl<'a> Listing<'a> {
    pub(crate) fn new(columns: &[Column<'a>]) -> Self {
        Listing { columns: columns.to_vec(), indent: 0, lines: Vec::new() }
    }

    /// Makes rows begin `indent` columns from the left.
    pub(crate) fn indented(self, indent: usize) -> Self {
        Listing { indent, ..self }
    }

    /// Adds a line that begins `indent` columns from the left. It has the common part of the rows
    /// below it, or a remark on the row above it.
    pub(crate) fn line(&mut self, indent: usize, text: String) {
        self.lines.push(Line::Text(indent, text));
    }

    /// A cell for each column.
    pub(crate) fn row(&mut self, cells: impl Into<Vec<String>>) {
        let cells = cells.into();
        debug_assert_eq!(cells.len(), self.columns.len());
        self.lines.push(Line::Row(cells));
    }

    /// Whether each row is one line in this width.
    pub(crate) fn fits(&self, form: Form) -> bool {
        let texts = self.lines.iter().filter_map(|line| match line {
            Line::Text(indent, text) => Some(indent + measure_text_width(text)),
            Line::Row(_) => None,
        });
        self.total(&self.widths()).max(texts.max().unwrap_or(0)) <= form.width
    }

    pub(crate) fn text(&self, form: Form) -> String {
        let widths = self.widths();
        if let Some(widths) = self.narrowed(&widths, form.width) {
            return self.table(form, &widths, false);
        }
        let mut without_last = widths;
        if self.columns.last().is_some_and(|(_, numbers)| !numbers)
            && without_last.pop().is_some()
            && let Some(widths) = self.narrowed(&without_last, form.width)
        {
            return self.table(form, &widths, true);
        }
        self.paragraphs(form)
    }

    fn rows(&self) -> impl Iterator<Item = &Vec<String>> {
        self.lines.iter().filter_map(|line| match line {
            Line::Row(cells) => Some(cells),
            Line::Text(..) => None,
        })
    }

    /// The width of a row whose columns are so wide.
    fn total(&self, widths: &[usize]) -> usize {
        let shown = widths.iter().filter(|width| **width > 0).count();
        self.indent + widths.iter().sum::<usize>() + GAP * shown.saturating_sub(1)
    }

    /// The widths of the widest cell of each column, or of its head; 0 for an empty column.
    fn widths(&self) -> Vec<usize> {
        let width = |(index, (head, _)): (usize, &Column<'_>)| {
            let cells = self.rows().map(|cells| measure_text_width(&cells[index]));
            match cells.max().unwrap_or(0) {
                0 => 0,
                widest => widest.max(head.len()),
            }
        };
        self.columns.iter().enumerate().map(width).collect()
    }

    /// Widths that fit; the widest column of text is the first that gets narrower.
    fn narrowed(&self, widths: &[usize], room: usize) -> Option<Vec<usize>> {
        let mut widths = widths.to_vec();
        while self.total(&widths) > room {
            let texts = (0..widths.len()).filter(|&it| !self.columns[it].1);
            let widest = texts.max_by_key(|&it| widths[it])?;
            let least = NARROWEST.max(self.columns[widest].0.len());
            if widths[widest] <= least {
                return None;
            }
            widths[widest] -= 1;
        }
        Some(widths)
    }

    fn table(&self, form: Form, widths: &[usize], remarks: bool) -> String {
        let heads: Vec<String> = self.columns.iter().map(|(head, _)| (*head).to_owned()).collect();
        let mut text = self.row_text(&heads, widths);
        text += &format!("{}\n", "-".repeat(self.total(widths)));
        for line in &self.lines {
            match line {
                Line::Text(indent, line) => {
                    text += &form.fitted(&format!("{:indent$}{line}\n", ""))
                }
                Line::Row(cells) => {
                    text += &self.row_text(cells, widths);
                    let last = cells.last().filter(|last| remarks && !last.is_empty());
                    let indent = self.indent + REMARK;
                    for line in last.iter().flat_map(|it| wrapped(it, form.width - indent)) {
                        text += &format!("{:indent$}{line}\n", "");
                    }
                }
            }
        }
        text
    }

    /// A row in as many lines as its longest cell takes.
    fn row_text(&self, cells: &[String], widths: &[usize]) -> String {
        let shown: Vec<usize> = (0..widths.len()).filter(|&it| widths[it] > 0).collect();
        let cells: Vec<Vec<String>> =
            shown.iter().map(|&it| wrapped(&cells[it], widths[it])).collect();
        let height = cells.iter().map(Vec::len).max().unwrap_or(0);
        let mut text = String::new();
        for at in 0..height {
            let mut line = " ".repeat(self.indent);
            for (cell, &column) in cells.iter().zip(&shown) {
                let part = cell.get(at).map_or("", String::as_str);
                let rest = " ".repeat(widths[column].saturating_sub(measure_text_width(part)));
                line += &match self.columns[column].1 {
                    true => format!("{rest}{part}"),
                    false => format!("{part}{rest}"),
                };
                line += &" ".repeat(GAP);
            }
            text += line.trim_end();
            text.push('\n');
        }
        text
    }

    fn paragraphs(&self, form: Form) -> String {
        let mut text = String::new();
        for line in &self.lines {
            match line {
                Line::Text(indent, line) => {
                    text += &form.fitted(&format!("{:indent$}{line}\n", ""))
                }
                Line::Row(cells) => {
                    let said = |(index, (head, _)): (usize, &Column<'_>)| {
                        let cell = Some(&cells[index]).filter(|cell| !cell.is_empty())?;
                        Some(if index == 0 { cell.clone() } else { format!("{head} {cell}") })
                    };
                    let all: Vec<_> = self.columns.iter().enumerate().filter_map(said).collect();
                    text += &form.fitted(&format!("{}\n", all.join("; ")));
                }
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Tone;

    const COLUMNS: [Column<'_>; 4] =
        [("name", false), ("n", true), ("unused", false), ("what it is", false)];

    fn form(width: usize) -> Form {
        Form { width, colour: false, unicode: false }
    }

    fn listing(name: &str, number: &str, what: &str) -> Listing<'static> {
        let mut listing = Listing::new(&COLUMNS);
        listing.line(0, "all".to_owned());
        listing.row([name, number, "", what].map(str::to_owned));
        listing.row(["b", "1", "", "two words"].map(str::to_owned));
        listing
    }

    #[test]
    fn a_row_is_a_line_where_there_is_room() {
        let listing = listing("a", "200", "one");
        let text = "name    n  what it is\n---------------------\nall\n\
                    a     200  one\nb       1  two words\n";
        assert_eq!(listing.text(form(80)), text);
        assert!(listing.fits(form(21)) && !listing.fits(form(20)));
    }

    #[test]
    fn rows_begin_as_far_in_as_is_asked_and_numbers_end_below_each_other() {
        let mut listing = Listing::new(&COLUMNS).indented(2);
        for (name, number) in [("one", "1"), ("", "1000")] {
            listing.row([name, number, "", ""].map(str::to_owned));
        }
        listing.line(4, "a remark".to_owned());
        let text = "  name     n\n------------\n  one      1\n        1000\n    a remark\n";
        assert_eq!(listing.text(form(80)), text);
        assert!(listing.fits(form(12)) && !listing.fits(form(11)));
    }

    #[test]
    fn colours_leave_columns_as_wide_as_they_were() {
        let text = |colour| {
            let form = Form { colour, ..form(80) };
            listing(&form.toned(Tone::Good, "one"), "200", "it").text(form)
        };
        assert!(text(true).contains("\u{1b}[32mone\u{1b}[0m   200  it\n"), "{:?}", text(true));
        assert_eq!(console::strip_ansi_codes(&text(true)), text(false));
    }

    #[test]
    fn text_is_wrapped_then_stands_below_and_then_all_is_a_paragraph() {
        let what = "a text of more than forty columns in ordinary words";
        let text = |width| listing("a", "1234567890", what).text(form(width));
        let line = "a     1234567890  a text of more than forty\n";
        assert!(text(45).contains(line), "{}", text(45));
        assert!(
            text(45).contains("\n                  columns in ordinary words\n"),
            "{}",
            text(45)
        );
        let below = "a     1234567890\n    a text of more than\n    forty columns in\n";
        assert!(text(24).contains(below), "{}", text(24));
        let paragraph = "\na; n\n  123456;\n  what it\n";
        let text = listing("a", "123456", what).text(form(11));
        assert!(text.contains(paragraph), "{text}");
    }

    #[test]
    fn any_name_fits_any_width() {
        let (long, words) = ("x".repeat(200), "word ".repeat(40));
        for (name, number, what) in
            [(&*long, "1", &*words), ("a", &*long, &*words), (&*words, "1", &*long)]
        {
            for width in [20, 40, 60, 80, 120, 300] {
                let text = listing(name, number, what).text(form(width));
                assert!(text.lines().all(|line| line.len() <= width), "{width}: {text}");
                let letters = |text: &str, of| text.matches(of).count();
                assert_eq!(letters(&text, "x"), 200, "{width}: {text}");
                assert_eq!(
                    text.split_whitespace().filter(|it| *it == "word").count(),
                    40,
                    "{text}"
                );
            }
        }
    }
}
