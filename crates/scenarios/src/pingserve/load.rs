//! The tasks, and the messages that they send each other.
//!
//! A task has an inbox. It consists of some cache lines, which senders write and the task reads,
//! and of a count of messages. A sender that finds the count at 0 wakes the task. A task whose
//! count is 0 again blocks. After a certain number of messages, the task computes, and sends one
//! message to each of its targets.

use core::ops::Range;
use core::time::Duration;

use coreline_world::{Integer, Line, Ordering, Testbed, Time, Word};
use rand_pcg::Pcg64;

use super::{KICKS, REQUESTS, SCANS, SLEEPS};
use crate::crew::{Sign, nanos};
use crate::point::Setup;
use crate::{RunError, draw};

/// A load that Nayak ran, as far as it is one of wake-ups. Counts are those of a group.
pub(super) struct Shape {
    name: &'static str,
    about: &'static str,
    /// How many clients share the group's servers.
    clients: usize,
    /// Each client sends to each of them in a turn.
    servers: usize,
    /// Whether servers answer; a client's next turn waits for all answers then.
    answers: bool,
    /// Lines of a message.
    lines: usize,
}

const SHAPES: [Shape; 5] = [
    Shape {
        name: "tbench",
        about: "Each client and its server in turn, messages of 16 lines",
        clients: 1,
        servers: 1,
        answers: true,
        lines: 16,
    },
    Shape {
        name: "netperf",
        about: "The same, messages of one line",
        clients: 1,
        servers: 1,
        answers: true,
        lines: 1,
    },
    Shape {
        name: "hackbench",
        about: "Groups of 20 clients that send to 20 servers each, which do not answer",
        clients: 20,
        servers: 20,
        answers: false,
        lines: 2,
    },
    Shape {
        name: "schbench",
        about: "Each client wakes 16 servers at a time, and waits for all answers",
        clients: 1,
        servers: 16,
        answers: true,
        lines: 1,
    },
    Shape {
        name: "stream",
        about: "Clients alone, which read 64 lines of their own in a turn and wake no task",
        clients: 1,
        servers: 0,
        answers: false,
        lines: 64,
    },
];

/// As a parameter has them.
pub(super) const NAMES: [(&str, &str); SHAPES.len()] = {
    let mut names = [("", ""); SHAPES.len()];
    let mut at = 0;
    while at < SHAPES.len() {
        names[at] = (SHAPES[at].name, SHAPES[at].about);
        at += 1;
    }
    names
};

/// Streams of the generator that draws how long a turn computes: one for each turn.
const TURN: u128 = 0x5e7e << 96;

struct Task<W: Testbed> {
    /// Messages that wait for it, with the one that it handles.
    pending: Line<W::U32>,
    /// How many it has handled. Its own.
    handled: Line<W::U64>,
    inbox: Box<[Line<W::U32>]>,
    /// How many messages make a turn.
    awaits: u64,
    turns: u64,
    messages: u64,
    targets: Range<usize>,
}

/// The tasks of a run, with the counts of their messages.
pub struct Load<W: Testbed> {
    tasks: Vec<Task<W>>,
    /// Nanoseconds of a turn.
    work: u64,
    seed: u64,
    /// The number of requests. A request is a message from a client. Without servers a turn is one.
    requests: u64,
    /// Tasks that have handled all their messages.
    over: Line<W::U32>,
    /// When the last one had; nanoseconds.
    ended: Line<W::U64>,
    end: Sign<W>,
}

impl<W: Testbed> Load<W> {
    /// Creates the tasks of a program. None of them has run.
    pub fn new(setup: &Setup) -> Load<W> {
        let shape = SHAPES.iter().find(|shape| setup.is("shape", shape.name));
        let shape = shape.expect("it is one of their names");
        let (clients, rounds) = (setup.number("clients") as usize, setup.number("rounds"));
        let mut tasks = Vec::new();
        let mut left = clients;
        while left > 0 {
            let here = left.min(shape.clients);
            left -= here;
            let servers = tasks.len() + here..tasks.len() + here + shape.servers;
            let client = servers.start - 1;
            let answers = if shape.answers { shape.servers as u64 } else { 0 };
            for _ in 0..here {
                // The first messages are those that it begins with.
                let (awaits, first) = if answers > 0 { (answers, answers) } else { (1, rounds) };
                let messages = first + rounds * answers;
                let client = Task::<W>::new(shape, [awaits, rounds, messages], servers.clone());
                // Relaxed: nothing runs yet.
                client.pending.store(first as u32, Ordering::Relaxed);
                tasks.push(client);
            }
            for _ in servers {
                let messages = rounds * here as u64;
                let targets = if shape.answers { client..client + 1 } else { 0..0 };
                tasks.push(Task::<W>::new(shape, [1, messages, messages], targets));
            }
        }
        Load {
            tasks,
            work: setup.number("work"),
            seed: setup.seed,
            requests: clients as u64 * rounds * shape.servers.max(1) as u64,
            over: Line(W::U32::new_in(0)),
            ended: Line(W::U64::new_in(0)),
            end: Sign::new(0),
        }
    }

