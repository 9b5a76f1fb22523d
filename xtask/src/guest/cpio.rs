//! An archive in cpio's "newc" form, which the kernel unpacks as its first file system.
//!
//! Source: the kernel's Documentation/driver-api/early-userspace/buffer-format.rst. A header is the
//! magic number and thirteen fields of eight hexadecimal digits; header and name together, and
//! contents, are padded to four bytes.

use std::collections::BTreeSet;
use std::path::Path;

use crate::error::Error;

const FOLDER: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;

/// The name of the entry that ends an archive.
const TRAILER: &str = "TRAILER!!!";

#[derive(Debug, Default)]
pub(crate) struct Archive {
    bytes: Vec<u8>,
    folders: BTreeSet<String>,
    entries: u32,
}

impl Archive {
    /// Adds a folder, and those that it lies in. Paths are relative to the archive's root; a slash
    /// in front is ignored.
    pub(crate) fn folder(&mut self, path: &Path) -> Result<(), Error> {
        let outermost_first: Vec<_> = path.ancestors().collect();
        for folder in outermost_first.into_iter().rev() {
            let name = name(folder);
            if !name.is_empty() && self.folders.insert(name.clone()) {
                self.entry(&name, FOLDER, &[])?;
            }
        }
        Ok(())
    }

    /// Adds a file that all users may read and run, and the folders that it lies in.
    pub(crate) fn file(&mut self, path: &Path, contents: &[u8]) -> Result<(), Error> {
        if let Some(folder) = path.parent() {
            self.folder(folder)?;
        }
        self.entry(&name(path), PROGRAM, contents)
    }

    /// The whole archive.
    pub(crate) fn finish(mut self) -> Result<Vec<u8>, Error> {
        self.entry(TRAILER, 0, &[])?;
        Ok(self.bytes)
    }

    fn entry(&mut self, name: &str, mode: u32, contents: &[u8]) -> Result<(), Error> {
        let too_large = |_| Error::TooLarge { name: name.to_owned(), bytes: contents.len() };
        let size = u32::try_from(contents.len()).map_err(too_large)?;
        let name_size = u32::try_from(name.len() + 1).map_err(too_large)?;
        self.entries += 1;
        // Inode, mode, owner, group, links, time of change, size; numbers of the device that it
        // lies on and of the device that it is, two each; size of the name; check sum, unused.
        let fields = [self.entries, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name_size, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(contents);
        self.pad();
        Ok(())
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

/// The path as the archive writes it.
fn name(path: &Path) -> String {
    path.to_string_lossy().trim_matches('/').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads an archive as the kernel does: names, modes and contents.
    fn entries(mut bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let mut entries = Vec::new();
        loop {
            assert_eq!(bytes[..6], *b"070701");
            let field = |at: usize| {
                let digits = str::from_utf8(&bytes[6 + 8 * at..][..8]).expect("digits");
                u32::from_str_radix(digits, 16).expect("hexadecimal digits")
            };
            let (mode, size, name_size) = (field(1), field(6) as usize, field(11) as usize);
            let name = String::from_utf8_lossy(&bytes[110..110 + name_size - 1]).into_owned();
            assert_eq!(bytes[110 + name_size - 1], 0);
            let start = (110 + name_size).next_multiple_of(4);
            let contents = bytes[start..start + size].to_vec();
            bytes = &bytes[(start + size).next_multiple_of(4)..];
            if name == TRAILER {
                assert!(bytes.is_empty());
                return entries;
            }
            entries.push((name, mode, contents));
        }
    }

    #[test]
    fn what_was_put_in_comes_out_after_its_folders() {
        let mut archive = Archive::default();
        for length in 0..6 {
            let contents = vec![7; length];
            archive.file(Path::new(&format!("/a/b/f{length}")), &contents).expect("small");
        }
        archive.folder(Path::new("proc")).expect("small");
        archive.folder(Path::new("/a")).expect("small");
        let entries = entries(&archive.finish().expect("small"));
        let names: Vec<_> = entries.iter().map(|entry| entry.0.as_str()).collect();
        let expected = ["a", "a/b", "a/b/f0", "a/b/f1", "a/b/f2", "a/b/f3", "a/b/f4", "a/b/f5"];
        assert_eq!(names, [&expected[..], &["proc"]].concat());
        for (name, mode, contents) in &entries {
            let file = name.strip_prefix("a/b/f");
            assert_eq!(*mode, if file.is_some() { PROGRAM } else { FOLDER }, "{name}");
            let length = file.map_or(0, |length| length.parse().expect("a number"));
            assert_eq!(*contents, vec![7; length], "{name}");
        }
    }

    #[test]
    fn an_empty_archive_is_its_trailer() {
        assert_eq!(entries(&Archive::default().finish().expect("small")), []);
    }
}
