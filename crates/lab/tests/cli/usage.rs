//! Wrong command lines, and where results go.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::port::link;
use crate::{MACHINE, coreline, file, output, refusal};

#[test]
fn a_variant_of_the_other_world_is_refused_with_those_of_this() {
    let line = format!(
        "coreline-sim/1 machine={MACHINE} seed=1 request=0 faults=none program=intermittent \
         config=8-core/1-L3 delay=10 turns=timed variant=kernel-cid"
    );
    let other =
        line.replace("program", "kernel=recent:tick program").replace("kernel-cid", "first-fit");
    for (arguments, what) in [
        (vec!["replay", &other], "first-fit:tick, first-fit:switch"),
        (vec!["run", "intermittent", "--world", MACHINE, "--variant", "kernel-cid"], "first-fit"),
        (vec!["replay", &line], "recent"),
        (vec!["run", "intermittent", "--variant", "first-fit"], "kernel-cid"),
        (vec!["run", "intermittent", "--variant", "recent"], "world native"),
        (vec!["run", "intermittent", "--scan", "tick"], "--world"),
        (vec!["run", "switchstorm", "--variant", "recent"], "always-set"),
        (vec!["run", "shootdown", "--variant", "two-level"], "eager, lazy"),
    ] {
        let (code, told) = refusal(&arguments);
        assert_eq!(code, 2, "{arguments:?}: {told}");
        assert!(told.contains(what), "{arguments:?}: {told}");
    }
}

#[test]
fn what_cannot_be_run_is_a_usage_error_that_says_what_can() {
    let broken = file("broken.toml", "name = \"mine\"\nspeed = 9\n");
    let broken = broken.to_str().unwrap();
    let intermittent = ["run", "intermittent"];
    let with = |more: &[&'static str]| [&intermittent, more].concat();
    for (arguments, what) in [
        (vec!["run", "sing"], vec!["sing", "intermittent"]),
        (with(&["--seed", "-1"]), vec!["'-1'", "--seed", "from 0 to 18446744073709551615"]),
        (with(&["--delay", "-1"]), vec!["--delay", "-1 is not in 0..=10000"]),
        (with(&["--world", "epyc-9645-2s"]), vec!["did you mean epyc-9654-2s?"]),
        (
            with(&["--world", MACHINE, "--config", "8-cores/1-L3"]),
            vec!["did you mean 8-core/1-L3?"],
        ),
        (with(&["--variant", "cpu_id"]), vec!["cpu-id"]),
        (vec!["machines", "desktop-12"], vec!["did you mean desktop-12c?"]),
        (vec!["man", "repaly"], vec!["repaly", "bench", "did you mean replay?"]),
        (vec!["man", "run", "tenant"], vec!["shootdown", "did you mean tenants?"]),
        (vec!["completions", "cmd"], vec!["cmd", "bash"]),
        (with(&["--world", "pdp-11"]), vec!["pdp-11", MACHINE, "machine file"]),
        (with(&["--world", "no/such.toml"]), vec!["no/such.toml"]),
        (vec!["run", "intermittent", "--world", broken], vec!["broken.toml", "speed"]),
        (with(&["--seed", "x"]), vec!["--seed"]),
        (with(&["--delay", "99999"]), vec!["--delay"]),
        (with(&["--variant", "nothing"]), vec!["cpu-id", "kernel-cid", "first-fit", "recent"]),
        (with(&["--scan", "never"]), vec!["tick", "switch"]),
        (with(&["--world", MACHINE, "--config", "9-core"]), vec!["9-core", "8-core/1-L3"]),
        (with(&["--wake", "barrier"]), vec!["--wake", "coreline run intermittent"]),
        (vec!["run", "switchstorm", "--delay", "10"], vec!["--delay", "coreline run switchstorm"]),
        (vec!["run", "switchstorm", "--perod", "10"], vec!["--perod", "--period"]),
        (vec!["run", "switchstorm", "--period", "0"], vec!["--period"]),
        (vec!["run", "shootdown", "--world", MACHINE, "--present", "385"], vec!["385", "384"]),
        (vec!["run", "threadstorm", "--size", "8"], vec!["POOLSxTHREADS", "8x8"]),
        (vec!["run", "threadstorm", "--variant", "lazy"], vec!["none", "owned", "kernel-cid"]),
        (with(&["--out", "no/such/folder/file"]), vec!["no/such/folder/file"]),
        (vec!["machines", "pdp-11"], vec!["pdp-11", MACHINE]),
        (vec!["machines", broken], vec!["broken.toml", "speed"]),
        (vec!["validate", "--only", "sing"], vec!["sing", "ping-pong-cas"]),
        (vec!["validate", "--predict", "abcdef0", "--quick"], vec!["--predict", "--quick"]),
        (vec!["validate", "--predict", "notacommit"], vec!["notacommit", "7 to 40 hexadecimal"]),
        (vec!["validate", "--predict", "abcdef"], vec!["abcdef", "git rev-parse HEAD"]),
        (vec!["validate", "--blind", "22bdb1f-dirty"], vec!["22bdb1f-dirty", "hexadecimal"]),
        (vec!["validate", "--world", "pdp-11"], vec!["pdp-11", MACHINE]),
        (vec!["replay", "hello"], vec!["replay line"]),
        (vec!["sing"], vec!["sing", "Usage"]),
    ] {
        let (code, told) = refusal(&arguments);
        assert_eq!(code, 2, "{arguments:?}: {told}");
        assert!(what.iter().all(|word| told.contains(word)), "{arguments:?}: {told}");
    }
}

#[test]
fn a_machine_without_address_space_says_what_it_needs() {
    let limited = Command::new("sh")
        .args(["-c", "ulimit -v 400000; exec \"$@\"", "sh"])
        .args([env!("CARGO_BIN_EXE_coreline"), "run", "intermittent", "--quick"])
        .args(["--world", MACHINE])
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&limited.stderr);
    assert_eq!(limited.status.code(), Some(1), "{told}");
    assert!(told.contains("512 MiB of address space") && told.contains("ulimit -v"), "{told}");
}

