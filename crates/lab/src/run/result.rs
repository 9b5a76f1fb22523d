//! The result of a run: rows of figures, each beside what was published. The schema is
//! `coreline.run/2`.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use coreline_scenarios::Source;
use coreline_scenarios::metric::{Better, FigureKind};
use coreline_scenarios::param::Value;
use coreline_sim::claim::Band;
use coreline_sim::not_modelled;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Choice;
use super::measured::{Beside, Lack, Measured, Shown, figures};
use super::published::Published;
use super::verdict::{self, Judged, Verdict};
use crate::error::Error;
use crate::provenance::{Here, Program};
use crate::world::World;

const SCHEMA: &str = "coreline.run/2";

/// No result is nearly as large: 160 rows are 100 kB.
const LARGEST: u64 = 64 << 20;

/// Reads what `--json` printed from a file: its text, and the fields that the caller wants.
///
/// # Errors
///
/// [`Error::Compared`] if the file cannot be read, or is not a result.
pub(crate) fn read_back<T: DeserializeOwned>(path: &Path) -> Result<(Vec<u8>, T), Error> {
    let of = |why: String| Error::Compared { path: path.to_owned(), why };
    let mut text = Vec::new();
    let file = File::open(path).map_err(|error| of(error.to_string()))?;
    let read = file.take(LARGEST + 1).read_to_end(&mut text);
    read.map_err(|error| of(error.to_string()))?;
    if text.len() as u64 > LARGEST {
        return Err(of(format!("it is larger than {} MiB, the limit for a result", LARGEST >> 20)));
    }
    let result = parse(&text).map_err(of)?;
    Ok((text, result))
}

/// Parses text, or says why it is not a result.
fn parse<T: DeserializeOwned>(text: &[u8]) -> Result<T, String> {
    if text.trim_ascii().is_empty() {
        return Err("it is empty".to_owned());
    }
    let value: serde_json::Value =
        serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let Some(schema) = value["schema"].as_str() else {
        return Err(format!("it names no schema, and a result names {SCHEMA}"));
    };
    if schema != SCHEMA {
        return Err(format!("its schema is {schema}, and not {SCHEMA}"));
    }
    serde_json::from_value(value).map_err(|error| error.to_string())
}

/// The result of a run. The order of fields is that of the schema.
#[derive(Debug, Serialize)]
pub(crate) struct RunResult {
    schema: &'static str,
    program: Program,
    pub(crate) scenario: &'static str,
    pub(crate) world: String,
    /// Of the machine's file, in hexadecimal; null natively.
    machine_digest: Option<String>,
    /// Null in a simulation, which is the same everywhere.
    here: Option<Here>,
    quick: bool,
    spans: Spans,
    pub(crate) seed: u64,
    /// How many seeds each request share has, from that one on.
    seeds: u64,
    /// The arbitrations of contended lines, the default first. Empty natively.
    arbitrations: Vec<String>,
    /// Whether independent accesses of a thread overlap. Null natively.
    overlap: Option<String>,
    pub(crate) not_modelled: Vec<&'static str>,
    pub(crate) rows: Vec<FigureRow>,
    /// The command that gives the same result again. Not data.
    #[serde(skip)]
    pub(crate) command: String,
    #[serde(skip)]
    pub(crate) sources: Vec<&'static Source>,
    /// The parts that an interrupt left out. Not data: such a result is not serialised.
    #[serde(skip)]
    pub(crate) left_out: Option<LeftOut>,
}

/// The meaning of the range between a row's lowest and highest value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Spans {
    /// One for each request share.
    RequestShares,
    /// Request shares with all seeds, and moved costs, under each arbitration.
    WholeBand,
    /// Nothing: a quick run's figures are points, as its band would not lie where the whole one
    /// does. Its verdicts are of the request shares.
    Point,
    /// Those of a native run.
    Samples,
}

