//! How mixes are written and read.

use coreline_scenarios::readscale::mix::{MIXES, Mix, Step};

#[test]
fn a_word_reads_back() {
    for (name, word) in MIXES {
        let mix = Mix::parse(name).unwrap();
        assert_eq!(mix.to_string(), *word);
        assert_eq!(Mix::parse(word).unwrap(), mix);
    }
}

#[test]
fn what_is_no_mix_is_refused() {
    let wrong = [
        "",
        "two",
        "w1",
        "w1+l0x1r0w",
        "w1+l1x0r0w",
        "l1x1r",
        "l1x1w",
        "l1x1r1",
        "w01+l1x1r0w",
        "l1x1r0w+w1",
        "w-1+l1x1r0w",
        "w1+l1x1r0w+c1",
        "w1+l1x1r0w+",
        "w1+l1x100001r0w",
        "w1000000001+l1x1r0w",
        "w1+l1x1r0w+x1",
        "é",
    ];
    for text in wrong {
        assert_eq!(Mix::parse(text), None, "{text}");
    }
}

#[test]
fn a_file_is_the_word_that_it_stands_for() {
    let text = "work = 420\n[[lock]]\nlocks = 1\nreads = 4\n[[lock]]\nlocks = 4\nreads = 1\n\
                writes = 0\n[[count]]\ncounts = 1\npairs = 1\n";
    assert_eq!(Mix::of_toml(text).unwrap(), Mix::parse("openssl").unwrap());
    for (wrong, says) in [
        ("work = 1", "1 to 100,000 times"),
        ("work = 1\n[[lock]]\nlocks = 1\nreeds = 2", "reeds"),
        ("work = -1\n[[lock]]\nlocks = 1\nreads = 2", "-1"),
    ] {
        let told = Mix::of_toml(wrong).unwrap_err();
        assert!(told.contains(says), "{told}");
    }
}

#[test]
fn steps_are_spread_over_the_operation() {
    let steps = |text: &str| Mix::parse(text).unwrap().steps();
    let [read, write] = [Step::Read(0), Step::Write(1)];
    let [add, subtract] = [Step::Add(0), Step::Subtract(0)];
    assert_eq!(steps("w1+l1x2r0w+l1x0r1w+c1x1"), [read, add, write, read, subtract]);
    let tls = Mix::parse("tls").unwrap();
    let count = |step: fn(&Step) -> bool| tls.steps().iter().filter(|it| step(it)).count();
    let reads = count(|step| matches!(step, Step::Read(_)));
    let writes = count(|step| matches!(step, Step::Write(_)));
    assert_eq!((reads, writes, reads + writes), (3610, 111, tls.takes()));
    assert!(
        tls.without_counts().steps().iter().all(|it| matches!(it, Step::Read(_) | Step::Write(_)))
    );
}
