//! Names and labels in the characters that Prometheus takes.

use std::borrow::Cow;
use std::fmt::{self, Write};

use metrics::Label;

/// The name of a metric: letters, digits, `_` and `:`; no digit first. Other characters become `_`.
pub(crate) fn metric(name: &str) -> Cow<'_, str> {
    sanitised(name, |c| c == ':')
}

/// The name of a label: as of a metric, without colons. `__` at the start means Prometheus's own
/// labels, so one `_` of them goes. `le` is the bound in a histogram, so it becomes `le_`.
pub(crate) fn label(name: &str) -> Cow<'_, str> {
    let mut name = sanitised(name, |_| false);
    while name.starts_with("__") {
        name = Cow::Owned(name[1..].to_owned());
    }
    if name == "le" { Cow::Borrowed("le_") } else { name }
}

fn sanitised(name: &str, more: impl Fn(char) -> bool) -> Cow<'_, str> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || more(c);
    let digit_first = name.starts_with(|c: char| c.is_ascii_digit());
    if name.is_empty() {
        return Cow::Borrowed("_");
    }
    if !digit_first && name.chars().all(fits) {
        return Cow::Borrowed(name);
    }
    let prefix = digit_first.then_some('_');
    Cow::Owned(
        prefix.into_iter().chain(name.chars().map(|c| if fits(c) { c } else { '_' })).collect(),
    )
}

/// Writes text with a backslash before what would end it: `\`, line feeds, and `"` if asked for.
pub(crate) fn escaped(out: &mut impl Write, text: &str, quotes: bool) -> fmt::Result {
    for c in text.chars() {
        match c {
            '\\' => out.write_str("\\\\")?,
            '\n' => out.write_str("\\n")?,
            '"' if quotes => out.write_str("\\\"")?,
            c => out.write_char(c)?,
        }
    }
    Ok(())
}

/// The labels of a series as text, without braces: sorted by name, so that the same labels have the
/// same text. Of two labels whose names became the same, the first one stays.
pub(crate) fn labels<'a>(
    own: impl Iterator<Item = &'a Label>,
    global: &'a [(String, String)],
) -> String {
    let own = own.map(|it| (label(it.key()), it.value()));
    let global = global.iter().map(|(key, value)| (Cow::Borrowed(&**key), &**value));
    let mut all: Vec<_> = own.chain(global).collect();
    // Stable: the first of equal names stays the first.
    all.sort_by(|one, other| one.0.cmp(&other.0));
    all.dedup_by(|later, first| later.0 == first.0);
    let mut text = String::new();
    for (number, (key, value)) in all.iter().enumerate() {
        let comma = if number > 0 { "," } else { "" };
        let written =
            write!(text, "{comma}{key}=\"").and_then(|()| escaped(&mut text, value, true));
        written.expect("a string takes all");
        text.push('"');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_the_characters_that_prometheus_takes() {
        for (given, expected) in [
            ("requests", "requests"),
            ("http.requests-total", "http_requests_total"),
            ("a:b", "a:b"),
            ("9lives", "_9lives"),
            ("größe", "gr__e"),
            ("", "_"),
        ] {
            assert_eq!(metric(given), expected);
        }
        for (given, expected) in
            [("a:b", "a_b"), ("__name__", "_name__"), ("le", "le_"), ("____", "_"), ("0", "_0")]
        {
            assert_eq!(label(given), expected);
        }
    }

    #[test]
    fn labels_are_sorted_and_escaped_and_have_each_name_once() {
        let own = [Label::new("z", "a\"b\\c\nd"), Label::new("a.b", "1"), Label::new("a-b", "2")];
        let global = [("a_c".to_owned(), "3".to_owned()), ("z".to_owned(), "4".to_owned())];
        let text = labels(own.iter(), &global);
        assert_eq!(text, r#"a_b="1",a_c="3",z="a\"b\\c\nd""#);
        assert_eq!(labels([].iter(), &[]), "");
    }
}
