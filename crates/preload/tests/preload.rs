//! C programs, with the library and without it.

#![cfg(all(target_os = "linux", target_env = "gnu"))]

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use std::{env, fs, thread};

/// Beside the tests, where cargo builds it before them.
fn library() -> PathBuf {
    let library = env::current_exe().unwrap().with_file_name("libcoreline_pthread.so");
    assert!(library.exists(), "{} was not built", library.display());
    library
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(name)
}

/// Compiles a C program or library, and returns its path. Each test has names of its own.
fn compile(source_name: &str, name: &str, flags: &[&str]) -> PathBuf {
    let built = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"]).arg(&built);
    cc.arg(source(source_name)).args(flags);
    let output = cc.output().expect("a C compiler, named cc");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    built
}

const SHARED: &[&str] = &["-shared", "-fPIC", "-fno-builtin"];

/// A program, which ends by a signal if it takes a minute, with these libraries before others.
fn run(program: &Path, arguments: &[&str], preloads: &[&Path], stats: bool) -> Output {
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", "60", "env"]);
    if !preloads.is_empty() {
        let preloads: Vec<_> = preloads.iter().map(|path| path.to_str().unwrap()).collect();
        command.arg(format!("LD_PRELOAD={}", preloads.join(":")));
    }
    command.arg(program).args(arguments);
    match stats {
        true => command.env("CORELINE_PRELOAD_STATS", "-"),
        false => command.env_remove("CORELINE_PRELOAD_STATS"),
    };
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The standard output and error of a program that must end well.
fn works(program: &Path, arguments: &[&str], preloads: &[&Path], stats: bool) -> (String, String) {
    let output = run(program, arguments, preloads, stats);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{program:?}: {}\n{out}{err}", output.status);
    (out, err)
}

fn says_ok(program: &Path, arguments: &[&str], preloads: &[&Path]) {
    assert_eq!(works(program, arguments, preloads, false).0, "ok\n");
}

/// The sum of a column of the table of locks.
fn total(stats: &str, column: &str) -> u64 {
    let mut lines = stats.lines().skip_while(|line| !line.starts_with("coreline: ")).skip(1);
    let head = lines.next().expect("a table");
    let end = head.find(column).unwrap() + column.len();
    let cells = lines.take_while(|line| !line.contains("callers"));
    let cell = |line: &str| line[..end].rsplit(' ').next().unwrap().parse::<u64>().unwrap();
    cells.map(cell).sum()
}

/// A package of the system that a test needs, or what the test says if it is not there.
fn has(what: &str, is_there: bool) -> bool {
    if !is_there {
        // Not by a macro, whose text the test runner keeps back.
        let _ = writeln!(io::stderr(), "NOT TESTED: this machine has no {what}");
    }
    is_there
}

#[test]
fn each_call_returns_what_it_returns_from_glibc() {
    let program = compile("conformance.c", "conformance", &[]);
    let (expected, _) = works(&program, &[], &[], false);
    assert!(expected.ends_with("the end\n") && expected.lines().count() > 1_000, "{expected}");
    let (found, _) = works(&program, &[], &[&library()], false);
    let differs = expected.lines().zip(found.lines()).find(|(expected, found)| expected != found);
    assert_eq!(differs, None);
    assert_eq!(expected, found);
    let (found, stats) = works(&program, &[], &[&library()], true);
    assert_eq!(expected, found, "while calls are counted");
    assert!(total(&stats, "biased") > 0 && total(&stats, "taken back") > 0, "{stats}");
}

#[test]
fn a_writer_is_alone_and_the_last_user_may_free_the_memory() {
    let program = compile("stress.c", "stress", &[]);
    for threads in ["2", "3", "8"] {
        says_ok(&program, &["300", threads], &[&library()]);
    }
    let (out, stats) = works(&program, &["300", "4"], &[&library()], true);
    assert!(out == "ok\n" && total(&stats, "biased") > 0, "{out}{stats}");
}

#[test]
fn constructors_and_libraries_that_come_and_go_may_lock() {
    let users = compile("users.c", "libusers.so", SHARED);
    let folder = users.parent().unwrap().to_str().unwrap();
    let flags = ["-DMAIN", "-DLINKED", "-L", folder, "-lusers", "-Wl,-rpath", folder];
    says_ok(&compile("users.c", "linked", &flags), &[], &[&library()]);
    let opens = compile("users.c", "opens", &["-DMAIN", "-ldl"]);
    says_ok(&opens, &[users.to_str().unwrap()], &[&library()]);
}

#[test]
fn other_libraries_may_be_preloaded_before_and_behind() {
    let program = compile("stress.c", "stress-of-two", &[]);
    let second = compile("second.c", "libsecond.so", &["-shared", "-fPIC", "-ldl"]);
    let counted = |preloads: &[&Path]| {
        let (out, err) = works(&program, &["20", "2"], preloads, true);
        assert_eq!(out, "ok\n");
        let count = err.lines().find_map(|line| line.strip_prefix("second: ")).unwrap();
        (count.parse::<u64>().unwrap(), total(&err, "reads"))
    };
    let (behind, ours) = counted(&[&library(), &second]);
    assert!(behind == 0 && ours > 1_000, "{behind} of {ours}");
    let (before, ours) = counted(&[&second, &library()]);
    assert!(before > 1_000 && ours >= before, "{before} of {ours}");
}

#[test]
fn other_libraries_may_stop_the_clocks() {
    let stops = compile("stopped.c", "libstopped.so", SHARED);
    let program = compile("stopped.c", "stopped", &["-DMAIN"]);
    says_ok(&program, &[], &[&stops]);
    says_ok(&program, &[], &[&library()]);
    says_ok(&program, &[], &[&library(), &stops]);
    says_ok(&program, &[], &[&stops, &library()]);
}

#[test]
fn an_allocator_may_take_locks() {
    let allocator = compile("allocator.c", "liballocator.so", SHARED);
    let program = compile("edges.c", "edges-of-allocator", &[]);
    says_ok(&program, &["allocates"], &[&library(), &allocator]);
    let (_, stats) = works(&program, &["allocates"], &[&library(), &allocator], true);
    assert!(stats.contains("liballocator.so") && total(&stats, "biased") > 0, "{stats}");
}

#[test]
fn a_library_that_maps_memory_may_take_locks() {
    let mapper = compile("mapper.c", "libmapper.so", SHARED);
    let program = compile("edges.c", "edges-of-mapper", &[]);
    says_ok(&program, &["maps"], &[&library(), &mapper]);
    let (_, stats) = works(&program, &["maps"], &[&library(), &mapper], true);
    assert!(stats.contains("libmapper.so") && total(&stats, "biased") > 0, "{stats}");
}

/// With 16 KiB of stack, and in handlers that interrupt the allocator.
#[test]
fn lock_calls_need_little_stack_and_no_allocator() {
    let program = compile("edges.c", "edges-of-stacks", &[]);
    for which in ["stack", "handler"] {
        says_ok(&program, &[which], &[]);
        says_ok(&program, &[which], &[&library()]);
    }
}

#[test]
fn threads_may_be_cancelled_and_locks_leak_and_processes_call_exec() {
    let program = compile("edges.c", "edges", &[]);
    for which in ["cancel", "leaks", "exec"] {
        says_ok(&program, &[which], &[&library()]);
    }
}

/// 2^22 in the word, and any number in per-CPU counts.
#[test]
fn reads_beyond_the_limit_are_refused() {
    let program = compile("edges.c", "edges-of-limits", &[]);
    for which in ["many", "alone"] {
        says_ok(&program, &[which], &[]);
        says_ok(&program, &[which], &[&library()]);
        let without_sections = ["CORELINE_RSEQ=off", program.to_str().unwrap(), which];
        says_ok(Path::new("env"), &without_sections, &[&library()]);
    }
}

/// What all locks share is made when the first thread is, which must not fail because of that.
#[test]
fn the_first_thread_needs_no_more_than_with_glibc() {
    let program = compile("creates.c", "creates", &[]);
    // SAFETY: the call has no conditions.
    let is_root = unsafe { libc::geteuid() } == 0;
    let mut cases = vec!["stack", "memory", "later", "files", "signals"];
    if has("right to change the user (root)", is_root) {
        // The kernel may be slow or quick to remove a thread that has ended.
        cases.extend([["threads"; 20], ["two"; 20]].concat());
        cases.extend(["none", "more"]);
    }
    for which in cases {
        says_ok(&program, &[which], &[]);
        says_ok(&program, &[which], &[&library()]);
        let (out, _) = works(&program, &[which], &[&library()], true);
        assert_eq!(out, "ok\n", "{which}, while calls are counted");
    }
}

/// Another library may wrap `pthread_create`, so that the library's own threads begin elsewhere.
/// And a constructor may create a thread before the library's has run.
#[test]
fn the_first_thread_may_be_created_by_wrappers_and_early() {
    // SAFETY: the call has no conditions.
    if !has("right to change the user (root)", unsafe { libc::geteuid() } == 0) {
        return;
    }
    let program = compile("creates.c", "creates-of-wrappers", &[]);
    let wraps = compile("wraps.c", "libwraps.so", SHARED);
    let early = compile("wraps.c", "libearly.so", &[SHARED, &["-DEARLY"]].concat());
    says_ok(&program, &["threads"], &[&wraps]);
    says_ok(&program, &["threads"], &[&wraps, &library()]);
    says_ok(&program, &["threads"], &[&library(), &wraps]);
    says_ok(&program, &["stack"], &[&early]);
    says_ok(&program, &["stack"], &[&library(), &early]);
    says_ok(&program, &["stack"], &[&early, &library()]);
}

#[test]
fn a_child_that_is_forked_while_the_library_gets_ready_gets_ready() {
    let program = compile("wraps.c", "forks-of-wrapper", &["-DMAIN", "-rdynamic"]);
    says_ok(&program, &[], &[&library()]);
}

/// A program whose counts go to this file, and which is killed if it takes a minute.
fn counting(program: &Path, which: &str, counts: &Path, preloads: &[&Path]) -> Command {
    let preloads: Vec<_> = preloads.iter().map(|path| path.to_str().unwrap()).collect();
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", "60", "env"]).arg(format!("LD_PRELOAD={}", preloads.join(":")));
    command.arg(program).arg(which).env("CORELINE_PRELOAD_STATS", counts).stdin(Stdio::null());
    command
}

/// Runs such a program, whose standard error goes to `errors`.
fn ends_well(program: &Path, which: &str, counts: &Path, errors: impl Into<Stdio>) {
    let status = counting(program, which, counts, &[&library()]).stderr(errors).status().unwrap();
    assert!(status.success(), "{which}, counts to {counts:?}: {status}");
}

fn full_pipe() -> (io::PipeReader, io::PipeWriter) {
    let (reader, mut writer) = io::pipe().unwrap();
    // SAFETY: the pipe is open.
    let room = unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_GETPIPE_SZ) };
    writer.write_all(&vec![0; room as usize]).unwrap();
    (reader, writer)
}

