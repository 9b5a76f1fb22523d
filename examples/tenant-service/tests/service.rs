//! The service over loopback: what was sent is counted, whatever clients do.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use coreline::world::{Clock, Native};
use tenant_service::load::{self, Client, Load};
use tenant_service::{
    Buffer, OnDomains, OnMap, OnShards, Served, Service, Store, StoreError, Totals,
};
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

const BUFFERS: usize = 64;
const CLIENTS: usize = 200;

/// Long enough for a machine that does other things, too; what is late fails a request, and with
/// it the test.
const PATIENCE: Duration = Duration::from_secs(60);

/// A service, and the futures of a test of it.
fn served<S: Store, F: Future>(
    tenants: usize,
    patience: Duration,
    test: impl FnOnce(Arc<Service<S>>, SocketAddr) -> F,
) -> F::Output {
    let runtime = Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let service = Arc::new(Service::<S>::new(tenants, BUFFERS, patience).unwrap());
        let address = load::serve(Arc::clone(&service)).await.unwrap();
        test(service, address).await
    })
}

/// Waits until it is so.
async fn until(is_so: impl Fn() -> bool) {
    let wait = async {
        while !is_so() {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, wait).await.expect("it never was so");
}

/// The body of a request, in two parts, and the answer to it: 40 lines, which tell requests apart.
fn body(number: usize) -> [String; 3] {
    let line = |n: usize| format!("{:03} {number}\n", (n * 7919) % 1000);
    let mut lines: Vec<String> = (0..40).map(line).collect();
    let parts = [lines[..20].concat(), lines[20..].concat()];
    lines.sort();
    let [first, second] = parts;
    [first, second, lines.concat()]
}

/// This many clients that have each sent a half of their request.
async fn halves(
    address: SocketAddr,
    clients: usize,
    tenant: impl Fn(usize) -> usize,
) -> Vec<Client> {
    let mut all = Vec::new();
    for number in 0..clients {
        let [first, second, _] = body(number);
        let mut client = Client::connect(address).await.unwrap();
        let length = first.len() + second.len();
        client.begin(tenant(number), length, first.as_bytes()).await.unwrap();
        all.push(client);
    }
    all
}

/// Each sends its other half, all at once, and gets its own lines.
async fn finish(clients: impl Iterator<Item = (usize, Client)>) {
    let mut tasks = JoinSet::new();
    for (number, mut client) in clients {
        tasks.spawn(async move {
            let [_, second, sorted] = body(number);
            let answer = client.finish(second.as_bytes()).await.unwrap();
            assert_eq!(answer.status, 200);
            assert_eq!(String::from_utf8(answer.body).unwrap(), sorted, "of request {number}");
        });
    }
    tasks.join_all().await;
}

/// What the counters say of this many answered requests, without the time that they took.
fn answered(numbers: impl Iterator<Item = usize>) -> Totals {
    numbers.fold(Totals::default(), |sum, number| {
        let bytes = body(number)[2].len() as u64;
        let Totals { requests, received, sent, .. } = sum;
        Totals { requests: requests + 1, received: received + bytes, sent: sent + bytes, ..sum }
    })
}

fn without_time(totals: Totals) -> Totals {
    Totals { busy: 0, ..totals }
}

/// 200 requests at once for one tenant that has 64 buffers.
async fn none_is_lost<S: Store>(service: Arc<Service<S>>, address: SocketAddr) {
    let clients = halves(address, CLIENTS, |_| 1).await;
    until(|| service.store().leased(1) == BUFFERS).await;
    finish(clients.into_iter().enumerate()).await;
    until(|| service.leased() == 0).await;
    assert_eq!(without_time(service.store().totals(1)), answered(0..CLIENTS));
    assert_eq!(service.store().totals(0), Totals::default());
    assert!(service.store().totals(1).busy > 0);
}

#[test]
fn two_hundred_requests_share_64_leases_and_none_is_lost() {
    served(2, PATIENCE, none_is_lost::<OnDomains>);
    served(2, PATIENCE, none_is_lost::<OnMap>);
    served(2, PATIENCE, none_is_lost::<OnShards>);
}

/// Loses each hundredth request.
struct Losing {
    store: OnShards,
    counted: AtomicU64,
}

impl Store for Losing {
    const NAME: &'static str = "losing";

    type Buffer = <OnShards as Store>::Buffer;

    fn new(tenants: usize, buffers: usize) -> Result<Self, StoreError> {
        Ok(Losing { store: OnShards::new(tenants, buffers)?, counted: AtomicU64::new(0) })
    }

    fn count(&self, tenant: usize, served: Served) {
        if !self.counted.fetch_add(1, Ordering::Relaxed).is_multiple_of(100) {
            self.store.count(tenant, served);
        }
    }

    fn totals(&self, tenant: usize) -> Totals {
        self.store.totals(tenant)
    }

    async fn lease(&self, tenant: usize) -> Result<Self::Buffer, StoreError> {
        self.store.lease(tenant).await
    }

    fn leased(&self, tenant: usize) -> usize {
        self.store.leased(tenant)
    }
}

#[test]
#[should_panic(expected = "requests: 198")]
fn a_store_that_loses_requests_is_caught() {
    served(2, PATIENCE, none_is_lost::<Losing>);
}

/// Every second client goes away half-way, with a buffer or without.
async fn cancelled_gives_back<S: Store>(service: Arc<Service<S>>, address: SocketAddr) {
    let clients = halves(address, CLIENTS, |_| 0).await;
    until(|| service.leased() == BUFFERS).await;
    let (stay, go): (Vec<_>, Vec<_>) =
        clients.into_iter().enumerate().partition(|(number, _)| number.is_multiple_of(2));
    drop(go);
    finish(stay.into_iter()).await;
    until(|| service.totals().requests == CLIENTS as u64 && service.leased() == 0).await;
    let (totals, stayed) = (service.totals(), answered((0..CLIENTS).step_by(2)));
    assert_eq!((totals.failed, totals.sent), (CLIENTS as u64 / 2, stayed.sent));
    // All buffers are there again: as many requests have one each.
    let clients = halves(address, BUFFERS, |_| 0).await;
    until(|| service.leased() == BUFFERS).await;
    finish(clients.into_iter().enumerate()).await;
    until(|| service.leased() == 0).await;
}

#[test]
fn requests_that_are_cancelled_give_their_leases_back() {
    served(1, PATIENCE, cancelled_gives_back::<OnDomains>);
    served(1, PATIENCE, cancelled_gives_back::<OnMap>);
    served(1, PATIENCE, cancelled_gives_back::<OnShards>);
}

/// With all buffers taken, a request is refused when it has waited for long enough; it is served as
/// soon as there is one.
async fn refuses<S: Store>(service: Arc<Service<S>>, address: SocketAddr) {
    let taken = halves(address, BUFFERS, |_| 0).await;
    until(|| service.leased() == BUFFERS).await;
    let mut client = Client::connect(address).await.unwrap();
    assert_eq!(client.sort(0, b"b\na\n").await.unwrap().status, 503);
    // Those that have theirs wait for nothing.
    finish(taken.into_iter().enumerate()).await;
    until(|| service.leased() == 0).await;
    let mut client = Client::connect(address).await.unwrap();
    assert_eq!(client.sort(0, b"b\na\n").await.unwrap().body, b"a\nb\n");
    assert_eq!(client.sort(9, b"b\n").await.unwrap().status, 404);
    let mut client = Client::connect(address).await.unwrap();
    assert_eq!(client.sort(0, &[b'\n'; 100_000]).await.unwrap().status, 413);
    assert_eq!((service.totals().failed, service.leased()), (2, 0));
}

#[test]
fn a_request_that_cannot_be_served_is_refused() {
    served(1, Duration::from_millis(50), refuses::<OnDomains>);
    served(1, Duration::from_millis(50), refuses::<OnShards>);
}

/// The samples of a page by their names, those of all tenants together.
fn sums(page: &str) -> HashMap<String, f64> {
    let mut sums = HashMap::new();
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').unwrap();
        let name = if name.contains("le=") { name } else { name.split('{').next().unwrap() };
        *sums.entry(name.to_owned()).or_default() += value.parse::<f64>().unwrap();
    }
    sums
}

