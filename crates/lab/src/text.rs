//! How text of a result is fitted to where it goes: its width, its colours, its characters.

use std::env;
use std::fmt::Display;

use console::{Style, Term, measure_text_width};

/// The width where none is known.
const UNKNOWN: usize = 80;

/// A terminal that says it is narrower than this does not know its width.
const LEAST: usize = 20;

/// The form of text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Form {
    /// In columns.
    pub(crate) width: usize,
    pub(crate) colour: bool,
    /// More than ASCII.
    pub(crate) unicode: bool,
}

/// The meaning of a word; as colours, on a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    Good,
    Partly,
    Bad,
    Bar,
    Heading,
}

impl Form {
    /// The form of text for standard output. On a terminal it has colours; `NO_COLOR`, `CLICOLOR`
    /// and `CLICOLOR_FORCE` say otherwise, the last one also for a pipe.
    pub(crate) fn of_output() -> Form {
        let terminal = Term::stdout();
        let columns = terminal.size_checked().map(|(_, columns)| usize::from(columns));
        let width = columns.filter(|width| *width >= LEAST).unwrap_or(UNKNOWN);
        Form { width, colour: has_colours(&terminal), ..Form::plain() }
    }

    /// Of text for a file.
    pub(crate) fn plain() -> Form {
        Form { width: UNKNOWN, colour: false, unicode: is_unicode() }
    }

    /// The text in its colour; as it is where there are none.
    pub(crate) fn toned(&self, tone: Tone, text: &str) -> String {
        let style = match tone {
            Tone::Good => Style::new().green(),
            Tone::Partly => Style::new().yellow(),
            Tone::Bad => Style::new().red(),
            Tone::Bar => Style::new().cyan(),
            Tone::Heading => Style::new().bold(),
        };
        style.force_styling(self.colour).apply_to(text).to_string()
    }

    /// Lines that are too long, in several: what follows the first is set in, below what follows a
    /// short label (`why: `) or by two columns.
    pub(crate) fn fitted(&self, text: &str) -> String {
        let mut fitted = String::new();
        for line in text.lines() {
            if measure_text_width(line) > self.width {
                self.fit(line, &mut fitted);
            } else {
                fitted += line;
                fitted.push('\n');
            }
        }
        fitted
    }

    fn fit(&self, line: &str, fitted: &mut String) {
        let words = line.trim_start();
        let indent = (line.len() - words.len()).min(self.width / 3);
        let label = line.find(": ").map(|end| end + ": ".len());
        let label = label.filter(|&it| indent < it && it <= self.width / 3);
        let hanging = label.unwrap_or((indent + 2).min(self.width / 3));
        // The first line begins with a label of that width, or else farther to the left.
        let (first, words) = match label {
            Some(label) => line.split_at(label),
            None => (&line[..indent], words),
        };
        let room = self.width - hanging;
        for (at, part) in wrapped(words, room).into_iter().enumerate() {
            let blanks = " ".repeat(hanging);
            let first = if at == 0 { first } else { blanks.as_str() };
            *fitted += &format!("{first}{part}\n");
        }
    }

    /// Words in lines; the first line begins with `first`, the others as far in.
    pub(crate) fn paragraph(&self, first: &str, text: &str) -> String {
        self.lines(first, text.split(' '), "")
    }

    /// A command in several lines, for a shell. Each line except the last ends with a continuation
    /// mark, and breaks come only before options.
    pub(crate) fn command(&self, first: &str, command: &str) -> String {
        let mut parts: Vec<String> = Vec::new();
        for word in command.split(' ') {
            match parts.last_mut() {
                Some(part) if !word.starts_with("--") => *part += &format!(" {word}"),
                _ => parts.push(word.to_owned()),
            }
        }
        self.lines(first, parts.iter().map(String::as_str), " \\")
    }

    /// Parts in lines, the first of which begins with `first`, and the others as far in; all but
    /// the last end in `end`.
    fn lines<'a>(
        &self,
        first: &str,
        parts: impl Iterator<Item = &'a str>,
        end: &'static str,
    ) -> String {
        let margin = measure_text_width(first);
        let (mut text, mut used) = (first.to_owned(), margin);
        for part in parts {
            let width = measure_text_width(part);
            if used > margin && used + 1 + width + end.len() > self.width {
                text += &format!("{end}\n{}", " ".repeat(margin));
                used = margin;
            } else if used > margin {
                text.push(' ');
                used += 1;
            }
            text += part;
            used += width;
        }
        text.push('\n');
        text
    }
}

