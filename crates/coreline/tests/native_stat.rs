//! What a process publishes about itself.
#![cfg(all(target_os = "linux", not(feature = "portable")))]

#[path = "native/os.rs"]
mod os;

use core::ffi::c_int;
use core::mem;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError};
use std::{env, process, thread};

use coreline::lock::LockStats;
use coreline::stat::page::{Page, Row};
use coreline::stat::{PublishError, Published, Stats, Values, publish};
use coreline::{Mutex, ObjectCache, Workers};
use coreline_world::native::{PublicationError, publications};
use os::in_a_fork;

/// A process has one publication, and tests share a process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: StdMutex<()> = StdMutex::new(());
    let guard = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = folder();
    let _ = fs::remove_dir_all(&folder);
    // SAFETY: the tests of this program read and write the environment under this lock alone.
    unsafe { env::set_var("CORELINE_STAT_DIR", &folder) };
    guard
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("publications")
}

fn files() -> Vec<OsString> {
    fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().file_name()).collect()
}

/// What this process has published.
fn page() -> Page {
    let ours = publications().found.into_iter().find(|it| it.pid == process::id()).unwrap();
    assert!(ours.is_alive);
    Page::from_bytes(&fs::read(ours.path).unwrap()).unwrap()
}

fn value(page: &Page, object: &str, name: &str) -> Option<u64> {
    let is_it = |row: &&Row| row.object == object && row.name == name;
    page.rows.iter().find(is_it).map(|row| row.value)
}

#[test]
fn the_values_of_a_process_are_in_its_file() {
    let _alone = alone();
    static COUNT: AtomicU64 = AtomicU64::new(7);
    struct Own(u64);
    impl Stats for Own {
        const KIND: &'static str = "own";

        fn put(&self, to: &mut Values<'_>) {
            to.count("requests", self.0);
            to.level("open\nones", 1);
        }
    }
    let published = publish("values").unwrap();
    let workers = Workers::new().unwrap();
    let cache: Arc<ObjectCache<u32>> =
        Arc::new(ObjectCache::builder("numbers").build(|| Ok::<_, String>(1)).unwrap());
    published.workers("pool", &workers);
    let weak = Arc::downgrade(&cache);
    published.add("numbers", move || weak.upgrade().map(|cache| cache.stats()));
    // Relaxed: one thread.
    published.add("own", || Some(Own(COUNT.load(Ordering::Relaxed))));
    let cpu = workers.cpus().next().unwrap();
    assert_eq!(workers.call_on(cpu, || 1).unwrap(), 1);
    drop(cache.get().unwrap());

    let lock = Mutex::new(());
    published.refresh().unwrap();
    let before = page();
    let held = lock.lock();
    thread::scope(|scope| {
        scope.spawn(|| {
            let try_it = || assert!(lock.try_lock_for(Duration::from_millis(1)).is_none());
            (0..3).for_each(|_| try_it());
        });
    });
    drop(held);
    published.refresh().unwrap();
    let after = page();
    let more = |name: &str| value(&after, "", name).unwrap() - value(&before, "", name).unwrap();
    assert!(more("waits") >= 3 && more("sleeps") >= 3, "{after:?}");
    assert_eq!(more("timeouts"), 3, "the library's own locks have no deadlines");
    assert_eq!((after.name.as_str(), after.pid), ("values", process::id()));
    assert!(after.looks > before.looks && after.nanos > before.nanos);
    assert_eq!(value(&after, "pool", "calls"), Some(1));
    assert_eq!(value(&after, "numbers", "constructed"), Some(1));
    assert_eq!(value(&after, "own", "requests"), Some(7));
    let open = after.rows.iter().find(|row| row.name == "openones").unwrap();
    assert!(open.is_level && open.kind == "own", "without the control character");

    drop((workers, cache));
    published.refresh().unwrap();
    let end = page();
    assert_eq!((value(&end, "pool", "calls"), value(&end, "numbers", "live")), (None, None));
    assert_eq!(value(&end, "own", "requests"), Some(7));
}