fn full_socket() -> (UnixStream, OwnedFd) {
    let (theirs, mut ours) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    while ours.write(&[0; 4096]).is_ok() {}
    ours.set_nonblocking(false).unwrap();
    (theirs, ours.into())
}

#[test]
fn counts_that_cannot_be_written_leave_the_exit_status() {
    let program = compile("creates.c", "creates-of-files", &[]);
    let at = |name: &str| program.with_file_name(name);
    let [fifo, file] = ["counts.fifo", "no-counts"].map(at);
    let _ = fs::remove_file(&fifo);
    let name = CString::new(fifo.to_str().unwrap()).unwrap();
    // SAFETY: a string.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let long = "x".repeat(5000);
    let outputs =
        [&*fifo, "/dev/full".as_ref(), "/".as_ref(), "/no/folder".as_ref(), long.as_ref()];
    for output in outputs {
        ends_well(&program, "stack", output, Stdio::null());
    }
    ends_well(&program, "file", &file, Stdio::null());
    ends_well(&program, "stack", STDERR.as_ref(), File::create("/dev/full").unwrap());
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    ends_well(&program, "stack", STDERR.as_ref(), writer);
    // With a reader that never reads, and no room.
    let (_reader, writer) = full_pipe();
    ends_well(&program, "stack", STDERR.as_ref(), writer);
    let (_theirs, ours) = full_socket();
    ends_well(&program, "stack", STDERR.as_ref(), ours);
    // The end of a pipe that is read: opened again, it could be written to.
    let (mut reader, mut writer) = io::pipe().unwrap();
    writer.write_all(b"of the program").unwrap();
    ends_well(&program, "stack", STDERR.as_ref(), reader.try_clone().unwrap());
    drop(writer);
    let mut left = String::new();
    reader.read_to_string(&mut left).unwrap();
    assert_eq!(left, "of the program");
    let closed = format!("exec {} stack 2>&-", program.display());
    let (out, _) = works(Path::new("sh"), &["-c", &closed], &[&library()], true);
    assert_eq!(out, "ok\n");
}