/// Words in lines of a width, which is not 0. Text that is wider than a line is broken: a list
/// after a comma, if that is enough, and otherwise between any two characters.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let (mut lines, mut line) = (Vec::new(), String::new());
    for word in text.split_whitespace() {
        let parts = if measure_text_width(word) > width { broken(word, width) } else { vec![word] };
        for (index, part) in parts.into_iter().enumerate() {
            let gap = if index == 0 && !line.is_empty() { " " } else { "" };
            if !line.is_empty()
                && measure_text_width(&line) + gap.len() + measure_text_width(part) > width
            {
                lines.push(std::mem::take(&mut line));
            } else {
                line += gap;
            }
            line += part;
        }
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
}

fn broken(word: &str, width: usize) -> Vec<&str> {
    let mut parts = Vec::new();
    for part in word.split_inclusive(',') {
        let mut rest = part;
        while measure_text_width(rest) > width {
            // At least one character, however wide it is.
            let ends = rest.char_indices().map(|(at, it)| at + it.len_utf8());
            let fits = |end: &usize| measure_text_width(&rest[..*end]) <= width;
            let first = rest.chars().next().map_or(0, char::len_utf8);
            let end = ends.take_while(fits).last().unwrap_or(first);
            let (before, after) = rest.split_at(end);
            parts.push(before);
            rest = after;
        }
        parts.push(rest);
    }
    parts
}

/// This many of what has this name, whose plural ends in s.
pub(crate) fn counted(count: usize, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}

/// The ordinal of a number, such as 1st.
pub(crate) fn ordinal(number: u64) -> String {
    let end = match (number % 100, number % 10) {
        (11..=13, _) => "th",
        (_, 1) => "st",
        (_, 2) => "nd",
        (_, 3) => "rd",
        _ => "th",
    };
    format!("{number}{end}")
}

/// A CPU list with the word before it.
pub(crate) fn cpus(list: impl Display) -> String {
    let list = list.to_string();
    let plural = if list.bytes().all(|byte| byte.is_ascii_digit()) { "" } else { "s" };
    format!("CPU{plural} {list}")
}

/// Whether text for a terminal, or for what is there in its place, has colours.
pub(crate) fn has_colours(terminal: &Term) -> bool {
    let features = terminal.features();
    let can = features.is_attended() && features.colors_supported();
    is_coloured(can, |name| env::var(name).ok())
}

/// As <https://bixense.com/clicolors> has it; a variable that is empty counts as not set.
fn is_coloured(terminal: bool, variable: impl Fn(&str) -> Option<String>) -> bool {
    let set = |name| variable(name).filter(|value| !value.is_empty());
    if set("NO_COLOR").is_some() {
        return false;
    }
    let is_forced = set("CLICOLOR_FORCE").is_some_and(|value| value != "0");
    is_forced || terminal && set("CLICOLOR").is_none_or(|value| value != "0")
}

/// Whether text may have more than ASCII in it.
pub(crate) fn is_unicode() -> bool {
    is_utf8(|name| env::var(name).ok())
}

