//! A container whose sysfs names other CPUs than those that the scheduler gives.

use std::ffi::CString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::{env, fs, process, ptr};

use coreline::call::Workers;
use coreline::object::ObjectCache;
use coreline::percpu::Word64;
use coreline::world::{Native, Place, Threads};
use coreline::{CpuId, CpuSet, PerCpu, PerCpuCounter};

use crate::os::{pin, run_on};

/// In the environment of the process to which CPU 0 is the only one that sysfs names.
const HIDDEN: &str = "CORELINE_TEST_HIDDEN";
const ONE: &str = "0\n";

/// Gives the calling process files of its own in the place of those that name CPUs.
fn mask(file: &CString, masked: &[CString]) -> io::Result<()> {
    let done = |result: i32| match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    };
    let (none, flags) = (ptr::null(), libc::MS_REC | libc::MS_PRIVATE);
    // SAFETY: system calls with strings that are live; they change the caller's own mounts.
    unsafe {
        if libc::unshare(libc::CLONE_NEWNS) != 0 {
            done(libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS))?;
        }
        done(libc::mount(none, c"/".as_ptr(), none, flags, ptr::null()))?;
        for path in masked {
            let (from, to) = (file.as_ptr(), path.as_ptr());
            done(libc::mount(from, to, none, libc::MS_BIND, ptr::null()))?;
        }
    }
    Ok(())
}

/// Runs the test of this name again in a process with such files, which calls `there`. Or why it
/// could not.
fn where_sysfs_names_cpu_0_alone(name: &str, there: impl Fn()) -> Result<(), String> {
    if env::var_os(HIDDEN).is_some() {
        assert_eq!(fs::read_to_string("/sys/devices/system/cpu/online").unwrap(), ONE);
        there();
        return Ok(());
    }
    if Native::allowed().last().is_none_or(|last| last.get() == 0) {
        return Err("this process may use CPU 0 alone".to_owned());
    }
    let file = env::temp_dir().join(format!("coreline-hidden-{}-{name}", process::id()));
    fs::write(&file, ONE).unwrap();
    let from = CString::new(file.to_str().unwrap()).unwrap();
    let masked = ["online", "possible", "present"]
        .map(|name| CString::new(format!("/sys/devices/system/cpu/{name}")).unwrap());
    let mut again = Command::new(env::current_exe().unwrap());
    again.arg(name).env(HIDDEN, "1");
    // SAFETY: makes system calls only, between fork and exec.
    unsafe { again.pre_exec(move || mask(&from, &masked)) };
    let output = again.output();
    fs::remove_file(file).unwrap();
    let output = output.map_err(|error| format!("this process may mount nothing: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    Ok(())
}

#[expect(clippy::print_stderr, reason = "a test that cannot run says so")]
fn check(name: &str, there: impl Fn()) {
    if let Err(why) = where_sysfs_names_cpu_0_alone(name, there) {
        eprintln!("did not run: {why}");
    }
}

#[test]
fn cpus_that_sysfs_does_not_name_have_slots_and_workers() {
    check("cpus_that_sysfs_does_not_name", || {
        let allowed = Native::allowed();
        let tree = Native::topology();
        assert!(allowed.iter().all(|cpu| tree.cpu(cpu).is_some()), "{allowed} beside {tree:?}");
        let workers = Workers::new().unwrap();
        assert_eq!(workers.cpus().collect::<CpuSet>(), allowed);
        drop(workers);
        has_slots_on(allowed.last().unwrap());
    });
}

#[test]
fn a_thread_that_is_moved_to_a_cpu_that_sysfs_does_not_name_has_slots() {
    check("a_thread_that_is_moved", || {
        let allowed = Native::allowed();
        let [first, last] = [allowed.first().unwrap(), allowed.last().unwrap()];
        if first == last {
            return;
        }
        // The first thread, too: the tree is read while nothing but sysfs tells of another CPU.
        assert!(run_on(first.index()) && pin(process::id().cast_signed(), first.index()));
        assert!(Native::topology().cpu(last).is_none());
        has_slots_on(last);
    });
}

fn has_slots_on(cpu: CpuId) {
    assert!(run_on(cpu.index()));
    assert_eq!(Native::cpu(), cpu);
    // An addition whose CPU has no slot is done in the shared one, as is every one behind it.
    let words = PerCpu::new(|| Word64::new(0)).unwrap();
    words.add(1);
    assert_eq!(words.populated(), cpu.index() + 1);
    let counter = PerCpuCounter::new().unwrap();
    (0..300).for_each(|_| counter.add(1));
    assert!(counter.is_spread());
    let cache = ObjectCache::<u64>::builder("hidden").build(|| Ok::<_, io::Error>(7)).unwrap();
    (0..100).for_each(|_| drop(cache.get().unwrap()));
    let stats = cache.stats();
    assert!(stats.depot_trips() < 10, "{stats:?}");
}
