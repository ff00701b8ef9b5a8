//! The service as Envoy sees it: a real client and a real server, on the embedded engine.

use std::sync::Arc;
use std::time::Duration;

use tallygate::ledger::{History, Kind};
use tallygate::policy::{CalendarUnit, Mode};
use tallygate::testing::Clock;
use tallygate::uuid::Uuid;
use tallygate::{Config, Limiter, Policy};
use tallygate_envoy::proto::rate_limit_descriptor::{Entry, RateLimitOverride};
use tallygate_envoy::proto::rate_limit_response::rate_limit::Unit;
use tallygate_envoy::proto::rate_limit_response::{Code, DescriptorStatus};
use tallygate_envoy::proto::rate_limit_service_client::RateLimitServiceClient;
use tallygate_envoy::proto::{RateLimitDescriptor, RateLimitRequest, RateLimitResponse};
use tallygate_envoy::{Mapping, RateLimits, health};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

const MINUTE: Duration = Duration::from_secs(60);

/// A mapping that most tests share.
const MAPPING: &str = r#"
    transaction = "x-request-id"
    limit = [
        { domain = "shop", entries = ["path=/login", "remote_address"], zone = "login" },
        { domain = "shop", entries = ["path=/login"], zone = "logins" },
        { domain = "shop", entries = ["path", "remote_address"], zone = "path" },
        { domain = "shop", entries = ["path=/health", "remote_address"], unlimited = true },
        { domain = "shop", entries = ["path=/login", "plan", "user"], zone = "login" },
        { domain = "shop", entries = ["path", "plan"], zone = "path" },
        { domain = "shop", entries = ["user"], zone = "user" },
        { domain = "shop", entries = ["slot"], zone = "slot" },
    ]
"#;

fn log(rate: i64) -> Policy {
    Policy::sliding_log(rate, MINUTE).unwrap()
}

fn descriptor(entries: &[(&str, &str)]) -> RateLimitDescriptor {
    let entry = |(key, value): &(&str, &str)| Entry { key: (*key).to_owned(), value: (*value).to_owned() };
    RateLimitDescriptor { entries: entries.iter().map(entry).collect(), ..RateLimitDescriptor::default() }
}

fn shop(descriptors: impl IntoIterator<Item = RateLimitDescriptor>) -> RateLimitRequest {
    let descriptors = descriptors.into_iter().collect();
    RateLimitRequest { domain: "shop".to_owned(), descriptors, hits_addend: 0 }
}

fn login(address: &str) -> RateLimitDescriptor {
    descriptor(&[("path", "/login"), ("remote_address", address)])
}

fn user(name: &str) -> RateLimitDescriptor {
    descriptor(&[("user", name)])
}

fn hits(hits: u64, of: RateLimitDescriptor) -> RateLimitDescriptor {
    RateLimitDescriptor { hits_addend: Some(hits), ..of }
}

/// A server with these zones, a client of it, and what decides behind it.
struct Served {
    client: RateLimitServiceClient<Channel>,
    limits: RateLimits,
    limiter: Limiter,
    clock: Clock,
}

async fn served(zones: &[(&str, Policy)]) -> Served {
    let clock = Clock::at("2026-11-23T12:00:00Z".parse().unwrap());
    let limiter = Limiter::connect("sqlite::memory:").await.unwrap().with_clock(&clock).unwrap();
    set(&limiter, zones).await;
    let limits = RateLimits::new(limiter.clone(), Mapping::read(MAPPING).unwrap());
    let client = RateLimitServiceClient::new(serve(limits.clone()).await);
    Served { client, limits, limiter, clock }
}

async fn set(limiter: &Limiter, zones: &[(&str, Policy)]) {
    for (zone, policy) in zones {
        limiter.operator().set_zone(zone, policy, None, "test").await.unwrap();
    }
}

