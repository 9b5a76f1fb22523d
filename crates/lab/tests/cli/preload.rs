//! The verb `preload`.

use std::path::{Path, PathBuf};
use std::{env, fs};

use crate::{coreline, file, refusal};

/// Beside the tests, where cargo builds it before them.
fn library() -> PathBuf {
    let library = env::current_exe().unwrap().with_file_name("libcoreline_pthread.so");
    assert!(library.exists(), "{} was not built", library.display());
    library
}

fn arguments<'a>(library: &'a Path, more: &[&'a str]) -> Vec<&'a str> {
    [&["preload", "--library", library.to_str().unwrap()], more].concat()
}

#[test]
fn a_program_runs_with_the_library_before_others() {
    let library = library();
    let printed = |more: &[&str], before: Option<&str>| {
        let mut command = coreline(&arguments(&library, more));
        command.env_remove("LD_PRELOAD").env_remove("CORELINE_PRELOAD_STATS");
        before.inspect(|before| _ = command.env("LD_PRELOAD", before));
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(7), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let show = "echo \"$LD_PRELOAD ${CORELINE_PRELOAD_STATS-none} $1\"; exit 7";
    let ours = library.canonicalize().unwrap().display().to_string();
    let program = ["sh", "-c", show, "sh", "--quick"];
    let with = |options: &[&'static str]| [options, &program].concat();
    assert_eq!(printed(&with(&["--"]), None), format!("{ours} none --quick\n"));
    assert_eq!(printed(&with(&[]), Some("")), format!("{ours} none --quick\n"));
    let twice = printed(&with(&["--stats"]), Some(&ours));
    assert_eq!(twice, format!("{ours}:{ours} - --quick\n"));
    let to_file = printed(&with(&["--stats=a b"]), None);
    let file = env::current_dir().unwrap().join("a b").display().to_string();
    assert_eq!(to_file, format!("{ours} {file} --quick\n"));
}

#[test]
fn what_cannot_work_is_refused() {
    let library = library();
    let text = file("no-library.so", "text");
    let spaced = Path::new(env!("CARGO_TARGET_TMPDIR")).join("a library.so");
    fs::copy(&library, &spaced).unwrap();
    for (arguments, what) in [
        (
            arguments(Path::new("no/such.so"), &["true"]),
            "cargo build --release -p coreline-preload",
        ),
        (arguments(&text, &["true"]), "no-library.so is not a library"),
        (arguments(&spaced, &["true"]), "a space or a colon"),
        (arguments(&library, &["no-such-program"]), "there is no program no-such-program"),
        (arguments(&library, &["./no/such"]), "there is no program ./no/such"),
        (vec!["preload"], "PROGRAM"),
    ] {
        let (code, told) = refusal(&arguments);
        assert_eq!(code, 2, "{arguments:?}: {told}");
        assert!(told.contains(what), "{arguments:?}: {told}");
    }
}
