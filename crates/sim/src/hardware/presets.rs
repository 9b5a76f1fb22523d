//! The machine files that the crate contains, and the errors of machine files.

use std::path::PathBuf;

/// The machines that come with the crate: name and file.
pub(crate) const PRESETS: &[(&str, &str)] = &[
    ("epyc-9654-2s", include_str!("../../machines/epyc-9654-2s.toml")),
    ("epyc-9754-2s", include_str!("../../machines/epyc-9754-2s.toml")),
    ("epyc-7003-2s", include_str!("../../machines/epyc-7003-2s.toml")),
    ("epyc-7r13-2s", include_str!("../../machines/epyc-7r13-2s.toml")),
    ("kunpeng920-96c-4n", include_str!("../../machines/kunpeng920-96c-4n.toml")),
    ("ivybridge-ep-2s", include_str!("../../machines/ivybridge-ep-2s.toml")),
    ("ivybridge-ex-4s", include_str!("../../machines/ivybridge-ex-4s.toml")),
    ("ivybridge-ex-8s", include_str!("../../machines/ivybridge-ex-8s.toml")),
    ("haswell-ex-4s", include_str!("../../machines/haswell-ex-4s.toml")),
    ("skylake-2s", include_str!("../../machines/skylake-2s.toml")),
    ("sapphire-rapids-2s", include_str!("../../machines/sapphire-rapids-2s.toml")),
    ("power8-16s", include_str!("../../machines/power8-16s.toml")),
    ("x86-128c-8n", include_str!("../../machines/x86-128c-8n.toml")),
    ("arm64-2x64c", include_str!("../../machines/arm64-2x64c.toml")),
    ("desktop-12c", include_str!("../../machines/desktop-12c.toml")),
    ("host-2c", include_str!("../../machines/host-2c.toml")),
    ("host-2c-xeon", include_str!("../../machines/host-2c-xeon.toml")),
];

/// Returns the names of the presets.
pub fn presets() -> impl Iterator<Item = &'static str> {
    PRESETS.iter().map(|(name, _)| *name)
}

/// An error in a machine file, or in the name of a preset.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// There is no preset with this name.
    #[error(
        "there is no machine {name:?}; the presets are {}",
        presets().collect::<Vec<_>>().join(", ")
    )]
    NoPreset {
        /// The requested name.
        name: String,
    },
    /// A replay line is for a machine from a user's own file.
    #[error(
        "the machine {name:?} comes from a file with the digest {digest:016x}; load that file \
         by `Machine::from_file` and use `Machine::replaying`, or `--world FILE`"
    )]
    OwnFile {
        /// The machine's name.
        name: String,
        /// The digest of the machine's file.
        digest: u64,
    },
    /// The file could not be read.
    #[error("cannot read the machine file {}: {why}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        why: String,
    },
    /// The file is not TOML, a key is unknown, or a key is missing.
    #[error("the machine file {file} is malformed: {why}")]
    Malformed {
        /// The file or preset.
        file: String,
        /// The position of the mistake in the file, and the reason.
        why: String,
    },
    /// A value is missing, unknown or out of range.
    #[error("in the machine file {file}, {key}: {why}")]
    Value {
        /// The file or preset.
        file: String,
        /// The key.
        key: String,
        /// The reason why the value is wrong.
        why: String,
    },
}