#[test]
fn a_function_that_panics_is_left_out() {
    let _alone = alone();
    struct Never;
    impl Stats for Never {
        const KIND: &'static str = "never";

        fn put(&self, to: &mut Values<'_>) {
            to.count("before", 1);
            panic!("planted");
        }
    }
    let published = publish("panics").unwrap();
    published.add("panics", || Some(Never));
    published.refresh().unwrap();
    assert_eq!(value(&page(), "panics", "before"), None);
    assert!(value(&page(), "", "waits").is_some());
}

#[test]
fn a_publication_is_the_users_own_and_ends() {
    let _alone = alone();
    let published = publish("ends").unwrap();
    let name = files().pop().unwrap();
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&folder()), mode(&folder().join(&name))), (0o700, 0o600));
    let again = publish("again").map(drop);
    assert!(matches!(again, Err(PublishError::Publication(PublicationError::Exists))), "{again:?}");
    drop(published);
    assert_eq!(files().len(), 0);
    drop(publish("again").unwrap());
    for bad in ["", "a\x1b[0m"] {
        assert!(matches!(publish(bad), Err(PublishError::Name(name)) if name == bad));
    }
}

#[test]
fn files_of_ended_processes_are_found_and_removed() {
    let _alone = alone();
    let published = publish("first").unwrap();
    let own = files().pop().unwrap().into_string().unwrap();
    let content = fs::read(folder().join(&own)).unwrap();
    drop(published);
    let (_, rest) = own.split_once('-').unwrap();
    let here: u64 = rest.split_once('-').unwrap().1.parse().unwrap();
    // The first one ended, and its number belongs to another process; the second one is of another
    // namespace; the others are none of ours.
    let (ended, other, foreign) =
        (format!("1-1-{here}"), format!("1-1-{}", here ^ 1), "note".to_owned());
    let odd = [format!("0-1-{here}"), format!("01-1-{here}"), format!("+1-1-{here}")];
    for name in [&ended, &other, &foreign].into_iter().chain(&odd) {
        fs::write(folder().join(name), &content).unwrap();
    }
    let found = publications().found;
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].pid == 1 && !found[0].is_alive);
    let published = publish("second").unwrap();
    let mut left = files();
    left.sort();
    let mut expected: Vec<OsString> = [own, other, foreign].map(OsString::from).into();
    expected.extend(odd.map(OsString::from));
    expected.sort();
    assert_eq!(left, expected);
    drop(published);
}

/// Changes the soft limit of the calling process.
fn limit(resource: c_int, most: libc::rlim_t) {
    // SAFETY: the calls read and write a live structure.
    unsafe {
        let mut limit: libc::rlimit = mem::zeroed();
        assert_eq!(libc::getrlimit(resource as _, &raw mut limit), 0);
        limit.rlim_cur = most;
        assert_eq!(libc::setrlimit(resource as _, &raw const limit), 0);
    }
}

#[test]
fn a_process_that_may_not_write_files_lives_on() {
    let _alone = alone();
    let is_too_large = |error: &PublicationError| match error {
        PublicationError::File { source, .. } => source.raw_os_error() == Some(libc::EFBIG),
        _ => false,
    };
    in_a_fork(|| {
        let published = publish("grows").unwrap();
        let before = page();
        let len = before.to_bytes().len();
        // The thread of the publication must not die of it either.
        limit(libc::RLIMIT_FSIZE as c_int, len as libc::rlim_t);
        for number in 0..20 {
            published.add(&number.to_string(), LockStats::read);
        }
        assert!(is_too_large(&published.refresh().unwrap_err()));
        thread::sleep(Duration::from_millis(1200));
        assert_eq!(page().rows.len(), before.rows.len());
        drop(published);
        0
    });
    in_a_fork(|| {
        limit(libc::RLIMIT_FSIZE as c_int, 0);
        let refused = publish("refused").map(drop).unwrap_err();
        let PublishError::Publication(refused) = refused else { panic!("{refused}") };
        assert!(is_too_large(&refused), "{refused}");
        assert_eq!(files().len(), 0);
        0
    });
}

