//! Charts: figures of Plotly as JSON, each with a description in words.
//!
//! A figure is `{"data": [...], "layout": {...}}`, as plotly.js draws it and plotly.py takes it.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::{Value, json};

/// Colours that people with any sight tell apart (Okabe and Ito), and four more.
pub(super) const COLOURS: [&str; 10] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#806f00", "#7f7f7f",
    "#aa4499", "#88ccaa",
];

/// The place of a chart in the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Section {
    Published,
    Scaling,
    Fairness,
    Other,
    Machine,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct Chart {
    /// The name for `--png` and `--svg`.
    pub(super) id: String,
    pub(super) section: Section,
    pub(super) title: String,
    /// The description of the chart in words: its text alternative.
    pub(super) says: String,
    pub(super) machine: String,
    pub(super) replay: String,
    pub(super) figure: Figure,
}

/// A figure of Plotly.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Figure {
    pub(super) data: Vec<Value>,
    pub(super) layout: Value,
}

/// A series over a parameter.
pub(super) struct Line {
    pub(super) name: String,
    pub(super) colour: usize,
    /// The figures by the value of the parameter.
    pub(super) marks: Vec<Mark>,
}

/// A value with its span, at a place of the horizontal axis.
#[derive(Debug, Clone)]
pub(super) struct Mark {
    pub(super) at: Value,
    pub(super) value: f64,
    pub(super) low: Option<f64>,
    pub(super) high: Option<f64>,
}

impl Figure {
    /// A figure with two axes. Figures that differ by more than a factor of 20 are shown on a
    /// logarithmic scale.
    pub(super) fn axes(data: Vec<Value>, title: &str, [x, y]: [&str; 2]) -> Figure {
        let values: Vec<f64> = data.iter().flat_map(|trace| numbers(&trace["y"])).collect();
        let (low, high) = ends(&values);
        let is_bar = data.iter().any(|trace| trace["type"] == "bar");
        let scale = if low > 0.0 && high / low > 20.0 && !is_bar { "log" } else { "linear" };
        let mut layout = json!({
            "title": { "text": plain(title) },
            "xaxis": { "title": { "text": plain(x) }, "automargin": true },
            "yaxis": { "title": { "text": plain(y) }, "type": scale, "automargin": true },
            "legend": { "orientation": "h", "y": 1.02, "yanchor": "bottom" },
            "margin": { "l": 60, "r": 20, "t": 60, "b": 60 },
        });
        if scale == "linear" {
            layout["yaxis"]["rangemode"] = "tozero".into();
        }
        if data.iter().any(|trace| trace["x"][0].is_string()) {
            layout["xaxis"]["type"] = "category".into();
        }
        Figure { data, layout }
    }

    /// A figure with lines over the values of a parameter, which are whole numbers in order.
    pub(super) fn lines(lines: &[Line], title: &str, [param, y]: [&str; 2]) -> Figure {
        let data = lines.iter().map(|it| line(&it.name, it.colour, &it.marks)).collect();
        let mut figure = Figure::axes(data, title, [param, y]);
        let marks = lines.iter().flat_map(|line| &line.marks);
        let values: BTreeSet<u64> = marks.filter_map(|mark| mark.at.as_u64()).collect();
        if let (Some(&first), Some(&last)) = (values.first(), values.last())
            && first > 0
            && last / first >= 16
        {
            figure.layout["xaxis"]["type"] = "log".into();
        }
        if values.len() <= 12 {
            figure.layout["xaxis"]["tickvals"] = values.into_iter().collect();
        }
        figure
    }

    /// Figures as panels of one, each with its title. Series of one name have one entry in the
    /// legend.
    pub(super) fn panels(mut panels: Vec<(String, Figure)>, title: &str) -> Figure {
        if panels.len() == 1
            && let Some((of, mut figure)) = panels.pop()
        {
            figure.layout["title"]["text"] = plain(&format!("{title} on {of}")).into();
            return figure;
        }
        let columns = (1..).find(|columns| columns * columns >= panels.len()).unwrap_or(1);
        let rows = panels.len().div_ceil(columns);
        // In pixels: below the title are the legend and the title of the panel.
        let (plots, above) = (360 * rows, 120);
        let mut layout = json!({
            "title": { "text": plain(title) },
            "grid": { "rows": rows, "columns": columns, "pattern": "independent" },
            "legend": { "orientation": "h", "y": 1.0 + 26.0 / plots as f64, "yanchor": "bottom" },
            "margin": { "l": 60, "r": 20, "t": above, "b": 60 },
            "height": plots + above + 60,
        });
        let (mut data, mut notes, mut named) = (Vec::new(), Vec::new(), BTreeSet::new());
        for (index, (title, figure)) in panels.into_iter().enumerate() {
            let number = if index == 0 { String::new() } else { (index + 1).to_string() };
            for mut trace in figure.data {
                let name = trace["name"].as_str().unwrap_or_default().to_owned();
                trace["xaxis"] = format!("x{number}").into();
                trace["yaxis"] = format!("y{number}").into();
                trace["legendgroup"] = name.as_str().into();
                trace["showlegend"] = named.insert(name).into();
                data.push(trace);
            }
            for axis in ["xaxis", "yaxis"] {
                layout[format!("{axis}{number}")] = figure.layout[axis].clone();
            }
            notes.push(json!({
                "text": plain(&title),
                "showarrow": false,
                "xref": format!("x{number} domain"), "x": 0.5,
                "yref": format!("y{number} domain"), "y": 1, "yanchor": "bottom",
            }));
        }
        layout["annotations"] = notes.into();
        Figure { data, layout }
    }

