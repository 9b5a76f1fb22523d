//! The curves as a picture: those that changed, before and now; without a change, all.

use super::gate::{Compare, Compared, Gate, Verdict};
use crate::error::Error;
use crate::report::{Curve, curves};

/// How many curves a picture has, at the most: more cannot be told apart.
const MOST: usize = 5;

pub(super) fn svg(gate: &Gate) -> Result<Vec<u8>, Error> {
    drawn(gate, "svg")
}

pub(super) fn png(gate: &Gate) -> Result<Vec<u8>, Error> {
    drawn(gate, "png")
}

fn drawn(gate: &Gate, form: &str) -> Result<Vec<u8>, Error> {
    let changed = gate.curves.iter().filter(|curve| curve.verdict != Verdict::Same);
    let changed: Vec<&Compared> = changed.collect();
    let is_changed = !changed.is_empty();
    let shown = if is_changed { changed } else { gate.curves.iter().collect() };
    let mut lines = Vec::new();
    for curve in shown.iter().take(MOST) {
        let name = format!("{} ({})", curve.key.name, curve.key.machine);
        let line = |when: &str, rate: fn(&Compare) -> Option<f64>| {
            let points = curve.rows.iter().filter_map(|row| Some((row.threads, rate(row)?)));
            Curve { name: format!("{name}{when}"), points: points.collect() }
        };
        if is_changed {
            lines.push(line(", before", |row| row.before));
        }
        lines.push(line(if is_changed { ", now" } else { "" }, |row| row.now));
    }
    lines.retain(|line| !line.points.is_empty());
    let left_out = match shown.len().saturating_sub(MOST) {
        0 => String::new(),
        more => format!("; {more} more are not shown"),
    };
    let again = shown.iter().find_map(|curve| curve.again.clone());
    let machine = format!("coreline-sim {}{left_out}", gate.simulator);
    curves(&gate.conclusion(), &machine, &again.unwrap_or_default(), &lines, form)
}
