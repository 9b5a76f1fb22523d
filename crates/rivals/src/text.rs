//! Words for times and numbers, and what the program says while it works.

use std::fmt::Display;
use std::io::{self, Write};
use std::time::Duration;

/// Says this on standard error.
pub(crate) fn tell(what: impl Display) {
    // Nothing depends on it: where standard error takes no line, the line is lost without harm.
    let _ = writeln!(io::stderr(), "coreline-rivals: {what}");
}

/// A time as people say it: whole minutes, or seconds below two minutes.
pub(crate) fn about(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds >= 115.0 {
        format!("about {:.0} minutes", seconds / 60.0)
    } else if seconds >= 7.5 {
        // In steps of 5 s: no estimate is better than that.
        format!("about {:.0} s", (seconds / 5.0).round() * 5.0)
    } else {
        "a few seconds".to_owned()
    }
}

/// A time in whole milliseconds.
pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A number with a comma between each three digits.
pub(crate) fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_as_exact_as_estimates() {
        for (seconds, said) in [
            (0, "a few seconds"),
            (7, "a few seconds"),
            (8, "about 10 s"),
            (93, "about 95 s"),
            (114, "about 115 s"),
            (115, "about 2 minutes"),
            (1260, "about 21 minutes"),
        ] {
            assert_eq!(about(Duration::from_secs(seconds)), said);
        }
    }

    #[test]
    fn three_digits_make_a_group() {
        let all = [0, 999, 1000, 12_345, 1_234_567].map(grouped);
        assert_eq!(all, ["0", "999", "1,000", "12,345", "1,234,567"]);
    }
}