    #[cfg(test)]
    pub(super) fn marks(&self) -> usize {
        let count = |trace: &Value| {
            let key = if trace["type"] == "treemap" { "labels" } else { "x" };
            trace[key].as_array().map_or(0, Vec::len)
        };
        self.data.iter().map(count).sum()
    }
}

/// A series of values that follow each other.
pub(super) fn line(name: &str, colour: usize, marks: &[Mark]) -> Value {
    let mut trace = points(name, colour, marks);
    trace["mode"] = "lines+markers".into();
    trace
}

/// Values with whiskers, not joined.
pub(super) fn points(name: &str, colour: usize, marks: &[Mark]) -> Value {
    let mut trace = series("scatter", name, colour, marks);
    trace["mode"] = "markers".into();
    trace["marker"]["size"] = 9.into();
    trace
}

/// Columns with whiskers.
pub(super) fn bars(name: &str, colour: usize, marks: &[Mark]) -> Value {
    series("bar", name, colour, marks)
}

/// Values without a span, of others.
pub(super) fn published(name: &str, marks: &[Mark]) -> Value {
    let mut trace = points(name, 1, marks);
    trace["marker"]["symbol"] = "diamond-open".into();
    trace["marker"]["size"] = 12.into();
    trace["marker"]["line"] = json!({ "width": 2 });
    trace
}

fn series(kind: &str, name: &str, colour: usize, marks: &[Mark]) -> Value {
    let of = |each: fn(&Mark) -> Value| Value::Array(marks.iter().map(each).collect());
    let mut trace = json!({
        "type": kind,
        "name": plain(name),
        "x": of(|mark| mark.at.clone()),
        "y": of(|mark| mark.value.into()),
        "marker": { "color": COLOURS[colour % COLOURS.len()] },
    });
    if marks.iter().any(|mark| mark.low.is_some()) {
        trace["error_y"] = json!({
            "type": "data",
            "symmetric": false,
            "array": of(|mark| mark.high.map_or(0.0, |high| high - mark.value).into()),
            "arrayminus": of(|mark| mark.low.map_or(0.0, |low| mark.value - low).into()),
        });
    }
    trace
}

pub(super) fn numbers(list: &Value) -> Vec<f64> {
    list.as_array().into_iter().flatten().filter_map(Value::as_f64).collect()
}

pub(super) fn ends(values: &[f64]) -> (f64, f64) {
    let fold = |from: f64, of: fn(f64, f64) -> f64| values.iter().copied().fold(from, of);
    (fold(f64::INFINITY, f64::min), fold(f64::NEG_INFINITY, f64::max))
}

/// Text that Plotly, which reads some tags in texts, shows as it is.
pub(super) fn plain(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The form of a name in an id: `epyc-9654-2s`.
pub(super) fn slug(name: &str) -> String {
    let dash =
        |char: char| if char.is_ascii_alphanumeric() { char.to_ascii_lowercase() } else { '-' };
    let dashed: String = name.chars().map(dash).collect();
    dashed.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(at: &str, value: f64, band: Option<(f64, f64)>) -> Mark {
        let (low, high) = band.unzip();
        Mark { at: at.into(), value, low, high }
    }

    #[test]
    fn whiskers_reach_from_the_lowest_to_the_highest() {
        let marks = [mark("one", 10.0, Some((8.0, 15.0))), mark("two", 20.0, None)];
        let trace = points("ours", 0, &marks);
        assert_eq!(trace["error_y"]["array"], json!([5.0, 0.0]));
        assert_eq!(trace["error_y"]["arrayminus"], json!([2.0, 0.0]));
        assert!(published("theirs", &marks[1..])["error_y"].is_null());
    }

    #[test]
    fn a_wide_range_is_logarithmic_and_columns_begin_at_zero() {
        let of = |trace| Figure::axes(vec![trace], "title", ["x", "y"]).layout;
        let wide = [mark("one", 1.0, None), mark("two", 100.0, None)];
        assert_eq!(of(points("a", 0, &wide))["yaxis"]["type"], "log");
        assert_eq!(of(bars("a", 0, &wide))["yaxis"]["type"], "linear");
        assert_eq!(of(bars("a", 0, &wide))["yaxis"]["rangemode"], "tozero");
        let zero = [mark("one", 0.0, None), mark("two", 100.0, None)];
        assert_eq!(of(points("a", 0, &zero))["yaxis"]["type"], "linear");
    }

    #[test]
    fn marks_are_counted_and_names_are_no_tags() {
        let marks = [mark("one", 1.0, None), mark("two", 2.0, None)];
        let data = vec![line("<b>a</b>", 0, &marks), published("b", &marks[..1])];
        let figure = Figure::axes(data, "<i>", ["x", "y"]);
        assert_eq!(figure.marks(), 3);
        assert_eq!(figure.data[0]["name"], "&lt;b&gt;a&lt;/b&gt;");
        assert_eq!(figure.layout["title"]["text"], "&lt;i&gt;");
        assert_eq!(slug("My machine/2 <x>"), "my-machine-2-x");
    }
}