    pub(super) fn tasks(&self) -> usize {
        self.tasks.len()
    }

    /// The tasks that have messages before any has run.
    pub(super) fn first(&self) -> impl Iterator<Item = usize> + '_ {
        // Relaxed: nothing runs yet.
        let has = |task: &Task<W>| task.pending.load(Ordering::Relaxed) > 0;
        self.tasks.iter().enumerate().filter(move |(_, task)| has(task)).map(|(number, _)| number)
    }

    /// Runs a task, which was woken or is one of the [first](Load::first), until it blocks.
    pub(super) fn run(&self, number: usize, mut wake: impl FnMut(usize)) {
        let task = &self.tasks[number];
        loop {
            self.handle(number, &mut wake);
            // AcqRel: pairs with itself in `send`: the task is done with this message before a
            // sender finds it blocked, and sees those that were sent.
            if task.pending.fetch_sub(1, Ordering::AcqRel) == 1 {
                return;
            }
        }
    }

    fn handle(&self, number: usize, wake: &mut impl FnMut(usize)) {
        let task = &self.tasks[number];
        for line in &task.inbox {
            // Relaxed: ordered by the count of messages.
            line.load(Ordering::Relaxed);
        }
        // Relaxed, twice: its own, and read by others when all is over.
        let handled = task.handled.load(Ordering::Relaxed) + 1;
        task.handled.store(handled, Ordering::Relaxed);
        let turn = handled / task.awaits;
        if handled.is_multiple_of(task.awaits) && turn <= task.turns {
            let stream = TURN | (number as u128) << 64 | u128::from(turn);
            let mut dice = Pcg64::new(u128::from(self.seed), stream);
            let span = self.work / 2 + draw(&mut dice, self.work as usize + 1) as u64;
            W::work(Duration::from_nanos(span));
            for target in task.targets.clone() {
                self.send(target, wake);
            }
        }
        if handled == task.messages {
            self.leave();
        }
    }

    /// Sends a message to a task, and wakes it if it has no other one.
    fn send(&self, to: usize, wake: &mut impl FnMut(usize)) {
        let task = &self.tasks[to];
        for line in &task.inbox {
            // Relaxed: ordered by the count of messages.
            line.store(1, Ordering::Relaxed);
        }
        // AcqRel: pairs with itself in `run`.
        if task.pending.fetch_add(1, Ordering::AcqRel) == 0 {
            wake(to);
        }
    }

    /// A task has nothing more to do.
    fn leave(&self) {
        // AcqRel: the last one passes on what all have done.
        if self.over.fetch_add(1, Ordering::AcqRel) as usize + 1 == self.tasks.len() {
            // Relaxed: ordered by the sign.
            self.ended.store(W::now().as_nanos(), Ordering::Relaxed);
            self.end.set(1);
        }
    }

    /// Waits until every task has done all.
    pub(super) fn wait(&self) {
        self.end.wait(|end| end != 0);
    }

    /// Whether each message was handled once. After all tasks have ended.
    pub(super) fn check(&self) -> Result<(), RunError> {
        for (number, task) in self.tasks.iter().enumerate() {
            // Relaxed, twice: all have ended.
            let handled = task.handled.load(Ordering::Relaxed);
            let pending = task.pending.load(Ordering::Relaxed);
            if (handled, pending) != (task.messages, 0) {
                let messages = task.messages;
                return Err(RunError::Check(format!(
                    "task {number} has handled {handled} of {messages} messages, and {pending} are \
                     waiting"
                )));
            }
        }
        Ok(())
    }

    /// The numbers of a run that began at such a time, of what was counted meanwhile.
    pub(super) fn numbers(&self, begin: Time, counts: [(usize, u64); 3]) -> Vec<f64> {
        // Relaxed: all have ended.
        let ended = Time::from_nanos(self.ended.load(Ordering::Relaxed));
        let mut numbers = vec![0.0; 1 + counts.len()];
        numbers[REQUESTS] = 1e9 * self.requests as f64 / nanos(begin, ended).max(1) as f64;
        for (number, count) in counts {
            debug_assert!([KICKS, SCANS, SLEEPS].contains(&number));
            numbers[number] = 1000.0 * count as f64 / self.requests as f64;
        }
        numbers
    }

    /// Adds a message that no task has sent. Only a test of the scenario's own check uses this.
    #[doc(hidden)]
    pub fn plant(&self, to: usize) {
        // Relaxed: nothing runs yet.
        self.tasks[to].pending.fetch_add(1, Ordering::Relaxed);
    }
}

impl<W: Testbed> Task<W> {
    fn new(shape: &Shape, [awaits, turns, messages]: [u64; 3], targets: Range<usize>) -> Task<W> {
        Task {
            pending: Line(W::U32::new_in(0)),
            handled: Line(W::U64::new_in(0)),
            inbox: (0..shape.lines).map(|_| Line(W::U32::new_in(0))).collect(),
            awaits,
            turns,
            messages,
            targets,
        }
    }
}
