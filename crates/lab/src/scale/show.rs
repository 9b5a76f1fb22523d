//! The result in words: for a terminal, as Markdown, and as annotations.

use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;

use super::gate::{Compare, Compared, Gate, Verdict};
use super::record::{Hottest, Key};
use crate::error::Error;
use crate::listing::Listing;
use crate::text::{Form, Tone, counted};

impl Gate {
    pub(super) fn conclusion(&self) -> String {
        let all = counted(self.curves.len(), "curve");
        let curves = match (&self.blessed, self.failing) {
            (Some(_), _) => format!("{all} blessed"),
            (None, 0) => format!("{all}: none is worse than its baseline"),
            (None, 1) => format!("1 of {all} fails"),
            (None, failing) => format!("{failing} of {all} fail"),
        };
        match self.tests {
            Some(_) => format!("a test failed; {curves}"),
            None => curves,
        }
    }

    pub(super) fn show(&self, form: Form, out: &mut dyn Write) -> Result<(), Error> {
        let is_good = (self.failing == 0 && self.tests.is_none()) || self.blessed.is_some();
        let tone = if is_good { Tone::Good } else { Tone::Bad };
        write!(out, "{}", form.paragraph("", &form.toned(tone, &self.conclusion())))?;
        let mut same = Vec::new();
        for curve in &self.curves {
            if !curve.is_told(self.blessed.is_some()) {
                same.push(curve);
                continue;
            }
            writeln!(out)?;
            write!(out, "{}", form.paragraph("", &format!("{}: {}", curve.named(), curve.says())))?;
            if let Some(hottest) = &curve.hottest {
                write!(out, "{}", form.paragraph("  ", &hottest.says()))?;
            }
            let mut table = Listing::new(&COLUMNS).indented(2);
            curve.rows.iter().for_each(|row| table.row(row.cells()));
            write!(out, "{}", table.text(form))?;
            if let Some(again) = &curve.again {
                writeln!(out, "  The report of the run with that number of threads:")?;
                write!(out, "{}", form.command("  ", again))?;
            }
        }
        if !same.is_empty() {
            writeln!(out)?;
            let head = if self.blessed.is_some() { "new or the same" } else { "the same" };
            let mut table = Listing::new(&[(head, false), ("scales to", true)]);
            for curve in same {
                let to = curve.scales_to.map_or(String::new(), |to| to.to_string());
                table.row([curve.named(), to]);
            }
            write!(out, "{}", table.text(form))?;
        }
        if self.blessed.is_none() && self.curves.iter().any(|it| it.verdict != Verdict::Same) {
            writeln!(out)?;
            write!(out, "{}", form.paragraph("", BLESS))?;
        }
        Ok(())
    }

    /// For the comment on a change.
    pub(super) fn markdown(&self) -> String {
        let mut text = format!("### Scaling: {}\n", self.conclusion());
        for curve in self.curves.iter().filter(|curve| curve.verdict != Verdict::Same) {
            let _ = write!(text, "\n**{}**: {}\n", escaped(&curve.named()), escaped(&curve.says()));
            if let Some(hottest) = &curve.hottest {
                let _ = writeln!(text, "{}", escaped(&hottest.says()));
            }
            let heads: Vec<&str> = COLUMNS.iter().map(|(head, _)| *head).collect();
            let _ = write!(text, "\n| {} |\n|{}\n", heads.join(" | "), "---:|".repeat(heads.len()));
            for row in &curve.rows {
                let _ = writeln!(text, "| {} |", row.cells().join(" | "));
            }
            if let Some(again) = &curve.again {
                let _ = write!(text, "\n```sh\n{again}\n```\n");
            }
        }
        let same: Vec<&Compared> =
            self.curves.iter().filter(|it| it.verdict == Verdict::Same).collect();
        if !same.is_empty() {
            let _ = write!(text, "\n<details><summary>The same: {}</summary>\n\n", same.len());
            text += "| curve | scales to |\n|---|---:|\n";
            for curve in &same {
                let to = curve.scales_to.map_or(String::new(), |to| to.to_string());
                let _ = writeln!(text, "| {} | {to} |", escaped(&curve.named()));
            }
            text += "\n</details>\n";
        }
        if self.failing > 0 && self.blessed.is_none() {
            let _ = write!(text, "\n{BLESS}\n");
        }
        text
    }

