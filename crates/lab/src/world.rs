//! The worlds that `--world` names.

use std::ffi::OsStr;
use std::path::Path;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Arg, Command};
use coreline_sim::{Spec, presets};

use crate::error::Error;

/// The world that a scenario runs in.
#[derive(Debug, Clone)]
pub(crate) enum World {
    /// This machine.
    Native,
    /// A simulated machine, and the name by which the user chose it.
    Simulated { spec: Box<Spec>, asked: String },
}

impl World {
    pub(crate) fn preset(name: &str) -> Result<World, Error> {
        let spec = Spec::preset(name).map_err(Error::Machine)?;
        Ok(World::Simulated { spec: Box::new(spec), asked: name.to_owned() })
    }

    /// The world's name in results: `native`, or the machine's own name.
    pub(crate) fn name(&self) -> &str {
        match self {
            World::Native => "native",
            World::Simulated { spec, .. } => spec.name(),
        }
    }

    /// The name that the user gave.
    pub(crate) fn asked(&self) -> &str {
        match self {
            World::Native => "native",
            World::Simulated { asked, .. } => asked,
        }
    }
}

/// A machine by the name of a preset, or else by the path of its file.
///
/// A name that is neither is answered as a misspelt preset, unless it looks like a path.
pub(crate) fn machine(asked: &str) -> Result<Spec, Error> {
    let path = Path::new(asked);
    let looks_like_a_path =
        asked.contains('/') || path.extension().is_some_and(|end| end == "toml");
    if presets().any(|preset| preset == asked) || !(looks_like_a_path || path.is_file()) {
        return Spec::preset(asked).map_err(Error::Machine);
    }
    Spec::from_file(path).map_err(Error::MachineFile)
}

/// For clap: a reader of words that may be a machine's name, so that shells can complete them.
#[derive(Clone)]
struct Named<P> {
    read: P,
    /// Names beside those of presets.
    more: &'static [&'static str],
}

/// Of `--world`.
pub(crate) fn worlds() -> impl TypedValueParser<Value = World> {
    Named { read: parse as fn(&str) -> Result<World, Error>, more: &["native"] }
}

/// Parses the name of a machine, and reads the machine file immediately.
pub(crate) fn specs() -> impl TypedValueParser<Value = Spec> {
    Named { read: machine as fn(&str) -> Result<Spec, Error>, more: &[] }
}

/// Parses the name of a machine whose file is read later.
pub(crate) fn machine_names() -> impl TypedValueParser<Value = String> {
    Named { read: StringValueParser::new(), more: &[] }
}

impl<P: TypedValueParser> TypedValueParser for Named<P> {
    type Value = P::Value;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        value: &OsStr,
    ) -> Result<P::Value, clap::Error> {
        self.read.parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.more.iter().copied().chain(presets()).map(PossibleValue::new)))
    }
}

/// Reads `--world`, for clap, which prints the error with its usage.
fn parse(asked: &str) -> Result<World, Error> {
    if asked == "native" {
        return Ok(World::Native);
    }
    let spec = machine(asked)?;
    Ok(World::Simulated { spec: Box::new(spec), asked: asked.to_owned() })
}
