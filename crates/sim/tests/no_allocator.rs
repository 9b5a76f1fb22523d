//! A program without the machine's allocator is told so before it runs.

use coreline_sim::{FailureKind, Machine};

#[test]
fn a_machine_does_not_start_without_its_allocator() {
    let run = || Machine::preset("host-2c").unwrap().run(|| unreachable!("it does not start"));
    // Each time, not only the first.
    for _ in 0..2 {
        let failure = run().map(|run: coreline_sim::Run<()>| run.value).unwrap_err();
        assert_eq!(failure.kind, FailureKind::NoAllocator);
        let text = failure.to_string();
        for part in [
            "coreline_sim::Allocator is not the global allocator; add these two lines",
            "\n#[global_allocator]\n\
             static ALLOCATOR: coreline_sim::Allocator = coreline_sim::Allocator;\n",
        ] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
    }
}
