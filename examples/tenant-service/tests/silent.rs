//! Clients that say nothing block no tenant.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use tenant_service::load::{self, Client};
use tenant_service::{OnDomains, OnShards, Service, Store};
use tokio::runtime::Builder;

const BUFFERS: usize = 4;
const LONG: Duration = Duration::from_secs(60);

/// A tenant, all of whose buffers are asked for by clients that have sent this many bytes of ten.
async fn asked<S: Store>(
    sent: usize,
    hurry: Duration,
) -> (Arc<Service<S>>, SocketAddr, Vec<Client>) {
    let service = Service::<S>::new(1, BUFFERS, LONG).unwrap().with_hurry(hurry);
    let service = Arc::new(service);
    let address = load::serve(Arc::clone(&service)).await.unwrap();
    let mut clients = Vec::new();
    for _ in 0..BUFFERS {
        let mut client = Client::connect(address).await.unwrap();
        client.begin(0, 10, &b"0123456789"[..sent]).await.unwrap();
        clients.push(client);
    }
    (service, address, clients)
}

/// Another client is served; those that were late are told so, and have nothing any more.
async fn serves_others<S: Store>() {
    // Those that have sent nothing take no buffer, whatever time they have.
    let (service, address, silent) = asked::<S>(0, LONG).await;
    let mut client = Client::connect(address).await.unwrap();
    assert_eq!(client.sort(0, b"b\na\n").await.unwrap().body, b"a\nb\n");
    assert_eq!(service.leased(), 0);
    drop(silent);

    for sent in [0, 5] {
        let (service, address, silent) = asked::<S>(sent, Duration::from_millis(20)).await;
        let mut client = Client::connect(address).await.unwrap();
        assert_eq!(client.sort(0, b"b\na\n").await.unwrap().status, 200, "{sent} bytes");
        for mut client in silent {
            assert_eq!(client.finish(b"").await.unwrap().status, 408, "{sent} bytes");
        }
        let totals = service.totals();
        assert_eq!((totals.requests, totals.failed), (BUFFERS as u64 + 1, BUFFERS as u64));
        assert_eq!(service.leased(), 0);
    }
}

#[test]
fn a_client_that_says_nothing_blocks_no_tenant() {
    let runtime = Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(serves_others::<OnDomains>());
    runtime.block_on(serves_others::<OnShards>());
}

#[test]
fn what_cannot_be_loaded_is_a_usage_error() {
    for (option, value) in [
        ("--seconds", "-1"),
        ("--seconds", "NaN"),
        ("--seconds", "1e300"),
        ("--concurrency", "0"),
        ("--rounds", "0"),
        ("--body", "65537"),
        ("--buffers", "0"),
        ("--buffers", "18446744073709551615"),
        ("--tenants", "0"),
    ] {
        let argument = format!("{option}={value}");
        let told = Command::new(env!("CARGO_BIN_EXE_tenant-service"))
            .args(["load", &argument])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&told.stderr);
        assert!(told.status.code() == Some(2) && text.contains(option), "{argument}: {text}");
    }
}
