//! Requests that no Envoy would send: nothing panics, and nothing is decided by them.

use std::sync::LazyLock;
use std::time::Duration;

use proptest::prelude::*;
use prost::Message;
use tallygate::{Limiter, Policy};
use tallygate_envoy::proto::rate_limit_descriptor::{Entry, RateLimitOverride};
use tallygate_envoy::proto::rate_limit_response::Code;
use tallygate_envoy::proto::rate_limit_service_server::RateLimitService;
use tallygate_envoy::proto::{RateLimitDescriptor, RateLimitRequest, RateLimitResponse};
use tallygate_envoy::{Mapping, RateLimits};
use tokio::runtime::Runtime;
use tonic::Request;

/// The number of inputs that a property is tried with; a million in `./soak`.
fn cases() -> ProptestConfig {
    ProptestConfig::with_cases(if std::env::var_os("TALLYGATE_SOAK").is_some() { 1_000_000 } else { 256 })
}

static SERVED: LazyLock<(Runtime, RateLimits)> = LazyLock::new(|| {
    let runtime = Runtime::new().unwrap();
    let limits = runtime.block_on(async {
        let limiter = Limiter::connect("sqlite::memory:").await.unwrap();
        let policy = Policy::fixed_window(3, Duration::from_secs(60)).unwrap();
        limiter.operator().set_zone("z", &policy, None, "test").await.unwrap();
        let mapping = Mapping::read(
            "transaction = 't'
            limit = [
                { domain = 'd', entries = ['a'], zone = 'z' },
                { domain = 'd', entries = ['a', 'b'], zone = 'z' },
                { domain = 'd', entries = ['a=x', 'b'], zone = 'z' },
                { domain = 'd', entries = ['a', 'b=x'], unlimited = true },
            ]",
        );
        RateLimits::new(limiter, mapping.unwrap())
    });
    (runtime, limits)
});

fn text() -> impl Strategy<Value = String> {
    prop_oneof![3 => prop::sample::select(vec!["a", "b", "x", "t", ""]).prop_map(str::to_owned), 1 => any::<String>()]
}

fn descriptor() -> impl Strategy<Value = RateLimitDescriptor> {
    let entry = (text(), text()).prop_map(|(key, value)| Entry { key, value });
    let limit = (any::<u32>(), any::<i32>());
    let limit = limit.prop_map(|(requests_per_unit, unit)| RateLimitOverride { requests_per_unit, unit });
    let hits = prop::option::of(prop_oneof![0_u64..5, any::<u64>()]);
    let limit = prop::option::weighted(0.05, limit);
    (prop::collection::vec(entry, 0..4), limit, hits, prop::bool::weighted(0.1)).prop_map(
        |(entries, limit, hits_addend, is_negative_hits)| RateLimitDescriptor {
            entries,
            limit,
            hits_addend,
            is_negative_hits,
        },
    )
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn bytes_are_a_message_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(request) = RateLimitRequest::decode(&*bytes) {
            prop_assert_eq!(RateLimitRequest::decode(&*request.encode_to_vec()).unwrap(), request);
        }
        drop(RateLimitResponse::decode(&*bytes));
    }

    #[test]
    fn bytes_are_json_or_400(bytes in prop::collection::vec(any::<u8>(), 0..300), text in "[\\[\\]{}\":, a-z0-9.eE+-]{0,100}") {
        let (runtime, limits) = &*SERVED;
        for body in [&bytes, text.as_bytes()] {
            let (status, answer) = runtime.block_on(limits.json(body));
            prop_assert_eq!(status.as_u16(), 400, "{}", answer);
            prop_assert!(serde_json::from_str::<serde_json::Value>(&answer).is_ok(), "{answer}");
        }
    }

    #[test]
    fn a_request_gets_a_status_for_each_descriptor_or_is_invalid(
        descriptors in prop::collection::vec(descriptor(), 0..5), hits_addend in prop_oneof![0_u32..3, any::<u32>()],
    ) {
        let (runtime, limits) = &*SERVED;
        let asked = descriptors.len();
        let request = RateLimitRequest { domain: "d".to_owned(), descriptors, hits_addend };
        match runtime.block_on(limits.should_rate_limit(Request::new(request))) {
            Ok(response) => {
                let response = response.into_inner();
                prop_assert_eq!(response.statuses.len(), asked);
                prop_assert_ne!(response.overall_code(), Code::Unknown);
                let is_over = response.statuses.iter().any(|status| status.code() == Code::OverLimit);
                prop_assert_eq!(response.overall_code() == Code::OverLimit, is_over);
                prop_assert!(response.statuses.iter().all(|status| status.code() != Code::Unknown));
            }
            Err(status) => prop_assert_eq!(status.code(), tonic::Code::InvalidArgument, "{}", status),
        }
    }
}