/// What says that counts go to standard error.
const STDERR: &str = "-";

/// The counts may not fit any more when they are written, because others have written.
#[test]
fn the_exit_never_waits_for_readers() {
    let ready = compile("ready.c", "libready.so", SHARED);
    let program = compile("creates.c", "creates-of-full", &[]);
    let (_reader, pipe) = full_pipe();
    let (_theirs, socket) = full_socket();
    for errors in [pipe.into(), socket] {
        let mut command = counting(&program, "end", STDERR.as_ref(), &[&library(), &ready]);
        let output = command.stderr(errors).output().unwrap();
        assert!(output.status.success() && output.stdout == b"ok\n", "{output:?}");
    }
}

#[test]
fn counts_go_to_sockets() {
    let program = compile("creates.c", "creates-of-sockets", &[]);
    let (mut theirs, ours) = UnixStream::pair().unwrap();
    ends_well(&program, "end", STDERR.as_ref(), OwnedFd::from(ours));
    let mut stats = String::new();
    theirs.read_to_string(&mut stats).unwrap();
    assert!(total(&stats, "reads") > 1_000, "{stats}");
}

/// They poll it together, and more of them find room than there is.
#[test]
fn many_processes_that_share_a_full_pipe_may_end_at_once() {
    const MANY: usize = 20;
    // Counts with names of this length do not fit into a page.
    let program = compile("creates.c", &"longer-name".repeat(23), &[]);
    let (mut reader, errors) = full_pipe();
    let (mut outs, out) = io::pipe().unwrap();
    let (stdin, keeps) = io::pipe().unwrap();
    let children: Vec<_> = (0..MANY)
        .map(|_| {
            let mut command = counting(&program, "end", STDERR.as_ref(), &[&library()]);
            command.stdin(stdin.try_clone().unwrap()).stdout(out.try_clone().unwrap());
            command.stderr(errors.try_clone().unwrap()).spawn().unwrap()
        })
        .collect();
    drop((stdin, out, errors));
    let mut said = [0; 3 * MANY];
    outs.read_exact(&mut said).unwrap();
    drop(keeps);
    let mut page = [0; 4096];
    for _ in 0..MANY / 2 {
        reader.read_exact(&mut page).unwrap();
        thread::sleep(Duration::from_millis(20));
    }
    for mut child in children {
        let status = child.wait().unwrap();
        assert!(status.success(), "{status}");
    }
    let mut rest = Vec::new();
    reader.read_to_end(&mut rest).unwrap();
    assert!(String::from_utf8_lossy(&rest).contains("coreline: readers-writer locks of"));
}

