//! The commands that this package's README.md gives.

use crate::output;

const README: &str = include_str!("../../README.md");

/// The commands, without the program's name.
fn commands() -> impl Iterator<Item = Vec<&'static str>> {
    let commands = README.lines().filter_map(|line| line.strip_prefix("coreline "));
    commands.map(|command| command.split(' ').collect())
}

#[test]
fn each_command_does_what_it_says() {
    for command in commands() {
        let output = output(&command);
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command:?}: {complaint}");
        assert!(!output.stdout.is_empty(), "{command:?}");
    }
    assert_eq!(commands().count(), 3);
}

#[test]
fn the_package_that_is_installed_is_this_one() {
    let installs = format!("\ncargo install {}\n", env!("CARGO_PKG_NAME"));
    assert!(README.contains(&installs), "no line {installs:?}");
}
