//! Configurations of envoyproxy/ratelimit, and what they come to.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use tallygate::policy::{Mode, zone_file};
use tallygate::testing::Clock;
use tallygate::{Limiter, Policy};
use tallygate_envoy::proto::rate_limit_descriptor::Entry;
use tallygate_envoy::proto::rate_limit_response::Code;
use tallygate_envoy::proto::rate_limit_service_server::RateLimitService;
use tallygate_envoy::proto::{RateLimitDescriptor, RateLimitRequest};
use tallygate_envoy::{Imported, Mapping, RateLimits, import};
use tonic::Request;

/// A shop with everything in it that has an equal.
const SHOP: &str = r#"
domain: shop
descriptors:
  - key: path
    value: /login
    rate_limit: { name: logins, unit: minute, requests_per_unit: 50 }
    descriptors:
      - key: remote_address
        rate_limit:
          unit: MINUTE
          requests_per_unit: 5
  - key: path
    value: /health
  - key: path
    value: 404
    shadow_mode: true
    rate_limit: { unit: second, requests_per_unit: 1 }
  - key: path
    rate_limit: { unit: hour, requests_per_unit: 1000 }
    descriptors:
      - key: remote_address
        value: 10.0.0.1
        rate_limit: { unlimited: true }
      - key: remote_address
        rate_limit: { unit: week, requests_per_unit: 700 }
      - key: user
        rate_limit: { unit: day, requests_per_unit: 24 }
"#;

fn policies(imported: &Imported) -> BTreeMap<String, Policy> {
    let zones = zone_file(&imported.zones).unwrap_or_else(|error| panic!("{error}: {}", imported.zones));
    zones.into_iter().map(|zone| (zone.name, zone.policy)).collect()
}

/// A service with what was imported.
async fn limits(imported: &Imported) -> RateLimits {
    let clock = Clock::at("2026-11-23T12:00:00Z".parse().unwrap());
    let limiter = Limiter::connect("sqlite::memory:").await.unwrap().with_clock(&clock).unwrap();
    limiter.operator().set_zones(zone_file(&imported.zones).unwrap(), "test").await.unwrap();
    let limits = RateLimits::new(limiter, Mapping::read(&imported.mapping).unwrap());
    limits.ready().await.unwrap();
    limits
}

/// The zone that a descriptor is limited by.
async fn zone(limits: &RateLimits, entries: &[(&str, &str)]) -> Option<String> {
    let entry = |(key, value): &(&str, &str)| Entry { key: (*key).to_owned(), value: (*value).to_owned() };
    let entries = entries.iter().map(entry).collect();
    let descriptors = vec![RateLimitDescriptor { entries, ..RateLimitDescriptor::default() }];
    let request = RateLimitRequest { domain: "shop".to_owned(), descriptors, hits_addend: 0 };
    let response = limits.should_rate_limit(Request::new(request)).await.unwrap().into_inner();
    response.statuses[0].current_limit.as_ref().map(|limit| limit.name.clone())
}

#[tokio::test]
async fn limits_come_over_with_their_windows_and_nothing_else_is_limited() {
    let imported = import(SHOP).unwrap();
    assert_eq!(imported.notes, [""; 0]);
    let fixed = |rate, seconds| Policy::fixed_window(rate, Duration::from_secs(seconds)).unwrap();
    let expected = [
        ("shop:path", fixed(1000, 3600)),
        ("shop:path:remote_address", fixed(700, 7 * 86_400)),
        ("shop:path:user", fixed(24, 86_400)),
        ("shop:path~/login", fixed(50, 60)),
        ("shop:path~/login:remote_address", fixed(5, 60)),
        ("shop:path~404", fixed(1, 1).with_mode(Mode::Shadow)),
    ];
    assert_eq!(policies(&imported), expected.map(|(name, policy)| (name.to_owned(), policy)).into());
    let limits = limits(&imported).await;
    let table: [(&[_], Option<&str>); 12] = [
        (&[("path", "/login")], Some("shop:path~/login")),
        (&[("path", "/login"), ("remote_address", "10.0.0.1")], Some("shop:path~/login:remote_address")),
        (&[("path", "/pay")], Some("shop:path")),
        (&[("path", "/pay"), ("remote_address", "a")], Some("shop:path:remote_address")),
        (&[("path", "/pay"), ("remote_address", "10.0.0.1")], None),
        (&[("path", "/pay"), ("user", "a")], Some("shop:path:user")),
        (&[("path", "404")], Some("shop:path~404")),
        // There, an exact value never goes on to the key alone.
        (&[("path", "/login"), ("user", "a")], None),
        (&[("path", "/health")], None),
        (&[("path", "/health"), ("remote_address", "a")], None),
        (&[("path", "/health"), ("remote_address", "10.0.0.1")], None),
        (&[("path", "404"), ("user", "a")], None),
    ];
    for (entries, expected) in table {
        assert_eq!(zone(&limits, entries).await.as_deref(), expected, "{entries:?}");
    }
}

