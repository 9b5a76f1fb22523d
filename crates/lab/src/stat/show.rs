//! Pages for people. The conclusion comes first.

use std::time::Duration;

use coreline::stat::page::{Page, Row};

use super::read::Look;
use crate::listing::Listing;
use crate::stat_error::StatError;
use crate::text::{Form, counted};

/// A process that writes its page once per second has missed two looks by then.
const LATE: Duration = Duration::from_secs(3);

/// A number with a comma before each three digits.
fn number(value: u64) -> String {
    let digits = value.to_string();
    let first = digits.len() % 3;
    let mut text = digits[..first].to_owned();
    for at in (first..digits.len()).step_by(3) {
        if at > 0 {
            text.push(',');
        }
        text += &digits[at..at + 3];
    }
    text
}

fn value(page: &Page, name: &str) -> u64 {
    let is_it = |row: &&Row| row.kind == "locks" && row.name == name;
    page.rows.iter().find(is_it).map_or(0, |row| row.value)
}

/// What the locks say, in a sentence.
fn conclusion(page: &Page) -> String {
    let [waits, sleeps] = ["waits", "sleeps"].map(|name| value(page, name));
    let [near, node, far] = ["same_cache", "same_node", "other_node"].map(|it| value(page, it));
    if waits == 0 {
        return "no thread has waited for a lock".to_owned();
    }
    let [wait, sleep] = [(waits, "wait"), (sleeps, "sleep")].map(|(value, what)| {
        format!("{} {what}{}", number(value), if value == 1 { "" } else { "s" })
    });
    let turns = near.saturating_add(node).saturating_add(far);
    let mut text = format!("{wait} for locks with {sleep}");
    if let Some(share) = (u128::from(near) * 100).checked_div(u128::from(turns)) {
        text += &format!(", {share} % of {} turns stayed under a cache", number(turns));
    }
    text
}

/// What is wrong with the page.
fn remark(look: &Look) -> String {
    let mut text = String::new();
    if look.age > LATE {
        let seconds = number(look.age.as_secs());
        text += &format!(
            "The values are {seconds} s old: the process is stopped, has replaced its program, or \
             has no CPU for the thread that writes them.\n"
        );
    }
    match look.page.left_out {
        0 => {}
        more => {
            let more = counted(more as usize, "value");
            text += &format!("{more} did not fit onto the page and are left out.\n");
        }
    }
    text
}

/// How much more per second a value is than before; none if the process has not looked since.
fn rate(row: &Row, look: &Look, before: &Look) -> Option<String> {
    let nanos = look.page.nanos.checked_sub(before.page.nanos).filter(|nanos| *nanos > 0)?;
    let is_it = |it: &&Row| (&it.kind, &it.object, &it.name) == (&row.kind, &row.object, &row.name);
    let earlier = before.page.rows.iter().find(is_it)?;
    let more = row.value.checked_sub(earlier.value).filter(|_| !row.is_level)?;
    let rate = u128::from(more) * 1_000_000_000 / u128::from(nanos);
    Some(number(u64::try_from(rate).unwrap_or(u64::MAX)))
}

/// A process and its values; with rates, if there is an earlier look.
pub(super) fn one(look: &Look, before: Option<&Look>, form: Form) -> String {
    let page = &look.page;
    let head = format!("{} (process {}): {}\n", page.name, page.pid, conclusion(page));
    let mut listing = Listing::new(&[
        ("kind", false),
        ("object", false),
        ("value", false),
        ("total or now", true),
        ("per second", true),
    ]);
    let mut last = ("", "");
    for row in &page.rows {
        let this = (row.kind.as_str(), row.object.as_str());
        let (kind, object) = if this == last { ("", "") } else { this };
        last = this;
        listing.row([
            kind.to_owned(),
            object.to_owned(),
            row.name.clone(),
            number(row.value),
            before.and_then(|before| rate(row, look, before)).unwrap_or_default(),
        ]);
    }
    format!("{}{}\n{}", form.fitted(&head), form.fitted(&remark(look)), listing.text(form))
}

/// All processes, and why others cannot be shown.
pub(super) fn all(looks: &[Look], failed: &[StatError], form: Form) -> String {
    let mut text = match looks.len() {
        0 => "No process publishes. A program does so by coreline::stat::publish.\n".to_owned(),
        1 => "1 process publishes. `coreline stat PID` shows its values.\n".to_owned(),
        more => format!("{more} processes publish. `coreline stat PID` shows the values of one.\n"),
    };
    for error in failed {
        text += &format!("not shown: {error}\n");
    }
    let mut listing =
        Listing::new(&[("PID", true), ("name", false), ("age, s", true), ("locks", false)]);
    for look in looks {
        let (pid, age) = (look.page.pid.to_string(), look.age.as_secs().to_string());
        listing.row([pid, look.page.name.clone(), age, conclusion(&look.page)]);
    }
    let listing =
        if looks.is_empty() { String::new() } else { format!("\n{}", listing.text(form)) };
    form.fitted(&text) + &listing
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(nanos: u64, values: [u64; 3]) -> Look {
        let names = ["waits", "sleeps", "same_cache"];
        let row = |(name, value): (&str, u64)| {
            let (kind, object) = ("locks".to_owned(), String::new());
            Row { kind, object, name: name.to_owned(), value, is_level: false }
        };
        let rows = names.into_iter().zip(values).map(row).collect();
        let page = Page { pid: 7, name: "server".to_owned(), nanos, rows, ..Page::default() };
        Look { page, age: Duration::ZERO }
    }

    #[test]
    fn the_conclusion_is_first_and_rates_are_of_the_processs_clock() {
        let form = Form { width: 80, colour: false, unicode: false };
        let (before, after) = (look(1_000, [10, 1, 0]), look(500_001_000, [1234, 1, 3]));
        let text = one(&after, Some(&before), form);
        let first = "server (process 7): 1,234 waits for locks with 1 sleep, 100 % of 3 turns";
        assert!(text.starts_with(first), "{text}");
        assert!(text.contains("2,448"), "{text}");
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        // The process has not looked since.
        assert!(!one(&after, Some(&after), form).contains("per second"));
        assert!(one(&look(0, [0; 3]), None, form).contains("no thread has waited for a lock"));
    }

    #[test]
    fn an_old_page_and_one_that_is_too_small_are_told() {
        let form = Form { width: 80, colour: false, unicode: false };
        let mut old = look(0, [0; 3]);
        old.age = Duration::from_secs(4000);
        old.page.left_out = 2;
        let text = one(&old, None, form);
        assert!(text.contains("The values are 4,000 s old"), "{text}");
        assert!(text.contains("2 values did not fit"), "{text}");
        assert!(!one(&look(0, [0; 3]), None, form).contains("old"));
    }

    #[test]
    fn numbers_have_commas() {
        let texts = [0, 12, 999, 1000, 1_234_567].map(number);
        assert_eq!(texts, ["0", "12", "999", "1,000", "1,234,567"]);
    }
}
