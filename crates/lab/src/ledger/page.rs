//! The ledger as Markdown: the page `docs/fidelity.md`.

use std::fmt::Write as _;

use super::Ledger;
use super::entry::Entry;
use super::facts::{Account, Score, VERDICTS};
use crate::run::verdict;
use crate::text::{Form, counted};

/// The text form of documents, with their width.
fn form() -> Form {
    Form { width: 118, ..Form::plain() }
}

/// The number of facts comes first, because it does not matter how often a scenario's source
/// repeats a fact.
fn headline(score: &Score) -> String {
    let Score { figures, facts, declared, declared_directed, judged, reached, .. } = score;
    let more = score.directed - reached;
    format!(
        "The {figures} published figures are {facts} independent facts. A parameter that we chose, \
         or an effect that we do not model, decides the size of {declared} of them, so this size \
         proves nothing. Of these, {declared_directed} lie in the published direction. Of the \
         other {judged}, the simulator reaches {reached} in size, and {more} more in direction. A \
         null model that knows no machine (every ratio is 1, and any other metric the mean of its \
         published figures) reaches {}. A null model that also knows the mean of the published \
         ratios reaches {}.",
        score.null_same, score.null_mean
    )
}

const EXPLAINED: [&str; 3] = [
    "The simulator is calibrated on none of these figures. None is a prediction, because we knew \
     them when we wrote the scenarios. [Validate](validate/README.md) has true predictions.",
    "`coreline ledger --out docs/fidelity.md` writes this page. *Value* is the figure at the \
     [default point](glossary.md#words-of-the-simulator). *Band* is its range over request \
     shares, seeds and uncertain costs (the whole [band](glossary.md#words-of-the-simulator)), or \
     over request shares alone. A quick run has no band. `coreline explain verdicts` defines the \
     verdicts. If a figure's source leaves parameters open, several rows compare with it. The \
     figure is `undecided` if these rows disagree.",
    "*Fact* numbers the independent facts of a table. Figures are one fact if the simulator gives \
     them the same value at every point of the band, within 2 %. A quotient of two other figures \
     of the table is not a fact. A fact is as good as its worst figure. If an input that we chose \
     decides the figure, its name follows the number. `scenario` is a parameter of the scenario, \
     or an effect that is not modelled. Any other name is a cost of the machine file. Such a cost \
     is a guess or from memory, and the figure changes like its square root or faster.",
];

pub(super) fn write(ledger: &Ledger) -> String {
    let mut text = "# fidelity\n\n".to_owned();
    for paragraph in [&*headline(&ledger.score)].into_iter().chain(EXPLAINED) {
        text += &form().paragraph("", paragraph);
        text.push('\n');
    }
    text += "| scenario | machine | figures | facts | declared | judged |";
    VERDICTS.iter().for_each(|it| _ = write!(text, " {} |", it.words()));
    text += " null: 1 | null: mean |\n|---|---|---|---|---|---|";
    VERDICTS.iter().for_each(|_| text += "---|");
    text += "---|---|";
    for part in &ledger.parts {
        let Account { scenario, machine, score, facts, .. } = part;
        let Score { figures, facts: all, declared, judged, .. } = score;
        _ = write!(
            text,
            "\n| `{scenario}` | `{machine}` | {figures} | {all} | {declared} | {judged} |"
        );
        for verdict in VERDICTS {
            let of = facts.iter().filter(|it| !it.declared && it.verdict == verdict);
            _ = write!(text, " {} |", of.count());
        }
        _ = write!(text, " {} | {} |", score.null_same, score.null_mean);
    }
    text.push('\n');
    ledger.parts.iter().for_each(|part| part.write(&mut text));
    text
}

impl Entry {
    fn band(&self) -> String {
        if self.low.is_nan() { "-".to_owned() } else { format!("{} to {}", self.low, self.high) }
    }

    fn fact(&self) -> String {
        let Some(number) = self.fact else { return "quotient".to_owned() };
        let declared: Vec<_> = self.declared.iter().map(|it| format!("`{it}`")).collect();
        format!("{number} {}", declared.join(", ")).trim_end().to_owned()
    }
}

impl Account {
    fn write(&self, page: &mut String) {
        let Account { scenario, machine, command, sources, entries, .. } = self;
        _ = writeln!(page, "\n## {scenario}, {machine}\n");
        for source in sources {
            _ = writeln!(page, "- Published: {source}");
        }
        // The command in a line of its own, to be copied.
        _ = write!(page, "- Ours: `{command}`\n\n");
        *page += "| configuration | variant | figure | published | value | band | verdict | fact \
                  | |\n|---|---|---|---|---|---|---|---|---|\n";
        let mut notes = Vec::<&str>::new();
        for entry in entries {
            let Entry { config, params, variant, metric, unit, published, .. } = entry;
            let params: String = params.iter().map(|(name, it)| format!(", {name} {it}")).collect();
            let note = entry.why.as_deref().map(|why| {
                let known = notes.iter().position(|it| *it == why);
                known.unwrap_or_else(|| {
                    notes.push(why);
                    notes.len() - 1
                }) + 1
            });
            let note = note.map(|it| it.to_string()).unwrap_or_default();
            let rows = match entry.rows {
                1 => String::new(),
                rows => format!(" ({})", counted(rows, "row")),
            };
            _ = writeln!(
                page,
                "| {config}{params} | `{variant}` | {metric}, {unit} | {published} | {} | {} | \
                 {}{rows} | {} | {note} |",
                entry.value,
                entry.band(),
                verdict::said(entry.verdict, entry.times),
                entry.fact(),
            );
        }
        for (number, note) in notes.iter().enumerate() {
            *page +=
                &format!("\n{}", form().paragraph(&format!("{}. ", number + 1), note).trim_end());
        }
        page.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::small;

    #[test]
    fn the_command_has_a_line_of_its_own_and_the_headline_counts_facts() {
        let page = super::write(&small());
        assert!(page.contains("\n- Published: a source\n- Ours: `a command`\n\n|"), "{page}");
        assert!(page.starts_with("# fidelity\n\nThe 2 published figures are 2 independent facts."));
        assert!(page.contains("| reached within 3x | 1 |  |"), "{page}");
        assert!(page.lines().filter(|it| !it.starts_with(['|', '-'])).all(|it| it.len() <= 118));
    }
}