/// A black list, as the original's own documents have it.
#[tokio::test]
async fn a_limit_of_nothing_is_imported_as_a_zone_that_refuses_all() {
    let address = "{ key: remote_address, rate_limit: { unit: second, requests_per_unit: 3 } }";
    let black =
        "{ key: remote_address, value: 198.51.100.7, rate_limit: { unit: second, requests_per_unit: 0 } }";
    let imported = import(&format!("domain: shop\ndescriptors: [{address}, {black}]")).unwrap();
    assert_eq!(imported.notes, [""; 0]);
    let limits = limits(&imported).await;
    for (address, code) in [("198.51.100.7", Code::OverLimit), ("198.51.100.8", Code::Ok)] {
        let entry = Entry { key: "remote_address".to_owned(), value: address.to_owned() };
        let descriptors =
            vec![RateLimitDescriptor { entries: vec![entry], ..RateLimitDescriptor::default() }];
        let request = RateLimitRequest { domain: "shop".to_owned(), descriptors, hits_addend: 0 };
        for _ in 0..3 {
            let response =
                limits.should_rate_limit(Request::new(request.clone())).await.unwrap().into_inner();
            assert_eq!(response.overall_code(), code, "{address}");
            assert_eq!(response.statuses[0].duration_until_reset, None, "{address}");
        }
    }
}

#[test]
fn what_has_no_equal_is_told_in_sentences() {
    let limit = "rate_limit: { unit: day, requests_per_unit: 1 }";
    let table = [
        (format!("{{ key: a, value: 'x*', {limit} }}"), "has a wildcard"),
        (format!("{{ key: a, value: 'x*', share_threshold: true, {limit} }}"), "has a wildcard"),
        (format!("{{ key: a=b, {limit} }}"), "the sign ="),
        (format!("{{ key: a, quota_mode: true, {limit} }}"), "quota mode"),
        (format!("{{ key: a, detailed_metric: true, {limit} }}"), "metrics"),
        (format!("{{ key: a, metadata: {{ x: [1] }}, {limit} }}"), "metadata"),
        ("{ key: a, rate_limit: { unit: month, requests_per_unit: 1 } }".to_owned(), "30d since 1970"),
        ("{ key: a, rate_limit: { unit: year, requests_per_unit: 1 } }".to_owned(), "365d since 1970"),
        (
            "{ key: a, rate_limit: { unit: day, requests_per_unit: 1, replaces: [{ name: x }] } }".to_owned(),
            "replaces",
        ),
    ];
    for (descriptor, expected) in table {
        let yaml = format!("domain: shop\ndescriptors:\n  - {descriptor}\n  - {{ key: other, {limit} }}\n");
        let imported = import(&yaml).unwrap_or_else(|error| panic!("{yaml}{error}"));
        assert_eq!(imported.notes.len(), 1, "{yaml}{:?}", imported.notes);
        let note = &imported.notes[0];
        assert!(note.starts_with("shop:a") && note.contains(expected) && note.ends_with('.'), "{note}");
        policies(&imported);
        Mapping::read(&imported.mapping).unwrap();
    }
}