async fn serve(limits: RateLimits) -> Channel {
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = incoming.local_addr().unwrap();
    let server = Server::builder().add_service(limits.into_service());
    tokio::spawn(server.serve_with_incoming(incoming));
    Endpoint::from_shared(format!("http://{address}")).unwrap().connect_lazy()
}

impl Served {
    async fn ask(&self, request: RateLimitRequest) -> Result<RateLimitResponse, Status> {
        self.client.clone().should_rate_limit(request).await.map(tonic::Response::into_inner)
    }

    async fn code(&self, request: RateLimitRequest) -> Code {
        self.ask(request).await.unwrap().overall_code()
    }

    /// The rows of a zone, oldest first: kind, key and what was spent.
    async fn rows(&self, zone: &str) -> Vec<(Kind, String, i64)> {
        let history = History { zone: Some(zone.to_owned()), limit: 1_000, ..History::default() };
        let page = self.limiter.auditor().history(&history).await.unwrap();
        page.rows.into_iter().rev().map(|row| (row.kind, row.key, row.spent)).collect()
    }

    async fn left(&self, zone: &str, key: &str) -> i64 {
        self.limiter.peek(zone, key).await.unwrap().remaining
    }
}

fn codes(response: &RateLimitResponse) -> Vec<Code> {
    response.statuses.iter().map(DescriptorStatus::code).collect()
}

