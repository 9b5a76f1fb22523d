//! A link shortener over HTTP, whose metrics are recorded by all CPUs for each request.
//!
//! | request | answer |
//! |---|---|
//! | `POST /links`, with a URL as the body | 201, and the path of the new link |
//! | `GET /l/7` | 307 to the URL |
//! | `GET /metrics` | the page for Prometheus |
//!
//! The service records through the facade `metrics`. `main` installs the recorder of
//! `coreline-metrics`, and the tests also use another one.

mod links;
mod metered;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use metrics::{Unit, describe_counter, describe_histogram};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::time::timeout;

pub use links::Links;
pub use metered::Route;

/// Upper bounds of the buckets of latencies, in seconds.
pub const BOUNDS: [f64; 9] = [0.000_05, 0.000_1, 0.000_2, 0.000_5, 0.001, 0.002, 0.005, 0.02, 0.1];

/// The longest body that the service reads, in bytes.
const LONGEST: usize = 2048;

/// The routes. They record by the recorder that this thread has now: the program's, or the one of
/// `metrics::with_local_recorder`.
///
/// `page` renders the page for Prometheus.
pub fn router(links: Links, page: impl Fn() -> String + Clone + Send + Sync + 'static) -> Router {
    describe_counter!("http_requests_total", "Requests that were answered");
    describe_counter!("http_aborted_total", "Requests whose client did not wait for the answer");
    describe_histogram!("http_request_seconds", Unit::Seconds, "The time until the answer");
    let metered = |route| from_fn_with_state(Arc::new(Route::new(route)), metered::measure);
    Router::new()
        .route("/links", post(shorten).layer(metered("/links")))
        .route("/l/{link}", get(follow).layer(metered("/l")))
        .route("/metrics", get(async move || page()))
        .fallback(get(async || StatusCode::NOT_FOUND).layer(metered("other")))
        .layer(DefaultBodyLimit::max(LONGEST))
        .with_state(Arc::new(links))
}

async fn shorten(State(links): State<Arc<Links>>, url: String) -> Response {
    if !url.starts_with("https://") || url.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return (StatusCode::BAD_REQUEST, "the body must be an https:// URL\n").into_response();
    }
    match links.add(url) {
        Some(link) => (StatusCode::CREATED, format!("/l/{link}\n")).into_response(),
        None => (StatusCode::INSUFFICIENT_STORAGE, "no room: raise --links\n").into_response(),
    }
}

async fn follow(State(links): State<Arc<Links>>, Path(link): Path<usize>) -> Response {
    match links.url(link) {
        Some(url) => (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, url)]).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

/// Serves until `stop` is sent or dropped. Then it accepts no more connections, and gives the
/// requests in progress `grace` to end.
///
/// # Errors
///
/// The error of the listener. [`io::ErrorKind::TimedOut`] if a request outlived `grace`.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    stop: oneshot::Receiver<()>,
    grace: Duration,
) -> io::Result<()> {
    let (stopping, stopped) = oneshot::channel();
    let until = async {
        _ = stop.await;
        _ = stopping.send(());
    };
    let server = axum::serve(listener, router).with_graceful_shutdown(until).into_future();
    let server = tokio::spawn(server);
    _ = stopped.await;
    let aborts = server.abort_handle();
    let ended = timeout(grace, server).await;
    aborts.abort();
    ended.map_err(|_| io::ErrorKind::TimedOut)??
}
