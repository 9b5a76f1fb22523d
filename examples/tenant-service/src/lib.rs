//! An HTTP service for many tenants, each with counters and a few buffers of its own.
//!
//! `POST /tenants/7/sort` answers with the lines of the body, sorted. A request takes one of its
//! tenant's buffers, waits if all are taken, and gives it back when the last byte of the answer is
//! sent, or when the client goes away. What each tenant did is counted, and `GET /metrics` shows it
//! to Prometheus.
//!
//! The service is generic over where tenants keep that: the [`Store`]. [`OnDomains`] is the one on
//! `coreline`; the others are what one would write without it.

mod http;
pub mod load;
pub mod measure;
mod metrics;
mod service;
mod store;

pub use http::router;
pub use service::{LATENCIES, Service};
pub use store::{
    Buffer, Lines, OnDomains, OnMap, OnShards, Outcome, Served, Store, StoreError, Totals,
};
