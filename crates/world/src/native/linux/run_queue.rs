//! The time for which a thread waited for a CPU, which shows whether a measurement was disturbed.

/// The kernel's account of the thread that reads it
/// (`Documentation/scheduler/sched-stats.rst`).
const SCHEDSTAT: &str = "/proc/thread-self/schedstat";

/// Returns the nanoseconds for which the calling thread has waited on run queues since it started.
///
/// Returns `None` if the kernel keeps no such figure, or does not show it.
///
/// The function opens and reads a file, and is not async-signal-safe.
pub fn run_queue_wait() -> Option<u64> {
    waited(&std::fs::read_to_string(SCHEDSTAT).ok()?)
}

/// The time on run queues in the text of a thread's `schedstat`, in nanoseconds.
///
/// `None` if the text is something else, or of a kernel that was told to keep no figures: it shows
/// zeros, though the thread that reads this has been run at least once.
fn waited(schedstat: &str) -> Option<u64> {
    let figures: Result<Vec<u64>, _> = schedstat.split_ascii_whitespace().map(str::parse).collect();
    match *figures.ok()? {
        [_, _, 0] => None,
        [_, waited, _] => Some(waited),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_figure_is_the_wait() {
        assert_eq!(waited("631287 5000 7\n"), Some(5000));
        assert_eq!(waited("631287 0 1\n"), Some(0));
    }

    #[test]
    fn what_is_no_schedstat_says_nothing() {
        for text in
            ["", "0 0 0\n", "1 2", "1 2 3 4", "1 -2 3", "1 two 3", "99999999999999999999 2 3"]
        {
            assert_eq!(waited(text), None, "{text:?}");
        }
    }

    #[test]
    fn waits_only_grow() {
        let before = run_queue_wait();
        let after = run_queue_wait();
        assert!(before <= after, "{before:?}, then {after:?}");
    }
}
