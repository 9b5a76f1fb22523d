//! The page for Prometheus. Nothing is kept for it: what is counted by CPU is summed when the page
//! is asked for.

use std::fmt;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::service::{LATENCIES, Service};
use crate::store::{Store, Totals};

pub(crate) async fn page<S: Store>(State(service): State<Arc<Service<S>>>) -> Response {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Collected(service)));
    let mut text = String::new();
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    match encode(&mut text, &registry) {
        Ok(()) => ([(header::CONTENT_TYPE, kind)], text).into_response(),
        Err(fmt::Error) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

struct Collected<S>(Arc<Service<S>>);

impl<S> fmt::Debug for Collected<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Collected")
    }
}

/// Name, help, and which of a tenant's sums.
type Counter = (&'static str, &'static str, fn(&Totals) -> u64);

const COUNTERS: [Counter; 5] = [
    ("tenant_requests", "Requests that ended", |it| it.requests),
    ("tenant_failed", "Requests that were refused or abandoned", |it| it.failed),
    ("tenant_received_bytes", "Bytes of the requests' bodies", |it| it.received),
    ("tenant_sent_bytes", "Bytes of the answers", |it| it.sent),
    ("tenant_busy_nanoseconds", "How long requests took", |it| it.busy),
];

impl<S: Store> Collector for Collected<S> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Collected(service) = self;
        let totals: Vec<_> =
            (0..service.tenants()).map(|tenant| service.store().totals(tenant)).collect();
        for (name, help, sum) in COUNTERS {
            let mut counter = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            // Tenants that were never heard of would fill the page.
            for (tenant, totals) in totals.iter().enumerate().filter(|(_, it)| it.requests > 0) {
                let labels = [("tenant", tenant)];
                ConstCounter::new(sum(totals)).encode(counter.encode_family(&labels)?)?;
            }
        }
        let help = "Buffers that requests have now";
        let gauge = encoder.encode_descriptor("leased_buffers", help, None, MetricType::Gauge)?;
        ConstGauge::new(service.leased() as u64).encode(gauge)?;
        let help = "How long requests of all tenants took";
        let name = "request_seconds";
        let mut histogram = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        let (counts, sum) = service.latencies();
        let seconds = |nanoseconds: u64| nanoseconds as f64 / 1e9;
        let bounds =
            LATENCIES.into_iter().map(|bound| seconds(bound * 1000)).chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
        histogram.encode_histogram::<NoLabelSet>(seconds(sum), counts.iter().sum(), &buckets, None)
    }
}
