//! What can go wrong in a developer command.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("cannot start `{command}`: {source}; it must be on the PATH")]
    Start { command: String, source: io::Error },

    #[error("`{command}` ended with {status}")]
    Failed { command: String, status: ExitStatus },

    #[error("cannot read {path}: {source}")]
    Read { path: PathBuf, source: io::Error },

    #[error("cannot write {path}: {source}")]
    Write { path: PathBuf, source: io::Error },

    #[error("`cargo metadata` gave no {what}: this xtask does not know the format of this cargo")]
    Metadata { what: &'static str },

    #[error("README.md has no command under \"## Test\"; CI runs the first fenced block there")]
    NoTestCommand,

    #[error(
        "{file} has no block ```toml that begins with [dependencies] or [dev-dependencies]; its \
         reader needs one"
    )]
    NoDependencies { file: &'static str },

    #[error(
        "not compiled with Rust {version}; if it is not there, `rustup toolchain install {version} \
         --profile minimal`; if the code needs a later one, say so by `rust-version`, and in \
         CHANGELOG.md"
    )]
    Rust { version: String },

    #[error("the installed program says {said:?}, and not {expected:?}")]
    Installed { said: String, expected: String },

    #[error("CI has no step {asked:?}; it has {all}")]
    NoStep { asked: String, all: String },

    #[error("there is no made-up host {asked:?}; there are {all}")]
    NoHost { asked: String, all: String },

    #[error("there is no pair {asked:?}; there are {all}")]
    NoPair { asked: String, all: String },

    #[error("tests failed on made-up hosts; the same program runs here by its path:\n  {0}")]
    Hosts(String),

    #[error("the step {step} failed: {source}")]
    Step { step: &'static str, source: Box<Error> },

    #[error("tidy: {0} findings; `cargo xtask tidy --list` explains the rules")]
    Untidy(usize),

    #[error("{0} links of the pages that rustdoc made lead nowhere")]
    Links(usize),

    #[error("no assembler text named fastpaths-*.s in {0}; was the program built?")]
    NoListing(PathBuf),

    #[error("the assembler text has no function {0}; fastpaths must define it with no_mangle")]
    NoFunction(String),

    #[error("golden: {0} fast paths are not what hand-written code compiles to")]
    Unequal(usize),

    #[error(
        "golden: the instruction counts are not those of {0}; if the change is meant, run \
         `cargo xtask golden --bless` and say in the commit why"
    )]
    Counts(PathBuf),

    #[error(
        "{file} has no lines `<!-- figures ... -->` and `<!-- end of figures -->`; add them where \
         the figures belong"
    )]
    NoPlaceForFigures { file: &'static str },

    #[error("coreline-rivals gave no row {name} with {threads} threads")]
    NoFigure { name: String, threads: u64 },

    #[error("{}:{line}: {what}", .page.display())]
    Table { page: PathBuf, line: usize, what: String },

    #[error(
        "{} has no table that a command makes; a block begins with a comment `table: COMMAND | \
         ...`, see xtask/src/tables/spec.rs",
        .page.display()
    )]
    NoTable { page: PathBuf },

    #[error("`{command} --json` gave no result of the schema coreline.run/2")]
    NotAResult { command: String },

    #[error("cbindgen cannot make a header of crates/capi/src: {0}")]
    Bindings(String),

    #[error("not as `cargo xtask header` generates them: {}; run the command", .0.join(", "))]
    Header(Vec<String>),

    #[error("{what} is not there; {remedy}")]
    Missing { what: String, remedy: String },

    #[error("{name} has {bytes} bytes, which an initramfs cannot hold")]
    TooLarge { name: String, bytes: usize },

    #[error("{cpus} CPUs on {nodes} nodes: each node needs the same number of CPUs, at least one")]
    Shape { cpus: u32, nodes: u32 },

    #[error(
        "the guest said nothing for {} s; its kernel may hang, or --limit be too short",
        .0.as_secs()
    )]
    Silent(Duration),

    #[error("the guest stopped before it had run everything; its last lines say why")]
    Stopped,

    #[error("not passed in the guest: {0}")]
    Guest(String),
}
