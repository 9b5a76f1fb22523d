//! What the library has, in a few operations: small enough for Miri, which looks for undefined
//! behaviour in all that is not assembly (`cargo +nightly miri test -p coreline --test small`, with
//! `MIRIFLAGS=-Zmiri-disable-isolation`). There operations run on atomics.

mod calls;
mod locks;
mod memory;
