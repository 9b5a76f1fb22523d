//! There are no publications: std does not know which processes still run.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::{ON_LINUX, lacking};
use crate::Lacking;
use crate::native::found::Found;

pub(crate) fn folder() -> Result<PathBuf, Lacking> {
    Err(lacking("publication", ON_LINUX))
}

pub(crate) fn folders() -> Vec<PathBuf> {
    Vec::new()
}

// No folder, so these are not called.

pub(crate) fn own(_: &Path) -> io::Result<()> {
    Err(ErrorKind::Unsupported.into())
}

pub(crate) fn in_folder(_: &Path) -> io::Result<Vec<Found>> {
    Err(ErrorKind::Unsupported.into())
}

pub(crate) fn name() -> io::Result<String> {
    Err(ErrorKind::Unsupported.into())
}

pub(crate) fn may_have(_: u64) -> io::Result<()> {
    Err(ErrorKind::Unsupported.into())
}

pub(crate) fn is_removed(_: &File) -> io::Result<bool> {
    Err(ErrorKind::Unsupported.into())
}

pub(crate) fn open(_: &Path, _: u32) -> io::Result<File> {
    Err(ErrorKind::Unsupported.into())
}

pub(crate) fn create(_: &Path) -> io::Result<File> {
    Err(ErrorKind::Unsupported.into())
}
