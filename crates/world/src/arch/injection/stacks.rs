//! A model of a stack that does not depend on its definitions: a list of values, last in, first
//! out.
//!
//! Sections are compared with their definitions elsewhere. Here the definitions are compared with
//! such a list, aborted before each of their steps and intruded upon there: what was stored before
//! the abort changed nothing that anyone sees.

use super::bench::{Answer, Bench, Op, STACK, value, values};
use super::interpreter::{Before, Interpreter};
use super::programs::{Family, STACKS};

/// The list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Model {
    capacity: usize,
    values: Vec<u64>,
}

impl Model {
    fn run(&mut self, op: Op) -> Answer {
        let room = self.capacity.saturating_sub(self.values.len());
        Some(match op {
            Op::StackPush(_) if room == 0 => Err(0),
            Op::StackPush(number) => {
                self.values.push(value(number).addr().get() as u64);
                Ok(vec![])
            }
            Op::StackPop => Ok(self.values.pop().into_iter().collect()),
            Op::StackPushBatch(count) => {
                let pushed = values(count).into_iter().take(room);
                self.values.extend(pushed.map(|value| value.addr().get() as u64));
                Ok(vec![count.min(room) as u64])
            }
            Op::StackPopBatch(count) => Ok((0..count).map_while(|_| self.values.pop()).collect()),
            Op::Resize(capacity) => {
                let old = core::mem::replace(&mut self.capacity, capacity.min(STACK));
                Ok(vec![old as u64])
            }
            _ => unreachable!("not an operation on a stack"),
        })
    }
}

/// How many cases there were, and how many of them were aborted.
fn compare(Family { setups, ops, intrusions }: &Family) -> (usize, usize) {
    let bench = Bench::new(1, false);
    let complete = |op| Interpreter::undisturbed(0).complete(&bench, op);
    let both = |model: &mut Model, program: &[Op]| {
        for &op in program {
            assert_eq!(complete(op), model.run(op), "{op:?} on {model:?}");
            assert_eq!(bench.on_stack(), model.values, "{op:?}");
        }
    };
    let programs = || intrusions.iter().filter(|program| !program.contains(&Op::Stop));
    let (mut cases, mut aborted) = (0, 0);
    // Intrusions make more states of a stack, too.
    let states = setups.iter().flat_map(|setup| programs().map(move |more| (setup, more)));
    for (setup, more) in states {
        for (&op, intrusion) in ops.iter().flat_map(|op| programs().map(move |by| (op, by))) {
            for step in 0.. {
                let mut model = Model::default();
                bench.reset(0, &[]);
                both(&mut model, setup);
                both(&mut model, more);
                let mut steps = Interpreter::new(0, Some(Before::Step(step)));
                cases += 1;
                let case = || format!("{setup:?}, {more:?}, {op:?} with {intrusion:?} at {step}");
                let first = steps.attempt(&bench, op);
                let answer = first.clone().unwrap_or_else(|| {
                    aborted += 1;
                    assert_eq!(bench.on_stack(), model.values, "{}", case());
                    both(&mut model, intrusion);
                    steps.attempt(&bench, op).expect("it is aborted once")
                });
                assert_eq!(answer, model.run(op), "{}", case());
                assert_eq!(bench.on_stack(), model.values, "{}", case());
                // What the words hold is a stack for those that come, as well.
                both(&mut model, intrusion);
                both(&mut model, &[Op::StackPopBatch(STACK)]);
                if first.is_some() {
                    break;
                }
            }
        }
    }
    (cases, aborted)
}

#[test]
fn an_abort_before_any_step_changes_no_stack() {
    let (cases, aborted) = compare(&STACKS);
    assert!(aborted > cases / 2, "{aborted} of {cases} were aborted");
}
