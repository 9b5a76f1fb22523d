//! The language of loads, the scenario's own check, and what the model says whatever it costs.

use coreline_scenarios::lineops::load::{At, Copies, LOADS, Load, Step};
use coreline_scenarios::lineops::{RATE, SLOWEST_NODE, run_without};
use coreline_scenarios::point::Setup;
use coreline_scenarios::{RunError, figures};
use coreline_sim::claim::{Band, Figures};
use coreline_sim::{Machine, Sim};

#[test]
fn a_load_has_the_steps_of_its_word() {
    let load = Load::parse("b512+nn:w5+gb0+ka+w7+sa3+lc+ub0/w5");
    assert_eq!(load, None, "a lock is released where another one is held");
    let load = Load::parse("b512+nn+pt:w5+gb0+ka+sa3+lc+uc+ua/db0+i9+rp5").unwrap();
    assert_eq!(load.lines[..3], [Copies::Random(512), Copies::Nodes, Copies::Threads]);
    assert_eq!(load.lines[3..], [Copies::Random(1); 2]);
    let at = |line, word| At { line, word };
    let inner = Step::Hold { line: 4, is_masked: false, steps: vec![] };
    let outer = Step::Hold { line: 3, is_masked: true, steps: vec![Step::Store(at(3, 3)), inner] };
    assert_eq!(load.forms[0], [Step::Work(5), Step::Exchange(at(0, 0), 1), outer]);
    let changed = [Step::Add(at(0, 0), u64::MAX), Step::Interrupt(9), Step::Read(at(2, 5))];
    assert_eq!(load.forms[1], changed);
}

#[test]
fn other_words_are_no_loads() {
    for (name, word) in LOADS {
        assert!(Load::parse(word).is_some() && Load::parse(name) == Load::parse(word), "{name}");
    }
    for wrong in [
        "",
        "w5",
        "w5/",
        "/w5",
        "w5/w5/w5",
        "w05/w5",
        "w5+/w5",
        "x5/w5",
        "w1000000001/w5",
        "aa6/w5",
        "aA0/w5",
        "aa/w5",
        "b0:w5/w5",
        "b65537:w5/w5",
        "bx:w5/w5",
        "b2+b2:w5/w5",
        ":w5/w5x",
        "la/w5",
        "ua/w5",
        "la+ub/w5",
        "la+la+ua+ua/w5",
        "lb+la+ua+ub/w5",
        "ka+i5+ua/w5",
        "ka+lb+i5+ub+ua/w5",
    ] {
        assert_eq!(Load::parse(wrong), None, "{wrong}");
    }
}

#[test]
fn a_file_becomes_a_word() {
    let file = "lines = [\"b512\"]\nbase = [\"w50\", \"gb0\", \"db0\"]\nchanged = [\"w50\"]";
    assert_eq!(Load::of_toml(file).unwrap(), "b512:w50+gb0+db0/w50");
    assert_eq!(Load::of_toml("base = [\"w1\"]\nchanged = [\"w2\"]").unwrap(), "w1/w2");
    assert!(Load::of_toml("base = [\"w1\"]").is_err());
    let error = Load::of_toml("base = [\"w1\"]\nchanged = [\"y2\"]").unwrap_err();
    assert!(error.contains("w1/y2"), "{error}");
}

fn program(config: &str, load: &str, threads: u64, place: &str) -> String {
    format!(
        "lineops config={config} load={load} threads={threads} place={place} rest=100 \
         variant={{}} window=100"
    )
}

#[test]
fn an_operation_too_few_breaks_the_check() {
    for load in ["aa0/w1", "futex-nodes"] {
        let program = program("120-thread/4-L3", load, 8, "spread").replace("{}", "base");
        for left_out in [0, 1] {
            let setup = Setup::new(&program, 0..120);
            let machine = Machine::preset("ivybridge-ex-4s").unwrap();
            let found = machine.run(move || run_without::<Sim>(&setup, left_out)).unwrap().value;
            match (left_out, found) {
                (0, Ok(_)) | (1, Err(RunError::Check(_))) => {}
                (_, found) => panic!("{load}, {left_out}: {found:?}"),
            }
        }
    }
}

fn rates(machine: &str, program: &str, number: usize) -> [Figures; 2] {
    figures(Band::quick, machine, program, "", ["base", "changed"])
        .map(|mut numbers| numbers.remove(number))
}

#[test]
fn a_bucket_of_each_node_is_better_than_one_of_all() {
    let program = program("20-core/2-L3", "futex-nodes", 20, "spread");
    for number in [RATE, SLOWEST_NODE] {
        let [one, two] = rates("ivybridge-ep-2s", &program, number);
        two.at_least(2.0, &one).unwrap();
    }
}

#[test]
fn one_thread_is_as_fast_in_both_forms() {
    for load in ["fget", "dentry"] {
        let [base, changed] =
            rates("sapphire-rapids-2s", &program("112-core/2-L3", load, 1, "packed"), RATE);
        changed.at_least(0.98, &base).unwrap();
        changed.at_most(1.02, &base).unwrap();
    }
}

#[test]
fn interrupts_take_time_from_the_cpus_that_they_reach() {
    let load = "w2000+i500/w2000";
    let run = |threads| {
        rates("epyc-7003-2s", &program("256-thread/16-L3", load, threads, "siblings"), RATE)
    };
    let [base, changed] = run(1);
    base.at_least(0.93, &changed).unwrap();
    // Seven functions of 500 ns for each operation, beside 2 us. One interrupt may run several.
    let [base, changed] = run(8);
    base.at_most(2.0 / (2.0 + 7.0 * 0.5), &changed).unwrap();
}

#[test]
fn a_masked_section_delays_interrupts() {
    // With the first form, no interrupt is handled in half of the time.
    let load = "w3000+ka+w3000+ua+i100/w3000+la+w1+ua+w3000+i100";
    let program = program("256-thread/16-L3", load, 2, "packed");
    let [masked, open] = rates("epyc-7003-2s", &program, RATE);
    masked.at_most(0.9, &open).unwrap();
}
