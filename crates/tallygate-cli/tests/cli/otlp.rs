//! Traces as a collector gets them.

use std::sync::mpsc::{Sender, channel};

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::trace::v1::Span;
use serde_json::Value;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

use super::program::Program;
use super::serve::Server;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

/// A collector that passes on what it gets.
struct Collector(Sender<ExportTraceServiceRequest>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.0.send(request.into_inner()).unwrap();
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn checked(program: &Program, server: &Server, parent: &str) -> Value {
    let check = r#"{"zone":"login","key":"user:42"}"#;
    let line = format!("curl -s {}/v1/check -H 'traceparent: {parent}' --json '{check}'", server.at);
    serde_json::from_slice(&program.shell(&line).output().unwrap().stdout).unwrap()
}

#[test]
fn a_request_is_a_span_of_its_callers_trace_and_names_its_transaction() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (sender, sent) = channel();
    let address = runtime.block_on(async {
        let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = incoming.local_addr().unwrap();
        let service = TraceServiceServer::new(Collector(sender));
        tokio::spawn(tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming));
        address
    });
    let program = Program::with_login().env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{address}"));
    // Nothing of it is in the log, which is at its default.
    let server = Server::start(&program, &[]);
    let decided = checked(&program, &server, &format!("00-{TRACE}-{PARENT}-01"));
    // The caller chose not to have this request traced, and the last one is no caller's.
    checked(&program, &server, &format!("00-{}-{PARENT}-00", TRACE.replace('4', "5")));
    checked(&program, &server, "00-nonsense");
    server.end();
    let sent: Vec<_> = sent.try_iter().collect();
    let said = format!("{sent:?}");
    assert!(!said.contains("user:42"), "{said}");
    assert!(said.contains("\"tallygate\""), "{said}");
    let scopes = sent.iter().flat_map(|request| &request.resource_spans).flat_map(|spans| &spans.scope_spans);
    let spans: Vec<&Span> = scopes.flat_map(|scope| &scope.spans).collect();
    let parents: Vec<_> = spans.iter().map(|span| hex(&span.parent_span_id)).collect();
    assert_eq!(parents, [PARENT, ""], "{said}");
    assert_eq!((hex(&spans[0].trace_id).as_str(), spans[0].name.as_str()), (TRACE, "request"));
    assert_ne!(hex(&spans[1].trace_id), TRACE);
    assert!(format!("{:?}", spans[0].events).contains(decided["txn_id"].as_str().unwrap()), "{said}");
}

#[test]
fn a_collector_that_is_not_there_holds_nobody_up_and_an_address_that_is_none_is_refused() {
    let program = Program::with_login().env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9");
    let server = Server::start(&program, &[]);
    assert_eq!(checked(&program, &server, "")["allowed"], true);
    let log = server.end();
    assert!(log.contains("ExportError"), "{log}");
    let program = Program::with_login().env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://user:secret@no where");
    let ran = program.run(&["serve", "--listen", "127.0.0.1:0"]);
    assert!(ran.code == 2 && ran.err.contains("OTEL_EXPORTER_OTLP_ENDPOINT"), "{ran:?}");
    assert!(!ran.err.contains("secret"), "{ran:?}");
}