#[test]
fn what_is_no_configuration_is_one_clear_error() {
    let table = [
        ("domain: [", "no configuration"),
        ("descriptors: []", "domain"),
        ("domain: ''", "the domain is empty"),
        ("domain: shop\ndomain: shop", "duplicate"),
        ("domain: shop\ndomian: shop", "domian"),
        ("domain: shop\ndescriptors: []", "no limit"),
        ("domain: shop\ndescriptors:\n  - { value: a }", "shop has no key"),
        ("domain: shop\ndescriptors:\n  - { key: a, ratelimit: {} }", "ratelimit"),
        (
            "domain: shop\ndescriptors:\n  - { key: a, value: b }\n  - { key: a, value: b }",
            "shop:a~b is there twice",
        ),
        ("domain: shop\ndescriptors:\n  - { key: a }\n  - { key: a }", "shop:a is there twice"),
        (
            "domain: shop\ndescriptors:\n  - { key: 'path_*', rate_limit: { unit: day, requests_per_unit: 1 } }",
            "shop:path_* has a wildcard in its key",
        ),
        (
            "domain: shop\ndescriptors:\n  - { key: a, rate_limit: { unit: day, unlimited: true } }",
            "unlimited and has a unit",
        ),
        (
            "domain: shop\ndescriptors:\n  - { key: a, rate_limit: { unit: fortnight, requests_per_unit: 1 } }",
            "\"fortnight\"",
        ),
        ("domain: shop\ndescriptors:\n  - { key: a, rate_limit: { requests_per_unit: 1 } }", "use second"),
        (
            "domain: shop\ndescriptors:\n  - { key: a, rate_limit: { unit: day, requests_per_unit: -1 } }",
            "configuration",
        ),
        (
            "domain: shop\ndescriptors:\n  - { key: a, rate_limit: { name: x, unit: day, replaces: [{ name: x }] } }",
            "replaces itself",
        ),
        (
            "domain: shop\ndescriptors:\n  - { key: a, share_threshold: true, rate_limit: { unit: day } }",
            "no wildcard",
        ),
        (
            "domain: shop\ndescriptors:\n  - { key: a, value: 'b*', descriptors: [{ key: c }, { key: c }] }",
            "shop:a~b*:c is there twice",
        ),
    ];
    for (yaml, expected) in table {
        let error = import(yaml).map(|imported| imported.mapping).unwrap_err().to_string();
        assert!(error.contains(expected), "{yaml}\n{error}");
    }
    // Every configuration that is not too deep to be imported can be mapped.
    let nested = |times: usize| {
        let begin = "{ key: a, rate_limit: { unit: day, requests_per_unit: 1 }, descriptors: [".repeat(times);
        import(&format!("domain: shop\ndescriptors: [{begin}{}]", "] }".repeat(times)))
    };
    let deepest = (1..64).map_while(|times| nested(times).ok()).last().unwrap();
    Mapping::read(&deepest.mapping).unwrap();
    assert!(nested(10_000).unwrap_err().to_string().contains("Depth"));
}

#[test]
fn a_mapping_that_cannot_be_is_refused_with_its_place() {
    let limit = |rest: &str| format!("[[limit]]\ndomain = \"shop\"\n{rest}");
    let table = [
        ("nonsense".to_owned(), "line 1"),
        ("zone = 1".to_owned(), "unknown field `zone`"),
        ("transaction = ''".to_owned(), "transaction is empty"),
        (limit("entries = ['a']\nzone = 'z'\nzon = 'z'"), "unknown field `zon`"),
        (limit("entries = ['a']"), "it has no zone"),
        (limit("entries = ['a']\nzone = 'z'\nunlimited = true"), "is unlimited"),
        (limit("entries = []\nzone = 'z'"), "0 entries; name 1 to 32"),
        (limit("entries = ['']\nzone = 'z'"), "has no key"),
        (limit("entries = ['=a']\nzone = 'z'"), "has no key"),
        (limit("entries = ['a']\nzone = ''"), "zone name is empty"),
        (limit("entries = ['a']\nzone = '42'"), "no number"),
        (limit("entries = ['a']\nzone = 'z'").replace("shop", ""), "the domain is empty"),
        (
            format!("{0}\n{0}", limit("entries = ['a=b', 'c']\nzone = 'z'")),
            "limit 2 (domain \"shop\", entries [\"a=b\", \"c\"]): it is there twice",
        ),
        (format!("transaction = 'id'\n{}", limit("entries = ['id']\nzone = 'z'")), "names the transaction"),
    ];
    for (text, expected) in table {
        let error = Mapping::read(&text).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}\n{error}");
    }
}

fn cases() -> u32 {
    if std::env::var_os("TALLYGATE_SOAK").is_some() { 1_000_000 } else { 256 }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn no_text_panics(text in "[a-z:\\[\\]{}&*!|>#%@,\"' \n-]{0,80}", words in prop::collection::vec(prop::sample::select(vec!["domain: shop\n", "descriptors:\n", "  - key: a\n", "    value: '*'\n", "    rate_limit: {unit: day, requests_per_unit: 1}\n", "    descriptors:\n", "  "]), 0..12)) {
        for text in [text.clone(), words.concat()] {
            if let Ok(imported) = import(&text) {
                policies(&imported);
                prop_assert!(Mapping::read(&imported.mapping).is_ok());
            }
            drop(Mapping::read(&text));
        }
    }
}