/// That an interrupt came before all was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LeftOut {
    finished: usize,
    all: usize,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LeftOut { finished, all } = self;
        write!(
            f,
            "interrupted: {finished} of {all} combinations of configuration, parameters and \
             variant were finished, and the rest was left out"
        )
    }
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct FigureRow {
    pub(crate) config: String,
    pub(crate) params: BTreeMap<String, Value>,
    pub(crate) variant: &'static str,
    pub(crate) metric: &'static str,
    pub(crate) value: f64,
    /// The lowest and the highest over the band, null of a point; natively over the samples, null
    /// of fewer than two.
    pub(crate) low: f64,
    pub(crate) high: f64,
    /// Natively each sample that counts; otherwise the value at each point of the band, the default
    /// first.
    pub(crate) points: Vec<f64>,
    /// Natively, how many samples the value is the median of.
    pub(crate) samples: Option<usize>,
    /// Natively, how many did not count, as other programs used the CPUs; null where the kernel
    /// does not say.
    pub(crate) discarded: Option<u32>,
    /// Natively, whether disturbed samples count, as there were too few others: no evidence.
    pub(crate) disturbed: bool,
    /// Natively, how many rounds were disturbed, of those that count and of those that do not.
    pub(crate) disturbed_rounds: Option<u32>,
    pub(crate) unit: &'static str,
    /// Not data: the unit and the metric say it.
    #[serde(skip)]
    pub(crate) kind: FigureKind,
    /// Whether it is a ratio to another variant's figure.
    pub(crate) derived: bool,
    pub(crate) better: Better,
    pub(crate) published: Option<f64>,
    pub(crate) source: Option<String>,
    pub(crate) verdict: Verdict,
    /// Whether a parameter that is declared, or what is not modelled, decides the figure's size.
    /// Not data.
    #[serde(skip)]
    pub(crate) limited: bool,
    /// The factor by which the size is off, or within which it is reached, if the verdict depends
    /// on it.
    pub(crate) times: Option<f64>,
    /// Why the verdict is not better; never missing where it could be. Or why there is no value.
    pub(crate) why: Option<String>,
    /// The reason why the value or its range is missing.
    pub(crate) lack: Option<Lack>,
}

impl RunResult {
    /// Of what was finished, of this many points.
    pub(super) fn new(choice: &Choice, measured: &[Measured], all: usize) -> RunResult {
        let (scenario, world) = (choice.scenario, &choice.world);
        let machine = match world {
            World::Native => None,
            World::Simulated { spec, .. } => Some(&**spec),
        };
        let file = scenario.published.zip(machine);
        let published = file.and_then(|(file, machine)| Published::about(file, machine));
        let beside = Beside { machine, published: published.as_ref() };
        // The variants of a configuration and its parameters follow each other.
        let mut rows: Vec<FigureRow> = measured
            .chunk_by(|this, next| this.point.is_beside(&next.point))
            .flat_map(|variants| figures(&beside, variants))
            .map(|shown| row(&beside, shown))
            .collect();
        let spans = match (machine, choice.band) {
            (None, _) => Spans::Samples,
            (Some(_), true) => Spans::WholeBand,
            (Some(_), false) if choice.quick => Spans::Point,
            (Some(_), false) => Spans::RequestShares,
        };
        if spans == Spans::Point {
            rows.iter_mut().for_each(|row| (row.low, row.high) = (f64::NAN, f64::NAN));
        }
        let overlap = choice.overlap.unwrap_or_default();
        RunResult {
            schema: SCHEMA,
            program: Program::THIS,
            scenario: scenario.name,
            world: world.name().to_owned(),
            machine_digest: machine.map(|spec| format!("{:016x}", spec.file_digest())),
            here: machine.is_none().then(Here::now),
            quick: choice.quick,
            spans,
            seed: choice.seed,
            seeds: if choice.band && machine.is_some() { Band::SEEDS } else { 1 },
            arbitrations: machine.map_or(Vec::new(), |machine| choice.arbitrations(machine)),
            overlap: machine.map(|_| overlap.to_string()),
            not_modelled: machine.map_or(Vec::new(), |_| not_modelled(overlap).collect()),
            rows,
            command: choice.command(),
            sources: published.as_ref().map(Published::sources).unwrap_or_default(),
            left_out: (measured.len() < all).then_some(LeftOut { finished: measured.len(), all }),
        }
    }
}

impl FigureRow {
    pub(crate) fn said(&self) -> String {
        verdict::said(self.verdict, self.times)
    }
}

/// Why nothing can be said where the machine's tree was made up.
const UNKNOWN_CACHES: &str = "it is unknown which CPUs share a cache, because sysfs could not be \
                              read (see `coreline doctor`): no evidence about distances";

/// Why a figure from disturbed samples proves nothing.
const DISTURBED: &str = "other programs used these CPUs: no evidence";

