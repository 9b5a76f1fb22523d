//! Shows a validation as text.

use std::io::Write;

use super::{ExperimentRow, Outcome, Verdict, core_to_core};
use crate::error::Error;
use crate::output::table;

pub(super) fn show(outcome: &Outcome, out: &mut dyn Write) -> Result<(), Error> {
    match &outcome.engine {
        Some(engine) => writeln!(
            out,
            "measured here, beside what the simulator said of {} (engine {engine}); ns",
            outcome.machine
        )?,
        None => writeln!(out, "what the simulator says of {}; ns", outcome.machine)?,
    }
    if outcome.quick && outcome.engine.is_some() {
        writeln!(out, "quick: no figure here is worth quoting")?;
    }
    let header = [
        "experiment",
        "time of",
        "threads",
        "predicted",
        "band",
        "measured",
        "half of all",
        "samples",
        "discarded",
        "elsewhere",
        "ratio",
        "verdict",
    ];
    let mut rows = table(header);
    for row in &outcome.rows {
        rows.add_row(cells(row));
    }
    writeln!(out, "{}", rows.trim_fmt())?;
    let mut reasons: Vec<_> = outcome.rows.iter().filter_map(|row| row.why.as_deref()).collect();
    reasons.dedup();
    for why in reasons {
        writeln!(out, "{why}")?;
    }
    writeln!(
        out,
        "a hit is a median within the band, widened by a factor of 1.5, for passes over memory 2"
    )?;
    writeln!(out, "not modelled: {}\n", outcome.not_modelled.join(", "))?;
    core_to_core::show(&outcome.core_to_core, out)
}

fn cells(row: &ExperimentRow) -> [String; 12] {
    let ns = |ns: f64| format!("{ns:.1}");
    let predicted =
        row.predicted.map(|it| (ns(it.value), format!("{:.1} - {:.1}", it.low, it.high)));
    let (value, band) = predicted.unwrap_or_default();
    let measured = row.measured.map(|it| {
        let half = format!("{:.1} - {:.1}", it.low, it.high);
        let counts = [it.samples.to_string(), it.discarded.to_string(), it.elsewhere.to_string()];
        let [samples, discarded, elsewhere] = counts;
        [ns(it.median), half, samples, discarded, elsewhere]
    });
    let [median, half, samples, discarded, elsewhere] = measured.unwrap_or_default();
    let verdict = match (row.verdict, row.in_band) {
        (Verdict::Hit, Some(true)) => "hit, in the band",
        (Verdict::Hit, _) => "hit",
        (Verdict::Miss, _) => "miss",
        (Verdict::Calibration, _) => "calibrated by it",
        (Verdict::NotTestable, _) => "not testable here",
        (Verdict::None, _) => "",
    };
    [
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
        row.ratio.map(|ratio| format!("{ratio:.2}")).unwrap_or_default(),
        verdict.to_owned(),
    ]
}
