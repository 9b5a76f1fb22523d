use coreline_scenarios::metric::{Better, FigureKind};
use coreline_scenarios::param::Value;

use super::*;

/// A row of a machine with a long name for everything.
fn row(delay: u64, metric: &'static str, variant: &'static str) -> FigureRow {
    let (unit, better) = match metric {
        "speedup" => ("ratio", Better::Higher),
        _ => ("ns", Better::Lower),
    };
    let params = [("delay_ms", Value::Number(delay)), ("look", Value::Name("tick".to_owned()))];
    FigureRow {
        config: "24-core/24-L3".to_owned(),
        params: params.map(|(name, value)| (name.to_owned(), value)).into(),
        variant,
        metric,
        value: 5.89,
        low: 0.5,
        high: 12_345.6,
        points: Vec::new(),
        samples: None,
        discarded: None,
        disturbed: false,
        disturbed_rounds: None,
        lack: None,
        unit,
        kind: FigureKind::Gain,
        derived: false,
        better,
        published: Some(7.3),
        source: None,
        verdict: Verdict::Direction,
        limited: false,
        times: Some(5.1),
        why: Some("the ratio leaves out what its two times leave out".to_owned()),
    }
}

/// Two groups of two metrics, the rows variant by variant.
fn rows() -> Vec<FigureRow> {
    let of = |delay| {
        let metrics = ["ns_per_burst", "speedup"];
        let of = move |variant| metrics.map(|metric| row(delay, metric, variant));
        ["turn", "a-variant-by-name"].into_iter().flat_map(of)
    };
    [10, 200].into_iter().flat_map(of).collect()
}

fn text(rows: &[FigureRow], width: usize) -> String {
    Table::new(rows).text(Form { width, colour: false, unicode: false })
}

#[test]
fn any_table_fits_and_is_broken_at_no_cell() {
    let rows = rows();
    for (width, layout) in [
        (160, Layout::Wide),
        (100, Layout::Wide),
        (90, Layout::Blocks),
        (80, Layout::Blocks),
        (60, Layout::Lines),
        (50, Layout::Lines),
    ] {
        let text = text(&rows, width);
        assert!(text.lines().all(|line| line.len() <= width), "{width}:\n{text}");
        assert_eq!(
            text,
            Table::new(&rows).listing(layout, form(width)).text(form(width)),
            "{width}"
        );
        for whole in ["0.50 .. 12346", "direction, 5.1x off (1)", "a-variant-by-name"] {
            assert!(text.contains(whole), "{width}: {whole}\n{text}");
        }
        assert_eq!(text.matches("direction, 5.1x off (1)").count(), rows.len(), "{text}");
    }
}

fn form(width: usize) -> Form {
    Form { width, colour: false, unicode: false }
}

#[test]
fn variants_of_a_metric_follow_each_other_below_one_heading() {
    let (wide, blocks) = (text(&rows(), 120), text(&rows(), 80));
    let cells = |line: &str| {
        line.split("  ").map(str::trim).filter(|it| !it.is_empty()).collect::<Vec<_>>().join("|")
    };
    let shown = |text: &str| text.lines().skip(2).take(6).map(cells).collect::<Vec<_>>();
    let judged = "|7.30|direction, 5.1x off (1)";
    assert_eq!(
        shown(&wide)[..4],
        [
            "delay_ms=10".to_owned(),
            format!("ns_per_burst, less|turn|5.9 ns|0.5 .. 12346{}", judged.replace("7.30", "7.3")),
            format!("a-variant-by-name|5.9 ns|0.5 .. 12346{}", judged.replace("7.30", "7.3")),
            format!("speedup, more|turn|5.89x|0.50 .. 12346{judged}"),
        ]
    );
    let heads = ["delay_ms=10", "ns_per_burst, ns, less is better"];
    assert_eq!(shown(&blocks)[..2], heads);
    assert!(blocks.contains("\n\ndelay_ms=200\n"), "{blocks}");
}

