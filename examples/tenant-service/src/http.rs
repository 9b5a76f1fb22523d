//! How a request takes a buffer, and where it is counted.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::time::timeout;

use crate::metrics;
use crate::service::Service;
use crate::store::{Buffer, Outcome, Served, Store};

/// The largest body that is taken, in bytes.
const LARGEST: usize = 64 * 1024;

/// About how many bytes of an answer are sent at once.
const PART: usize = 4096;

/// What a service answers to: `POST /tenants/NUMBER/sort` and `GET /metrics`.
pub fn router<S: Store>(service: Arc<Service<S>>) -> Router {
    Router::new()
        .route("/tenants/{tenant}/sort", post(sort::<S>))
        .route("/metrics", get(metrics::page::<S>))
        .with_state(service)
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
    async fn sorted(&mut self, mut body: Body) -> Result<S::Buffer, StatusCode> {
        // The buffer first: what is not read yet waits with the client, and in no memory of ours.
        let lease = timeout(self.service.patience(), self.service.store().lease(self.tenant)).await;
        let lease = lease.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
        let mut buffer = lease.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
        let lines = buffer.lines();
        lines.clear();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| StatusCode::BAD_REQUEST)?;
            if let Some(data) = frame.data_ref() {
                if lines.len() + data.len() > LARGEST {
                    return Err(StatusCode::PAYLOAD_TOO_LARGE);
                }
                lines.push(data);
                self.served.received += data.len() as u64;
            }
        }
        lines.sort();
        Ok(buffer)
    }
}

impl<S: Store> Request<S> {
    /// Ends it with this answer.
    fn answered(mut self, mut buffer: S::Buffer) -> Answer<S::Buffer> {
        let left = buffer.lines().len() as u64;
        (self.served.outcome, self.served.sent) = (Outcome::Answered, left);
        self.served.busy = self.begun.elapsed().as_nanos() as u64;
        self.service.store().count_with(self.tenant, &mut buffer, self.served);
        self.service.count(self.served.busy);
        Answer { buffer: Some(buffer), next: 0, left }
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
            (kind, Body::new(request.answered(buffer))).into_response()
        }
        Err(status) => status.into_response(),
    }
}

/// The body of an answer: has the buffer until the last line of it is sent.
struct Answer<B> {
    buffer: Option<B>,
    next: usize,
    /// Bytes that are not sent yet.
    left: u64,
}

impl<B: Buffer> http_body::Body for Answer<B> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Answer { buffer, next, left } = &mut *self;
        let Some(lines) = buffer.as_mut().map(Buffer::lines) else { return Poll::Ready(None) };
        let mut part = Vec::with_capacity(PART.min(*left as usize));
        while part.len() < PART
            && let Some(line) = lines.line(*next)
        {
            part.extend_from_slice(line);
            *next += 1;
        }
        *left -= part.len() as u64;
        if *left == 0 {
            *buffer = None;
        }
        Poll::Ready((!part.is_empty()).then(|| Ok(Frame::data(part.into()))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}
