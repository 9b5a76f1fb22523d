//! The rules of rewriting, each by a small source.

use super::source::{Of, Ported, port};
use super::statics;
use super::tokens::{DEEPEST, Tokens, Unread};

fn ported(text: &str) -> Ported {
    let tokens = Tokens::new(text).unwrap();
    let (shared, keeps_arc) =
        (statics::shared(&statics::types(&tokens)), statics::takes_arc(&tokens));
    port(text, &Of { shared, keeps_arc, ported: &["dashmap".to_owned()] }).unwrap()
}

fn becomes(text: &str, expected: &str) {
    let done = ported(text);
    assert_eq!(done.text, expected, "of {text}");
    assert!(done.left.is_empty(), "{:?}", done.left);
    assert_eq!(done.changes.is_empty(), text == expected, "{:?}", done.changes);
    assert_eq!(ported(expected).text, expected, "what is ported stays as it is");
}

fn stays(text: &str) {
    becomes(text, text);
}

fn left(text: &str) -> Vec<(usize, String)> {
    ported(text).left.into_iter().map(|it| (it.line, it.what)).collect()
}

#[test]
fn only_the_root_of_an_import_changes() {
    let text =
        "//! Docs: std::sync::Arc.\nuse std::sync::atomic::{ AtomicUsize,\n  Ordering }; // why\n";
    becomes(text, &text.replacen("use std", "use coreline_sim", 1));
    for (from, to) in [
        ("use core::sync::atomic::AtomicU8;", "use coreline_sim::sync::atomic::AtomicU8;"),
        ("use ::std::thread;", "use ::coreline_sim::thread;"),
        ("use alloc::sync::{Arc, Weak as W};", "use coreline_sim::sync::{Arc, Weak as W};"),
        ("use std::{sync::Arc, thread};", "use coreline_sim::{sync::Arc, thread};"),
        ("use std::sync::{self, mpsc};", "use coreline_sim::sync::{self, mpsc};"),
        ("use std::sync::atomic::*;", "use coreline_sim::sync::atomic::*;"),
        ("use std::collections::HashMap;", "use coreline_sim::collections::HashMap;"),
        ("use std::time::{Duration, Instant};", "use coreline_sim::time::{Duration, Instant};"),
        ("use core::hint::spin_loop;", "use coreline_sim::hint::spin_loop;"),
        ("pub(crate) use std::thread_local;", "pub(crate) use coreline_sim::thread_local;"),
        ("fn f() { use std::sync::Mutex; }", "fn f() { use coreline_sim::sync::Mutex; }"),
    ] {
        becomes(from, to);
    }
}

#[test]
fn an_import_of_more_than_what_is_mirrored_is_split_and_stays_one_item() {
    for (from, to) in [
        (
            "#[cfg(x)]\npub use std::{boxed::Box, rc::Rc, sync::Arc};",
            "#[cfg(x)]\npub use {std::{boxed::Box, rc::Rc}, coreline_sim::sync::Arc};",
        ),
        (
            "use std::{fmt, sync::{Arc, atomic::{AtomicU8, Ordering}}, mem,};",
            "use {std::{fmt, sync::atomic::Ordering, mem}, \
             coreline_sim::{sync::Arc, sync::atomic::AtomicU8}};",
        ),
        (
            "use std::{self, thread::{self as t, JoinHandle}};",
            "use {std::self, coreline_sim::{thread as t, thread::JoinHandle}};",
        ),
        (
            "use std::{io::{self, Read}, thread};",
            "use {std::{io, io::Read}, coreline_sim::thread};",
        ),
        (
            "use {std::{cmp, sync::Once}, other::Thing};",
            "use {{std::cmp, coreline_sim::sync::Once}, other::Thing};",
        ),
        (
            "use std::hash::{BuildHasher, RandomState};",
            "use {std::hash::BuildHasher, coreline_sim::collections::hash_map::RandomState};",
        ),
    ] {
        becomes(from, to);
    }
}

#[test]
fn paths_in_code_types_and_macros_change() {
    for (from, to) in [
        ("fn f() { std::thread::yield_now() }", "fn f() { coreline_sim::thread::yield_now() }"),
        (
            "struct A(core::sync::atomic::AtomicU8);",
            "struct A(coreline_sim::sync::atomic::AtomicU8);",
        ),
        ("impl T for ::std::sync::Arc<u8> {}", "impl T for ::coreline_sim::sync::Arc<u8> {}"),
        ("m! { !std::thread::panicking() }", "m! { !coreline_sim::thread::panicking() }"),
        (
            "macro_rules! a { ($t:ident) => { core::sync::atomic::$t } }",
            "macro_rules! a { ($t:ident) => { coreline_sim::sync::atomic::$t } }",
        ),
        (
            "fn f() -> T { return ::std::time::Instant::now(); }",
            "fn f() -> T { return ::coreline_sim::time::Instant::now(); }",
        ),
        (
            "type S = std::hash::RandomState;",
            "type S = coreline_sim::collections::hash_map::RandomState;",
        ),
    ] {
        becomes(from, to);
    }
}

