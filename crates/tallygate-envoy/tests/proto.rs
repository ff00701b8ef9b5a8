//! The Rust of the protocol is what the files in `proto/` give, and speaks with Envoy's own.

use std::path::{Path, PathBuf};

/// The packages, as their Rust is named.
const FILES: [&str; 5] = [
    "envoy.config.core.v3.rs",
    "envoy.extensions.common.ratelimit.v3.rs",
    "envoy.service.ratelimit.v3.rs",
    "envoy.r#type.v3.rs",
    "kuadrant.service.ratelimit.v1.rs",
];

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Makes the Rust of the protocol; with `TALLYGATE_GENERATE` set it takes the place of what is there.
#[test]
fn the_rust_of_the_protocol_is_what_the_files_give() {
    let made = tempfile::tempdir().unwrap();
    let services = ["envoy/service/ratelimit/v3/rls.proto", "kuadrant/service/ratelimit/v1/ratelimit.proto"];
    let files = protox::compile(services, [folder("proto")]).unwrap();
    tonic_prost_build::configure().build_transport(false).out_dir(made.path()).compile_fds(files).unwrap();
    for file in FILES {
        let (made, kept) = (made.path().join(file), folder("src/proto").join(file));
        let text = std::fs::read_to_string(&made).unwrap();
        if std::env::var_os("TALLYGATE_GENERATE").is_some() {
            std::fs::write(&kept, &text).unwrap();
        }
        let hint = "run it once with TALLYGATE_GENERATE=1";
        assert!(std::fs::read_to_string(&kept).unwrap_or_default() == text, "{file} is out of date: {hint}");
    }
}

mod wire {
    use envoy_types::pb::envoy::extensions::common::ratelimit::v3 as common;
    use envoy_types::pb::envoy::service::ratelimit::v3 as theirs;
    use envoy_types::pb::google::protobuf as google;
    use prost::Message;
    use prost_types::value::Kind;
    use prost_types::{Duration, Struct, Value};
    use tallygate_envoy::proto::rate_limit_descriptor::{Entry, RateLimitOverride};
    use tallygate_envoy::proto::rate_limit_response::rate_limit::Unit;
    use tallygate_envoy::proto::rate_limit_response::{Code, DescriptorStatus, RateLimit};
    use tallygate_envoy::proto::{
        HeaderValue, RateLimitDescriptor, RateLimitRequest, RateLimitResponse, RateLimitUnit,
    };

    #[test]
    fn a_request_is_the_same_to_both() {
        let entry = |key: &str, value: &str| Entry { key: key.to_owned(), value: value.to_owned() };
        let ours = RateLimitRequest {
            domain: "shop".to_owned(),
            descriptors: vec![
                RateLimitDescriptor {
                    entries: vec![entry("path", "/login"), entry("user", "Zoë")],
                    limit: Some(RateLimitOverride {
                        requests_per_unit: 11,
                        unit: RateLimitUnit::Year.into(),
                    }),
                    hits_addend: Some(u64::MAX),
                    is_negative_hits: true,
                },
                RateLimitDescriptor { hits_addend: Some(0), ..RateLimitDescriptor::default() },
                RateLimitDescriptor::default(),
            ],
            hits_addend: 13,
        };
        let their_entry = |key: &str, value: &str| common::rate_limit_descriptor::Entry {
            key: key.into(),
            value: value.into(),
        };
        let theirs = theirs::RateLimitRequest {
            domain: "shop".to_owned(),
            descriptors: vec![
                common::RateLimitDescriptor {
                    entries: vec![their_entry("path", "/login"), their_entry("user", "Zoë")],
                    limit: Some(common::rate_limit_descriptor::RateLimitOverride {
                        requests_per_unit: 11,
                        unit: 6,
                    }),
                    hits_addend: Some(google::UInt64Value { value: u64::MAX }),
                    is_negative_hits: true,
                },
                common::RateLimitDescriptor {
                    hits_addend: Some(google::UInt64Value { value: 0 }),
                    ..common::RateLimitDescriptor::default()
                },
                common::RateLimitDescriptor::default(),
            ],
            hits_addend: 13,
        };
        assert_eq!(RateLimitRequest::decode(&*theirs.encode_to_vec()).unwrap(), ours);
        assert_eq!(theirs::RateLimitRequest::decode(&*ours.encode_to_vec()).unwrap(), theirs);
    }

    #[test]
    fn an_answer_is_the_same_to_both() {
        use theirs::rate_limit_response as of;
        let header =
            |key: &str| HeaderValue { key: key.to_owned(), value: "v".to_owned(), raw_value: vec![0xff] };
        let their_header = |key: &str| envoy_types::pb::envoy::config::core::v3::HeaderValue {
            key: key.to_owned(),
            value: "v".to_owned(),
            raw_value: vec![0xff],
        };
        let text = |text: &str| Value { kind: Some(Kind::StringValue(text.to_owned())) };
        let their_text =
            |text: &str| google::Value { kind: Some(google::value::Kind::StringValue(text.to_owned())) };
        let units = [
            Unit::Unknown,
            Unit::Second,
            Unit::Minute,
            Unit::Hour,
            Unit::Day,
            Unit::Month,
            Unit::Year,
            Unit::Week,
        ];
        let their_units = [
            of::rate_limit::Unit::Unknown,
            of::rate_limit::Unit::Second,
            of::rate_limit::Unit::Minute,
            of::rate_limit::Unit::Hour,
            of::rate_limit::Unit::Day,
            of::rate_limit::Unit::Month,
            of::rate_limit::Unit::Year,
            of::rate_limit::Unit::Week,
        ];
        let ours = RateLimitResponse {
            overall_code: Code::OverLimit.into(),
            statuses: units
                .map(|unit| DescriptorStatus {
                    code: Code::Ok.into(),
                    current_limit: Some(RateLimit {
                        requests_per_unit: 7,
                        unit: unit.into(),
                        name: "login".to_owned(),
                    }),
                    limit_remaining: u32::MAX,
                    duration_until_reset: Some(Duration { seconds: 5, nanos: 6 }),
                })
                .into(),
            response_headers_to_add: vec![header("a")],
            request_headers_to_add: vec![header("b"), header("c")],
            raw_body: b"body".to_vec(),
            dynamic_metadata: Some(Struct { fields: [("zone".to_owned(), text("login"))].into() }),
        };
        let theirs = theirs::RateLimitResponse {
            overall_code: of::Code::OverLimit.into(),
            statuses: their_units
                .map(|unit| of::DescriptorStatus {
                    code: of::Code::Ok.into(),
                    current_limit: Some(of::RateLimit {
                        requests_per_unit: 7,
                        unit: unit.into(),
                        name: "login".to_owned(),
                    }),
                    limit_remaining: u32::MAX,
                    duration_until_reset: Some(google::Duration { seconds: 5, nanos: 6 }),
                    quota: None,
                })
                .into(),
            response_headers_to_add: vec![their_header("a")],
            request_headers_to_add: vec![their_header("b"), their_header("c")],
            raw_body: b"body".to_vec(),
            dynamic_metadata: Some(google::Struct {
                fields: [("zone".to_owned(), their_text("login"))].into(),
            }),
            quota: None,
        };
        assert_eq!(RateLimitResponse::decode(&*theirs.encode_to_vec()).unwrap(), ours);
        assert_eq!(theirs::RateLimitResponse::decode(&*ours.encode_to_vec()).unwrap(), theirs);
    }
}
