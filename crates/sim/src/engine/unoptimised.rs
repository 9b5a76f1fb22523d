//! The warning of a machine that was built without optimisation.

use std::io::{self, Write};
use std::sync::Once;

/// Why the machine is slow, and what to do about it.
const TEXT: &str = "coreline-sim is built without optimisation, so it is about ten times slower; \
                    add to Cargo.toml:\n";

/// The lines that cure it, which the user's guide has, too.
const PROFILES: &str = r#"[profile.dev]
opt-level = 1

[profile.dev.package."*"]
opt-level = 2
"#;

/// Says it on stderr, once in a process: a test that takes minutes looks like one without an end.
pub(super) fn say() {
    static ONCE: Once = Once::new();
    say_once(&ONCE, &mut io::stderr().lock());
}

fn say_once(once: &Once, out: &mut impl Write) {
    once.call_once(|| {
        // A program without stderr does not need to know.
        _ = write!(out, "{TEXT}{PROFILES}");
    });
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn it_is_said_once_with_the_lines_that_cure_it() {
        let (once, mut out) = (Once::new(), Vec::new());
        for _ in 0..3 {
            say_once(&once, &mut out);
        }
        let out = String::from_utf8(out).unwrap();
        assert_eq!(out.matches("built without optimisation").count(), 1, "{out}");
        assert!(out.ends_with(&format!(" to Cargo.toml:\n{PROFILES}")), "{out}");
    }

    #[test]
    fn the_lines_are_those_of_the_guide_and_profiles() {
        let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/simulating.md");
        let guide = fs::read_to_string(guide).unwrap();
        assert_eq!(guide.matches(PROFILES).count(), 1, "once, on the guide's first page");
        let profiles: toml::Table = toml::from_str(PROFILES).unwrap();
        let dev = &profiles["profile"]["dev"];
        let levels = (&dev["opt-level"], &dev["package"]["*"]["opt-level"]);
        assert_eq!(levels, (&1.into(), &2.into()));
    }
}