    /// Commands for GitHub, which shows them at the lines of a change.
    pub(super) fn annotations(&self, below: &Path) -> String {
        let mut text = String::new();
        for curve in self.curves.iter().filter(|curve| curve.verdict.fails()) {
            let place = curve.hottest.as_ref().map_or(String::new(), |it| {
                let file = below.join(&it.file).display().to_string();
                format!("file={},line={},", property(&file), it.line)
            });
            let says = format!("{}: {}", curve.named(), curve.says());
            let hottest =
                curve.hottest.as_ref().map_or(String::new(), |it| format!("\n{}", it.says()));
            let _ = writeln!(
                text,
                "::error {place}title=Scaling::{}",
                message(&format!("{says}{hottest}"))
            );
        }
        text
    }
}

const BLESS: &str = "If a curve is as it should be, accept it: `cargo coreline scale --bless \
                     \"REASON\"`, and commit the baseline.";

const COLUMNS: [(&str, bool); 5] = [
    ("threads", true),
    ("before, op/s", true),
    ("now, op/s", true),
    ("ratio", true),
    ("over the band", true),
];

impl Compare {
    fn cells(&self) -> [String; 5] {
        let rate = |rate: Option<f64>| rate.map_or("-".to_owned(), rate_text);
        let [ratio, band] = match self.ratio {
            Some([value, low, high]) => {
                [ratio_text(value), format!("{} to {}", ratio_text(low), ratio_text(high))]
            }
            None => ["-".to_owned(), "-".to_owned()],
        };
        [self.threads.to_string(), rate(self.before), rate(self.now), ratio, band]
    }
}

fn ratio_text(ratio: f64) -> String {
    match ratio {
        ratio if !ratio.is_finite() => "-".to_owned(),
        ratio if ratio > 0.0 && ratio < 0.095 => {
            let digits = 1.0 - ratio.log10().floor();
            format!("{ratio:.*}", digits as usize)
        }
        ratio => format!("{ratio:.2}"),
    }
}

/// Three digits and a letter for thousands.
fn rate_text(rate: f64) -> String {
    coreline_sim::measure::short(rate).trim_end().to_owned()
}

impl Compared {
    /// Whether more than its name is shown.
    fn is_told(&self, blessed: bool) -> bool {
        !(self.verdict == Verdict::Same || (blessed && self.verdict == Verdict::New))
    }

    fn named(&self) -> String {
        let Key { package, name, machine } = &self.key;
        // A name with a line break could look like another line of ours.
        let is_kept = |letter: &char| !letter.is_control();
        format!("{name} ({package}, {machine})").chars().filter(is_kept).collect()
    }

    /// What became of it.
    pub(super) fn says(&self) -> String {
        let least = self.rows.first().map_or(0, |row| row.threads);
        let at = |from: usize| {
            let row = self.rows.iter().find(|row| row.threads == from);
            row.and_then(|row| row.ratio).map_or("-".to_owned(), |[ratio, ..]| ratio_text(ratio))
        };
        let scales = match (self.scaled_to, self.scales_to) {
            (Some(then), Some(now)) if then != now => {
                format!(". It scaled to {then} threads, and scales to {now} now")
            }
            _ => String::new(),
        };
        let from = |from: usize| match from == least {
            true => format!("with {} or more", counted(from, "thread")),
            false => format!("from {} on", counted(from, "thread")),
        };
        match &self.verdict {
            Verdict::Same => format!("the same{scales}"),
            Verdict::Better { from: at_from } => {
                format!("faster {} ({} times){scales}", from(*at_from), at(*at_from))
            }
            Verdict::Worse { from: at_from } => {
                format!("slower {} ({} times){scales}", from(*at_from), at(*at_from))
            }
            Verdict::New => "new: the baseline does not have it".to_owned(),
            Verdict::Gone => "gone: the baseline has it, and no test measured it".to_owned(),
            Verdict::Other { why } => format!("not comparable: {why}"),
        }
    }
}

impl Hottest {
    fn says(&self) -> String {
        let Hottest { names, file, line, share, shared_with } = self;
        let named =
            if names.is_empty() { String::new() } else { format!(" of {}", names.join(", ")) };
        let shared = match shared_with.is_empty() {
            true => String::new(),
            false => {
                format!(". The line is falsely shared with the words of {}", shared_with.join(", "))
            }
        };
        let share = 100.0 * share;
        format!("hottest word{named}: {file}:{line}, {share:.0} % of the time of accesses{shared}")
    }
}

/// Text in Markdown that stands for itself.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for letter in text.chars() {
        if "\\`*_|<>[]#@&~".contains(letter) {
            escaped.push('\\');
        }
        escaped.push(if letter == '\n' { ' ' } else { letter });
    }
    escaped
}

/// As GitHub reads the text of a command.
fn message(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn property(text: &str) -> String {
    message(text).replace(':', "%3A").replace(',', "%2C")
}
