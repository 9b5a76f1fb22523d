//! The metrics of a route. Its handles are bound once, so a request looks no label up.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use metrics::{Counter, Histogram, counter, histogram};
use tokio::time::timeout;

/// How long a request may take, with its body. Else clients that send half of one would in time
/// have all connections. It is shorter than the grace at the end of `main`.
const LONGEST_REQUEST: Duration = Duration::from_secs(5);

/// The handles of a route.
pub struct Route {
    /// By the first digit of the status, less one.
    requests: [Counter; 5],
    /// Requests whose client went away before there was an answer.
    aborted: Counter,
    seconds: Histogram,
}

impl Route {
    /// Looks the series of this route up, in the recorder of this thread.
    pub fn new(route: &'static str) -> Self {
        let requests = ["1xx", "2xx", "3xx", "4xx", "5xx"]
            .map(|status| counter!("http_requests_total", "route" => route, "status" => status));
        Route {
            requests,
            aborted: counter!("http_aborted_total", "route" => route),
            seconds: histogram!("http_request_seconds", "route" => route),
        }
    }

    /// Records an answer, which took this long.
    pub fn record(&self, status: StatusCode, took: Duration) {
        let class = usize::from(status.as_u16() / 100).clamp(1, self.requests.len()) - 1;
        self.requests[class].increment(1);
        self.seconds.record(took.as_secs_f64());
    }
}

/// A request in progress. If it is dropped without an answer, its client went away.
struct Pending(Option<Arc<Route>>);

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(route) = self.0.take() {
            route.aborted.increment(1);
        }
    }
}

/// The layer around the handlers of a route.
pub(crate) async fn measure(
    State(route): State<Arc<Route>>,
    request: Request,
    next: Next,
) -> Response {
    let begun = Instant::now();
    let mut pending = Pending(Some(route));
    let response = match timeout(LONGEST_REQUEST, next.run(request)).await {
        Ok(response) => response,
        Err(_) => StatusCode::REQUEST_TIMEOUT.into_response(),
    };
    if let Some(route) = pending.0.take() {
        route.record(response.status(), begun.elapsed());
    }
    response
}
