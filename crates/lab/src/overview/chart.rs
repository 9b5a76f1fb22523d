//! Bars, figures and paragraphs as text, within 80 columns.

use std::env;
use std::fmt::{self, Write as _};

use crate::run::result::FigureRow;

const WIDTH: usize = 80;

/// Parts of a column, from an eighth to all of it.
const EIGHTHS: [char; 8] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉', '█'];

/// A bar for each value, of lengths in proportion.
pub(super) struct Bars<'a> {
    /// Label, value and unit.
    bars: Vec<(&'a str, f64, &'a str)>,
    unicode: bool,
}

impl<'a> Bars<'a> {
    pub(super) fn new(bars: Vec<(&'a str, f64, &'a str)>) -> Self {
        Bars { bars, unicode: is_unicode() }
    }
}

impl fmt::Display for Bars<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let longest = |of: fn(&(&str, f64, &str)) -> usize| self.bars.iter().map(of).max();
        let label = longest(|(label, ..)| label.len()).unwrap_or(0);
        let value = longest(|(_, value, unit)| figure(*value, unit).len()).unwrap_or(0);
        let most = self.bars.iter().map(|(_, value, _)| *value).fold(0.0, f64::max);
        let room = WIDTH.saturating_sub(label + value + "    ".len());
        for (name, value, unit) in &self.bars {
            let length = if most > 0.0 { value / most * room as f64 } else { 0.0 };
            writeln!(f, "  {name:label$} {} {}", self.bar(length), figure(*value, unit))?;
        }
        Ok(())
    }
}

impl Bars<'_> {
    /// A bar of so many columns; what is not zero is seen.
    fn bar(&self, columns: f64) -> String {
        if !self.unicode {
            return "#".repeat((columns.round() as usize).max(usize::from(columns > 0.0)));
        }
        let eighths = ((columns * 8.0).round() as usize).max(usize::from(columns > 0.0));
        let mut bar = EIGHTHS[7].to_string().repeat(eighths / 8);
        bar.extend((!eighths.is_multiple_of(8)).then(|| EIGHTHS[eighths % 8 - 1]));
        bar
    }
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

/// A figure in a few characters.
pub(super) fn figure(value: f64, unit: &str) -> String {
    match unit {
        "ns" if value >= 10_000.0 => format!("{:.1} us", value / 1e3),
        "ns" if value >= 100.0 => format!("{value:.0} ns"),
        "ns" => format!("{value:.1} ns"),
        "1/s" if value >= 10_000.0 => format!("{:.0} k/s", value / 1e3),
        "1/s" => format!("{value:.0} /s"),
        unit => format!("{value:.0} {unit}"),
    }
}

/// A ratio with its band: `13.1 times (13.1 to 28.9)`.
pub(super) fn band(row: &FigureRow) -> String {
    let shown = |value: f64| {
        if value < 9.95 { format!("{value:.2}") } else { format!("{value:.1}") }
    };
    format!("{} times ({} to {})", shown(row.value), shown(row.low), shown(row.high))
}

/// Words in lines of [`WIDTH`] columns; the first line begins with `first`, the others as far in.
pub(super) fn paragraph(first: &str, text: &str) -> String {
    let mut lines = String::new();
    let mut line = first.to_owned();
    let margin = first.len();
    for word in text.split(' ') {
        if line.len() > margin && line.len() + 1 + word.len() > WIDTH {
            let _ = writeln!(lines, "{}", line.trim_end());
            line = " ".repeat(margin);
        }
        if line.len() > margin {
            line.push(' ');
        }
        line.push_str(word);
    }
    let _ = writeln!(lines, "{line}");
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_bar_fills_its_line_and_the_least_is_seen() {
        let bars = vec![("eager", 95_970.8, "ns"), ("lazy", 9_997.8, "ns"), ("none", 0.0, "ns")];
        for (unicode, full) in [(false, '#'), (true, '█')] {
            let text = Bars { bars: bars.clone(), unicode }.to_string();
            let lines: Vec<&str> = text.lines().collect();
            assert_eq!(lines[0].chars().count(), WIDTH, "{text}");
            assert!(lines[0].starts_with(&format!("  eager {full}{full}")), "{text}");
            let columns = |line: &str| line.chars().filter(|char| *char == full).count();
            assert!((6..=7).contains(&columns(lines[1])), "{text}");
            assert!(lines[1].ends_with(" 9998 ns") && lines[2] == "  none   0.0 ns", "{text}");
        }
        let least = Bars { bars: vec![("a", 1e6, "ns"), ("b", 1.0, "ns")], unicode: true };
        assert!(least.to_string().contains("  b ▏ 1.0 ns"));
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
    fn a_paragraph_keeps_its_margin_and_its_words() {
        let text = "word ".repeat(40);
        let lines = paragraph("=> ", text.trim_end());
        assert!(lines.lines().all(|line| line.len() <= WIDTH), "{lines}");
        assert!(lines.lines().skip(1).all(|line| line.starts_with("   word")), "{lines}");
        assert_eq!(lines.matches("word").count(), 40);
    }
}