#[test]
fn what_all_rows_share_is_said_once() {
    let mut rows = rows();
    let table = Table::new(&rows);
    assert_eq!(table.shared, ["24-core/24-L3", "look=tick"]);
    assert_eq!(table.reasons, ["the ratio leaves out what its two times leave out"]);
    assert!(table.one_verdict.is_none(), "each is off by a factor of its own");
    rows.truncate(4);
    assert_eq!(Table::new(&rows).shared, ["24-core/24-L3", "delay_ms=10", "look=tick"]);
    assert!(Table::new(&rows).groups[0].heading.is_empty());
    // A row without a parameter shares it with none.
    rows[0].params.remove("look");
    assert_eq!(Table::new(&rows).shared, ["24-core/24-L3", "delay_ms=10"]);
    for row in &mut rows {
        (row.verdict, row.times, row.published) = (Verdict::NotTestable, None, None);
    }
    let table = Table::new(&rows);
    assert!(table.one_verdict.is_some() && table.reasons.is_empty());
    assert!(!table.text(form(120)).contains("verdict"), "{}", table.text(form(120)));
}

#[test]
fn numbers_keep_what_they_were_rounded_to() {
    for (value, unit, shown) in [
        (12_345.6, "ns", "12346"),
        (5.0, "ns", "5.0"),
        (0.012, "ns", "0.012"),
        (1.0, "ratio", "1.00"),
        (0.0013, "ratio", "0.0013"),
        (0.0, "per 1000", "0.00"),
        (84.0, "rank", "84"),
        (29.0, "cycles", "29"),
    ] {
        assert_eq!(number(value, unit), shown, "{value} {unit}");
    }
}

#[test]
fn a_rank_is_an_ordinal() {
    let mut rows = [row(10, "rank", "turn")];
    rows[0].unit = "rank";
    for (value, shown) in [(1.0, "1st"), (2.0, "2nd"), (11.0, "11th"), (384.0, "384th")] {
        rows[0].value = value;
        assert_eq!(with_unit(&rows[0]), shown);
        assert!(text(&rows, 200).contains(&format!(" {shown} ")), "{}", text(&rows, 200));
    }
}

#[test]
fn a_disturbed_figure_is_marked_and_a_line_says_what_to_do() {
    let native = |disturbed| FigureRow {
        samples: Some(7),
        discarded: Some(7),
        disturbed,
        disturbed_rounds: Some(if disturbed { 14 } else { 7 }),
        ..row(10, "ns_per_burst", "turn")
    };
    let rows = [native(true)];
    for width in [160, 80, 50] {
        assert!(text(&rows, width).contains("~5.9"), "{width}: {}", text(&rows, width));
    }
    let said = "other programs used these CPUs in 14 of 14 rounds: the figures marked ~ are of the \
                7 least disturbed; retry on an idle machine";
    assert!(warning(&rows).unwrap().starts_with(said), "{:?}", warning(&rows));
    let rows = [native(false)];
    assert!(!text(&rows, 160).contains('~') && warning(&rows).is_none());
}

#[test]
fn what_values_are_made_of_is_said_in_a_line() {
    let of = |counts: &[(usize, Option<u32>)]| {
        let row = |&(samples, discarded)| FigureRow {
            samples: Some(samples),
            discarded,
            ..row(10, "ns_per_burst", "turn")
        };
        samples(&counts.iter().map(row).collect::<Vec<_>>()).unwrap()
    };
    assert_eq!(of(&[(1, Some(0))]), "each value is one sample; none was disturbed");
    assert_eq!(
        of(&[(7, Some(0)), (6, Some(3))]),
        "each value is the median of 6 to 7 samples; up to 3 more were dropped, because \
         other programs used the CPUs"
    );
    assert!(of(&[(7, None)]).contains("is unknown, because this kernel"), "{}", of(&[(7, None)]));
}