/// So those of processes that end at the same time do not mix.
#[test]
fn counts_are_appended_to_a_file_by_one_write() {
    let ready = compile("ready.c", "libready-of-file.so", SHARED);
    let program = compile("creates.c", &"long-name.".repeat(25), &[]);
    let file = program.with_file_name("counts-of-one-write");
    let _ = fs::remove_file(&file);
    let output = counting(&program, "stack", &file, &[&library(), &ready]).output().unwrap();
    assert!(output.status.success() && output.stdout == b".ok\n", "{output:?}");
    assert!(fs::metadata(file).unwrap().len() > 4096);
}

/// It may have little stack, and other threads may use locks meanwhile.
#[test]
fn any_thread_may_end_the_process() {
    let program = compile("creates.c", "creates-of-ends", &[]);
    for which in ["exit", "busy"] {
        let (_, stats) = works(&program, &[which], &[&library()], true);
        assert!(total(&stats, "reads") > 1_000, "{stats}");
    }
}

/// Such a thread has the dynamic linker's lock.
#[test]
fn counts_are_printed_while_a_constructor_does_not_end() {
    let program = compile("creates.c", "creates-of-constructors", &[]);
    let stays = compile("stays.c", "libstays.so", &[SHARED, &["-DCONSTRUCTOR"]].concat());
    let path = format!("-DSTAYS=\"{}\"", stays.display());
    let loads = compile("stays.c", "libloads.so", &[SHARED, &[&path]].concat());
    says_ok(&program, &["stack"], &[&loads]);
    let (out, stats) = works(&program, &["stack"], &[&loads, &library()], true);
    assert!(out == "ok\n" && total(&stats, "reads") > 1_000, "{out}{stats}");
}

