//! The verb `measure`.

use crate::{file, json, output, refusal};

#[test]
fn what_is_measured_is_a_machine_that_can_be_simulated() {
    let path = file("measured.toml", "what was there before");
    let path = path.to_str().unwrap();
    let told = output(&["measure", "--quick", "--name", "mine", "--out", path]);
    let complaint = String::from_utf8_lossy(&told.stderr);
    // Machines whose parts differ have no file.
    if told.status.code() == Some(3) {
        assert!(complaint.contains("not all alike"), "{complaint}");
        return;
    }
    assert!(told.status.success(), "{complaint}");
    let told = String::from_utf8(told.stdout).unwrap();
    // A line of one word cannot be broken: the file's path, or a part of what the host is called.
    let is_whole = |line: &str| !line.trim().contains(' ') || line.contains(path);
    let fits = |line: &str| line.chars().count() <= 80 || is_whole(line);
    assert!(told.lines().all(fits), "{told}");
    let machine = json(&["machines", path, "--json"]);
    assert_eq!(machine["name"], "mine");
    let costs = machine["costs"].as_array().unwrap();
    let source = |name: &str| {
        let cost = costs.iter().find(|cost| cost["name"] == name);
        cost.unwrap()["source"].as_str().unwrap().to_owned()
    };
    for cost in costs {
        let source = cost["source"].as_str().unwrap();
        let is_measured = source.starts_with("measured on this machine, 2");
        let is_from = source.starts_with("as epyc-9654-2s: ");
        assert!(is_measured || is_from || source.starts_with("does not occur here"), "{cost}");
    }
    assert!(source("ipi").starts_with("as epyc-9654-2s: "), "{}", source("ipi"));
    let run = ["run", "shootdown", "--quick", "--present", "1", "--json", "--world", path];
    assert_eq!(json(&run)["world"], "mine");
}

#[test]
fn an_impossible_name_or_file_is_refused_before_anything_is_measured() {
    for (arguments, said) in [
        (&["measure", "--name", "my machine"][..], "one word"),
        (&["measure", "--like", "epyc-9645-2s"], "epyc-9654-2s"),
        (&["measure", "--out", "/no/such/folder/mine.toml"], "choose another file"),
    ] {
        let (code, text) = refusal(arguments);
        assert_eq!(code, 2, "{text}");
        assert!(text.contains(said), "{text}");
    }
}