fn row(beside: &Beside<'_>, shown: Shown<'_>) -> FigureRow {
    let natively = beside.machine.is_none();
    let Shown { of, metric, derived, series, lack, published } = &shown;
    let Measured { point, caches, rounds, .. } = of;
    let disturbed = rounds.is_some_and(|rounds| rounds.are_disturbed);
    let samples = series.points.len();
    let (low, high) = match samples {
        0 | 1 if natively => (f64::NAN, f64::NAN),
        _ => series.range(),
    };
    let scenario = point.scenario;
    let limited = (scenario.limited)(metric.name, point);
    let Judged { verdict, times } = match published {
        _ if natively && (*caches <= 1 || disturbed) => Verdict::NotTestable.into(),
        Some((published, _)) => {
            verdict::judge(metric.kind, series.value, (low, high), *published, limited)
        }
        None => Verdict::None.into(),
    };
    let note = |near| {
        let above = published.as_ref().is_some_and(|published| series.value > published.0);
        beside.published.and_then(|it| it.note(near, metric.name, point, above))
    };
    let why = match verdict {
        Verdict::None => None,
        Verdict::Reached => note(true),
        Verdict::NotTestable if *caches == 0 => Some(UNKNOWN_CACHES),
        Verdict::NotTestable if *caches == 1 => Some(scenario.not_testable),
        Verdict::NotTestable => Some(DISTURBED),
        _ => note(false),
    };
    let round = |value| metric.kind.round(value);
    FigureRow {
        config: point.config.clone(),
        params: point.params(),
        variant: point.variant,
        metric: metric.name,
        value: round(series.value),
        low: round(low),
        high: round(high),
        points: series.points.iter().map(|point| round(*point)).collect(),
        samples: natively.then_some(samples),
        discarded: rounds.map(|rounds| rounds.discarded),
        disturbed,
        disturbed_rounds: rounds.map(|rounds| rounds.disturbed),
        unit: metric.kind.unit(),
        kind: metric.kind,
        derived: *derived,
        better: metric.kind.better(),
        published: published.as_ref().map(|published| published.0),
        source: published.as_ref().map(|published| published.1.clone()),
        verdict,
        limited,
        times: times.map(|times| FigureKind::Ratio.round(times)),
        why: lack.map(|(lack, by)| lack.said(by)).or_else(|| why.map(str::to_owned)),
        lack: lack.map(|(lack, _)| lack),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::Whole;
    use crate::run::measured::{Rounds, Series};
    use coreline_scenarios::point::Setup;

    /// The first row of a native result with such samples.
    fn row(caches: usize, points: &[f64], are_disturbed: bool) -> FigureRow {
        let program = "shootdown config=2-CPU present=1 variant=eager updates=6";
        let point = Setup::new(program, []).point;
        let choice = Choice::quick(point.scenario, World::Native, &mut Whole::new(1));
        let value = points.first().copied().unwrap_or(f64::NAN);
        let number = || Series { value, points: points.to_vec() };
        let rounds = Some(Rounds { discarded: 2, disturbed: 3, are_disturbed });
        let measured = [Measured { point, caches, numbers: vec![number(), number()], rounds }];
        RunResult::new(&choice, &measured, 1).rows.swap_remove(0)
    }

    #[test]
    fn natively_a_row_says_why_it_is_not_testable() {
        let verdict = |caches| {
            let row = row(caches, &[4.0, 6.0], false);
            (row.verdict, row.why.unwrap_or_default())
        };
        let (one, none, two) = (verdict(1), verdict(0), verdict(2));
        assert_eq!(one.0, Verdict::NotTestable);
        assert!(one.1.contains("share one L3"), "{one:?}");
        assert_eq!(none.0, Verdict::NotTestable);
        assert!(none.1.contains("sysfs") && !none.1.contains("one L3"), "{none:?}");
        assert_eq!(two, (Verdict::None, String::new()));
    }

    #[test]
    fn a_disturbed_figure_is_shown_with_its_samples_and_is_no_evidence() {
        let row = row(2, &[4.0, 6.0], true);
        assert_eq!((row.value, row.low, row.high, row.disturbed), (4.0, 4.0, 6.0, true));
        assert_eq!((row.samples, row.discarded, row.disturbed_rounds), (Some(2), Some(2), Some(3)));
        assert_eq!((row.verdict, row.why.as_deref()), (Verdict::NotTestable, Some(DISTURBED)));
    }

    #[test]
    fn one_sample_has_no_band_and_none_no_figure() {
        let row = |points: &[f64]| serde_json::to_value(row(2, points, false)).unwrap();
        let shown = |row: &serde_json::Value| {
            ["value", "low", "high", "samples", "discarded"].map(|key| row[key].clone())
        };
        let null = || serde_json::Value::Null;
        let json = |number: f64| serde_json::json!(number);
        let two = shown(&row(&[4.0, 6.0]));
        assert_eq!(two, [json(4.0), json(4.0), json(6.0), 2.into(), 2.into()]);
        assert_eq!(shown(&row(&[4.0])), [json(4.0), null(), null(), 1.into(), 2.into()]);
        assert_eq!(shown(&row(&[])), [null(), null(), null(), 0.into(), 2.into()]);
    }

    #[derive(Debug, serde::Deserialize)]
    struct Needed {
        #[expect(dead_code, reason = "it has to be there")]
        rows: Vec<serde_json::Value>,
    }

    #[test]
    fn what_is_no_result_says_what_it_is() {
        for (text, why) in [
            ("", "it is empty"),
            (" \n", "it is empty"),
            ("{}", "it names no schema"),
            (
                "{\"schema\": \"coreline.run/1\"}",
                "its schema is coreline.run/1, and not coreline.run/2",
            ),
            ("[1, 2]", "it names no schema"),
            ("{\"schema\": \"coreline.run/2\"}", "missing field"),
            ("{\"schema\": ", "EOF"),
        ] {
            let told = parse::<Needed>(text.as_bytes()).unwrap_err();
            assert!(told.contains(why), "{text}: {told}");
        }
    }
}
