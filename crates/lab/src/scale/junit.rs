//! The result as XML in JUnit's form, which most forges read.

use std::fmt::Write as _;

use super::gate::{Compared, Gate};

impl Gate {
    pub(super) fn junit(&self) -> String {
        let tests = usize::from(self.tests.is_some());
        let (all, failing) = (self.curves.len() + tests, self.failing + tests);
        let mut text = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n<testsuite \
             name=\"coreline scale\" tests=\"{all}\" failures=\"{failing}\" errors=\"0\" \
             skipped=\"0\">\n"
        );
        for curve in &self.curves {
            let [name, package] = [&curve.key.name, &curve.key.package].map(|it| escaped(it));
            let machine = escaped(&curve.key.machine);
            let _ = write!(text, "<testcase name=\"{name} on {machine}\" classname=\"{package}\"");
            let end = match curve.verdict.fails() {
                true => {
                    let (says, details) = (escaped(&curve.says()), escaped(&curve.details()));
                    format!(">\n<failure message=\"{says}\">{details}</failure>\n</testcase>\n")
                }
                false => "/>\n".to_owned(),
            };
            text += &end;
        }
        if let Some(status) = &self.tests {
            let status = escaped(status);
            let _ = write!(
                text,
                "<testcase name=\"cargo test\" classname=\"tests\">\n<failure \
                 message=\"{status}\"/>\n</testcase>\n"
            );
        }
        text + "</testsuite>\n</testsuites>\n"
    }
}

impl Compared {
    /// The place and the command, a line each.
    fn details(&self) -> String {
        let place = self.hottest.as_ref().map(|it| format!("{}:{}", it.file, it.line));
        place.into_iter().chain(self.again.clone()).collect::<Vec<_>>().join("\n")
    }
}

/// Text and attributes of XML. XML 1.0 has no control characters, not even as references.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for letter in text.chars() {
        match letter {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\n' => escaped += "&#10;",
            '\t' => escaped += "&#9;",
            letter if letter.is_control() || "\u{fffe}\u{ffff}".contains(letter) => {
                escaped.push('?')
            }
            letter => escaped.push(letter),
        }
    }
    escaped
}
