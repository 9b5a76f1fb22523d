//! `readscale`: mixes of locks from a file, and what the result says of them.

use crate::scenario::{rows, value};
use crate::{file, json, output, refusal};

const RUN: [&str; 9] =
    ["run", "readscale", "--world", "host-2c", "--quick", "--threads", "2", "--writes", "0"];

const FILE: &str = "work = 420\n[[lock]]\nlocks = 1\nreads = 4\n[[lock]]\nlocks = 4\nreads = 1\n\
                    [[count]]\ncounts = 1\npairs = 1\n";

#[test]
fn a_file_is_the_word_of_the_replay_line() {
    let path = file("counted.toml", FILE);
    let path = path.to_str().unwrap();
    let of = |mix: &str| json(&[&RUN[..], &["--json", "--mix", mix]].concat());
    let (counted, word) = (of(path), of("w420+l1x4r0w+l4x1r0w+c1x1"));
    assert_eq!(counted, word);
    assert_eq!(counted["rows"][0]["params"]["mix"], "w420+l1x4r0w+l4x1r0w+c1x1");
    let [rate, named] = [&counted, &of("openssl")].map(|it| value(rows(it, "ops", "glibc")[0]));
    assert_eq!(rate, named);
}

#[test]
fn a_wrong_mix_is_refused_with_what_would_be_right() {
    let path = file("misspelt.toml", &FILE.replace("reads", "reeds"));
    for (mix, says) in [
        ("two", "expected one, openssl or tls"),
        ("none.toml", "No such file"),
        (path.to_str().unwrap(), "reeds"),
    ] {
        let (code, told) = refusal(&[&RUN[..], &["--mix", mix]].concat());
        assert!(code == 2 && told.contains(says), "{code} {told}");
    }
}

#[test]
fn counts_can_be_left_out() {
    let of = |count: &str| {
        let more = ["--mix", "openssl", "--count", count, "--variant", "none", "--json"];
        value(rows(&json(&[&RUN[..], &more].concat()), "ops", "none")[0])
    };
    assert!(of("without") > of("with"));
}

#[test]
fn figures_stand_for_themselves_and_beside_glibc() {
    let output = output(&[&RUN[..7], &["--writes", "10", "--csv"]].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    for metric in ["ops", "ops_over_glibc", "share", "longest_read", "longest_write"] {
        let found = text.lines().filter(|line| line.contains(&format!(",{metric},"))).count();
        assert_eq!(found, if metric == "ops_over_glibc" { 8 } else { 9 }, "{metric}\n{text}");
    }
}
