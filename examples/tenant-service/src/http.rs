//! How a request takes a buffer, and where it is counted.

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http_body_util::BodyExt;
use tokio::time::{timeout, timeout_at};

use crate::metrics;
use crate::service::Service;
use crate::store::{Buffer, Outcome, Served, Store};

/// The largest body that is taken, in bytes.
const LARGEST: usize = 64 * 1024;

/// What a service answers to: `POST /tenants/NUMBER/sort` and `GET /metrics`.
pub fn router<S: Store>(service: Arc<Service<S>>) -> Router {
    Router::new()
        .route("/tenants/{tenant}/sort", post(sort::<S>))
        .route("/metrics", get(metrics::page::<S>))
        .with_state(service)
}

/// A buffer that goes back with little in it, however its request ends.
struct Used<B: Buffer>(B);

impl<B: Buffer> Drop for Used<B> {
    fn drop(&mut self) {
        self.0.lines().rest();
    }
}

/// A request under way. If it is dropped before it is answered it has failed: the client may have
/// gone away, and with it what handles the request.
struct Request<S: Store> {
    service: Arc<Service<S>>,
    tenant: usize,
    begun: Instant,
    served: Served,
}

impl<S: Store> Request<S> {
    fn new(service: Arc<Service<S>>, tenant: usize) -> Self {
        let served = Served { outcome: Outcome::Failed, received: 0, sent: 0, busy: 0 };
        Request { service, tenant, begun: Instant::now(), served }
    }

    /// A buffer with the sorted lines of the body.
    async fn sorted(&mut self, mut body: Body) -> Result<Used<S::Buffer>, StatusCode> {
        let deadline = Instant::now() + self.service.hurry();
        let late = |_| StatusCode::REQUEST_TIMEOUT;
        // A client that sends nothing has no buffer. Once it has begun it has one, and what is not
        // read yet waits with the client, and in no memory of ours.
        let mut part = timeout_at(deadline.into(), body.frame()).await.map_err(late)?;
        let lease = timeout(self.service.patience(), self.service.store().lease(self.tenant)).await;
        let lease = lease.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
        let mut buffer = Used(lease.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?);
        // The wait for a buffer is no delay of the client's.
        let deadline = Instant::now() + self.service.hurry();
        let lines = buffer.0.lines();
        lines.clear();
        while let Some(frame) = part {
            let frame = frame.map_err(|_| StatusCode::BAD_REQUEST)?;
            if let Some(data) = frame.data_ref() {
                if lines.len() + data.len() > LARGEST {
                    return Err(StatusCode::PAYLOAD_TOO_LARGE);
                }
                lines.push(data);
                self.served.received += data.len() as u64;
            }
            part = timeout_at(deadline.into(), body.frame()).await.map_err(late)?;
        }
        lines.sort();
        Ok(buffer)
    }
}

impl<S: Store> Request<S> {
    /// Ends it with this answer. A client may take as long as it likes to read it: the buffer is
    /// free by then.
    fn answered(mut self, mut buffer: Used<S::Buffer>) -> Vec<u8> {
        let lines = buffer.0.lines();
        let mut answer = Vec::with_capacity(lines.len());
        (0..).map_while(|number| lines.line(number)).for_each(|it| answer.extend_from_slice(it));
        (self.served.outcome, self.served.sent) = (Outcome::Answered, answer.len() as u64);
        self.served.busy = self.begun.elapsed().as_nanos() as u64;
        self.service.store().count_with(self.tenant, &mut buffer.0, self.served);
        self.service.count(self.served.busy);
        answer
    }
}

impl<S: Store> Drop for Request<S> {
    fn drop(&mut self) {
        if self.served.outcome == Outcome::Failed {
            self.served.busy = self.begun.elapsed().as_nanos() as u64;
            self.service.store().count(self.tenant, self.served);
            self.service.count(self.served.busy);
        }
    }
}

async fn sort<S: Store>(
    State(service): State<Arc<Service<S>>>,
    Path(tenant): Path<usize>,
    body: Body,
) -> Response {
    if tenant >= service.tenants() {
        return StatusCode::NOT_FOUND.into_response();
    }
    let mut request = Request::new(service, tenant);
    match request.sorted(body).await {
        Ok(buffer) => {
            let kind = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
            (kind, request.answered(buffer)).into_response()
        }
        Err(status) => status.into_response(),
    }
}