#[test]
fn a_file_of_a_process_that_cannot_be_asked_stays() {
    let _alone = alone();
    let published = publish("stays").unwrap();
    let file = folder().join(files().pop().unwrap());
    in_a_fork(|| {
        limit(libc::RLIMIT_NOFILE as c_int, 64);
        // One descriptor is left, which the search of the folder needs.
        let mut taken = Vec::new();
        while let Ok(file) = File::open("/dev/null") {
            taken.push(file);
        }
        drop(taken.pop());
        let _ = publish("greedy").map(drop);
        drop(taken);
        assert!(file.exists());
        0
    });
    // What someone has removed comes again.
    fs::remove_file(&file).unwrap();
    published.refresh().unwrap();
    assert_eq!(page().name, "stays");
    drop(published);
    assert_eq!(files().len(), 0);
}

#[test]
fn a_process_with_a_name_that_is_cut_inside_of_a_character_publishes() {
    let _alone = alone();
    in_a_fork(|| {
        // SAFETY: the call reads the name, which ends with a zero.
        let named =
            unsafe { libc::prctl(libc::PR_SET_NAME, c"é) é) ééééé".as_ptr(), 0, 0, 0) };
        assert_eq!(named, 0);
        let published = publish("cut").unwrap();
        assert_eq!(page().name, "cut");
        drop(published);
        0
    });
}

#[test]
fn the_last_look_shows_what_was_added_just_before() {
    let _alone = alone();
    struct Late;
    impl Stats for Late {
        const KIND: &'static str = "late";

        fn put(&self, to: &mut Values<'_>) {
            to.count("added", 1);
        }
    }
    for _ in 0..50 {
        let published = publish("late").unwrap();
        let mut file = File::open(folder().join(files().pop().unwrap())).unwrap();
        published.add("late", || Some(Late));
        drop(published);
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).unwrap();
        assert_eq!(value(&Page::from_bytes(&bytes).unwrap(), "late", "added"), Some(1));
    }
}

#[test]
fn a_function_may_own_the_publication() {
    let _alone = alone();
    let published = Arc::new(StdMutex::new(None));
    let theirs = Arc::clone(&published);
    let own = publish("own").unwrap();
    own.add("own", move || {
        let taken = theirs.lock().unwrap().take();
        // It ends with what it owned.
        if taken.is_some() { None } else { LockStats::read() }
    });
    *published.lock().unwrap() = Some(own);
    // Its thread drops it at the next look, and ends without waiting for itself.
    let next = (0..500).find_map(|_| {
        thread::sleep(Duration::from_millis(20));
        publish("next").ok()
    });
    assert!(next.is_some());
    assert_eq!(page().name, "next");
}

#[test]
fn a_forked_child_leaves_its_parents_file_alone() {
    let _alone = alone();
    let published = publish("parent").unwrap();
    let before = page();
    let publish_too = |published: &Published| {
        published.add("none", || None::<LockStats>);
        published.refresh().unwrap();
        let own = publish("child").unwrap();
        assert_eq!(page().name, "child");
        drop(own);
        0
    };
    in_a_fork(|| publish_too(&published));
    assert_eq!(page().pid, before.pid);
    assert_eq!(files().len(), 1, "the child has removed its own file alone");
    // A child that ends by a drop of its copy.
    let mut published = Some(published);
    in_a_fork(|| {
        drop(published.take());
        0
    });
    assert_eq!(files().len(), 1);
    published.as_ref().unwrap().refresh().unwrap();
    assert!(page().looks > before.looks);
}

#[test]
fn a_folder_that_others_could_change_is_refused() {
    let _alone = alone();
    let refused = |why: &str| match publish("refused").map(drop) {
        Err(PublishError::Publication(error @ PublicationError::Folder { .. })) => {
            assert!(error.to_string().contains(why), "{error}");
        }
        other => panic!("{other:?}"),
    };
    fs::create_dir(folder()).unwrap();
    fs::set_permissions(folder(), Permissions::from_mode(0o777)).unwrap();
    refused("other users may write to it");
    fs::remove_dir(folder()).unwrap();
    symlink(env!("CARGO_TARGET_TMPDIR"), folder()).unwrap();
    refused("it is no folder");
    fs::remove_file(folder()).unwrap();
    fs::write(folder(), "").unwrap();
    refused("it is no folder");
    fs::remove_file(folder()).unwrap();
    drop(publish("free again").unwrap());
}