/// A run, replayed: short.
const LINE: &str = "coreline-sim/1 machine=host-2c seed=1 request=0 faults=none \
                    program=validate fetch-add-1";

/// One of each that writes by itself.
const WRITES: [&[&str]; 12] = [
    &["machines"],
    &["machines", "host-2c", "--json"],
    &["doctor"],
    &["validate", "--world", "host-2c", "--only", "fetch-add-1"],
    &["run", "shootdown", "--world", "host-2c", "--quick"],
    &["replay", LINE],
    &["man"],
    &["completions", "bash"],
    &["--help"],
    &["run", "--help"],
    &["help", "run"],
    &["--version"],
];

#[test]
fn a_full_disk_is_a_failure_and_no_usage_error() {
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    for arguments in WRITES {
        let output = coreline(arguments).stdout(full()).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {told}");
        assert!(told.contains("No space left"), "{arguments:?}: {told}");
    }
    let (code, told) = refusal(&["machines", "--out", "/dev/full"]);
    assert!(code == 1 && told.contains("/dev/full: No space left"), "{code} {told}");
}

/// What a shell's script says of the program's exit code and standard error.
fn in_shell(script: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let mut shell = Command::new("sh");
    shell.args(["-c", script, "sh", env!("CARGO_BIN_EXE_coreline")]).args(arguments);
    let output = shell.output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn an_output_that_cannot_be_written_is_a_failure_and_a_closed_pipe_is_none() {
    for arguments in WRITES {
        for script in ["exec \"$@\" >&-", "exec \"$@\" 1</dev/null"] {
            let (code, told) = in_shell(script, arguments);
            assert_eq!(code, Some(1), "{script}, {arguments:?}: {told}");
            assert!(told.contains("standard output is closed"), "{script}, {arguments:?}: {told}");
        }
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let piped = coreline(arguments).stdout(writer).output().unwrap();
        let told = String::from_utf8_lossy(&piped.stderr);
        assert_eq!((piped.status.code(), &*told), (Some(0), ""), "{arguments:?}");
    }
    let file = file("closed.json", "");
    let script = "exec \"$@\" >&-";
    let (code, told) = in_shell(script, &["machines", "--out", file.to_str().unwrap()]);
    assert_eq!((code, &*told), (Some(0), ""), "what goes to a file needs no standard output");
}

#[test]
fn colours_are_in_a_pipe_if_they_are_forced_and_never_in_a_file() {
    let run = ["run", "shootdown", "--world", "host-2c", "--quick"];
    let has_colours = |arguments: &[&str], variables: &[(&str, &str)]| {
        let output = coreline(arguments).envs(variables.iter().copied()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout.contains(&0x1b)
    };
    let forced = ("CLICOLOR_FORCE", "1");
    for arguments in [&run[..], &["--help"]] {
        assert!(!has_colours(arguments, &[]), "{arguments:?}");
        assert!(has_colours(arguments, &[forced]), "{arguments:?}");
        assert!(!has_colours(arguments, &[forced, ("NO_COLOR", "1")]), "{arguments:?}");
        assert!(!has_colours(arguments, &[("CLICOLOR_FORCE", "0")]), "{arguments:?}");
    }
    let path = file("colours.txt", "");
    has_colours(&[&run[..], &["--out", path.to_str().unwrap()]].concat(), &[forced]);
    assert!(!fs::read(path).unwrap().contains(&0x1b));
}

#[test]
fn shells_and_manuals_know_every_verb() {
    let told = |arguments: &[&str]| {
        let output = output(arguments);
        assert!(output.status.success(), "{arguments:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let help = told(&["--help"]);
    let verbs = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let verbs: Vec<&str> = verbs
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split(' ').nth(2))
        .filter(|verb| !verb.is_empty() && *verb != "help")
        .collect();
    assert!(verbs.contains(&"run") && verbs.contains(&"man"), "{verbs:?}");
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let completions = told(&["completions", shell]);
        let missing = verbs.iter().find(|verb| !completions.contains(*verb));
        assert_eq!(missing, None, "{shell}");
    }
    let page = told(&["man"]);
    for verb in verbs {
        assert!(page.contains(&verb.replace('-', "\\-")), "{verb}: {page}");
        let page = told(&["man", verb]);
        assert!(page.contains(&format!("coreline\\-{verb}")), "{page}");
    }
    assert!(page.contains("Exit codes: 0 done"), "{page}");
}

/// Bash takes what it is given and shows what it would complete.
#[test]
fn shells_complete_the_names_of_machines() {
    let script = String::from_utf8(output(&["completions", "bash"]).stdout).unwrap();
    for (words, completed) in [
        (&["machines", "epyc-96"][..], "epyc-9654-2s"),
        (&["run", "shootdown", "--world", "nat"], "native"),
        (&["run", "shootdown", "--world", "desk"], "desktop-12c"),
        (&["validate", "--world", "host-2c-"], "host-2c-xeon"),
        (&["measure", "--like", "power"], "power8-16s"),
    ] {
        let line = [&["coreline"], words].concat();
        let [before, last] = [line[line.len() - 2], line[line.len() - 1]];
        let asked = format!(
            "{script}\nCOMP_WORDS=({}); COMP_CWORD={}\n_coreline coreline {last} {before}\n\
             printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            line.join(" "),
            line.len() - 1
        );
        let Ok(shell) = Command::new("bash").args(["-c", &asked]).output() else { break };
        let told = String::from_utf8_lossy(&shell.stdout);
        assert_eq!(told.trim(), completed, "{}", String::from_utf8_lossy(&shell.stderr));
    }
    for shell in ["bash", "zsh", "fish"] {
        let script = String::from_utf8(output(&["completions", shell]).stdout).unwrap();
        assert!(script.contains("epyc-9654-2s"), "{shell}");
    }
    let help = String::from_utf8(output(&["machines", "--help"]).stdout).unwrap();
    assert!(!help.contains("possible values"), "a file is possible, too: {help}");
}

#[test]
fn pages_and_completions_are_installed_below_a_prefix() {
    let home = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("home");
    let _ = fs::remove_dir_all(&home);
    let install = || {
        let mut install = coreline(&["install"]);
        install.env("HOME", &home).env_remove("XDG_DATA_HOME");
        install
    };
    let installed = install().output().unwrap();
    assert!(installed.status.success(), "{}", String::from_utf8_lossy(&installed.stderr));
    let told = String::from_utf8(installed.stdout).unwrap();
    let prefix = home.join(".local");
    for (shell, path) in [
        ("bash", "share/bash-completion/completions/coreline"),
        ("zsh", "share/zsh/site-functions/_coreline"),
        ("fish", "share/fish/vendor_completions.d/coreline.fish"),
    ] {
        let path = prefix.join(path);
        assert!(told.contains(path.to_str().unwrap()), "{told}");
        assert_eq!(fs::read(path).unwrap(), output(&["completions", shell]).stdout, "{shell}");
    }

    let pages = prefix.join("share/man/man1");
    for verb in [&[][..], &["doctor"], &["run"], &["run", "tenants"], &["install"]] {
        let file = [&["coreline"], verb].concat().join("-") + ".1";
        let page = output(&[&["man"], verb].concat()).stdout;
        let there = fs::read(pages.join(&file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        assert_eq!(String::from_utf8(there).unwrap(), String::from_utf8(page).unwrap(), "{file}");
    }
    // A page says which others there are.
    let read = |name| fs::read_to_string(pages.join(name)).unwrap();
    let page = ["coreline.1", "coreline-run.1", "coreline-machines.1"].map(read).concat();
    let files: Vec<_> =
        fs::read_dir(&pages).unwrap().map(|file| file.unwrap().file_name()).collect();
    for file in &files {
        let name = file.to_str().unwrap().strip_suffix(".1").unwrap().replace('-', "\\-");
        assert!(page.contains(&name), "{name}");
    }
    assert!(told.contains(&format!("{}: {} pages", pages.display(), files.len())), "{told}");
    // Once more, with a folder for data: for the shells that look there.
    let (data, bash) = (home.join("data"), "bash-completion/completions/coreline");
    let installed = install().env("XDG_DATA_HOME", &data).output().unwrap();
    let told = String::from_utf8(installed.stdout).unwrap();
    for path in [&data.join(bash), &data.join("fish/vendor_completions.d/coreline.fish")] {
        assert!(path.exists() && told.contains(path.to_str().unwrap()), "{told}");
    }
    assert!(!data.join("zsh").exists() && !data.join("man").exists(), "{told}");
    let relative = install().env("XDG_DATA_HOME", "data").output().unwrap();
    let told = String::from_utf8(relative.stdout).unwrap();
    assert!(told.contains(prefix.join("share").join(bash).to_str().unwrap()), "{told}");
}

#[test]
fn what_others_have_written_stays() {
    let prefix = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("others");
    let _ = fs::remove_dir_all(&prefix);
    let folder = prefix.join("share/bash-completion/completions");
    fs::create_dir_all(&folder).unwrap();
    let (theirs, ours) = (folder.join("theirs"), folder.join("coreline"));
    fs::write(&theirs, "theirs").unwrap();
    fs::write(&ours, "of another program").unwrap();
    let arguments = ["install", "--prefix", prefix.to_str().unwrap()];
    let (code, told) = refusal(&arguments);
    assert!(code == 1 && told.contains(ours.to_str().unwrap()), "{code}: {told}");
    assert_eq!(fs::read_to_string(&ours).unwrap(), "of another program");
    assert!(!prefix.join("share/man").exists(), "nothing was written");

    fs::remove_file(&ours).unwrap();
    link(theirs.to_str().unwrap(), &ours);
    output(&arguments);
    assert_eq!(fs::read_to_string(&theirs).unwrap(), "theirs");
    assert!(!ours.is_symlink() && fs::read_to_string(&ours).unwrap().contains("coreline"));
    // No file that was on its way is left.
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
}

#[test]
fn what_cannot_be_installed_says_where() {
    let taken = file("taken", "");
    let (code, told) = refusal(&["install", "--prefix", taken.to_str().unwrap()]);
    assert!(
        code == 1 && told.contains("taken/share/man/man1") && told.contains("--prefix"),
        "{told}"
    );
    let homeless = coreline(&["install"]).env_remove("HOME").output().unwrap();
    let told = String::from_utf8(homeless.stderr).unwrap();
    assert!(homeless.status.code() == Some(2) && told.contains("--prefix"), "{told}");
}

/// The options of a scenario are its own, with what runs if nothing is said, and those of all.
#[test]
fn each_scenario_has_its_own_help() {
    for (scenario, own, others) in [
        ("intermittent", &["--delay <MS>", "the default is 10 and 200", "--scan"][..], "--wake"),
        ("switchstorm", &["--wake <WAKE>", "--period <US>", "--path <NS>", "--flush"], "--delay"),
        ("shootdown", &["--present <N>", "the default is 1, 8, 64 and all"], "--tasks"),
        (
            "threadstorm",
            &["--size <POOLSxTHREADS>", "--place", "--rest <US>", "roaming"],
            "--flush",
        ),
        ("tenants", &["--tenants <N>", "--tasks <N>", "domain-clustered"], "--size"),
        ("lockscale", &["--threads <N>", "--outside <NS>", "spread", "reciprocating"], "--blocks"),
        ("readscale", &["--mix <MIX>", "--writes <N>", "--count", "bravo"], "--outside"),
        ("filecopy", &["--blocks <BUFSIZExMAXBLOCKS>", "--section <NS>", "per-node"], "--place"),
        ("execstorm", &["--threads <N>", "--outside <US>", "--zero", "ctor-dtor"], "--place"),
        ("ipistorm", &["--scan", "--masked <NS>", "kernel-notify"], "--shape"),
        ("pingserve", &["--shape", "--clients <N>", "--work <NS>", "kernel-notify"], "--wake"),
        ("lazymm", &["--tasks <N>", "--rest <N>", "refcounted", "shootdown"], "--threads"),
        ("kernlock", &["--load <LOAD>", "--threads <N>", "lock2_threads", "queued"], "--place"),
        ("rwsem", &["--load <LOAD>", "--place <PLACE>", "biases", "bits"], "--window"),
        ("lineops", &["--load <LOAD>", "--place <PLACE>", "siblings", "changed"], "--window"),
    ] {
        let help = String::from_utf8(output(&["run", scenario, "--help"]).stdout).unwrap();
        let words: Vec<&str> = help.split_whitespace().collect();
        let help = words.join(" ");
        let sources = [
            "(Desnoyers 2024)",
            "(Dice 2019)",
            "(Guo 2024)",
            "(Nayak 2024)",
            "(van Riel 2013)",
            "(Yoo 2025)",
            "(Linux 6.19)",
            "(will-it-scale)",
            "(Linux 5.1 and 5.3)",
        ];
        // Its loads are descriptions of operations, which it has from no publication.
        let has_none = scenario == "lineops";
        let has_one = sources.iter().any(|source| help.contains(source));
        assert!(has_none != has_one, "{scenario}: {help}");
        let common = ["--world <WORLD>", "--seed", "--variant", "--config", "--json"];
        for part in own.iter().chain(&common) {
            assert!(help.contains(part), "{scenario}: {part}: {help}");
        }
        assert!(!help.contains(others), "{scenario}: {help}");
        let page = String::from_utf8(output(&["man", "run", scenario]).stdout).unwrap();
        assert!(page.contains(&format!("coreline\\-run\\-{scenario}")), "{page}");
    }
}

#[test]
fn out_writes_the_result_to_a_file() {
    let path = file("result.json", &"an earlier and longer result ".repeat(10_000));
    let told = output(&["machines", "--json", "--out", path.to_str().unwrap()]);
    assert!(told.status.success() && told.stdout.is_empty());
    let written: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!(written["schema"], "coreline.machines/1");
}

/// By the one signal that a process cannot have been started to ignore: a shell starts its
/// background jobs with interrupts ignored, and the program leaves that as it is.
#[test]
fn a_run_that_is_cut_off_leaves_the_result_of_an_earlier_one() {
    let old = file("cut_off.json", "an earlier result");
    let new = old.with_file_name("never.json");
    for out in [&old, &new] {
        let mut child = coreline(&["run", "intermittent", "--world", MACHINE, "--band"])
            .args(["--json", "--out"])
            .arg(out)
            .spawn()
            .unwrap();
        child.kill().unwrap();
        let status = child.wait().unwrap();
        assert_eq!(status.code(), None, "a signal ended it");
    }
    assert_eq!(std::fs::read_to_string(&old).unwrap(), "an earlier result");
    // What was cut off while it looked whether the file can be made leaves it empty.
    assert!(std::fs::read(&new).map_or(true, |left| left.is_empty()));
}

/// The first page has a row for each change, and fits a terminal.
#[test]
fn without_a_verb_each_change_has_a_row() {
    let output = coreline(&[]).env("LC_ALL", "C").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.is_ascii() && text.lines().count() <= 50, "{text}");
    assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    for change in ["recent-ids", "notify-bit", "constructed-objects", "test-first", "numa-queue"] {
        assert!(text.contains(&format!("\n  {change}: ")), "{text}");
    }
    assert!(text.contains(" of 5 published figures are reached in size"), "{text}");
    assert!(text.contains("\na counter ") && text.contains(" PerCpuCounter "), "{text}");
}
