//! Shows a validation as text.

use std::io::Write;

use super::{ExperimentRow, Score, Validation, Verdict, core_to_core};
use crate::error::Error;
use crate::listing::Listing;
use crate::text::{Form, counted};

pub(super) fn show(outcome: &Validation, form: Form, out: &mut dyn Write) -> Result<(), Error> {
    let Validation { machine, is_here, quick, rows, not_modelled, .. } = outcome;
    let head = if *is_here {
        "times in ns: predicted for this machine from costs that were measured here, and measured"
            .to_owned()
    } else {
        format!("times in ns: predicted for {machine}; nothing is measured here")
    };
    write!(out, "{}", form.fitted(&head))?;
    if *quick && *is_here {
        write!(out, "{}", form.paragraph("", "quick: no figure here is worth quoting"))?;
    }
    let wide = wide(rows);
    let table = if wide.fits(form) { wide } else { narrow(rows) };
    write!(out, "{}", table.text(form))?;
    let mut reasons: Vec<_> = rows.iter().filter_map(|row| row.why.as_deref()).collect();
    reasons.dedup();
    for why in reasons {
        write!(out, "{}", form.fitted(why))?;
    }
    let Score { judged, hits, null_hits } = outcome.score;
    if judged > 0 {
        let score = format!(
            "{hits} of {judged} predictions hit; a null model (one time for all) would hit \
             {null_hits}"
        );
        write!(out, "{}", form.paragraph("", &score))?;
    }
    let hit = "a hit is a median within the band widened 1.5-fold (2-fold for passes over memory)";
    write!(out, "{}", form.paragraph("", hit))?;
    let not_modelled = format!("not modelled: {}", not_modelled.join(", "));
    writeln!(out, "{}", form.fitted(&not_modelled))?;
    core_to_core::show(&outcome.core_to_core, form, out)
}

/// Everything about an experiment in one line.
fn wide(rows: &[ExperimentRow]) -> Listing<'static> {
    let mut listing = Listing::new(&[
        ("experiment", false),
        ("time of", false),
        ("threads", true),
        ("predicted", true),
        ("band", true),
        ("measured", true),
        ("middle half (IQR)", true),
        ("samples", true),
        ("discarded", true),
        ("elsewhere", true),
        ("ratio", true),
        ("verdict", false),
    ]);
    for row in rows {
        let [value, band, median, half, ratio] = figures(row);
        let counts =
            row.measured.map(|it| [it.samples as u64, it.discarded.into(), it.elsewhere.into()]);
        let [samples, discarded, elsewhere] =
            counts.map(|it| it.map(|it| it.to_string())).unwrap_or_default();
        listing.row([
            row.name.to_owned(),
            row.what.to_owned(),
            row.threads.to_string(),
            value,
            band,
            median,
            half,
            samples,
            discarded,
            elsewhere,
            ratio,
            verdict(row).to_owned(),
        ]);
    }
    listing
}

/// The figures of an experiment in a line, below one that says what it is.
fn narrow(rows: &[ExperimentRow]) -> Listing<'static> {
    let mut listing = Listing::new(&[
        ("predicted", true),
        ("band", true),
        ("measured", true),
        ("middle half", true),
        ("ratio", true),
        ("verdict", false),
    ]);
    for row in rows {
        let (name, what, threads) = (row.name, row.what, counted(row.threads, "thread"));
        let samples = row.measured.map(|it| {
            let samples = counted(it.samples, "sample");
            format!("; {samples}, {} discarded, {} elsewhere", it.discarded, it.elsewhere)
        });
        let samples = samples.unwrap_or_default();
        listing.line(0, format!("{name}: {what}, {threads}{samples}"));
        let [value, band, median, half, ratio] = figures(row);
        listing.row([value, band, median, half, ratio, verdict(row).to_owned()]);
    }
    listing
}