/// A field of what Envoy hands on, as JSON.
fn told(response: &RateLimitResponse, field: &str) -> String {
    use prost_types::value::Kind;
    let Some(metadata) = &response.dynamic_metadata else { return "nothing".to_owned() };
    let Some(Kind::StructValue(fields)) = &metadata.fields["tallygate"].kind else { panic!("{metadata:?}") };
    match fields.fields.get(field).and_then(|value| value.kind.clone()) {
        None => "absent".to_owned(),
        Some(Kind::StringValue(text)) => text,
        Some(Kind::NumberValue(number)) => number.to_string(),
        Some(Kind::BoolValue(is_so)) => is_so.to_string(),
        Some(other) => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_limit_is_told_over_the_wire_with_its_wait_and_its_reason() {
    let served = served(&[("login", log(2))]).await;
    for remaining in [1, 0] {
        let response = served.ask(shop([login("203.0.113.9")])).await.unwrap();
        assert_eq!(response.overall_code(), Code::Ok);
        let status = &response.statuses[0];
        assert_eq!((status.code(), status.limit_remaining), (Code::Ok, remaining));
        assert_eq!(status.duration_until_reset, None);
        assert_eq!(
            (told(&response, "reason"), told(&response, "binding")),
            ("within_limit".into(), "false".into())
        );
    }
    served.clock.advance(Duration::from_millis(500));
    let response = served.ask(shop([login("203.0.113.9")])).await.unwrap();
    assert_eq!((response.overall_code(), codes(&response)), (Code::OverLimit, vec![Code::OverLimit]));
    let status = &response.statuses[0];
    let limit = status.current_limit.as_ref().unwrap();
    assert_eq!((limit.requests_per_unit, limit.unit(), limit.name.as_str()), (2, Unit::Minute, "login"));
    // 59.5 s, rounded up: whoever comes then passes.
    assert_eq!(status.duration_until_reset.map(|wait| (wait.seconds, wait.nanos)), Some((60, 0)));
    for (field, expected) in
        [("zone", "login"), ("reason", "over_limit"), ("version", "1"), ("binding", "true")]
    {
        assert_eq!(told(&response, field), expected, "{field}");
    }
    // Every answer is in the ledger.
    let history =
        History { txn: Some(told(&response, "transaction").parse().unwrap()), ..History::default() };
    let page = served.limiter.auditor().history(&history).await.unwrap();
    assert_eq!((page.rows.len(), page.rows[0].blocked), (1, true));
    assert_eq!(served.code(shop([login("203.0.113.10")])).await, Code::Ok);
    served.clock.advance(MINUTE);
    assert_eq!(served.code(shop([login("203.0.113.9")])).await, Code::Ok);
}

#[tokio::test]
async fn a_descriptor_finds_its_zone_and_its_key() {
    let zones = ["login", "logins", "path", "user"];
    let served = served(&zones.map(|zone| (zone, log(100)))).await;
    let table: [(&[_], Option<(&str, &str)>); 13] = [
        (&[("path", "/login"), ("remote_address", "a")], Some(("login", "remote_address=a"))),
        (&[("path", "/login")], Some(("logins", "all"))),
        (&[("path", "/pay"), ("remote_address", "a")], Some(("path", "path=/pay&remote_address=a"))),
        (&[("path", "/Login"), ("remote_address", "a")], Some(("path", "path=/Login&remote_address=a"))),
        // The value that is named leads nowhere, so the key alone does.
        (&[("path", "/login"), ("plan", "free")], Some(("path", "path=/login&plan=free"))),
        (&[("user", "a&b=c%")], Some(("user", "user=a%26b=c%25"))),
        (&[("user", "")], Some(("user", "user="))),
        (&[("x-request-id", "nobody"), ("user", "a")], Some(("user", "user=a"))),
        // Not all entries, too many, another order, unlimited, nothing of the kind.
        (&[("path", "/pay")], None),
        (&[("path", "/login"), ("remote_address", "a"), ("user", "a")], None),
        (&[("remote_address", "a"), ("path", "/login")], None),
        (&[("path", "/health"), ("remote_address", "a")], None),
        (&[], None),
    ];
    for (entries, expected) in table {
        let before = every_row(&served, &zones).await;
        let response = served.ask(shop([descriptor(entries)])).await.unwrap();
        assert_eq!((response.overall_code(), codes(&response)), (Code::Ok, vec![Code::Ok]), "{entries:?}");
        assert_eq!(response.statuses[0].current_limit.is_some(), expected.is_some(), "{entries:?}");
        let after = every_row(&served, &zones).await;
        let new: Vec<_> = after.iter().filter(|row| !before.contains(row)).collect();
        let found: Vec<_> = new.iter().map(|(zone, key, _)| (zone.as_str(), key.as_str())).collect();
        assert_eq!(found, Vec::from_iter(expected), "{entries:?}");
    }
    // Another domain has no limits.
    let request = RateLimitRequest { domain: "other".to_owned(), ..shop([user("a")]) };
    let response = served.ask(request).await.unwrap();
    assert_eq!((codes(&response), response.dynamic_metadata), (vec![Code::Ok], None));
}

/// All rows of these zones, by zone, key and number.
async fn every_row(served: &Served, zones: &[&str]) -> Vec<(String, String, usize)> {
    let mut all = Vec::new();
    for zone in zones {
        let rows = served.rows(zone).await.into_iter().enumerate();
        all.extend(rows.map(|(number, (_, key, _))| ((*zone).to_owned(), key, number)));
    }
    all
}

#[tokio::test]
async fn all_descriptors_pass_or_none_is_spent_from() {
    let served = served(&[("login", log(3)), ("user", log(1)), ("path", log(9))]).await;
    let request = || {
        shop([
            login("a"),
            descriptor(&[("unknown", "x")]),
            user("alice"),
            descriptor(&[("path", "/health"), ("remote_address", "a")]),
        ])
    };
    assert_eq!(served.code(request()).await, Code::Ok);
    for _ in 0..5 {
        let response = served.ask(request()).await.unwrap();
        assert_eq!(response.overall_code(), Code::OverLimit);
        assert_eq!(codes(&response), [Code::Ok, Code::Ok, Code::OverLimit, Code::Ok]);
        let limits: Vec<_> = response
            .statuses
            .iter()
            .map(|s| s.current_limit.as_ref().map(|limit| limit.name.as_str()))
            .collect();
        assert_eq!(limits, [Some("login"), None, Some("user"), None]);
        let left: Vec<_> = response.statuses.iter().map(|status| status.limit_remaining).collect();
        assert_eq!(left, [2, 0, 0, u32::MAX]);
        assert_eq!(told(&response, "zone"), "user");
    }
    assert_eq!(served.left("login", "remote_address=a").await, 2);
    assert_eq!(served.code(shop([login("a"), user("bob")])).await, Code::Ok);
}

#[tokio::test]
async fn hits_are_those_of_the_descriptor_or_of_the_request_or_one() {
    let served = served(&[("user", log(100)), ("logins", log(100))]).await;
    let request = |addend, descriptors: Vec<_>| RateLimitRequest { hits_addend: addend, ..shop(descriptors) };
    served.ask(request(0, vec![user("a")])).await.unwrap();
    served.ask(request(5, vec![user("a")])).await.unwrap();
    served.ask(request(5, vec![hits(7, user("a")), descriptor(&[("path", "/login")])])).await.unwrap();
    let spent: Vec<_> = served.rows("user").await.into_iter().map(|(.., spent)| spent).collect();
    assert_eq!(spent, [1, 5, 7]);
    assert_eq!(served.left("logins", "all").await, 95);
    // More than any zone holds is over its limit, and no error that Envoy would let pass.
    for many in [101, (1 << 40) + 1, u64::MAX] {
        let response = served.ask(shop([hits(many, user("a"))])).await.unwrap();
        assert_eq!(
            (response.overall_code(), told(&response, "reason")),
            (Code::OverLimit, "exceeds_limit".into())
        );
        assert_eq!(response.statuses[0].duration_until_reset, None, "it never passes");
    }
}

#[tokio::test]
async fn a_look_spends_nothing_and_is_over_where_nothing_is_left() {
    let served = served(&[("user", log(2)), ("logins", log(9))]).await;
    let look = || hits(0, user("a"));
    let response = served.ask(shop([look()])).await.unwrap();
    assert_eq!((response.overall_code(), response.statuses[0].limit_remaining), (Code::Ok, 2));
    assert_eq!(told(&response, "transaction"), "absent");
    assert!(served.rows("user").await.is_empty());
    // With others, those are spent from unless it is over.
    let both = || shop([descriptor(&[("path", "/login")]), look()]);
    assert_eq!(served.code(both()).await, Code::Ok);
    served.ask(shop([hits(2, user("a"))])).await.unwrap();
    let response = served.ask(both()).await.unwrap();
    assert_eq!(
        (response.overall_code(), codes(&response)),
        (Code::OverLimit, vec![Code::Ok, Code::OverLimit])
    );
    assert_eq!(served.left("logins", "all").await, 8);
    set(&served.limiter, &[("user", log(2).with_mode(Mode::Shadow))]).await;
    served.ask(both()).await.unwrap(); // by this one the limiter learns of it
    assert_eq!(served.code(both()).await, Code::Ok);
}

#[tokio::test]
async fn a_bucket_that_is_named_twice_is_asked_for_the_sum() {
    let served = served(&[("user", log(5))]).await;
    let response = served.ask(shop([hits(2, user("a")), user("a"), user("b")])).await.unwrap();
    assert_eq!(codes(&response), [Code::Ok; 3]);
    assert_eq!((served.left("user", "user=a").await, served.left("user", "user=b").await), (2, 4));
    let response = served.ask(shop([hits(2, user("a")), user("a"), user("b")])).await.unwrap();
    assert_eq!(codes(&response), [Code::OverLimit, Code::OverLimit, Code::Ok]);
    assert_eq!((served.left("user", "user=a").await, served.left("user", "user=b").await), (2, 4));
    assert_eq!(
        served.code(shop([hits(u64::MAX, user("c")), hits(u64::MAX, user("c"))])).await,
        Code::OverLimit
    );
}

#[tokio::test]
async fn a_unit_is_told_only_where_it_is_the_window() {
    let seconds = Duration::from_secs;
    let table = [
        (Policy::sliding_log(7, seconds(1)).unwrap(), Unit::Second),
        (Policy::fixed_window(7, seconds(60)).unwrap(), Unit::Minute),
        (Policy::token_bucket(7, seconds(3600), None).unwrap(), Unit::Hour),
        (Policy::token_bucket(7, seconds(3600), Some(9)).unwrap(), Unit::Unknown),
        (Policy::sliding_log(7, seconds(86_400)).unwrap(), Unit::Day),
        (Policy::sliding_log(7, seconds(7 * 86_400)).unwrap(), Unit::Week),
        (Policy::sliding_log(7, seconds(30 * 86_400)).unwrap(), Unit::Unknown),
        (Policy::sliding_log(7, seconds(600)).unwrap(), Unit::Unknown),
        (Policy::calendar(7, CalendarUnit::Day, "UTC".parse().unwrap()).unwrap(), Unit::Day),
        (Policy::calendar(7, CalendarUnit::Month, "UTC".parse().unwrap()).unwrap(), Unit::Unknown),
        (Policy::concurrency(7, seconds(60)).unwrap(), Unit::Unknown),
    ];
    for (policy, expected) in table {
        let served = served(&[("user", policy)]).await;
        let response = served.ask(shop([user("a")])).await.unwrap();
        let limit = response.statuses[0].current_limit.as_ref().unwrap();
        assert_eq!(limit.unit(), expected, "{policy}");
        assert_eq!(i64::from(limit.requests_per_unit), policy.limit(), "{policy}");
    }
    let served = served(&[("user", log(1 << 40))]).await;
    let response = served.ask(shop([user("a")])).await.unwrap();
    let status = &response.statuses[0];
    assert_eq!(
        (status.current_limit.as_ref().unwrap().requests_per_unit, status.limit_remaining),
        (u32::MAX, u32::MAX)
    );
}

#[tokio::test]
async fn zones_in_shadow_mode_or_off_pass_and_say_so() {
    let served =
        served(&[("user", log(1).with_mode(Mode::Shadow)), ("logins", log(1).with_mode(Mode::Off))]).await;
    for reason in ["within_limit", "over_limit"] {
        let response = served.ask(shop([user("a")])).await.unwrap();
        assert_eq!((response.overall_code(), codes(&response)), (Code::Ok, vec![Code::Ok]));
        assert_eq!((told(&response, "reason"), told(&response, "binding")), (reason.into(), "false".into()));
    }
    for _ in 0..2 {
        let response = served.ask(shop([descriptor(&[("path", "/login")])])).await.unwrap();
        assert_eq!((response.overall_code(), told(&response, "reason")), (Code::Ok, "off".into()));
    }
    assert_eq!(served.code(shop([hits(0, user("a"))])).await, Code::Ok);
}

#[tokio::test]
async fn a_limit_that_the_request_brings_is_ignored_and_told_or_refused() {
    let served = served(&[("user", log(1))]).await;
    let brings = |of| {
        let limit = Some(RateLimitOverride { requests_per_unit: 1_000, unit: 2 });
        RateLimitDescriptor { limit, ..of }
    };
    assert_eq!(told(&served.ask(shop([brings(user("a"))])).await.unwrap(), "overrides_ignored"), "1");
    assert_eq!(served.code(shop([brings(user("a"))])).await, Code::OverLimit);
    let status = served.ask(shop([user("b"), brings(descriptor(&[("unknown", "x")]))])).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::InvalidArgument);
    assert!(status.message().contains("descriptor 1 ") && status.message().contains("map it"), "{status}");
    assert_eq!(served.left("user", "user=b").await, 1);
}

#[tokio::test]
async fn a_transaction_is_named_by_an_entry_or_beside_the_request() {
    let served = served(&[("user", log(5)), ("logins", log(5))]).await;
    let txn = Uuid::now_v7();
    let named = |txn: &str| descriptor(&[("x-request-id", txn), ("user", "a")]);
    for _ in 0..3 {
        let response = served.ask(shop([named(&txn.to_string())])).await.unwrap();
        assert_eq!(told(&response, "transaction"), txn.to_string());
        let mut request = Request::new(shop([user("a")]));
        request.metadata_mut().insert("x-request-id", txn.to_string().parse().unwrap());
        served.client.clone().should_rate_limit(request).await.unwrap();
    }
    assert_eq!(served.left("user", "user=a").await, 4);
    // One that is none names nothing, and is counted.
    for none in ["", "nonsense", &Uuid::nil().to_string()] {
        served.ask(shop([named(none)])).await.unwrap();
    }
    assert_eq!(served.left("user", "user=a").await, 1);
    // The wait of what is told again was true when it was decided, and is not told.
    let late = Uuid::now_v7().to_string();
    served.ask(shop([hits(5, user("b"))])).await.unwrap();
    for waits in [true, false] {
        let asked = descriptor(&[("x-request-id", &late), ("user", "b")]);
        let status = served.ask(shop([asked])).await.unwrap().statuses.remove(0);
        assert_eq!((status.code(), status.duration_until_reset.is_some()), (Code::OverLimit, waits));
    }
    let two = shop([named(&txn.to_string()), named(&Uuid::now_v7().to_string())]);
    assert_eq!(served.ask(two).await.unwrap_err().code(), tonic::Code::InvalidArgument);
    // The same at another cost is a conflict.
    let status = served.ask(shop([hits(2, named(&txn.to_string()))])).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::Aborted, "{status}");
    // Where the mapping does not say so, it is an entry as any other.
    let mapping = MAPPING.replace(r#"transaction = "x-request-id""#, "");
    let limits = RateLimits::new(served.limiter.clone(), Mapping::read(&mapping).unwrap());
    let mut client = RateLimitServiceClient::new(serve(limits).await);
    let response = client.should_rate_limit(shop([named(&txn.to_string())])).await.unwrap().into_inner();
    assert_eq!(response.statuses[0].current_limit, None);
    let mut request = Request::new(shop([user("b")]));
    request.metadata_mut().insert("x-request-id", txn.to_string().parse().unwrap());
    let response = client.should_rate_limit(request).await.unwrap().into_inner();
    assert_ne!(told(&response, "transaction"), txn.to_string());
}

#[tokio::test]
async fn hits_are_given_back_to_the_transaction_that_took_them() {
    let slots = Policy::concurrency(2, MINUTE).unwrap();
    let served = served(&[("user", log(5)), ("slot", slots), ("logins", log(5))]).await;
    let txn = Uuid::now_v7().to_string();
    let named = |of: RateLimitDescriptor| {
        let mut of = of;
        of.entries.insert(0, Entry { key: "x-request-id".to_owned(), value: txn.clone() });
        of
    };
    let back = |of| RateLimitDescriptor { is_negative_hits: true, ..named(of) };
    let slot = || descriptor(&[("slot", "a")]);
    served.ask(shop([named(hits(3, user("a"))), named(slot())])).await.unwrap();
    assert_eq!((served.left("user", "user=a").await, served.left("slot", "slot=a").await), (2, 1));
    // Not so many, not of this bucket, not of nobody, not with others.
    let invalid = tonic::Code::InvalidArgument;
    let nobody = RateLimitDescriptor { is_negative_hits: true, ..hits(3, user("a")) };
    for (request, code) in [
        (shop([back(hits(2, user("a")))]), tonic::Code::Aborted),
        (shop([back(hits(3, user("b")))]), invalid),
        (shop([nobody]), invalid),
        (shop([back(hits(3, user("a"))), named(descriptor(&[("path", "/login")]))]), invalid),
    ] {
        let status = served.ask(request).await.unwrap_err();
        assert_eq!(status.code(), code, "{status}");
    }
    assert_eq!((served.left("user", "user=a").await, served.left("user", "user=b").await), (2, 5));
    // Not all of what the transaction took has to go back.
    let both = || [named(hits(3, user("c"))), named(hits(2, user("d")))];
    served.ask(shop(both())).await.unwrap();
    for _ in 0..2 {
        served.ask(shop([back(hits(2, user("d")))])).await.unwrap();
        assert_eq!((served.left("user", "user=c").await, served.left("user", "user=d").await), (2, 5));
    }
    // Once, however often it is said.
    for _ in 0..3 {
        let response = served.ask(shop([back(hits(3, user("a"))), back(slot())])).await.unwrap();
        assert_eq!((response.overall_code(), codes(&response)), (Code::Ok, vec![Code::Ok; 2]));
        assert_eq!((served.left("user", "user=a").await, served.left("slot", "slot=a").await), (5, 2));
    }
}

#[tokio::test]
async fn a_failure_is_a_status_that_names_zone_and_remedy_and_never_a_key() {
    let distinct = Policy::distinct(5, MINUTE).unwrap();
    let queue = Policy::leaky_queue(5, MINUTE, Some(5)).unwrap();
    let served = served(&[("user", log(5)), ("slot", distinct), ("logins", queue)]).await;
    let secret = "alice@example.org";
    let of = |entries: &[(&str, &str)]| shop([descriptor(entries)]);
    let failed = tonic::Code::FailedPrecondition;
    let many = || shop(vec![user(secret); 101]);
    for (request, code, words) in [
        (of(&[("path", "/login"), ("remote_address", secret)]), failed, ["\"login\"", "tallygate zone set"]),
        (of(&[("slot", secret)]), failed, ["\"slot\"", "use sliding-log"]),
        (of(&[("path", "/login")]), failed, ["\"logins\"", "use leaky-bucket"]),
        (
            RateLimitRequest { domain: String::new(), ..shop([user(secret)]) },
            tonic::Code::InvalidArgument,
            ["domain", "name"],
        ),
        (shop([]), tonic::Code::InvalidArgument, ["0 descriptors", "1 to 100"]),
        (many(), tonic::Code::InvalidArgument, ["101 descriptors", "1 to 100"]),
    ] {
        let status = served.ask(request).await.unwrap_err();
        assert_eq!(status.code(), code, "{status}");
        assert!(words.iter().all(|word| status.message().contains(word)), "{status}");
        assert!(!status.message().contains("alice"), "{status}");
    }
    let error = served.limits.ready().await.unwrap_err().to_string();
    assert!(error.contains("\"login\"") && error.contains("tallygate zone set"), "{error}");
    for (zone, policy) in [("login", log(1)), ("path", log(1))] {
        set(&served.limiter, &[(zone, policy)]).await;
    }
    assert!(served.limits.ready().await.unwrap_err().to_string().contains("use leaky-bucket"));
}

#[tokio::test]
async fn a_database_that_does_not_answer_is_unavailable() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("test.db").display());
    let config = Config { deadline: Duration::from_secs(2), ..Config::default() };
    let limiter = Limiter::connect_with(&url, config).await.unwrap();
    set(&limiter, &[("user", log(5)), ("logins", log(5))]).await;
    let limits = RateLimits::new(limiter, Mapping::read(MAPPING).unwrap());
    let mut client = RateLimitServiceClient::new(serve(limits.clone()).await);
    client.should_rate_limit(shop([user("a")])).await.unwrap();
    let pool = tallygate::sqlx::SqlitePool::connect(&url).await.unwrap();
    let held = pool.begin_with("BEGIN EXCLUSIVE").await.unwrap();
    for request in [shop([user("alice")]), shop([user("alice"), descriptor(&[("path", "/login")])])] {
        let status = client.should_rate_limit(request).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::Unavailable, "{status}");
        assert!(!status.message().contains("alice") && !status.message().contains("test.db"), "{status}");
    }
    let (status, body) =
        limits.json(br#"{"domain":"shop","descriptors":[{"entries":[{"key":"user"}]}]}"#).await;
    assert_eq!((status.as_u16(), body.contains("\"code\":14")), (503, true), "{body}");
    held.rollback().await.unwrap();
    client.should_rate_limit(shop([user("a")])).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sixty_four_callers_share_a_limit_exactly() {
    let served = Arc::new(served(&[("user", log(100)), ("logins", log(1_000))]).await);
    let callers = (0..64).map(|caller| {
        let served = Arc::clone(&served);
        tokio::spawn(async move {
            let mut passed = 0;
            for _ in 0..4 {
                // Half of them ask about two limits, which is another way to the database.
                let more = (caller % 2 == 0).then(|| descriptor(&[("path", "/login")]));
                let response = served.ask(shop([user("a")].into_iter().chain(more))).await.unwrap();
                passed += i64::from(response.overall_code() == Code::Ok);
            }
            passed
        })
    });
    let mut passed = 0;
    for caller in callers.collect::<Vec<_>>() {
        passed += caller.await.unwrap();
    }
    assert_eq!(passed, 100);
    assert_eq!(served.left("user", "user=a").await, 0);
    let spent: i64 = served.rows("user").await.into_iter().map(|(.., spent)| spent).sum();
    assert_eq!(spent, 100);
}

#[tokio::test]
async fn health_is_told_under_both_names_and_can_be_taken_away() {
    let (health, service) = health().await;
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = incoming.local_addr().unwrap();
    tokio::spawn(Server::builder().add_service(service).serve_with_incoming(incoming));
    let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect_lazy();
    let mut client = HealthClient::new(channel);
    for (is_serving, expected) in [
        (None, ServingStatus::Serving),
        (Some(false), ServingStatus::NotServing),
        (Some(true), ServingStatus::Serving),
    ] {
        if let Some(is_serving) = is_serving {
            health.set_serving(is_serving).await;
        }
        for service in ["", "ratelimit"] {
            let request = HealthCheckRequest { service: service.to_owned() };
            assert_eq!(client.check(request).await.unwrap().into_inner().status(), expected, "{service:?}");
        }
    }
}

#[tokio::test]
async fn json_is_answered_as_http() {
    let served = served(&[("user", log(1)), ("login", log(5))]).await;
    let body = br#"{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"a"}]},{"entries":[{"key":"no"}]}]}"#;
    let (status, text) = served.limits.json(body).await;
    let answer: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((status.as_u16(), &answer["overallCode"]), (200, &"OK".into()));
    let limit = serde_json::json!({ "requestsPerUnit": 1, "unit": "MINUTE", "name": "user" });
    assert_eq!(
        answer["statuses"],
        serde_json::json!([{ "code": "OK", "currentLimit": limit }, { "code": "OK" }])
    );
    let (status, text) = served.limits.json(body).await;
    let answer: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((status.as_u16(), &answer["overallCode"]), (429, &"OVER_LIMIT".into()));
    assert_eq!(answer["statuses"][0]["durationUntilReset"], "60s");
    assert_eq!(answer["dynamicMetadata"]["tallygate"]["reason"], "over_limit");
    for (body, expected) in [
        ("nonsense", 400),
        (r#"{"domain":"shop"}"#, 400),
        (r#"{"domain":"shop","descriptors":[{"entries":[{"key":"slot"}]}]}"#, 500),
    ] {
        let (status, text) = served.limits.json(body.as_bytes()).await;
        let answer: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(status.as_u16(), expected, "{text}");
        assert!(answer["code"].is_i64() && answer["message"].is_string(), "{text}");
    }
}
