//! Columns that are as wide as what is in them.

use std::fmt::Write as _;

use console::measure_text_width;

use crate::text::{Form, Tone};

/// A column's head; numbers are set to the right.
#[derive(Debug, Clone, Copy)]
pub(super) struct Column {
    pub(super) head: &'static str,
    pub(super) numbers: bool,
}

/// Text, and what it means.
#[derive(Debug, Clone, Default)]
pub(super) struct Cell {
    pub(super) text: String,
    pub(super) tone: Option<Tone>,
}

impl From<String> for Cell {
    fn from(text: String) -> Cell {
        Cell { text, tone: None }
    }
}

impl Cell {
    fn shown(&self, form: Form) -> String {
        match self.tone {
            Some(tone) => form.toned(tone, &self.text),
            None => self.text.clone(),
        }
    }
}

#[derive(Debug, Clone)]
enum Line {
    /// So far in.
    Heading(usize, String),
    Cells(Vec<Cell>),
    /// So far in, before a cell that is no part of a column.
    Remark(usize, String, Cell),
}

/// Rows of cells below headings. A column in which no row has anything is not shown.
#[derive(Debug)]
pub(super) struct Grid {
    columns: Vec<Column>,
    /// How far in rows begin.
    indent: usize,
    lines: Vec<Line>,
}

/// Between columns.
const GAP: usize = 2;

impl Grid {
    pub(super) fn new(columns: &[Column], indent: usize) -> Grid {
        Grid { columns: columns.to_vec(), indent, lines: Vec::new() }
    }

    pub(super) fn heading(&mut self, indent: usize, text: String) {
        self.lines.push(Line::Heading(indent, text));
    }

    /// A cell for each column.
    pub(super) fn row(&mut self, cells: Vec<Cell>) {
        self.lines.push(Line::Cells(cells));
    }

    /// What there is to say of the row above.
    pub(super) fn remark(&mut self, indent: usize, text: String, cell: Cell) {
        self.lines.push(Line::Remark(indent, text, cell));
    }

    /// How wide each column is; 0 where nothing is in it.
    fn widths(&self) -> Vec<usize> {
        let mut widths = vec![0; self.columns.len()];
        for line in &self.lines {
            let Line::Cells(cells) = line else { continue };
            for (width, cell) in widths.iter_mut().zip(cells) {
                *width = measure_text_width(&cell.text).max(*width);
            }
        }
        for (width, column) in widths.iter_mut().zip(&self.columns) {
            *width = if *width > 0 { column.head.len().max(*width) } else { 0 };
        }
        widths
    }

    /// Of the widest line.
    pub(super) fn width(&self) -> usize {
        let heading = |line: &Line| match line {
            Line::Heading(indent, text) => indent + measure_text_width(text),
            Line::Remark(indent, text, cell) => {
                indent + measure_text_width(text) + measure_text_width(&cell.text)
            }
            Line::Cells(_) => 0,
        };
        let headings = self.lines.iter().map(heading).max().unwrap_or(0);
        headings.max(self.row_width())
    }

    fn row_width(&self) -> usize {
        let shown: Vec<usize> = self.widths().into_iter().filter(|width| *width > 0).collect();
        self.indent + shown.iter().sum::<usize>() + GAP * shown.len().saturating_sub(1)
    }

    pub(super) fn text(&self, form: Form) -> String {
        let widths = self.widths();
        let mut text = String::new();
        let head = |column: &Column| Cell::from(column.head.to_owned());
        let heads: Vec<Cell> = self.columns.iter().map(head).collect();
        text += &self.line(form, &heads, &widths);
        let _ = writeln!(text, "{}", "-".repeat(self.row_width()));
        for (at, line) in self.lines.iter().enumerate() {
            match line {
                Line::Heading(indent, heading) => {
                    // A group stands apart from what is above it.
                    text += if *indent == 0 && at > 0 { "\n" } else { "" };
                    let heading = form.toned(Tone::Heading, heading);
                    let _ = writeln!(text, "{:indent$}{heading}", "");
                }
                Line::Cells(cells) => text += &self.line(form, cells, &widths),
                Line::Remark(indent, remark, cell) => {
                    let _ = writeln!(text, "{:indent$}{remark}{}", "", cell.shown(form));
                }
            }
        }
        text
    }

    fn line(&self, form: Form, cells: &[Cell], widths: &[usize]) -> String {
        let mut line = " ".repeat(self.indent);
        // What is due before the next text: no line ends in blanks.
        let mut due = 0;
        for ((cell, column), width) in cells.iter().zip(&self.columns).zip(widths) {
            if *width == 0 {
                continue;
            }
            let rest = width - measure_text_width(&cell.text);
            let (before, after) = if column.numbers { (rest, 0) } else { (0, rest) };
            if !cell.text.is_empty() {
                line += &" ".repeat(due + before);
                line += &cell.shown(form);
                due = 0;
            } else {
                due += before;
            }
            due += after + GAP;
        }
        line.push('\n');
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 3] = [
        Column { head: "name", numbers: false },
        Column { head: "unused", numbers: false },
        Column { head: "n", numbers: true },
    ];

    fn grid() -> Grid {
        let mut grid = Grid::new(&COLUMNS, 2);
        for (heading, rows) in [("first", &[("one", "1"), ("", "1000")][..]), ("other", &[])] {
            grid.heading(0, heading.to_owned());
            for (name, number) in rows {
                let cells = [*name, "", *number].map(|text| Cell::from(text.to_owned()));
                grid.row(cells.into());
            }
        }
        grid
    }

    #[test]
    fn numbers_are_set_to_the_right_and_empty_columns_are_left_out() {
        let form = Form { width: 80, colour: false, unicode: false };
        let text = "  name     n\n------------\nfirst\n  one      1\n        1000\n\nother\n";
        assert_eq!(grid().text(form), text);
        assert_eq!(grid().width(), "  name     n".len());
    }

    #[test]
    fn colours_leave_columns_as_wide_as_they_were() {
        let mut toned = grid();
        for line in &mut toned.lines {
            let Line::Cells(cells) = line else { continue };
            cells[0].tone = Some(Tone::Good);
        }
        let text = |colour| toned.text(Form { width: 80, colour, unicode: false });
        assert!(text(true).contains("\u{1b}[32mone\u{1b}[0m      1\n"), "{:?}", text(true));
        assert_eq!(console::strip_ansi_codes(&text(true)), text(false));
    }
}
