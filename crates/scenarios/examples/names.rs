//! Prints what the scenarios call their options, figures and variants: a line for each, of the
//! scenario, the kind and the name, with tabs between. `cargo xtask tables --check` reads it.

#![allow(clippy::print_stdout, reason = "a program talks to its user")]

use coreline_scenarios::ALL;
use coreline_scenarios::param::{Domain, Param};

fn main() {
    for machine in coreline_sim::presets() {
        println!("-\tworld\t{machine}");
    }
    for scenario in ALL {
        let say = |kind: &str, name: &str| println!("{}\t{kind}\t{name}", scenario.name);
        for variant in scenario.variants {
            say("variant", variant.name);
        }
        for figure in scenario.figures {
            say("metric", figure.metric.name);
        }
        for param in scenario.options() {
            say("option", param.name);
            for name in columns(param) {
                say("param", &name);
            }
            if let Domain::Names(names) = param.domain {
                names.iter().for_each(|(name, _)| say(param.name, name));
            }
        }
    }
}

/// What rows call the parameter.
fn columns(param: &Param) -> Vec<String> {
    match param.domain {
        Domain::Pair(one, other, _) => vec![one.to_owned(), other.to_owned()],
        _ if param.unit.is_empty() => vec![param.name.to_owned()],
        _ => vec![format!("{}_{}", param.name, param.unit)],
    }
}
