//! Pages in the text format of Prometheus, version 0.0.4.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;

use super::read::Look;

/// A name of a metric: letters, digits and underscores.
fn name(text: &str) -> String {
    text.chars().map(|it| if it.is_ascii_alphanumeric() { it } else { '_' }).collect()
}

/// A value of a label.
fn label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// The lines of a metric stand together, as the format asks for. Readers refuse a page in which a
/// metric has two types, or a value comes twice, so the first one counts.
pub(super) fn text(looks: &[Look]) -> String {
    let mut metrics: BTreeMap<String, (&str, HashSet<String>, String)> = BTreeMap::new();
    for look in looks {
        for row in &look.page.rows {
            let (kind, end) = if row.is_level { ("gauge", "") } else { ("counter", "_total") };
            let metric = format!("coreline_{}_{}{end}", name(&row.kind), name(&row.name));
            let none = (kind, HashSet::new(), String::new());
            let (first, seen, lines) = metrics.entry(metric.clone()).or_insert(none);
            let (process, object) = (label(&look.page.name), label(&row.object));
            let pid = look.page.pid;
            let labels = format!("process=\"{process}\",pid=\"{pid}\",object=\"{object}\"");
            if *first == kind && seen.insert(labels.clone()) {
                let _ = writeln!(lines, "{metric}{{{labels}}} {}", row.value);
            }
        }
    }
    let mut text = String::new();
    for (metric, (kind, _, lines)) in metrics {
        let _ = write!(text, "# TYPE {metric} {kind}\n{lines}");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use coreline::stat::page::{Page, Row};

    use super::*;

    #[test]
    fn metrics_have_their_types_and_escaped_labels() {
        let row = |name: &str, value, is_level| {
            let (kind, object) = ("cache".to_owned(), "a\"b\\".to_owned());
            Row { kind, object, name: name.to_owned(), value, is_level }
        };
        let look = |pid| {
            let rows = vec![row("live", 3, true), row("gets-all", u64::MAX, false)];
            let page = Page { pid, name: "server".to_owned(), rows, ..Page::default() };
            Look { page, age: Duration::ZERO }
        };
        let labels = |pid| format!(r#"{{process="server",pid="{pid}",object="a\"b\\"}}"#);
        let (one, two) = (labels(1), labels(2));
        let expected = format!(
            "# TYPE coreline_cache_gets_all_total counter\n\
             coreline_cache_gets_all_total{one} 18446744073709551615\n\
             coreline_cache_gets_all_total{two} 18446744073709551615\n\
             # TYPE coreline_cache_live gauge\n\
             coreline_cache_live{one} 3\n\
             coreline_cache_live{two} 3\n"
        );
        assert_eq!(text(&[look(1), look(2)]), expected);
    }

    #[test]
    fn a_value_comes_once_and_a_metric_has_one_type() {
        let row = |name: &str, value, is_level| {
            let (kind, object) = ("own".to_owned(), String::new());
            Row { kind, object, name: name.to_owned(), value, is_level }
        };
        // The names of the first two differ in a sign that a metric cannot have.
        let rows = vec![row("a-b", 1, false), row("a_b", 2, false), row("a_b_total", 3, true)];
        let page = Page { pid: 1, name: "server".to_owned(), rows, ..Page::default() };
        let expected = "# TYPE coreline_own_a_b_total counter\n\
                        coreline_own_a_b_total{process=\"server\",pid=\"1\",object=\"\"} 1\n";
        assert_eq!(text(&[Look { page, age: Duration::ZERO }]), expected);
    }
}