/// The page after a load.
async fn page_is_the_sum<S: Store>(service: Arc<Service<S>>, address: SocketAddr) {
    let lines = body(7)[0].clone().into_bytes();
    let load = Load { tenants: service.tenants(), concurrency: 20, lines: lines.clone().into() };
    let round = load.run(address, Duration::from_millis(200), 1).await.unwrap();
    until(|| service.leased() == 0).await;
    let answer = Client::connect(address).await.unwrap().get("/metrics").await.unwrap();
    let page = String::from_utf8(answer.body).unwrap();
    let (sums, requests) = (sums(&page), round.latencies.len() as f64);
    for (name, sum) in [
        ("tenant_requests_total", requests),
        ("tenant_failed_total", 0.0),
        ("tenant_received_bytes_total", requests * lines.len() as f64),
        ("tenant_sent_bytes_total", requests * lines.len() as f64),
        ("tenant_busy_nanoseconds_total", service.totals().busy as f64),
        ("leased_buffers", 0.0),
        ("request_seconds_count", requests),
        ("request_seconds_bucket{le=\"+Inf\"}", requests),
    ] {
        assert_eq!(sums.get(name), Some(&sum), "{name}:\n{page}");
    }
    let seconds = service.totals().busy as f64 / 1e9;
    assert!((sums["request_seconds_sum"] - seconds).abs() < 1e-6, "{page}");
    assert!(page.contains("tenant_requests_total{tenant=\"3\"}") && page.ends_with("# EOF\n"));
}

#[test]
fn the_page_for_prometheus_is_the_sum_of_what_was_counted() {
    served(5, PATIENCE, page_is_the_sum::<OnDomains>);
    served(5, PATIENCE, page_is_the_sum::<OnMap>);
    served(5, PATIENCE, page_is_the_sum::<OnShards>);
}

/// Threads that wait asleep, and tasks, for the same buffers.
#[test]
fn threads_and_tasks_wait_in_one_queue() {
    served(1, PATIENCE, |service: Arc<Service<OnDomains>>, address| async move {
        let clients = halves(address, CLIENTS, |_| 0).await;
        until(|| service.leased() == BUFFERS).await;
        let soon = service.store().lease_by(0, Native::now() + Duration::from_millis(1));
        assert!(matches!(soon, Err(StoreError::Lease(_))), "all are taken");
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let service = Arc::clone(&service);
                std::thread::spawn(move || {
                    let mut buffer = service.store().lease_by(0, Native::now() + PATIENCE).unwrap();
                    buffer.lines().clear();
                    buffer.lines().push(b"x");
                })
            })
            .collect();
        finish(clients.into_iter().enumerate()).await;
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        until(|| service.leased() == 0).await;
        assert_eq!(without_time(service.totals()), answered(0..CLIENTS));
    });
}
