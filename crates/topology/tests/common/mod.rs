//! Folders with the files of a machine, made for one test and removed after it.

#![allow(dead_code, reason = "each test binary uses some of it")]

pub(crate) mod fixture;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Contents of files, by path.
pub(crate) type Files = BTreeMap<String, Vec<u8>>;

/// A folder that is removed at the end of its test.
pub(crate) struct Root {
    path: PathBuf,
    /// The folder in it that the paths of files start from.
    prefix: &'static str,
}

impl Root {
    /// `test` says whose folder it is.
    pub(crate) fn new(test: &str, prefix: &'static str, files: &Files) -> Self {
        // Tests of one process run at once.
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("coreline-topology-{}-{count}-{test}", std::process::id());
        // The largest machine has thousands of files, which take long on some disks.
        let memory = PathBuf::from("/dev/shm");
        let temporary = if memory.is_dir() { memory } else { std::env::temp_dir() };
        let root = Self { path: temporary.join(name), prefix };
        fs::create_dir(&root.path).unwrap();
        for (path, content) in files {
            let path = root.file(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        root
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Where a file lies.
    pub(crate) fn file(&self, path: &str) -> PathBuf {
        self.path.join(self.prefix).join(path)
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        // A failure here would hide the failure of the test.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// The files whose paths do not contain `gone`.
pub(crate) fn without(mut files: Files, gone: &str) -> Files {
    files.retain(|path, _| !path.contains(gone));
    files
}
