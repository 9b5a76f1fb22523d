//! The page: one file, which loads nothing.

use std::fmt::Write;
use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::changes::Change;
use super::figure::{Chart, Section};
use super::hottest;
use super::html::{Linked, Text, script};
use super::machine::{self, Shown};
use super::read::{Row, Run, number, quoted};
use super::{HotPlaces, Report, Result_};
use coreline_sim::Spec;

/// Nothing is loaded, even if a name or a library would ask for it.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
                      img-src data: blob:";

/// Results with at most this many rows are shown open.
const MOST_OPEN: usize = 40;

/// plotly.js, as the package brings it: the first of its scripts. The other one sets formulas.
static PLOTLY: LazyLock<String> = LazyLock::new(|| {
    let scripts = plotly::Plot::offline_js_sources();
    let first = scripts.split_once('>').and_then(|(_, rest)| rest.split_once("</script>"));
    first.map(|(code, _)| code.to_owned()).unwrap_or_default()
});

pub(super) fn page(report: &Report) -> String {
    let mut page = Page { out: String::new(), report };
    page.head();
    page.sections();
    page.foot();
    page.out
}

struct Page<'a> {
    out: String,
    report: &'a Report,
}

/// Adds formatted text; a string takes all.
macro_rules! put {
    ($page:expr, $($what:tt)*) => {{
        let _ = writeln!($page.out, $($what)*);
    }};
}

