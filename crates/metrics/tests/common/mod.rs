//! Reads pages back, as strictly as the format says.

use std::collections::BTreeMap;

use coreline_metrics::{Handle, Recorder};

/// What a page has.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Page {
    /// By the name and the labels of a sample, as `name{key="value"}`.
    pub(crate) samples: BTreeMap<String, f64>,
    pub(crate) types: BTreeMap<String, String>,
    pub(crate) helps: BTreeMap<String, String>,
    pub(crate) units: BTreeMap<String, String>,
    pub(crate) ended: bool,
}

fn is_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit()) && name.chars().all(fits)
}

/// The labels' keys and values, without escapes.
pub(crate) fn labels(text: &str) -> Vec<(String, String)> {
    let (mut labels, mut chars) = (Vec::new(), text.chars().peekable());
    while chars.peek().is_some() {
        let key: String = chars.by_ref().take_while(|c| *c != '=').collect();
        assert!(is_name(&key) && !key.contains(':'), "{key:?} in {text}");
        assert_eq!(chars.next(), Some('"'), "{text}");
        let mut value = String::new();
        loop {
            match chars.next().expect("a quote ends a value") {
                '"' => break,
                '\\' => match chars.next() {
                    Some('n') => value.push('\n'),
                    Some(c @ ('\\' | '"')) => value.push(c),
                    other => panic!("an escape of {other:?}"),
                },
                '\n' => panic!("a line feed"),
                c => value.push(c),
            }
        }
        labels.push((key, value));
        assert!(matches!(chars.next(), None | Some(',')), "{text}");
    }
    let mut keys: Vec<_> = labels.iter().map(|(key, _)| key).collect();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), labels.len(), "a label occurs twice: {text}");
    labels
}

pub(crate) fn parse(text: &str) -> Page {
    let mut page = Page::default();
    assert!(text.ends_with('\n'), "the last line ends");
    for line in text.lines() {
        assert!(!page.ended, "a line behind the end: {line}");
        if line == "# EOF" {
            page.ended = true;
        } else if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let [what, name] = [(); 2].map(|()| words.next().expect("a comment has a name"));
            let rest = words.next().expect("a comment has a text").to_owned();
            assert!(is_name(name), "{line}");
            let map = match what {
                "HELP" => &mut page.helps,
                "TYPE" => &mut page.types,
                "UNIT" => &mut page.units,
                _ => panic!("{line}"),
            };
            assert!(map.insert(name.to_owned(), rest).is_none(), "twice: {line}");
        } else {
            let (sample, value) = line.rsplit_once(' ').expect("a sample has a value");
            let (name, rest) = sample.split_once('{').unwrap_or((sample, "}"));
            assert!(is_name(name), "{line}");
            labels(rest.strip_suffix('}').expect("braces close"));
            let value = value.parse().expect("a value is a number");
            assert!(page.samples.insert(sample.to_owned(), value).is_none(), "twice: {line}");
        }
    }
    page
}

/// A page of a recorder.
pub(crate) fn page(handle: &Handle) -> Page {
    parse(&handle.render())
}

/// Runs `f` with this recorder as that of the calling thread.
pub(crate) fn with<R>(recorder: &Recorder, f: impl FnOnce() -> R) -> R {
    metrics::with_local_recorder(recorder, f)
}
