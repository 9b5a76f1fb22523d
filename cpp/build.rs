//! Compiles the C++ half of `tests/beside.rs`, which is linked into the tests.

use std::env;
use std::path::PathBuf;
use std::process::Command;

#[path = "compilers.rs"]
mod compilers;

fn main() {
    println!("cargo::rerun-if-changed=include/coreline/counter.hpp");
    println!("cargo::rerun-if-changed=tests/programs/beside.cpp");
    println!("cargo::rerun-if-env-changed=CXX");
    println!("cargo::rustc-check-cfg=cfg(beside)");
    let is_cross = env::var("TARGET") != env::var("HOST");
    let is_linux = env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux");
    let Some(compiler) = compilers::all().into_iter().next() else { return };
    if is_cross || !is_linux {
        return;
    }
    let object =
        PathBuf::from(env::var_os("OUT_DIR").expect("cargo names a folder")).join("beside.o");
    let mut compile = Command::new(&compiler);
    compile.args(["-std=c++17", "-O2", "-fPIC", "-fno-exceptions", "-Iinclude", "-c"]);
    compile.arg("tests/programs/beside.cpp").arg("-o").arg(&object);
    let status = compile.status();
    assert!(status.is_ok_and(|status| status.success()), "{compile:?} failed");
    println!("cargo::rustc-link-arg-tests={}", object.display());
    println!("cargo::rustc-cfg=beside");
}
