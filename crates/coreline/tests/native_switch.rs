//! `CORELINE_RSEQ` in the environment. The choice is made once per process, so each case is a
//! process: this program again, with one test asked for.
#![cfg(all(target_os = "linux", not(feature = "portable")))]

#[path = "native/os.rs"]
mod os;

use coreline::percpu::Word64;
use coreline::{IndexBy, PerCpu};
use coreline_world::native::{self, NoSections};
use coreline_world::{Fences, Native, Place};

/// Runs the test of this name again with the variable set, unless this is that run already.
fn with_switch(value: &str, test: &str, body: fn()) {
    if os::is_again() {
        return body();
    }
    os::pass(os::again(test).env("CORELINE_RSEQ", value));
}

#[test]
fn off_means_atomics() {
    with_switch("off", "off_means_atomics", || {
        assert_eq!(native::probe().sections, Err(NoSections::SwitchedOff));
        let words = PerCpu::<Word64>::words(IndexBy::Cpu).unwrap();
        assert!(!words.section().is_rseq());
        for _ in 0..1_000 {
            words.add(1);
        }
        assert_eq!(words.sum(), 1_000);
        assert!(Native::fence_restartable().is_ok());
        assert!(Native::cpu().index() < Native::topology().cpu_limit());

        assert_eq!(Native::kernel_cid(), None);
        let error = PerCpu::<Word64>::words(IndexBy::KernelCid).unwrap_err();
        assert!(error.to_string().contains("CORELINE_RSEQ=off"), "{error}");
    });
}

#[test]
fn other_values_are_reported_and_do_nothing() {
    with_switch("on", "other_values_are_reported_and_do_nothing", || {
        let machine = native::probe();
        assert_eq!(machine.switch.as_deref(), Some("on"));
        assert_ne!(machine.sections, Err(NoSections::SwitchedOff));
    });
}
