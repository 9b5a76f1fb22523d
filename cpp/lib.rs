//! Tests of the C++ header `include/coreline/counter.hpp`, which needs no part of this workspace.
//!
//! `cargo test -p coreline-cpp` compiles the programs of `tests/programs` with the C++ compilers
//! that are installed: `CXX`, or else `g++` or `c++`, and `clang++`. Without one, tests say on
//! standard error that they were skipped.
