//! Names the shared library, so that a program loads only a version that it can use, and keeps it
//! loaded: locks in the memory of programs refer to tables in the library.

use std::env;

fn main() {
    let part = |name: &str| env::var(format!("CARGO_PKG_VERSION_{name}")).expect("cargo sets it");
    let (major, minor) = (part("MAJOR"), part("MINOR"));
    // Before 1.0, each minor version may break programs.
    let version = if major == "0" { format!("0.{minor}") } else { major };
    println!("cargo::rerun-if-changed=build.rs");
    // Other linkers know no such name, and the library is for Linux.
    if env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcoreline.so.{version}");
        println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
}
