//! The verb `explain`: a kernel change, a scenario or the verdicts, on a page.

use std::io::Write;

use coreline_scenarios::param::Param;
use coreline_scenarios::{ALL, CHANGES, Change, Has, Scenario, Variant, Worlds};
use coreline_world::native::probe;

use crate::error::Error;
use crate::overview::kernel;
use crate::run::verdict::EXPLAINED;
use crate::text::{Form, Tone};

/// The topics of `explain`, in the order of the list.
fn topics() -> Vec<(&'static str, &'static str)> {
    let changes = CHANGES.iter().map(|it| (it.name, it.title));
    let scenarios = ALL.iter().map(|it| (it.name, it.about));
    let verdicts = [("verdicts", "what \"reached\" and the other verdicts mean")];
    changes.chain(verdicts).chain(scenarios).collect()
}

pub(crate) fn names() -> Vec<&'static str> {
    topics().into_iter().map(|(name, _)| name).collect()
}

/// Explains what has this name; lists what can be explained if there is none.
pub(crate) fn explain(name: Option<&str>, form: Form, out: &mut dyn Write) -> Result<(), Error> {
    let Some(name) = name else { return list(form, out) };
    if let Some(change) = Change::named(name) {
        return of_change(change, form, out);
    }
    if let Some(scenario) = Scenario::named(name) {
        return of_scenario(scenario, form, out);
    }
    if name == "verdicts" {
        return Ok(write!(out, "{EXPLAINED}")?);
    }
    Err(Error::Topic { asked: name.to_owned(), has: names() })
}

fn list(form: Form, out: &mut dyn Write) -> Result<(), Error> {
    writeln!(out, "coreline explain NAME, where NAME is a kernel change, a scenario or verdicts:")?;
    for (name, about) in topics() {
        write!(out, "{}", form.paragraph(&format!("  {name:20}  "), about))?;
    }
    Ok(())
}

fn part(form: Form, out: &mut dyn Write, heading: &str, text: &str) -> Result<(), Error> {
    let first = format!("{heading:10}");
    let text = form.paragraph(&first, text);
    Ok(write!(out, "{}", text.replacen(heading, &form.toned(Tone::Heading, heading), 1))?)
}

fn of_change(change: &Change, form: Form, out: &mut dyn Write) -> Result<(), Error> {
    writeln!(out, "{}\n", form.toned(Tone::Heading, change.title))?;
    writeln!(out, "{}", change.text)?;
    part(form, out, "Source", &change.published().to_string())?;
    part(form, out, "Here", &of_kernel(change))?;
    let shown = &change.shown;
    let values = shown.values.iter().map(|(name, value)| format!(" --{name} {value}"));
    let command = format!(
        "coreline run {} --world {} --config {}{}",
        shown.scenario.name,
        shown.machine,
        shown.config,
        values.collect::<String>()
    );
    write!(out, "{}", form.command(&format!("{:10}", "Try"), &command))?;
    let types: Vec<_> = change.types.split(", ").map(|it| format!("coreline::{it}")).collect();
    part(form, out, "Use", &types.join(", "))?;
    part(form, out, "Read", &page(shown.scenario))
}

/// Whether this machine's kernel has a change, in words.
fn of_kernel(change: &Change) -> String {
    let release = probe().kernel;
    let has = match kernel(change) {
        Has::Yes => "has it",
        Has::No => "does not have it",
        Has::Later => "has what replaced it",
        Has::Unknown => "cannot have it, or its release is unknown",
    };
    format!("Linux {release} {has}, judging by its release")
}

fn page(scenario: &Scenario) -> String {
    format!("docs/{}.md, in the source of coreline", scenario.name)
}

fn of_scenario(scenario: &Scenario, form: Form, out: &mut dyn Write) -> Result<(), Error> {
    writeln!(out, "{}", form.toned(Tone::Heading, scenario.name))?;
    writeln!(out, "{}", form.paragraph("", scenario.about))?;
    if let Some(change) = Change::shown_by(scenario.name) {
        let text = format!("{}: coreline explain {}", change.title, change.name);
        part(form, out, "Shows", &text)?;
        part(form, out, "Source", &change.published().to_string())?;
    }
    heading(form, out, "Variants")?;
    for Variant { name, about, worlds, .. } in scenario.variants {
        let only = match worlds {
            Worlds::Both => "",
            Worlds::Native => " (on this machine only)",
            Worlds::Simulated => " (simulated only)",
        };
        item(form, out, name, &format!("{about}{only}"))?;
    }
    heading(form, out, "Figures")?;
    for figure in scenario.figures {
        let kind = figure.metric.kind;
        item(
            form,
            out,
            figure.metric.name,
            &format!("{}, {}", kind.unit(), kind.better().words()),
        )?;
    }
    heading(form, out, "Options")?;
    for param in scenario.options() {
        item(form, out, &format!("--{}", param.name), &Param::help(param))?;
    }
    writeln!(out)?;
    part(form, out, "Here", &format!("coreline run {}", scenario.name))?;
    let simulated = format!("coreline run {} --world epyc-9654-2s", scenario.name);
    part(form, out, "Simulated", &simulated)
}

fn heading(form: Form, out: &mut dyn Write, words: &str) -> Result<(), Error> {
    Ok(writeln!(out, "\n{}", form.toned(Tone::Heading, words))?)
}

fn item(form: Form, out: &mut dyn Write, name: &str, about: &str) -> Result<(), Error> {
    Ok(write!(out, "{}", form.paragraph(&format!("  {name:22}  "), about))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(name: Option<&str>) -> String {
        let mut text = Vec::new();
        explain(name, Form::plain(), &mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn every_topic_has_a_page_that_fits() {
        let list = page(None);
        for name in names() {
            assert!(list.contains(name), "{name}: {list}");
            let text = page(Some(name));
            let long = |line: &&str| line.chars().count() > 80 && !line.contains("https://");
            assert_eq!(text.lines().find(long), None, "{name}");
        }
    }

    #[test]
    fn a_change_says_who_wrote_it_what_came_of_it_and_how_to_try_it() {
        for change in &CHANGES {
            let text = page(Some(change.name));
            for part in ["Source    ", "What became of it: ", "Try       coreline run ", "\nHere"] {
                assert!(text.contains(part), "{part}: {text}");
            }
            assert!(text.contains(change.published().link), "{text}");
        }
    }

    #[test]
    fn a_name_that_is_not_known_is_refused_with_the_nearest() {
        let error = explain(Some("notify-bits"), Form::plain(), &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("did you mean notify-bit?"), "{error}");
    }
}
