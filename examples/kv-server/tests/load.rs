//! The server on loopback, under load: nothing is lost, whatever clients do.

use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use coreline::call::CallError;
use kv_server::{Shard, Store, server};
use tokio::net::TcpListener;
use tokio::sync::watch;

/// Long enough for a machine that does other things, too.
const LONG: Duration = Duration::from_secs(60);

/// Runs `test` with the address of a server, which ends afterwards.
fn served(queue: usize, clients: usize, test: impl FnOnce(SocketAddr)) {
    let store = Arc::new(Store::new(queue).unwrap());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = watch::channel(());
    let server = runtime.spawn(server::serve(listener, Arc::clone(&store), clients, stopped));
    test(address);
    drop(stop);
    runtime.block_on(server).unwrap();
    store.close();
    assert_eq!(store.on("a", Shard::get).err(), Some(CallError::Closed));
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
fn each_request_does_what_it_says() {
    served(10, 10, |address| {
        let mut client = Client::connect(address);
        for (request, answer) in [
            ("GET a", "NONE"),
            ("SET a x", "OK"),
            ("GET a", "VALUE x"),
            ("INCR n 5", "5"),
            ("INCR n -2", "3"),
            ("MGET a b n", "x - 3"),
            ("LEN", "2"),
            ("MOVE n m 2", "OK"),
            ("MOVE m m 2", "OK"),
            ("MGET n m", "1 2"),
            ("DEL a", "1"),
            ("DEL a", "0"),
            ("LEN", "2"),
        ] {
            assert_eq!(client.ask(request), answer, "{request}");
        }
    });
}

#[test]
fn nothing_is_lost_under_load() {
    const CLIENTS: u64 = 8;
    const ROUNDS: u64 = 100;
    served(1000, 10, |address| {
        let load = |number: u64| {
            let mut client = Client::connect(address);
            for round in 0..ROUNDS {
                assert_eq!(client.ask(&format!("SET {number}-{round} {round}")), "OK");
                client.ask("INCR hits 1");
                client.ask(&format!("INCR purse-{number} 1"));
                // Others may have moved on what was here.
                let (from, to) = ((number + round) % CLIENTS, (number + 3 * round) % CLIENTS);
                let answer = client.ask(&format!("MOVE purse-{from} purse-{to} 1"));
                assert!(answer == "OK" || answer.contains("smaller"), "{answer}");
            }
        };
        thread::scope(|scope| (0..CLIENTS).for_each(|it| _ = scope.spawn(move || load(it))));
        let mut client = Client::connect(address);
        assert_eq!(client.ask("GET hits"), format!("VALUE {}", CLIENTS * ROUNDS));
        assert_eq!(total(&mut client, CLIENTS), CLIENTS * ROUNDS);
        for number in 0..CLIENTS {
            let keys: Vec<_> = (0..ROUNDS).map(|round| format!("{number}-{round}")).collect();
            let values: Vec<_> = (0..ROUNDS).map(|round| round.to_string()).collect();
            assert_eq!(client.ask(&format!("MGET {}", keys.join(" "))), values.join(" "));
        }
        let purses = (0..CLIENTS).filter(|it| client.ask(&format!("GET purse-{it}")) != "NONE");
        let keys = CLIENTS * ROUNDS + 1 + purses.count() as u64;
        assert_eq!(client.ask("LEN"), keys.to_string());
    });
}

/// What is in all purses together.
fn total(client: &mut Client, purses: u64) -> u64 {
    let keys: Vec<_> = (0..purses).map(|it| format!("purse-{it}")).collect();
    let values = client.ask(&format!("MGET {}", keys.join(" ")));
    values.split(' ').map(|value| value.parse().unwrap_or(0)).sum()
}

#[test]
fn a_client_that_goes_away_in_the_middle_of_a_move_loses_nothing() {
    const MOVES: u64 = 200;
    served(1000, 1000, |address| {
        let mut client = Client::connect(address);
        assert_eq!(client.ask(&format!("INCR purse-0 {MOVES}")), MOVES.to_string());
        for number in 0..MOVES {
            let mut cut = Client::connect(address);
            cut.send(format!("MOVE purse-0 purse-{} 1\n", 1 + number % 7).as_bytes());
            cut.0.get_ref().shutdown(Shutdown::Both).unwrap();
        }
        // All moves have begun. From then on, each ends, so the sum becomes what it was.
        let begun = Instant::now();
        while client.ask("GET purse-0") != "VALUE 0" {
            assert!(begun.elapsed() < LONG, "not all moves have begun");
        }
        while total(&mut client, 8) < MOVES {
            assert!(begun.elapsed() < LONG, "some numbers are lost");
        }
        assert_eq!(total(&mut client, 8), MOVES);
    });
}

#[test]
fn a_move_goes_on_without_its_reply() {
    const MOVES: u32 = 200;
    let store = Store::new(usize::MAX).unwrap();
    let value = |key: &str| store.on(key, Shard::get).unwrap().wait().unwrap_or("0".into());
    store.on("from", |shard, key| shard.add(key, MOVES.into())).unwrap().wait().unwrap();
    for number in 0..MOVES {
        drop(store.transfer("from", &format!("to-{}", number % 7), 1).unwrap());
    }
    let moved = || (0..7).map(|to| value(&format!("to-{to}")).parse::<u32>().unwrap()).sum::<u32>();
    while moved() != MOVES {
        thread::yield_now();
    }
    assert_eq!(value("from"), "0");
    store.close();
}

#[test]
fn what_cannot_be_done_is_refused_with_the_reason() {
    served(10, 10, |address| {
        let mut client = Client::connect(address);
        for request in ["", "GET", "GET a b", "SET a", "get a", "MGET", "LEN a", "MOVE a b"] {
            let answer = client.ask(request);
            assert!(answer.starts_with("ERR no such request"), "{request}: {answer}");
        }
        let most = "MGET".to_owned() + &" a".repeat(128);
        assert_eq!(client.ask(&most), ["-"; 128].join(" "));
        assert!(client.ask(&(most + " a")).starts_with("ERR no such request"));
        client.send(b"GET \xff\n");
        assert!(client.answer().starts_with("ERR no such request"));
        assert_eq!(client.ask("SET text x"), "OK");
        assert_eq!(client.ask("SET few 1"), "OK");
        for (request, why) in [
            ("INCR text 1", "no integer"),
            ("INCR few 1.5", "no integer"),
            ("MOVE few text 1", "no integer"),
            ("MOVE few other -1", "no integer"),
            ("MOVE few other 2", "smaller"),
            ("MOVE none other 1", "smaller"),
        ] {
            let answer = client.ask(request);
            assert!(answer.starts_with("ERR") && answer.contains(why), "{request}: {answer}");
        }
        // What could not be added went back.
        assert_eq!(client.ask("MGET text few other"), "x 1 -");
        let mut endless = Client::connect(address);
        endless.send(&[b'x'; 4096]);
        assert_eq!(endless.answer(), "ERR the line has no end");
        assert_eq!(endless.answer(), "");
        let mut cut = Client::connect(address);
        cut.send(b"SET few 2");
        cut.0.get_ref().shutdown(Shutdown::Write).unwrap();
        assert_eq!(cut.answer(), "ERR the line has no end");
        assert_eq!(client.ask("GET few"), "VALUE 1");
    });
}

#[test]
fn a_full_queue_refuses_moves_and_nothing_else() {
    served(0, 10, |address| {
        let mut client = Client::connect(address);
        assert_eq!(client.ask("INCR a 1"), "1");
        let answer = client.ask("MOVE a b 1");
        assert!(answer.starts_with("ERR the queue of tasks is full"), "{answer}");
        assert_eq!(client.ask("MGET a b"), "1 -");
    });
}

#[test]
fn clients_beyond_the_limit_are_refused() {
    served(10, 1, |address| {
        let mut first = Client::connect(address);
        assert_eq!(first.ask("GET a"), "NONE");
        let mut second = Client::connect(address);
        assert_eq!(second.answer(), "ERR too many connections, try again later");
        assert_eq!(second.answer(), "");
        assert_eq!(first.ask("GET a"), "NONE");
    });
}

#[test]
fn an_idle_client_does_not_hold_the_end_up() {
    let mut idle = None;
    served(10, 10, |address| {
        let mut client = Client::connect(address);
        assert_eq!(client.ask("GET a"), "NONE");
        idle = Some(client);
    });
    assert_eq!(idle.unwrap().answer(), "", "the server closed it");
}