impl Page<'_> {
    fn head(&mut self) {
        put!(self, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">");
        put!(self, "<meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">");
        put!(
            self,
            "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <link rel=\"icon\" href=\"data:,\">\n<title>coreline report</title>\n\
             <style>\n{}</style>\n</head>\n<body>",
            include_str!("page.css")
        );
        put!(self, "<a class=\"skip\" href=\"#main\">To the figures</a>\n<header>");
        put!(self, "<h1>coreline report</h1>");
        let results = &self.report.results;
        let natively = results.iter().filter(|it| it.run.is_native()).count();
        let rows: usize = results.iter().map(|it| it.rows).sum();
        put!(
            self,
            "<p>{}: {} simulated, {natively} measured natively; {}.</p>",
            crate::text::counted(results.len(), "result"),
            results.len() - natively,
            crate::text::counted(rows, "figure")
        );
    }

    /// All sections that have something, and links to them.
    fn sections(&mut self) {
        type Make<'a> = fn(&mut Page<'a>);
        let of = |section| self.report.charts.iter().any(|chart| chart.section == section);
        let all: [(&str, &str, bool, Make<'_>); 10] = [
            ("changes", "Kernel changes", !self.report.changes.is_empty(), |it| it.changes()),
            ("published", "Published beside ours", of(Section::Published), |it| {
                it.charts(Section::Published)
            }),
            ("scaling", "Over threads and other parameters", of(Section::Scaling), |it| {
                it.charts(Section::Scaling)
            }),
            ("fairness", "Fairness", of(Section::Fairness), |it| it.charts(Section::Fairness)),
            ("other", "Other figures", of(Section::Other), |it| it.charts(Section::Other)),
            ("machines", "Machines and line transfers", of(Section::Machine), |it| {
                it.charts(Section::Machine)
            }),
            ("hottest", "Hottest lines by source line", !self.report.hottest.is_empty(), |it| {
                it.hottest()
            }),
            ("costs", "Costs and their sources", !self.report.machines.is_empty(), |it| it.costs()),
            ("rows", "All rows", true, |it| it.rows()),
            ("not-modelled", "What is not modelled", !self.report.not_modelled.is_empty(), |it| {
                it.not_modelled()
            }),
        ];
        put!(self, "<nav aria-label=\"Sections\"><ul>");
        for (id, title, ..) in all.iter().filter(|it| it.2) {
            put!(self, "<li><a href=\"#{id}\">{title}</a></li>");
        }
        put!(self, "</ul></nav>\n</header>\n<main id=\"main\">");
        for (id, title, _, make) in all.into_iter().filter(|it| it.2) {
            put!(self, "<section aria-labelledby=\"{id}\">\n<h2 id=\"{id}\">{title}</h2>");
            make(self);
            put!(self, "</section>");
        }
        put!(self, "</main>");
    }

    fn changes(&mut self) {
        put!(
            self,
            "<div class=\"scroll\" \
             tabindex=\"0\" role=\"region\" aria-label=\"Kernel changes\"><table>\n\
             <thead><tr><th>change</th><th>simulated</th><th>published</th><th>verdict</th>\
             <th>again</th></tr></thead>\n<tbody>"
        );
        for Change { what, ours, published, source, verdict, replay } in &self.report.changes {
            let published = published.as_deref().unwrap_or("unpublished");
            put!(
                self,
                "<tr><td>{}</td><td>{}</td><td>{}<br><span class=\"soft\">{}</span></td>\
                 <td>{}</td><td><code>{}</code></td></tr>",
                Text(what),
                Text(ours),
                Text(published),
                Linked(source.as_deref().unwrap_or_default()),
                Text(verdict),
                Text(replay)
            );
        }
        put!(self, "</tbody></table></div>");
    }

    fn charts(&mut self, section: Section) {
        put!(self, "<div class=\"charts\">");
        for chart in self.report.charts.iter().filter(|chart| chart.section == section) {
            let Chart { id, title, says, machine, replay, .. } = chart;
            put!(self, "<figure id=\"{}\">\n<h3>{}</h3>", Text(id), Text(title));
            put!(
                self,
                "<div class=\"chart\" data-chart=\"{}\" role=\"img\" aria-label=\"{}. {}\"></div>",
                Text(id),
                Text(title),
                Text(says)
            );
            put!(self, "<figcaption>{}", Text(says));
            self.values(chart);
            put!(
                self,
                "<details><summary>Machine, replay and picture</summary>\n<p>{}</p>\n\
                 <pre>{}</pre>\n<pre>coreline report RESULT... --png {}</pre></details>",
                Text(machine),
                Text(replay),
                Text(id)
            );
            put!(self, "</figcaption>\n</figure>");
        }
        put!(self, "</div>");
    }

    /// The values of a chart with axes as a table: its text alternative.
    fn values(&mut self, chart: &Chart) {
        let has_axes = |trace: &&Value| trace["type"] == "scatter" || trace["type"] == "bar";
        let traces: Vec<_> = chart.figure.data.iter().filter(has_axes).collect();
        if traces.is_empty() {
            return;
        }
        put!(
            self,
            "<details><summary>Values</summary><div class=\"scroll\" tabindex=\"0\"><table>\n\
             <thead><tr><th>series</th><th>at</th><th class=\"number\">value</th></tr></thead>\n\
             <tbody>"
        );
        for trace in traces {
            let list = |key: &str| trace[key].as_array().cloned().unwrap_or_default();
            for (at, value) in list("x").iter().zip(list("y")) {
                // Names are escaped in figures, too, whose only tags are line breaks.
                let text = |value: &Value| match value.as_str() {
                    Some(text) => text.replace("<br>", ", "),
                    None => value.to_string(),
                };
                let value = value.as_f64().map(number).unwrap_or_default();
                let (name, at) = (text(&trace["name"]), text(at));
                put!(
                    self,
                    "<tr><td>{name}</td><td>{at}</td><td class=\"number\">{value}</td></tr>"
                );
            }
        }
        put!(self, "</tbody></table></div></details>");
    }

    fn hottest(&mut self) {
        put!(
            self,
            "<p>One point of each simulated result was run again with full statistics. Times are \
             sums over all CPUs.</p>"
        );
        for HotPlaces { result, replay, places } in &self.report.hottest {
            put!(
                self,
                "<details class=\"rows\" open><summary>{}</summary>\n<pre>{}</pre>\n\
                 <div class=\"scroll\" tabindex=\"0\" role=\"region\" \
                 aria-label=\"Hottest lines of {}\">\
                 <table>\n<thead><tr><th>line</th><th>source</th><th class=\"number\">time, ns</th>\
                 <th class=\"number\">waiting, ns</th><th class=\"number\">hits</th>\
                 <th class=\"number\">misses</th></tr></thead>\n<tbody>",
                Text(result),
                Text(replay),
                Text(result)
            );
            for place in places {
                put!(self, "<tr><td>{}</td><td>{}</td>", Text(&place.line), Text(&place.site));
                for count in [place.time_ns, place.queue_ns, place.hits, place.misses] {
                    put!(self, "<td class=\"number\">{}</td>", number(count as f64));
                }
                put!(self, "</tr>");
            }
            put!(self, "</tbody></table></div></details>");
        }
    }

    fn costs(&mut self) {
        for Shown { spec, .. } in &self.report.machines {
            put!(
                self,
                "<details class=\"rows\"><summary>{}: {}</summary>\n\
                 <div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Costs of {}\">\
                 <table>\n<thead><tr><th>cost</th><th class=\"number\">value</th>\
                 <th>uncertain</th><th>source</th></tr></thead>\n<tbody>",
                Text(spec.name()),
                Text(spec.summary()),
                Text(spec.name())
            );
            for (name, cost) in spec.sources() {
                // The simulator's own unit is the picosecond.
                let value = match cost.is_count {
                    true => number(cost.value as f64),
                    false => format!("{} ns", number(cost.value as f64 / 1000.0)),
                };
                let uncertain = if cost.uncertain { "&plusmn;30 %" } else { "" };
                put!(
                    self,
                    "<tr><td>{}</td><td class=\"number\">{value}</td><td>{uncertain}</td>\
                     <td>{}</td></tr>",
                    Text(name),
                    Linked(&cost.source)
                );
            }
            put!(self, "</tbody></table></div></details>");
        }
    }

    fn rows(&mut self) {
        put!(self, "<p>Open a row to see its parameters, points, source and replay line.</p>");
        let few = self.report.results.iter().map(|it| it.rows).sum::<usize>() <= MOST_OPEN;
        for Result_ { name, run, machine, command, rows, .. } in &self.report.results {
            let machines = self.report.machines.iter().map(|it| &it.spec);
            let spec = machines.into_iter().find(|spec| spec.name() == run.world);
            let spec = spec.filter(|_| machine::spec(run).is_ok_and(|spec| spec.is_some()));
            put!(
                self,
                "<details class=\"rows\" id=\"rows-{}\"{}><summary>{}: {}</summary>\n\
                 <p class=\"soft\">{}</p>\n<pre>{}</pre>",
                Text(name),
                if few { " open" } else { "" },
                Text(&run.title()),
                crate::text::counted(*rows, "row"),
                Text(machine),
                Text(command)
            );
            if spec.is_none() && !run.is_native() {
                put!(
                    self,
                    "<p>The tree, costs and replay lines of this machine are not shown: it is not \
                     a preset of this program, or its file has changed.</p>"
                );
            }
            run.rows.iter().for_each(|row| self.row(run, spec, row));
            put!(self, "</details>");
        }
    }

    fn row(&mut self, run: &Run, spec: Option<&Spec>, row: &Row) {
        let published = row.published.map(|it| format!("published {}", number(it)));
        let class = serde_json::to_value(row.verdict).unwrap_or_default();
        put!(
            self,
            "<details class=\"row\"><summary><span>{} <span class=\"soft\">{}</span></span>\
             <span>{}</span><span>{}</span><span>{}</span>\
             <span class=\"{}\">{}</span></summary>\n<dl>",
            Text(&row.variant),
            Text(&row.place()),
            Text(&row.metric),
            Text(&row.figure()),
            Text(&published.unwrap_or_default()),
            class.as_str().unwrap_or_default(),
            Text(&row.said())
        );
        self.item("better", row.better.words());
        self.item("configuration", &row.config);
        for (name, value) in &row.params {
            self.item(name, &value.to_string());
        }
        let points = row.points.iter().flatten().copied().map(number);
        self.item("points", &points.collect::<Vec<_>>().join(", "));
        if let Some(samples) = row.samples {
            let discarded =
                row.discarded.map_or("an unknown number".to_owned(), |it| it.to_string());
            self.item("samples", &format!("{samples}, and {discarded} discarded"));
        }
        if let Some(source) = &row.source {
            put!(self, "<dt>source</dt><dd>{}</dd>", Linked(source));
        }
        if let Some(why) = &row.why {
            put!(self, "<dt>why</dt><dd>{}</dd>", Linked(why));
        }
        let command = command(run, row);
        put!(self, "<dt>command</dt><dd><pre>{}</pre></dd>", Text(&command));
        if let Some((_, line)) = spec.and_then(|spec| hottest::line(run, spec, row)) {
            let line = format!("coreline replay {line}");
            put!(self, "<dt>replay of its first run</dt><dd><pre>{}</pre></dd>", Text(&line));
        }
        put!(self, "</dl></details>");
    }

    fn item(&mut self, name: &str, value: &str) {
        put!(self, "<dt>{}</dt><dd>{}</dd>", Text(name), Text(value));
    }

    fn not_modelled(&mut self) {
        put!(self, "<ul>");
        for line in &self.report.not_modelled {
            put!(self, "<li>{}</li>", Text(line));
        }
        put!(self, "</ul>");
    }

    fn foot(&mut self) {
        let figure = |chart: &Chart| {
            let figure = serde_json::to_value(&chart.figure).unwrap_or_default();
            (chart.id.clone(), figure)
        };
        let figures: Map<String, Value> = self.report.charts.iter().map(figure).collect();
        let figures = Value::Object(figures).to_string();
        put!(
            self,
            "<noscript><p>Charts need JavaScript, which this page contains; tables and rows do \
             not.</p></noscript>\n<script type=\"application/json\" id=\"figures\">{}</script>",
            script(&figures)
        );
        put!(self, "<script>{}</script>", *PLOTLY);
        put!(self, "<script>{}</script>\n</body>\n</html>", include_str!("page.js"));
    }
}

/// The command that repeats a row, and for a ratio also the row to which it is a ratio.
fn command(run: &Run, row: &Row) -> String {
    let mut command = format!("{} --config {}", run.command(), quoted(&row.config));
    if !row.derived {
        command += &format!(" --variant {}", quoted(&row.variant));
    }
    let scenario = coreline_scenarios::Scenario::named(&run.scenario);
    let params = scenario.into_iter().flat_map(|scenario| scenario.options());
    for (param, value) in params.filter_map(|it| Some((it, it.of_row(&row.params)?))) {
        command += &format!(" --{} {value}", param.name);
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_there_whole_and_ends_no_script() {
        assert!(PLOTLY.contains("plotly.js v"), "{:.200}", *PLOTLY);
        assert!(PLOTLY.len() > 1_000_000 && PLOTLY.ends_with(|end: char| !end.is_alphanumeric()));
        assert!(!PLOTLY.contains("</script") && !PLOTLY.contains("MathJax.js"));
        assert!(!include_str!("page.js").contains("</script"));
    }
}