/// Another thread of the parent may have had a lock of the dynamic linker that fork does not free.
#[test]
fn counts_of_a_child_are_printed_whatever_the_parent_did() {
    let program = compile("creates.c", "creates-and-forks", &["-rdynamic"]);
    says_ok(&program, &["forks"], &[&library()]);
    let (out, stats) = works(&program, &["forks"], &[&library()], true);
    let [tables, unnamed] = ["coreline: ", "  0x"].map(|text| stats.matches(text).count());
    assert!(out == "ok\n" && (tables, unnamed) == (2, 0), "{out}{stats}");
    assert!(stats.contains("  creates-and-forks use+0x"), "{stats}");
}

/// Makes the System V table say that there are 2^32 - 1 symbols. The dynamic linker does not look
/// at this table if there is the other one.
fn spoil_the_older_table(library: &Path) {
    let mut bytes = fs::read(library).unwrap();
    let word = |at: usize| usize::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    // Headers of sections have 64 bytes; 5 is the type of the section.
    let mut headers = (word(0x28)..bytes.len()).step_by(64);
    let table = word(headers.find(|at| bytes[at + 4..at + 8] == [5, 0, 0, 0]).unwrap() + 24);
    bytes[table + 4..table + 8].fill(0xff);
    fs::write(library, bytes).unwrap();
}

#[test]
fn counts_name_libraries_and_their_exported_symbols() {
    let users = compile("users.c", "libnamed.so", SHARED);
    let folder = users.parent().unwrap().to_str().unwrap();
    let flags = ["-DMAIN", "-DLINKED", "-L", folder, "-lnamed", "-Wl,-rpath", folder];
    // Two forms of the table of symbols, and both; and an address that no library can have, so the
    // place where it is loaded is below the one that it was linked for.
    let high = "-Ttext-segment=0x7fffffffff0000";
    for how in ["--hash-style=gnu", "--hash-style=sysv", "--hash-style=both", high] {
        compile("users.c", "libnamed.so", &[SHARED, &[&format!("-Wl,{how}")]].concat());
        if how.ends_with("both") {
            spoil_the_older_table(&users);
        }
        let program = compile("users.c", "names", &flags);
        let (_, stats) = works(&program, &[], &[&library()], true);
        let named = |name: &str| stats.lines().filter(|line| line.contains(name)).count();
        // The lock and one of the two functions that use it are not exported.
        assert!(named("  libnamed.so+0x") == 2, "{stats}");
        assert!(named("  libnamed.so use_it+0x") == 2 && !stats.contains("  0x"), "{stats}");
    }
}

