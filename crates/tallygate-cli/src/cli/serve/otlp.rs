//! Traces of requests, sent to a collector by OTLP over gRPC.
//!
//! The variables of OpenTelemetry's specification say where the collector is, which requests are traced and what the service
//! is called. Without `OTEL_EXPORTER_OTLP_ENDPOINT` nothing is sent.

use std::env::var_os;

use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, SpanExporter};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};

use crate::cli::logs::Logged;
use crate::cli::terminal::tell;
use crate::cli::{Failure, Result};

/// The sender of traces, if they are sent.
pub struct Traces(Option<SdkTracerProvider>);

impl Traces {
    /// The collector need not be there. Spans that it does not take in time are let go.
    pub fn begin() -> Result<Self> {
        if [OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT]
            .iter()
            .all(|name| var_os(name).is_none())
        {
            return Ok(Self(None));
        }
        let exporter = SpanExporter::builder().with_tonic().build();
        // The address may have a password in it.
        let exporter = exporter.map_err(|_| {
            Failure::new(format!(
                "traces cannot be sent: {OTEL_EXPORTER_OTLP_ENDPOINT} is to be an address as in http://localhost:4317"
            ))
        })?;
        let resource = match var_os("OTEL_SERVICE_NAME") {
            Some(_) => Resource::builder(),
            None => Resource::builder().with_service_name("tallygate"),
        };
        let provider =
            SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource.build());
        Ok(Self(Some(provider.build())))
    }

    /// Takes the spans of requests, with all that is said in them for the log, whether the log prints it or not.
    pub fn layer(&self) -> Option<impl Layer<Logged> + use<>> {
        let tracer = self.0.as_ref()?.tracer("tallygate");
        let layer = tracing_opentelemetry::layer().with_tracer(tracer);
        let layer = layer.with_location(false).with_threads(false).with_tracked_inactivity(false);
        Some(layer.with_filter(Targets::new().with_target("tallygate_server", LevelFilter::INFO)))
    }

    /// Sends what is left, for five seconds at most.
    pub async fn end(self) {
        let Some(provider) = self.0 else { return };
        let sent = tokio::task::spawn_blocking(move || provider.shutdown()).await;
        if !matches!(sent, Ok(Ok(()))) {
            tell("not every trace was sent: the collector did not take it");
        }
    }
}