/// The predicted value and its band, the measured median and the middle half of all, and their
/// ratio.
fn figures(row: &ExperimentRow) -> [String; 5] {
    let ns = |ns: f64| format!("{ns:.1}");
    let range = |low, high| format!("{low:.1} - {high:.1}");
    let predicted = row.predicted.map(|it| (ns(it.value), range(it.low, it.high)));
    let (value, band) = predicted.unwrap_or_default();
    let measured = row.measured.map(|it| (ns(it.median), range(it.low, it.high)));
    let (median, half) = measured.unwrap_or_default();
    let ratio = row.ratio.map(|ratio| format!("{ratio:.2}")).unwrap_or_default();
    [value, band, median, half, ratio]
}

fn verdict(row: &ExperimentRow) -> &'static str {
    match (row.verdict, row.in_band) {
        (Verdict::Hit, Some(true)) => "hit, in band",
        (Verdict::Hit, _) => "hit",
        (Verdict::Miss, _) => "miss",
        (Verdict::Calibration, _) => "calibration",
        (Verdict::NotTestable, _) => "not testable",
        (Verdict::None, _) => "",
    }
}

#[cfg(test)]
mod tests {
    use super::super::experiment;
    use super::super::native::{Measured, Untestable};
    use super::super::simulated::Predicted;
    use super::*;

    /// A table of all experiments, with figures of this many digits.
    fn outcome(figure: f64) -> Validation {
        let predicted = Predicted { value: figure, low: figure / 3.0, high: figure * 1.1 };
        let measured = Measured {
            median: 10.0 * figure,
            low: 9.0 * figure,
            high: 11.0 * figure,
            samples: 15,
            discarded: 3,
            elsewhere: 1,
        };
        let row = |(index, it)| match index % 3 {
            0 => ExperimentRow::new(it, None, Err(Untestable::OneCpu)),
            1 => ExperimentRow::new(it, Some(predicted), Ok(None)),
            _ => ExperimentRow::new(it, Some(predicted), Ok(Some(measured))),
        };
        let transfer = core_to_core::CoreToCore {
            machine: "m".repeat(200),
            class: "other_socket",
            nodes: Some([10_000, 10_001]),
            file_ns: figure,
            basis: core_to_core::Basis::TakenOver,
            request_percent: 30,
            transfer_ns: figure,
            simulated_ns: figure,
            reached: false,
            source: "a source, in words ".repeat(20),
        };
        Validation {
            schema: "",
            world: "native".to_owned(),
            machine: "n".repeat(200),
            is_here: true,
            quick: true,
            not_modelled: coreline_sim::NOT_MODELLED,
            score: Score { judged: 3, hits: 2, null_hits: 1 },
            rows: experiment::ALL.iter().enumerate().map(row).collect(),
            core_to_core: vec![transfer.clone(), transfer.clone(), transfer],
        }
    }

    fn text(outcome: &Validation, width: usize) -> String {
        let mut text = Vec::new();
        show(outcome, Form { width, colour: false, unicode: false }, &mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn any_validation_fits() {
        for figure in [1.0, 999.9, 1.0e6, 1.0e40] {
            for width in [30, 40, 80, 100, 180] {
                let text = text(&outcome(figure), width);
                let wide = text.lines().find(|line| line.len() > width);
                assert_eq!(wide, None, "{width}: {text}");
                assert!(text.contains("ticket-2-apart"), "{text}");
            }
        }
    }

    #[test]
    fn the_figures_of_an_experiment_stay_in_one_line_of_80() {
        let text = text(&outcome(999.9), 80);
        let line = " 999.9  333.3 - 1099.9    9999.0  8999.1 - 10998.9  10.00  ";
        assert!(text.contains(line), "{text}");
        let words: Vec<&str> = text.split_whitespace().collect();
        let words = words.join(" ");
        assert!(words.contains("2 threads; 15 samples, 3 discarded, 1 elsewhere"), "{text}");
        assert!(words.contains("an addition, 1 thread"), "{text}");
    }
}
