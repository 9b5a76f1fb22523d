//! Suggestions for a name that is not known.

/// `; did you mean NAME?`, or nothing where no name is near.
pub(crate) fn hint<S: AsRef<str>>(asked: &str, names: impl IntoIterator<Item = S>) -> String {
    let near = |name: S| {
        let name = name.as_ref();
        let (off, length) = (distance(asked, name), name.chars().count());
        // More than a third wrong is another name.
        (3 * off <= length).then(|| (off, name.to_owned()))
    };
    let nearest = names.into_iter().filter_map(near).min_by_key(|(off, _)| *off);
    nearest.map(|(_, name)| format!("; did you mean {name}?")).unwrap_or_default()
}

/// How many characters have to be put in, left out or replaced (Levenshtein).
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (line, from) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (column, to) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_offered_and_a_far_one_is_not() {
        let names = ["epyc-9654-2s", "epyc-7003-2s", "host-2c"];
        for (asked, hinted) in [
            ("epyc-9645-2s", "; did you mean epyc-9654-2s?"),
            ("epyc-9654", "; did you mean epyc-9654-2s?"),
            ("host2c", "; did you mean host-2c?"),
            ("pdp-11", ""),
            ("", ""),
        ] {
            assert_eq!(hint(asked, names), hinted, "{asked}");
        }
    }

    #[test]
    fn a_distance_is_what_has_to_be_changed() {
        for (from, to, off) in [("", "abc", 3), ("abc", "", 3), ("abc", "axc", 1), ("abc", "bc", 1)]
        {
            assert_eq!(distance(from, to), off, "{from} {to}");
        }
    }
}