/// Whether the locale's characters are those of Unicode: the first of the three that is set says.
fn is_utf8(variable: impl Fn(&str) -> Option<String>) -> bool {
    let set = |name| variable(name).filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
    let locale = locale.unwrap_or_default().to_ascii_lowercase();
    locale.ends_with("utf-8") || locale.ends_with("utf8")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(width: usize) -> Form {
        Form { width, colour: false, unicode: false }
    }

    #[test]
    fn the_first_variable_that_is_set_decides_on_unicode() {
        for (variables, unicode) in [
            (&[("LC_ALL", "C"), ("LANG", "C.UTF-8")][..], false),
            (&[("LC_ALL", ""), ("LANG", "de_DE.utf8")], true),
            (&[("LC_CTYPE", "en_US.UTF-8")], true),
            (&[], false),
        ] {
            let value = |name: &str| {
                variables.iter().find(|(it, _)| *it == name).map(|(_, value)| (*value).to_owned())
            };
            assert_eq!(is_utf8(value), unicode, "{variables:?}");
        }
    }

    #[test]
    fn variables_decide_on_colours_and_the_one_against_them_wins() {
        for (variables, [terminal, pipe]) in [
            (&[][..], [true, false]),
            (&[("NO_COLOR", "")], [true, false]),
            (&[("NO_COLOR", "0")], [false, false]),
            (&[("CLICOLOR", "0")], [false, false]),
            (&[("CLICOLOR", "1")], [true, false]),
            (&[("CLICOLOR_FORCE", "0")], [true, false]),
            (&[("CLICOLOR_FORCE", "1")], [true, true]),
            (&[("CLICOLOR_FORCE", "1"), ("CLICOLOR", "0")], [true, true]),
            (&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")], [false, false]),
        ] {
            let value = |name: &str| {
                variables.iter().find(|(it, _)| *it == name).map(|(_, value)| (*value).to_owned())
            };
            assert_eq!(
                [true, false].map(|it| is_coloured(it, value)),
                [terminal, pipe],
                "{variables:?}"
            );
        }
    }

    #[test]
    fn one_is_no_plural() {
        assert_eq!([0, 1, 2].map(|it| counted(it, "CPU")), ["0 CPUs", "1 CPU", "2 CPUs"]);
        let lists = ["0", "12", "0-1", "0,2"].map(cpus);
        assert_eq!(lists, ["CPU 0", "CPU 12", "CPUs 0-1", "CPUs 0,2"]);
    }

    #[test]
    fn ordinals_end_as_they_are_spoken() {
        for (numbers, end) in [
            (&[1, 21, 101, 1_001][..], "st"),
            (&[2, 22, 102], "nd"),
            (&[3, 23, 103], "rd"),
            (&[0, 4, 9, 10, 11, 12, 13, 20, 111, 112, 113, 1_012], "th"),
        ] {
            for &number in numbers {
                assert_eq!(ordinal(number), format!("{number}{end}"));
            }
        }
    }

    #[test]
    fn a_paragraph_keeps_its_margin_and_its_words() {
        let text = "word ".repeat(40);
        for width in [40, 80, 100] {
            let lines = form(width).paragraph("=> ", text.trim_end());
            assert!(lines.lines().all(|line| line.len() <= width), "{lines}");
            assert!(lines.lines().any(|line| line.len() + 5 > width), "{lines}");
            assert!(lines.lines().skip(1).all(|line| line.starts_with("   word")), "{lines}");
            assert_eq!(lines.matches("word").count(), 40);
        }
        assert_eq!(form(9).paragraph("", "unbreakable is it"), "unbreakable\nis it\n");
    }

    #[test]
    fn a_line_that_is_too_long_hangs_below_its_label() {
        let text = "short\n  why: one two three four five\n  a longer label here: six seven\n";
        let fitted = "short\n  why: one two three\n       four five\n  a longer label\n    \
                      here: six seven\n";
        assert_eq!(form(22).fitted(text), fitted);
        assert_eq!(form(80).fitted(text), text);
    }

    #[test]
    fn what_has_no_blanks_is_broken_after_commas_and_else_anywhere() {
        let cpus = "CPUs 0-17,72-89,100-117";
        assert_eq!(wrapped(cpus, 80), [cpus]);
        assert_eq!(wrapped(cpus, 12), ["CPUs 0-17,", "72-89,", "100-117"]);
        assert_eq!(wrapped("abcdefgh", 3), ["abc", "def", "gh"]);
        assert_eq!(wrapped("\u{6f22}\u{5b57}\u{6f22}", 4), ["\u{6f22}\u{5b57}", "\u{6f22}"]);
        assert_eq!(wrapped("", 4), [""; 0]);
        for (width, indent) in [(20, 30), (40, 8), (40, 0)] {
            let line = format!("{:indent$}{}: {}", "", "x".repeat(50), "y".repeat(200));
            let fitted = form(width).fitted(&line);
            assert!(fitted.lines().all(|line| line.len() <= width), "{fitted}");
            assert_eq!((fitted.matches('x').count(), fitted.matches('y').count()), (50, 200));
        }
    }

    #[test]
    fn colours_take_no_room_and_are_left_out_where_there_are_none() {
        let coloured = Form { colour: true, ..form(20) };
        let word = |form: Form| form.toned(Tone::Good, "reached");
        assert_eq!(word(form(20)), "reached");
        assert_eq!(word(coloured), "\u{1b}[32mreached\u{1b}[0m");
        let lines = |form: Form| form.paragraph("", &format!("published 7.3: {}", word(form)));
        let (plain, coloured) = (lines(form(22)), lines(Form { width: 22, ..coloured }));
        assert_eq!((plain.lines().count(), coloured.lines().count()), (1, 1), "{coloured:?}");
    }

    #[test]
    fn a_command_is_broken_so_that_a_shell_reads_it_as_one() {
        let command = "coreline run it --world here --seed 1 --quick --variant one";
        let lines = form(40).command("again: ", command);
        assert!(lines.lines().all(|line| line.len() <= 40), "{lines}");
        let pasted = lines.replace("again: ", "").replace(" \\\n       ", " ");
        assert_eq!(pasted, format!("{command}\n"), "{lines}");
        assert!(lines.lines().count() == 2 && lines.contains("--world here"), "{lines}");
    }
}