#[test]
fn counts_do_not_go_into_a_file_that_became_descriptor_2() {
    let program = compile("edges.c", "edges-of-errors", &[]);
    let file = program.with_file_name("errors");
    let arguments = ["errors", file.to_str().unwrap()];
    let (out, told) = works(&program, &arguments, &[&library()], true);
    assert_eq!((out.as_str(), told.as_str()), ("ok\n", ""));
    assert_eq!(fs::read_to_string(file).unwrap(), "data\n");
}

#[test]
fn a_process_whose_filter_refuses_membarrier_ends_with_the_reason() {
    let program = compile("edges.c", "edges-of-filter", &[]);
    says_ok(&program, &["filter"], &[]);
    let output = run(&program, &["filter"], &[&library()], false);
    let told = text(&output.stderr);
    let reason = "coreline_pthread: cannot lock for writing: ";
    assert!(!output.status.success() && told.starts_with(reason), "{told}");
    assert!(told.contains("membarrier") && told.contains("CORELINE_RSEQ=off"), "{told}");
}

#[test]
fn the_library_has_no_other_symbols() {
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(library()).output();
    let symbols = text(&output.expect("nm, which comes with the compiler").stdout);
    let names: Vec<_> = symbols.lines().filter_map(|line| line.split(' ').next_back()).collect();
    assert_eq!(names.len(), 19, "{names:?}");
    for name in names {
        let ours = name.strip_prefix("__").unwrap_or(name).starts_with("pthread_rwlock_");
        assert!(ours || name == "pthread_create", "{name}");
    }
}

#[test]
fn tls_handshakes_come_to_the_same() {
    let headers = ["/usr/include/openssl/ssl.h", "/usr/local/include/openssl/ssl.h"];
    if !has("headers of OpenSSL (libssl-dev)", headers.iter().any(|it| Path::new(it).exists())) {
        return;
    }
    let program = compile("handshake.c", "handshake", &["-lssl", "-lcrypto"]);
    for (what, threads, operations) in
        [("handshakes", "2", "30"), ("handshakes", "8", "10"), ("digests", "8", "2000")]
    {
        let arguments = [what, threads, operations];
        let (expected, _) = works(&program, &arguments, &[], false);
        assert_eq!(works(&program, &arguments, &[&library()], false).0, expected);
    }
    let (_, stats) = works(&program, &["handshakes", "2", "30"], &[&library()], true);
    assert!(total(&stats, "reads") > 60 * 1_000, "{stats}");
}

#[test]
fn openssl_and_python_work() {
    let openssl = Path::new("/usr/bin/openssl");
    if has("program openssl", openssl.exists()) {
        let arguments = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=x"];
        let arguments = [&arguments[..], &["-keyout", "/dev/null"]].concat();
        let (certificate, _) = works(openssl, &arguments, &[&library()], false);
        assert!(certificate.contains("BEGIN CERTIFICATE"), "{certificate}");
    }
    let python = Path::new("/usr/bin/python3");
    if has("python3", python.exists()) {
        let code = fs::read_to_string(source("digests.py")).unwrap();
        let (expected, _) = works(python, &["-c", &code], &[], false);
        assert!(expected.starts_with("ok "), "{expected}");
        assert_eq!(works(python, &["-c", &code], &[&library()], false).0, expected);
    }
}
