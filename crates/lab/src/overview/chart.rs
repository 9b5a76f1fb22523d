//! Bars and figures as text.

use std::fmt;

use crate::run::result::FigureRow;
use crate::text::{Form, Tone};

/// Parts of a column, from an eighth to all of it.
const EIGHTHS: [char; 8] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉', '█'];

/// A bar for each value, of lengths in proportion.
pub(super) struct Bars<'a> {
    /// Label, value and unit.
    bars: Vec<(&'a str, f64, &'a str)>,
    form: Form,
}

impl<'a> Bars<'a> {
    pub(super) fn new(bars: Vec<(&'a str, f64, &'a str)>, form: Form) -> Self {
        Bars { bars, form }
    }
}

impl fmt::Display for Bars<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let longest = |of: fn(&(&str, f64, &str)) -> usize| self.bars.iter().map(of).max();
        let label = longest(|(label, ..)| label.len()).unwrap_or(0);
        let value = longest(|(_, value, unit)| figure(*value, unit).len()).unwrap_or(0);
        let most = self.bars.iter().map(|(_, value, _)| *value).fold(0.0, f64::max);
        let room = self.form.width.saturating_sub(label + value + "    ".len());
        for (name, value, unit) in &self.bars {
            let length = if most > 0.0 { value / most * room as f64 } else { 0.0 };
            let bar = self.form.toned(Tone::Bar, &self.bar(length));
            writeln!(f, "  {name:label$} {bar} {}", figure(*value, unit))?;
        }
        Ok(())
    }
}

impl Bars<'_> {
    /// A bar of so many columns; what is not zero is seen.
    fn bar(&self, columns: f64) -> String {
        if !self.form.unicode {
            return "#".repeat((columns.round() as usize).max(usize::from(columns > 0.0)));
        }
        let eighths = ((columns * 8.0).round() as usize).max(usize::from(columns > 0.0));
        let mut bar = EIGHTHS[7].to_string().repeat(eighths / 8);
        bar.extend((!eighths.is_multiple_of(8)).then(|| EIGHTHS[eighths % 8 - 1]));
        bar
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    const WIDTH: usize = 80;

    fn bars<'a>(bars: &[(&'a str, f64, &'a str)], unicode: bool) -> String {
        Bars::new(bars.to_vec(), Form { width: WIDTH, colour: false, unicode }).to_string()
    }

    #[test]
    fn the_longest_bar_fills_its_line_and_the_least_is_seen() {
        let three = [("eager", 95_970.8, "ns"), ("lazy", 9_997.8, "ns"), ("none", 0.0, "ns")];
        for (unicode, full) in [(false, '#'), (true, '█')] {
            let text = bars(&three, unicode);
            let lines: Vec<&str> = text.lines().collect();
            assert_eq!(lines[0].chars().count(), WIDTH, "{text}");
            assert!(lines[0].starts_with(&format!("  eager {full}{full}")), "{text}");
            let columns = |line: &str| line.chars().filter(|char| *char == full).count();
            assert!((6..=7).contains(&columns(lines[1])), "{text}");
            assert!(lines[1].ends_with(" 9998 ns") && lines[2] == "  none   0.0 ns", "{text}");
        }
        let least = bars(&[("a", 1e6, "ns"), ("b", 1.0, "ns")], true);
        assert!(least.contains("  b ▏ 1.0 ns"));
    }
}
