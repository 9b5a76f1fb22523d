//! Text as HTML.

use std::fmt;

/// Text with what HTML reads as its own escaped, for elements and for quoted attributes.
pub(super) struct Text<'a>(pub(super) &'a str);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for char in self.0.chars() {
            match char {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                char => write!(f, "{char}")?,
            }
        }
        Ok(())
    }
}

/// Text whose addresses are links.
pub(super) struct Linked<'a>(pub(super) &'a str);

impl fmt::Display for Linked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        while let Some(at) = rest.find("https://").into_iter().chain(rest.find("http://")).min() {
            let (before, from) = rest.split_at(at);
            let end = from.find(|char: char| char.is_whitespace() || ",;)<>\"'".contains(char));
            let (link, behind) = from.split_at(end.unwrap_or(from.len()));
            write!(f, "{}<a href=\"{}\">{}</a>", Text(before), Text(link), Text(link))?;
            rest = behind;
        }
        write!(f, "{}", Text(rest))
    }
}

/// JSON for an element `script`, which no text in it ends.
pub(super) fn script(json: &str) -> String {
    json.replace('<', "\\u003c").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_name_is_read_as_html() {
        let name = "<img src=x onerror='a()'> & \"b\"";
        let shown = Text(name).to_string();
        let expected = "&lt;img src=x onerror=&#39;a()&#39;&gt; &amp; &quot;b&quot;";
        assert_eq!(shown, expected);
        assert_eq!(Linked(name).to_string(), expected);
    }

    #[test]
    fn addresses_are_links_and_what_follows_is_not() {
        let shown = Linked("Guo 2024: https://a.org/b?c=1&d=2, <2>").to_string();
        let link = "https://a.org/b?c=1&amp;d=2";
        assert_eq!(shown, format!("Guo 2024: <a href=\"{link}\">{link}</a>, &lt;2&gt;"));
        assert_eq!(Linked("javascript:alert(1)").to_string(), "javascript:alert(1)");
    }

    #[test]
    fn no_json_ends_its_script() {
        let json = serde_json::to_string("</script><!--\u{2028}").unwrap();
        let written = script(&json);
        assert!(!written.contains('<'), "{written}");
        let back: String = serde_json::from_str(&written).unwrap();
        assert_eq!(back, "</script><!--\u{2028}");
    }
}
