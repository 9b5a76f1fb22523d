//! Bars and figures as text.

use std::fmt;

use crate::text::{Form, Tone};

/// Parts of a column, from an eighth to all of it.
const EIGHTHS: [char; 8] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉', '█'];

/// A bar for each time, of lengths in proportion: label, nanoseconds, and a mark before the figure.
pub(super) struct Bars {
    bars: Vec<(String, f64, &'static str)>,
    form: Form,
}

impl Bars {
    pub(super) fn new(bars: Vec<(String, f64, &'static str)>, form: Form) -> Self {
        Bars { bars, form }
    }
}

/// Columns of a figure.
const FIGURE: usize = 10;

impl fmt::Display for Bars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let label = self.bars.iter().map(|(label, ..)| label.len()).max().unwrap_or(0);
        let most = self.bars.iter().map(|(_, value, _)| *value).fold(0.0, f64::max);
        let room = self.form.width.saturating_sub(label + FIGURE + "  ".len());
        for (name, value, mark) in &self.bars {
            let length = if most > 0.0 { value / most * room as f64 } else { 0.0 };
            let bar = self.form.toned(Tone::Bar, &self.bar(length));
            let figure = format!("{mark}{}", figure(*value, "ns"));
            writeln!(f, "{name:label$}{figure:>FIGURE$}  {bar}")?;
        }
        Ok(())
    }
}

impl Bars {
    /// A bar of this many columns; what is not zero is seen.
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

#[cfg(test)]
mod tests {
    use super::*;

    const WIDTH: usize = 80;

    fn bars(bars: &[(&str, f64)], unicode: bool) -> String {
        let bars = bars.iter().map(|(label, ns)| ((*label).to_owned(), *ns, "")).collect();
        Bars::new(bars, Form { width: WIDTH, colour: false, unicode }).to_string()
    }

    #[test]
    fn the_longest_bar_fills_its_line_and_the_least_is_seen() {
        let three = [("eager", 95_970.8), ("lazy", 9_997.8), ("none", 0.0)];
        for (unicode, full) in [(false, '#'), (true, '█')] {
            let text = bars(&three, unicode);
            let lines: Vec<&str> = text.lines().collect();
            assert_eq!(lines[0].chars().count(), WIDTH, "{text}");
            assert!(lines[0].starts_with(&format!("eager   96.0 us  {full}{full}")), "{text}");
            let columns = |line: &str| line.chars().filter(|char| *char == full).count();
            assert!((6..=7).contains(&columns(lines[1])), "{text}");
            assert!(lines[1].contains(" 9998 ns ") && lines[2].trim_end() == "none     0.0 ns");
        }
        assert!(bars(&[("a", 1e6), ("b", 1.0)], true).ends_with("1.0 ns  ▏\n"));
    }

    #[test]
    fn figures_are_short() {
        for (value, unit, shown) in [
            (0.54, "ns", "0.5 ns"),
            (907.2, "ns", "907 ns"),
            (1830875.0, "1/s", "1831 k/s"),
            (9090.0, "cycles", "9090 cycles"),
        ] {
            assert_eq!(figure(value, unit), shown);
        }
    }
}