#[test]
fn what_no_thread_shares_stays() {
    for text in [
        "use std::{fmt, io};",
        "use core::sync::atomic::Ordering::*;",
        "use std::time::Duration;",
        "use std::collections::{BTreeMap, VecDeque};",
        "fn f(o: std::cmp::Ordering, d: core::time::Duration) {}",
        "mod own { pub mod sync {} } use crate::std::sync::Arc; fn f() { own::std::sync::g() }",
        "fn f(a: &'static str) -> impl Sized + use<'_> {}",
        "static NAME: &str = \"std::sync::Arc\"; static N: [u8; 3] = [0; 3];",
        "/// std::sync::Arc\n// use std::sync::Arc;\nfn f() {}",
        "extern crate std; extern crate alloc;",
        // One is ported with it; the other has words that it does not wait for.
        "use dashmap::DashMap; use crossbeam_queue::SegQueue;",
    ] {
        stays(text);
    }
}

#[test]
fn a_static_that_threads_share_is_made_anew_by_each_machine() {
    becomes(
        "pub(crate) static HEAD: AtomicPtr<Node> = AtomicPtr::new(ptr::null_mut());",
        "pub(crate) static HEAD: coreline_sim::Static<AtomicPtr<Node>> = unsafe { \
         coreline_sim::Static::new(\"HEAD\", || AtomicPtr::new(ptr::null_mut())) };",
    );
    becomes(
        "static A: core::sync::atomic::AtomicU8 = core::sync::atomic::AtomicU8::new(0);",
        "static A: coreline_sim::Static<coreline_sim::sync::atomic::AtomicU8> = unsafe { \
         coreline_sim::Static::new(\"A\", || coreline_sim::sync::atomic::AtomicU8::new(0)) };",
    );
    // Of a type that holds another one that is shared.
    let types = "struct In { n: AtomicU8 } struct Out(Vec<In>); ";
    let value = "[const { Out::new() }; 4]";
    becomes(
        &format!("{types}static LOCKS: [Out; 4] = {value};"),
        &format!(
            "{types}static LOCKS: coreline_sim::Static<[Out; 4]> = unsafe {{ \
             coreline_sim::Static::new(\"LOCKS\", || {value}) }};"
        ),
    );
    stays("struct Plain { n: u8 } static P: Plain = Plain { n: 0 };");
    stays("extern \"C\" { static N: AtomicU8; }");
    assert_eq!(left("\nstatic mut N: usize = 0;"), [(2, "static mut N".to_owned())]);
    let of_thread = "#[thread_local]\n/// Docs.\nstatic N: Mutex<u8> = Mutex::new(0);";
    assert_eq!(left(of_thread), [(3, "#[thread_local] static N".to_owned())]);
}

#[test]
fn objects_of_a_thread_are_those_of_a_simulated_thread() {
    let (head, tail) = ("thread_local!", " { static A: AtomicU8 = AtomicU8::new(0); }");
    becomes(&format!("{head}{tail}"), &format!("coreline_sim::{head}{tail}"));
    becomes(&format!("std::{head}{tail}"), &format!("coreline_sim::{head}{tail}"));
    // The statics behind it are again those of the program.
    let text = ported("thread_local! {} static B: Once = Once::new();").text;
    assert!(
        text.ends_with(
            "static B: coreline_sim::Static<Once> = unsafe { \
                            coreline_sim::Static::new(\"B\", || Once::new()) };"
        ),
        "{text}"
    );
}

#[test]
fn a_lazy_static_becomes_a_static_of_the_machine_whatever_it_holds() {
    let new = "unsafe { coreline_sim::Static::new(\"R\", || Registry { n: 1 }) }";
    for head in ["lazy_static!", "lazy_static::lazy_static!", "::lazy_static::lazy_static!"] {
        let text =
            format!("{head} {{ /// Docs.\n pub static ref R: Registry = Registry {{ n: 1 }}; }}");
        let done = ported(&text);
        let docs = " /// Docs.\n pub static R: coreline_sim::Static<Registry> =";
        assert_eq!(done.text, format!("{docs} {new}; "), "{text}");
        assert!(done.left.is_empty());
    }
    assert_eq!(left("lazy_static! { what }"), [(1, "lazy_static!".to_owned())]);
    // One in the value of another.
    let inner = "lazy_static! { static ref B: u8 = 1; }";
    let done = ported(&format!("lazy_static! {{ static ref A: u8 = {{ {inner} *B }}; }}"));
    let of = |name: &str, value: &str| {
        let new = format!("unsafe {{ coreline_sim::Static::new(\"{name}\", || {value}) }}");
        format!(" static {name}: coreline_sim::Static<u8> = {new}; ")
    };
    assert_eq!(done.text, of("A", &format!("{{ {} *B }}", of("B", "1"))));
}

