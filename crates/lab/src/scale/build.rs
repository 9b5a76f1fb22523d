//! The arguments of `cargo test` that say what is built: a command that repeats a test needs them.

use std::ffi::OsString;

/// Options of a build that have a value.
const WITH_VALUE: [&str; 8] = [
    "-F",
    "--features",
    "--profile",
    "--target",
    "--target-dir",
    "--manifest-path",
    "--config",
    "--lockfile-path",
];

/// Options of a build without a value.
const ALONE: [&str; 5] = ["--all-features", "--no-default-features", "--release", "-r", "--locked"];

/// Those of these arguments. What is behind `--` is for the tests.
pub(super) fn options(arguments: &[OsString]) -> Vec<String> {
    let mut options = Vec::new();
    let words = arguments.iter().map(|word| word.to_string_lossy().into_owned());
    let mut words = words.take_while(|word| word != "--");
    while let Some(word) = words.next() {
        let name = word.split_once('=').map_or(word.as_str(), |(name, _)| name);
        let is_short = word.starts_with("-F") && word.len() > 2;
        if ALONE.contains(&word.as_str()) || is_short || name != word && WITH_VALUE.contains(&name)
        {
            options.push(word);
        } else if WITH_VALUE.contains(&word.as_str()) {
            options.push(word);
            options.extend(words.next());
        }
    }
    options
}

/// The path of the manifest that these arguments name.
pub(super) fn manifest(arguments: &[OsString]) -> Option<String> {
    let options = options(arguments);
    let at = options.iter().position(|word| word.starts_with("--manifest-path"))?;
    match options[at].split_once('=') {
        Some((_, value)) => Some(value.to_owned()),
        None => options.get(at + 1).cloned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn what_is_built_is_kept_and_which_tests_run_is_not() {
        let line = "-p x --features=a,b --test scaling -F c -Fd --release --manifest-path y/z.toml \
                    a_name --config=k -- --features e";
        let kept = "--features=a,b -F c -Fd --release --manifest-path y/z.toml --config=k";
        assert_eq!(options(&words(line)).join(" "), kept);
        assert_eq!(manifest(&words(line)).as_deref(), Some("y/z.toml"));
        assert_eq!(manifest(&words("--manifest-path=y")).as_deref(), Some("y"));
        assert_eq!(manifest(&words("-p x -- --manifest-path y")), None);
        assert_eq!(options(&words("--features")), ["--features"]);
    }
}
