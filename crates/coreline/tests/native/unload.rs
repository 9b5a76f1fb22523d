//! A library with coreline inside that is loaded and unloaded while threads have used it.

use std::env;
use std::ffi::{CStr, CString, c_void};
use std::sync::Barrier;
use std::thread;

use coreline_world::native;

use crate::os;

const ROUNDS: usize = 10;
const THREADS: usize = 4;

type Use = extern "C" fn(bool);
type Lost = extern "C" fn() -> u64;

/// The library, which cargo builds with this program, and puts beside it.
fn plugin() -> CString {
    let program = env::current_exe().unwrap();
    let plugin = program.with_file_name("libcoreline_plugin.so");
    CString::new(plugin.into_os_string().into_encoded_bytes()).unwrap()
}

fn open(plugin: &CStr, flags: i32) -> *mut c_void {
    // SAFETY: the library's constructors are those of Rust's runtime.
    unsafe { libc::dlopen(plugin.as_ptr(), libc::RTLD_NOW | flags) }
}

fn symbol(library: *mut c_void, name: &CStr) -> *mut c_void {
    // SAFETY: the library is open.
    let symbol = unsafe { libc::dlsym(library, name.as_ptr()) };
    assert!(!symbol.is_null(), "{name:?} is not in the library");
    symbol
}

/// Threads use the library, it is closed, they run on, and end.
fn load_use_and_unload() {
    let plugin = plugin();
    for round in 0..ROUNDS {
        let library = open(&plugin, 0);
        assert!(!library.is_null(), "cannot load {plugin:?}");
        let (used, closed) = (Barrier::new(THREADS + 1), Barrier::new(THREADS + 1));
        // SAFETY: these are the types that the library gives them.
        let (use_it, lost) = unsafe {
            let use_it = symbol(library, c"coreline_plugin_use");
            let lost = symbol(library, c"coreline_plugin_lost");
            (
                std::mem::transmute::<*mut c_void, Use>(use_it),
                std::mem::transmute::<*mut c_void, Lost>(lost),
            )
        };
        // Asserted once the threads have gone: until then they wait at a barrier.
        let (lost, closing) = thread::scope(|scope| {
            let threads = [(); THREADS].map(|()| {
                scope.spawn(|| {
                    use_it(round % 2 == 1);
                    used.wait();
                    closed.wait();
                    // The kernel looks where this thread was in a section before.
                    (0..3).for_each(|_| thread::yield_now());
                })
            });
            used.wait();
            let lost = lost();
            // SAFETY: nothing calls into the library any more, but what it left behind in threads.
            let closing = unsafe { libc::dlclose(library) };
            closed.wait();
            // Until they have run what the library left behind: a scope does not wait for that, and
            // the next round counts what they add then.
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            (lost, closing)
        });
        assert_eq!((lost, closing), (0, 0));
        let stays = open(&plugin, libc::RTLD_NOLOAD);
        assert!(!stays.is_null() || native::probe().sections.is_err(), "sections were unmapped");
        if !stays.is_null() {
            // SAFETY: nothing calls into the library; this gives back what `open` took just now.
            assert_eq!(unsafe { libc::dlclose(stays) }, 0);
        }
    }
}

#[test]
fn a_library_may_be_unloaded_while_threads_live_that_used_it() {
    const NAME: &str = "unload::a_library_may_be_unloaded_while_threads_live_that_used_it";
    if os::is_again() {
        return load_use_and_unload();
    }
    for variable in ["", "GLIBC_TUNABLES=glibc.pthread.rseq=0", "CORELINE_RSEQ=off"] {
        os::pass(os::again(NAME).envs(variable.split_once('=')));
    }
}