#[test]
fn a_path_behind_an_arrow_is_one_from_the_crates_on() {
    for (from, to) in [
        ("fn b() -> ::std::sync::Arc<u8> {}", "fn b() -> ::coreline_sim::sync::Arc<u8> {}"),
        (
            "fn f() { match 1 { _ => ::std::thread::park() } }",
            "fn f() { match 1 { _ => ::coreline_sim::thread::park() } }",
        ),
    ] {
        becomes(from, to);
    }
    stays("fn f() { Own::<u8>::std::sync::g() }");
}

#[test]
fn names_that_are_not_followed_are_told() {
    let whole = [(1, "std as s".to_owned())];
    assert_eq!(left("use std as s; fn f() { s::thread::park() }"), whole);
    assert_eq!(left("use std::{self as s, fmt};"), whole);
    stays("use std as _;");
    let in_macro = "macro_rules! m { ($n:ident) => { static $n: AtomicU32 = AtomicU32::new(0); } }";
    assert_eq!(left(in_macro), [(1, "static $n".to_owned())]);
}

#[test]
fn brackets_may_be_in_each_other_so_often() {
    let of = |depth: usize| format!("\n{}{}", "(".repeat(depth), ")".repeat(depth));
    assert_eq!(ported(&of(DEEPEST)).text, of(DEEPEST));
    for depth in [DEEPEST + 1, 200_000] {
        let told = port(&of(depth), &Of::default());
        assert!(matches!(told, Err(Unread::TooDeep(2))), "{depth}: {told:?}");
    }
}

#[test]
fn what_has_no_mirror_is_left_and_told_with_its_line() {
    for (text, what) in [
        ("\nuse std::sync::{Arc, Exclusive};", "std::sync::Exclusive"),
        ("\nfn f() { std::thread::sleep_ms(1) }", "std::thread::sleep_ms"),
        ("\nuse core::arch::x86_64::_mm_pause;", "core::arch::x86_64::_mm_pause"),
        ("\nuse parking_lot::Mutex;", "parking_lot::Mutex"),
        ("\nfn f() { unsafe { libc::syscall(libc::SYS_futex) } }", "libc::SYS_futex"),
        ("\nfn f() { unsafe { asm!(\"nop\") } }", "asm!"),
    ] {
        let told = left(text);
        assert!(told.contains(&(2, what.to_owned())), "{text}: {told:?}");
    }
    let split = ported("use std::sync::{Arc, Exclusive};").text;
    assert_eq!(split, "use {std::sync::Exclusive, coreline_sim::sync::Arc};");
    let done = ported("use core::cell::{Cell, UnsafeCell}; #[cfg(loom)] use loom::sync::Arc;");
    assert_eq!((done.uncharged, done.loom, done.left.len()), (1, 1, 0));
}

#[test]
fn an_arc_that_is_a_receiver_stays_std_s() {
    let text = "use std::sync::{Arc, Mutex}; impl A { fn f(self: Arc<Self>, n: u8) {} }";
    let done = ported(text);
    let import = "use {std::sync::Arc, coreline_sim::sync::Mutex};";
    assert!(done.text.starts_with(import), "{}", done.text);
    assert_eq!(left(text), [(1, "std::sync::Arc".to_owned())]);
    becomes(
        "use std::sync::Arc; fn f(a: Arc<u8>) {}",
        "use coreline_sim::sync::Arc; fn f(a: Arc<u8>) {}",
    );
}

#[test]
fn a_module_of_host_threads_is_left_out() {
    let text = |inner: &str| {
        let body = "use std::os::unix::thread::JoinHandleExt; impl JoinHandleExt for A {}";
        format!("mod a {{ mod unix {{{inner} {body} }} use std::thread; }}")
    };
    let expected = text("#![cfg(any())]").replace("use std::thread", "use coreline_sim::thread");
    let done = ported(&text(""));
    assert_eq!((done.text, done.left.len()), (expected, 0));
    let alone = "use std::os::unix::thread::JoinHandleExt;";
    assert_eq!(left(alone), [(1, alone[4..alone.len() - 1].to_owned())]);
}

#[test]
fn changes_say_their_line_and_what_came_of_them() {
    let done = ported("\n\nuse std::sync::Arc;\nfn f() { std::thread::park() }\n");
    let told: Vec<_> =
        done.changes.iter().map(|it| format!("{}: {} -> {}", it.line, it.from, it.to)).collect();
    assert_eq!(
        told,
        [
            "3: std::sync::Arc -> coreline_sim::sync::Arc",
            "4: std::thread::park -> coreline_sim::thread::park",
        ]
    );
}

#[test]
fn places_are_right_behind_characters_of_several_bytes() {
    becomes(
        "// \u{e4}\u{20ac}\nconst C: char = '\u{1f600}'; use std::sync::Arc;",
        "// \u{e4}\u{20ac}\nconst C: char = '\u{1f600}'; use coreline_sim::sync::Arc;",
    );
}

#[test]
fn what_is_no_rust_is_refused() {
    assert!(port("fn f( {", &Of::default()).is_err());
}
