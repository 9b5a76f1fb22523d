//! The service on loopback, under load: each request is counted once, whatever clients do.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use axum::Router;
use coreline_metrics::Recorder;
use metrics::with_local_recorder;
use metrics_exporter_prometheus::PrometheusBuilder;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use web_metrics::{BOUNDS, Links, router, serve};

/// Long enough for a machine that does other things, too.
const LONG: Duration = Duration::from_secs(60);

/// A service with room for this many links.
fn ours(links: usize) -> Router {
    let recorder = Recorder::builder().bounds(&BOUNDS).unwrap().build();
    let handle = recorder.handle();
    with_local_recorder(&recorder, || router(Links::new(links), move || handle.render()))
}

/// The same service with another recorder.
fn exporter(links: usize) -> Router {
    let recorder = PrometheusBuilder::new().set_buckets(&BOUNDS).unwrap().build_recorder();
    let handle = recorder.handle();
    with_local_recorder(&recorder, || router(Links::new(links), move || handle.render()))
}

/// Runs `test` with the address of the service, which ends without an error afterwards.
fn served(router: Router, test: impl FnOnce(SocketAddr)) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel();
    let server = runtime.spawn(serve(listener, router, stopped, LONG));
    test(address);
    stop.send(()).unwrap();
    runtime.block_on(server).unwrap().unwrap();
}

/// A connection that stays open from one request to the next.
struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        Client(BufReader::new(stream))
    }

    fn send(&mut self, text: &str) {
        self.0.get_mut().write_all(text.as_bytes()).unwrap();
    }

    /// The status of the next answer, and its body.
    fn answer(&mut self) -> (u16, String) {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        let status = line.split(' ').nth(1).expect(&line).parse().unwrap();
        let mut length = 0;
        while !line.trim_end().is_empty() {
            line.clear();
            self.0.read_line(&mut line).unwrap();
            if let Some(bytes) = line.strip_prefix("content-length: ") {
                length = bytes.trim_end().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).unwrap();
        (status, String::from_utf8(body).unwrap())
    }

    fn get(&mut self, path: &str) -> (u16, String) {
        self.send(&format!("GET {path} HTTP/1.1\r\nhost: test\r\n\r\n"));
        self.answer()
    }

    fn post(&mut self, body: &str) -> (u16, String) {
        let length = body.len();
        self.send(&format!(
            "POST /links HTTP/1.1\r\nhost: test\r\ncontent-length: {length}\r\n\r\n{body}"
        ));
        self.answer()
    }
}

/// The value of a sample of the page.
fn sample(page: &str, name: &str) -> u64 {
    let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("no {name} in\n{page}")).parse().unwrap()
}

fn requests(page: &str, route: &str, status: &str) -> u64 {
    sample(page, &format!("http_requests_total{{route=\"{route}\",status=\"{status}\"}}"))
}

fn seconds(page: &str, route: &str) -> u64 {
    sample(page, &format!("http_request_seconds_count{{route=\"{route}\"}}"))
}

fn counts_all(service: Router) {
    const CLIENTS: u64 = 8;
    const ROUNDS: u64 = 100;
    served(service, |address| {
        let load = || {
            let mut client = Client::connect(address);
            for round in 0..ROUNDS {
                let (status, path) = client.post(&format!("https://example.org/{round}"));
                assert_eq!(status, 201, "{path}");
                assert_eq!(client.get(path.trim_end()).0, 307);
                assert_eq!(client.get("/l/123456").0, 404);
                assert_eq!(client.get("/elsewhere").0, 404);
            }
        };
        thread::scope(|scope| (0..CLIENTS).for_each(|_| _ = scope.spawn(load)));
        let (status, page) = Client::connect(address).get("/metrics");
        let all = CLIENTS * ROUNDS;
        assert_eq!(status, 200);
        assert_eq!((requests(&page, "/links", "2xx"), seconds(&page, "/links")), (all, all));
        assert_eq!((requests(&page, "/l", "3xx"), requests(&page, "/l", "4xx")), (all, all));
        assert_eq!((seconds(&page, "/l"), requests(&page, "other", "4xx")), (2 * all, all));
        assert_eq!(requests(&page, "/l", "5xx"), 0);
        assert_eq!(sample(&page, "http_aborted_total{route=\"/links\"}"), 0);
    });
}

#[test]
fn each_request_is_counted_once() {
    counts_all(ours(1000));
    counts_all(exporter(1000));
}

#[test]
fn requests_that_cannot_be_served_are_refused_and_counted() {
    served(ours(1), |address| {
        let mut client = Client::connect(address);
        assert_eq!(client.post("gopher://example.org").0, 400);
        assert_eq!(client.post("https://example.org/a b").0, 400);
        assert_eq!(client.post("https://example.org").0, 201);
        let (status, why) = client.post("https://example.org/2");
        assert!(status == 507 && why.contains("--links"), "{status} {why}");
        assert_eq!(client.get("/l/one").0, 400);
        assert_eq!(client.get("/links").0, 405);
        let mut large = Client::connect(address);
        assert_eq!(large.post(&"x".repeat(3000)).0, 413);
        let mut strange = Client::connect(address);
        strange.send("no HTTP\r\n\r\n");
        assert_eq!(strange.answer().0, 400);
        let (_, page) = client.get("/metrics");
        // The layer is around the route's handlers, and what is no HTTP has no route.
        assert_eq!(requests(&page, "/links", "4xx"), 4);
        assert_eq!(requests(&page, "/links", "2xx") + requests(&page, "/links", "5xx"), 2);
        assert_eq!(requests(&page, "/l", "4xx"), 1);
    });
}

#[test]
fn a_client_that_goes_away_is_counted_once() {
    served(ours(1), |address| {
        for _ in 0..10 {
            let mut client = Client::connect(address);
            client.send("POST /links HTTP/1.1\r\nhost: test\r\ncontent-length: 99\r\n\r\nhttps://");
            client.0.get_ref().shutdown(Shutdown::Both).unwrap();
        }
        let mut client = Client::connect(address);
        // The service notices when it next looks at each connection.
        let all = |page: &str| {
            requests(page, "/links", "4xx") + sample(page, "http_aborted_total{route=\"/links\"}")
        };
        while all(&client.get("/metrics").1) < 10 {
            thread::yield_now();
        }
        assert_eq!(client.post("https://example.org").0, 201);
        assert_eq!(all(&client.get("/metrics").1), 10);
    });
}

#[test]
fn a_request_that_does_not_end_holds_the_service_up_for_its_grace_only() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let server = tokio::spawn(serve(listener, ours(1), stopped, Duration::from_millis(1)));
        let client = tokio::task::spawn_blocking(move || {
            let mut client = Client::connect(address);
            // One whole request, so that the service has this connection, and half of another.
            assert_eq!(client.get("/l/0").0, 404);
            client.send("POST /links HTTP/1.1\r\nhost: test\r\ncontent-length: 99\r\n\r\nhttps://");
            client
        });
        let _client = client.await.unwrap();
        stop.send(()).unwrap();
        let ended = server.await.unwrap();
        assert!(ended.is_ok() || ended.is_err_and(|it| it.kind() == std::io::ErrorKind::TimedOut));
    });
}
