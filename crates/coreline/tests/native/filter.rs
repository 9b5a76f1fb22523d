//! System-call filters and limits for tests; `native`, `native_filtered` and `native_exhausted`
//! share them.
//!
//! A filter stays with its process, so each case is a process.

use super::os;

/// Runs the test of this name again as a child, unless this is the child.
pub(crate) fn in_a_child(test: &str, body: fn()) {
    in_a_child_with(test, None, body);
}

/// As [`in_a_child`], with `GLIBC_TUNABLES` set.
pub(crate) fn in_a_child_with(test: &str, tunables: Option<&str>, body: fn()) {
    if os::is_again() {
        return body();
    }
    os::pass(os::again(test).envs(tunables.map(|value| ("GLIBC_TUNABLES", value))));
}

/// From here on, the kernel refuses this call to all threads of the process.
pub(crate) fn refuse(call: libc::c_long) {
    answer(call, None, libc::EPERM);
}

/// From here on, this call does nothing in any thread of the process and fails with this error, or,
/// if that is 0, returns 0. Where an argument is named, only calls in which that one is not 0.
pub(crate) fn answer(call: libc::c_long, argument: Option<u32>, error: libc::c_int) {
    put_up(call, argument, libc::SECCOMP_RET_ERRNO | error.cast_unsigned());
}

/// From here on, this call does nothing in any thread of the process, and raises `SIGSYS`, whose
/// handler can count it.
#[allow(dead_code, reason = "not each program counts calls")]
pub(crate) fn trap(call: libc::c_long) {
    put_up(call, None, libc::SECCOMP_RET_TRAP);
}

fn put_up(call: libc::c_long, argument: Option<u32>, answer: u32) {
    let statement =
        |code: u32, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf, k };
    let verdict = libc::BPF_RET | libc::BPF_K;
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let mut filter = [
        // What a filter is shown begins with the call's number, which is never 0 here; the
        // arguments are double words from byte 16 on.
        statement(load, 0, 0),
        statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 3, u32::try_from(call).unwrap()),
        statement(load, 0, argument.map_or(0, |number| 16 + 8 * number)),
        statement(libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K, 1, 0),
        statement(verdict, 0, answer),
        statement(verdict, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: 6, filter: filter.as_mut_ptr() };
    // SAFETY: the program and its statements are live, and the kernel copies them.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let (operation, flags) = (libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_TSYNC);
        let put_up = libc::syscall(libc::SYS_seccomp, operation, flags, &raw const program);
        assert_eq!(put_up, 0, "{}", std::io::Error::last_os_error());
    }
}

/// No more than this of a resource from here on; returns how much was allowed before.
pub(crate) fn limit(resource: impl Into<i64>, most: u64) -> u64 {
    let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // By number, as C libraries do not agree on the type of a resource.
    let resource = resource.into();
    // SAFETY: both are live for what the kernel does with them.
    unsafe {
        let none = core::ptr::null::<libc::rlimit>();
        let asked = libc::syscall(libc::SYS_prlimit64, 0, resource, none, &raw mut before);
        let limit = libc::rlimit { rlim_cur: most, ..before };
        let none = core::ptr::null_mut::<libc::rlimit>();
        let set = libc::syscall(libc::SYS_prlimit64, 0, resource, &raw const limit, none);
        assert_eq!((asked, set), (0, 0));
    }
    before.rlim_cur
}
