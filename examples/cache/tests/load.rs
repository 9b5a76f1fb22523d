//! The cache on loopback, under load: what was set is found, whatever clients do.

use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use cache::{Cache, server};
use tokio::net::TcpListener;
use tokio::sync::watch;

/// Long enough for a machine that does other things, too.
const LONG: Duration = Duration::from_secs(60);

/// Runs `test` with the address of a server, which ends afterwards.
fn served(entries: u32, clients: usize, test: impl FnOnce(SocketAddr)) {
    let cache = Arc::new(Cache::new(NonZeroU32::new(entries).unwrap()).unwrap());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = watch::channel(());
    let server = runtime.spawn(server::serve(listener, cache, clients, stopped));
    test(address);
    drop(stop);
    runtime.block_on(server).unwrap();
}

struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        Client(BufReader::new(stream))
    }

    fn send(&mut self, text: &[u8]) {
        self.0.get_mut().write_all(text).unwrap();
    }

    /// The next line, without its end. It is empty if the server has closed the connection.
    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn ask(&mut self, request: &str) -> String {
        self.send(format!("{request}\n").as_bytes());
        self.answer()
    }
}

#[test]
fn nothing_is_lost_under_load() {
    const CLIENTS: u64 = 8;
    const KEYS: u64 = 100;
    served(1000, 10, |address| {
        let load = |client: u64| {
            let mut connection = Client::connect(address);
            for key in 0..KEYS {
                assert_eq!(connection.ask(&format!("set {client}-{key} {key}")), "ok");
                assert_eq!(connection.ask(&format!("get {client}-{key}")), format!("hit {key}"));
                assert_eq!(connection.ask("get absent"), "miss");
            }
        };
        thread::scope(|scope| {
            (0..CLIENTS).for_each(|client| _ = scope.spawn(move || load(client)));
        });
        let mut client = Client::connect(address);
        for number in 0..CLIENTS * KEYS {
            let (client_number, key) = (number / KEYS, number % KEYS);
            assert_eq!(client.ask(&format!("get {client_number}-{key}")), format!("hit {key}"));
        }
        let stats = client.ask("stats");
        let (hits, misses) = (2 * CLIENTS * KEYS, CLIENTS * KEYS);
        assert!(stats.starts_with(&format!("hits {hits} misses {misses} lost ")), "{stats}");
    });
}

#[test]
fn a_full_cache_evicts_and_goes_on() {
    served(4, 10, |address| {
        let mut client = Client::connect(address);
        for key in 0..100 {
            assert_eq!(client.ask(&format!("set {key} {key}")), "ok");
        }
        for key in 0..100 {
            let found = if key < 96 { "miss".to_owned() } else { format!("hit {key}") };
            assert_eq!(client.ask(&format!("get {key}")), found);
        }
        assert_eq!((client.ask("del 99"), client.ask("del 99")), ("ok".into(), "miss".into()));
    });
}

#[test]
fn bad_requests_are_answered_and_others_served() {
    served(4, 10, |address| {
        let mut client = Client::connect(address);
        for request in ["", "get", "get a b", "set a", "GET a", "stats now"] {
            let answer = client.ask(request);
            assert!(answer.starts_with("error not one of"), "{request}: {answer}");
        }
        client.send(b"get \xff\n");
        assert!(client.answer().starts_with("error"));
        assert_eq!(client.ask("set a 1"), "ok");
        // A request without an end, however long, is none.
        let mut endless = Client::connect(address);
        endless.send(&[b'x'; 4096]);
        assert_eq!(endless.answer(), "error the line has no end");
        assert_eq!(endless.answer(), "");
        let mut cut = Client::connect(address);
        cut.send(b"set a 2");
        cut.0.get_ref().shutdown(Shutdown::Write).unwrap();
        assert_eq!(cut.answer(), "error the line has no end");
        assert_eq!(client.ask("get a"), "hit 1");
    });
}

#[test]
fn clients_beyond_the_limit_are_refused() {
    served(4, 1, |address| {
        let mut first = Client::connect(address);
        assert_eq!(first.ask("get a"), "miss");
        let mut second = Client::connect(address);
        assert_eq!(second.answer(), "error too many connections, try again later");
        assert_eq!(second.answer(), "");
        assert_eq!(first.ask("get a"), "miss");
    });
}

#[test]
fn an_idle_client_does_not_hold_the_end_up() {
    let mut idle = None;
    served(4, 10, |address| {
        let mut client = Client::connect(address);
        assert_eq!(client.ask("get a"), "miss");
        idle = Some(client);
    });
    assert_eq!(idle.unwrap().answer(), "", "the server closed it");
}
