//! The service as clients of Doorman see it: a real client and a real server, on the embedded engine.

use std::sync::Arc;
use std::time::Duration;

use tallygate::capacity::{Demand, Region, Upstream, Want};
use tallygate::chrono::DateTime;
use tallygate::policy::{Share, Sharing};
use tallygate::testing::Clock;
use tallygate::{Limiter, Policy};
use tallygate_doorman::proto::capacity_client::CapacityClient;
use tallygate_doorman::proto::{
    DiscoveryRequest, GetCapacityRequest, GetServerCapacityRequest, Lease, PriorityBandAggregate,
    ReleaseCapacityRequest, ResourceRequest, ServerCapacityResourceRequest, ServerCapacityResourceResponse,
    algorithm,
};
use tallygate_doorman::{Asker, Doorman, Parent, Template};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Code, Request, Status};

/// 2026-01-01, in seconds since 1970.
const NOW: i64 = 1_767_225_600;

fn capacity(capacity: i64, share: Share) -> Policy {
    let sharing = Sharing::every(share, Duration::from_secs(16));
    Policy::capacity(capacity, Duration::from_secs(60)).unwrap().with_sharing(Some(sharing))
}

async fn limiter(zones: &[(&str, Policy)]) -> Limiter {
    clocked(zones).await.0
}

async fn clocked(zones: &[(&str, Policy)]) -> (Limiter, Clock) {
    let clock = Clock::at(DateTime::from_timestamp(NOW, 600_000_000).unwrap());
    let limiter = Limiter::connect("sqlite::memory:").await.unwrap().with_clock(&clock).unwrap();
    for (zone, policy) in zones {
        limiter.operator().set_zone(zone, policy, None, "test").await.unwrap();
    }
    (limiter, clock)
}

async fn client_of(doorman: Doorman) -> CapacityClient<Channel> {
    // The client itself tells its name, as what stands before the service would.
    let asker = |mut request: Request<()>| {
        if let Some(name) = request.metadata().get("asker") {
            let name = name.to_str().unwrap().to_owned();
            let may = Arc::new(|zone: &str| zone == "gpu");
            request.extensions_mut().insert(Asker {
                name,
                asked_at: Some("here:1".to_owned()),
                band: 0,
                may,
            });
        }
        Ok(request)
    };
    let service = tonic::service::interceptor::InterceptedService::new(doorman.into_service(), asker);
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let at = format!("http://{}", incoming.local_addr().unwrap());
    tokio::spawn(Server::builder().add_service(service).serve_with_incoming(incoming));
    CapacityClient::new(Endpoint::from_shared(at).unwrap().connect().await.unwrap())
}

async fn client(limiter: &Limiter) -> CapacityClient<Channel> {
    client_of(Doorman::new(limiter.clone(), [])).await
}

fn resource(resource_id: &str, wants: f64) -> ResourceRequest {
    ResourceRequest { resource_id: resource_id.to_owned(), priority: 1, has: None, wants }
}

fn request(client_id: &str, resource: Vec<ResourceRequest>) -> GetCapacityRequest {
    GetCapacityRequest { client_id: client_id.to_owned(), resource }
}

fn by<T>(name: &'static str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("asker", name.parse().unwrap());
    request
}

async fn get(client: &mut CapacityClient<Channel>, id: &str, resource_id: &str, wants: f64) -> f64 {
    let answer = client.get_capacity(request(id, vec![resource(resource_id, wants)])).await.unwrap();
    answer.into_inner().response[0].gets.capacity
}

fn server(server_id: &str, resource_id: &str, wants: &[(i64, i64, f64)]) -> GetServerCapacityRequest {
    let wants = wants.iter().map(|&(priority, num_clients, wants)| PriorityBandAggregate {
        priority,
        num_clients,
        wants,
    });
    let resource_id = resource_id.to_owned();
    let resource = vec![ServerCapacityResourceRequest { resource_id, has: None, wants: wants.collect() }];
    GetServerCapacityRequest { server_id: server_id.to_owned(), resource }
}

async fn get_server(
    client: &mut CapacityClient<Channel>,
    id: &str,
    resource_id: &str,
    wants: &[(i64, i64, f64)],
) -> ServerCapacityResourceResponse {
    let answer = client.get_server_capacity(server(id, resource_id, wants)).await.unwrap();
    answer.into_inner().response.remove(0)
}

/// A share of a capacity; what is wanted, and for how many; what is granted.
type Vector = (Share, i64, &'static [(f64, i64)], &'static [f64]);

/// The figures of Doorman's tests and documents, once all have asked: in whole units.
#[tokio::test]
async fn shares_are_those_that_doorman_publishes() {
    use Share::{Fair, None, Proportional, Static};
    let vectors: &[Vector] = &[
        (Fair, 120, &[(1000., 1), (60., 1), (10., 1)], &[55., 55., 10.]),
        (Fair, 120, &[(1000., 1), (50., 1), (10., 1)], &[60., 50., 10.]),
        (Fair, 120, &[(1000., 6), (500., 4), (200., 2)], &[60., 40., 20.]),
        (Fair, 1000, &[(2000., 10), (500., 10), (700., 30)], &[200., 200., 600.]),
        (Proportional, 120, &[(60., 1), (60., 1), (10., 1)], &[55., 55., 10.]),
        (Proportional, 120, &[(65., 3), (45., 2), (20., 1)], &[60., 40., 20.]),
        (Proportional, 120, &[(1000., 1), (50., 1), (10., 1)], &[70., 40., 10.]),
        (Static, 100, &[(100., 1), (10., 1), (120., 1)], &[100., 10., 100.]),
        (None, 1, &[(10., 1), (100., 1)], &[10., 100.]),
    ];
    let names: Vec<_> = (0..vectors.len()).map(|n| format!("zone-{n}")).collect();
    let zones: Vec<_> =
        names.iter().zip(vectors).map(|(name, &(share, of, ..))| (&**name, capacity(of, share))).collect();
    let (limiter, clock) = clocked(&zones).await;
    let mut client = client(&limiter).await;
    for (zone, (share, _, asked, told)) in names.iter().zip(vectors) {
        let mut granted = Vec::new();
        // As soon as all have asked, the next round has its shares, and the one after that what the others gave back.
        for _ in 0..3 {
            granted.clear();
            for (n, &(wants, clients)) in asked.iter().enumerate() {
                clock.advance(Duration::from_millis(1));
                let id = format!("client-{n}");
                granted.push(match clients {
                    1 => get(&mut client, &id, zone, wants).await,
                    _ => get_server(&mut client, &id, zone, &[(1, clients, wants)]).await.gets.capacity,
                });
            }
        }
        assert_eq!(granted, *told, "{share} {asked:?}");
    }
}

#[tokio::test]
async fn capacity_is_handed_out_as_clients_arrive() {
    let zones = [("fair", capacity(120, Share::Fair)), ("proportional", capacity(120, Share::Proportional))];
    let limiter = limiter(&zones).await;
    let mut client = client(&limiter).await;
    let mut granted = Vec::new();
    for (id, wants) in [("c0", 1000.), ("c1", 10.), ("c0", 1000.), ("c1", 10.), ("c0", 1000.)] {
        granted.push(get(&mut client, id, "fair", wants).await);
    }
    assert_eq!(granted, [120., 0., 110., 10., 110.]);
    granted.clear();
    for (id, wants) in [("a", 60.), ("b", 75.), ("c", 10.)] {
        granted.push(get(&mut client, id, "proportional", wants).await);
    }
    assert_eq!(granted, [60., 60., 0.]);
}

#[tokio::test]
async fn a_lease_says_its_end_and_what_is_safe() {
    let limiter = limiter(&[("gpu", capacity(100, Share::Fair)), ("net", capacity(7, Share::Fair))]).await;
    let mut client = client(&limiter).await;
    let both = vec![resource("gpu", 30.9), resource("net", 9.)];
    let answer = client.get_capacity(request("a", both)).await.unwrap().into_inner();
    // A client that finds it asks another server.
    assert_eq!(answer.mastership, None);
    let lease = |capacity| Lease { expiry_time: NOW + 60, refresh_interval: 16, capacity };
    let told: Vec<_> = answer.response.iter().map(|one| (&*one.resource_id, one.gets)).collect();
    assert_eq!(told, [("gpu", lease(30.)), ("net", lease(7.))]);
    assert_eq!(answer.response[0].safe_capacity, Some(100.));
    get(&mut client, "b", "gpu", 1.).await;
    let again = client.get_capacity(request("a", vec![resource("gpu", 30.)])).await.unwrap().into_inner();
    assert_eq!(again.response[0].safe_capacity, Some(50.));
    // Less than a unit is nothing, which is a lease that is over.
    let none = client.get_capacity(request("a", vec![resource("gpu", 0.5)])).await.unwrap().into_inner();
    assert_eq!(none.response[0].gets, Lease { expiry_time: NOW, ..lease(0.) });
    let rows = limiter.auditor().bucket("gpu", "gpu").await.unwrap().unwrap();
    assert_eq!((rows.limit, rows.remaining), (100, 99));
}

#[tokio::test]
async fn a_server_has_a_lease_for_each_band_of_its_clients() {
    let limiter = limiter(&[("gpu", capacity(120, Share::Bands))]).await;
    let mut client = client(&limiter).await;
    let told = get_server(&mut client, "eu", "gpu", &[(5, 3, 100.), (255, 1, 80.), (5, 1, 110.)]).await;
    assert_eq!(told.gets, Lease { expiry_time: NOW + 60, refresh_interval: 16, capacity: 120. });
    let algorithm = told.algorithm.unwrap();
    assert_eq!(algorithm.kind(), algorithm::Kind::FairShare);
    assert_eq!((algorithm.lease_length, algorithm.refresh_interval), (60, 16));
    assert_eq!(told.safe_capacity, Some(60.));
    let wanted = limiter.leases().wanted("gpu", "gpu").await.unwrap();
    let band = |band, clients, wants| Demand { band, clients, wants };
    assert_eq!(wanted, [band(0, 1, 80), band(250, 4, 210)]);
    // A band that is no longer named is given back.
    let told = get_server(&mut client, "eu", "gpu", &[(255, 1, 80.)]).await;
    assert_eq!(told.gets.capacity, 80.);
    assert_eq!(limiter.leases().wanted("gpu", "gpu").await.unwrap(), [band(0, 1, 80)]);
    let told = get_server(&mut client, "eu", "gpu", &[]).await;
    assert_eq!((told.gets.capacity, told.gets.expiry_time), (0., NOW));
    assert_eq!(limiter.leases().wanted("gpu", "gpu").await.unwrap(), []);
}

#[tokio::test]
async fn a_resource_is_of_the_zone_that_its_template_names() {
    let log = Policy::sliding_log(5, Duration::from_secs(60)).unwrap();
    let zones = ["gpu", "exact", "first", "second"].map(|zone| (zone, capacity(100, Share::Fair)));
    let limiter = limiter(&[&zones[..], &[("login", log)]].concat()).await;
    let template = |resource: &str, zone: &str| Template::new(resource, zone).unwrap();
    let templates = [
        template("a*", "first"),
        template("*", "second"),
        template("a-b", "exact"),
        template("x/y", "nowhere"),
    ];
    let mut client = client_of(Doorman::new(limiter.clone(), templates)).await;
    for (id, zone) in
        [("gpu", "gpu"), ("a-b", "exact"), ("a-c", "first"), ("b c", "second"), ("second", "second")]
    {
        get(&mut client, "c", id, 1.).await;
        assert!(limiter.auditor().bucket(zone, id).await.unwrap().is_some(), "{id}");
    }
    let mut fails = async |id: &str| {
        let status = client.get_capacity(request("c", vec![resource(id, 1.)])).await.unwrap_err();
        assert!(status.message().contains(&format!("{id:?}")), "{status}");
        status.code()
    };
    assert_eq!(fails("no/such").await, Code::NotFound);
    assert_eq!(fails("x/y").await, Code::NotFound);
    assert_eq!(fails("login").await, Code::FailedPrecondition);
}

#[tokio::test]
async fn what_cannot_be_asked_is_refused_and_nothing_is_granted() {
    let limiter = limiter(&[("gpu", capacity(100, Share::Fair))]).await;
    let mut client = client(&limiter).await;
    let told = |status: Status, says: &str| {
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
        assert!(status.message().contains(says), "{status}");
    };
    let has = |capacity| Some(Lease { expiry_time: 0, refresh_interval: 0, capacity });
    let good = || resource("gpu", 1.);
    for (id, bad, says) in [
        ("", good(), "client_id is empty"),
        ("c\n", good(), "control character"),
        ("c", resource("", 1.), "resource_id is empty"),
        ("c", resource("gpu", -1.), "wants -1 of resource \"gpu\""),
        ("c", resource("gpu", f64::NAN), "wants NaN"),
        ("c", resource("gpu", f64::INFINITY), "wants inf"),
        ("c", resource("gpu", 1_099_511_627_777.), "wants 1099511627777"),
        ("c", ResourceRequest { has: has(-0.5), ..good() }, "has.capacity -0.5"),
    ] {
        // Even where another one could be granted.
        let error = client.get_capacity(request(id, vec![good(), bad])).await.unwrap_err();
        told(error, says);
    }
    let many = vec![good(); 1_001];
    told(client.get_capacity(request("c", many)).await.unwrap_err(), "1001 resources");
    for (id, wants, says) in [
        ("", (1, 1, 1.), "server_id is empty"),
        ("s", (1, 0, 1.), "num_clients 0 of resource \"gpu\""),
        ("s", (1, -1, 1.), "num_clients -1"),
        ("s", (1, i64::MAX, 1.), "num_clients 9223372036854775807"),
        ("s", (1, 1_000_001, 1.), "weight 1000001"),
        ("s", (1, 1, -1.), "wants -1"),
    ] {
        told(client.get_server_capacity(server(id, "gpu", &[wants])).await.unwrap_err(), says);
    }
    let release = |client_id: &str, resource_id: &str| ReleaseCapacityRequest {
        client_id: client_id.to_owned(),
        resource_id: vec![resource_id.to_owned()],
    };
    told(client.release_capacity(release("", "gpu")).await.unwrap_err(), "client_id is empty");
    told(client.release_capacity(release("c", "")).await.unwrap_err(), "resource_id is empty");
    assert!(limiter.auditor().bucket("gpu", "gpu").await.unwrap().is_none());
}

#[tokio::test]
async fn what_is_released_is_free_and_nobody_releases_what_another_has() {
    let limiter = limiter(&[("gpu", capacity(100, Share::Fair)), ("net", capacity(1, Share::Fair))]).await;
    let mut client = client(&limiter).await;
    let held = async || 100 - limiter.auditor().bucket("gpu", "gpu").await.unwrap().unwrap().remaining;
    let release =
        || ReleaseCapacityRequest { client_id: "host:1".to_owned(), resource_id: vec!["gpu".to_owned()] };
    let wants = || request("host:1", vec![resource("gpu", 40.)]);
    client.get_capacity(by("render", wants())).await.unwrap();
    client.release_capacity(by("other", release())).await.unwrap();
    client.release_capacity(release()).await.unwrap();
    assert_eq!(held().await, 40);
    client.release_capacity(by("render", release())).await.unwrap();
    assert_eq!(held().await, 0);
    // Once more changes nothing.
    let answer = client.release_capacity(by("render", release())).await.unwrap().into_inner();
    assert_eq!((answer.mastership, held().await), (None, 0));
    let status =
        client.get_capacity(by("render", request("a", vec![resource("net", 1.)]))).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied, "{status}");
}

#[tokio::test]
async fn every_server_is_the_master() {
    let limiter = limiter(&[]).await;
    let told = async |client: &mut CapacityClient<Channel>, request: Request<DiscoveryRequest>| {
        let answer = client.discovery(request).await.unwrap().into_inner();
        assert!(answer.is_master);
        answer.mastership.master_address
    };
    let mut plain = client(&limiter).await;
    assert_eq!(told(&mut plain, Request::new(DiscoveryRequest {})).await, None);
    assert_eq!(told(&mut plain, by("render", DiscoveryRequest {})).await.as_deref(), Some("here:1"));
    let mut named = client_of(Doorman::new(limiter.clone(), []).at("doorman.example:5000")).await;
    let at = told(&mut named, by("render", DiscoveryRequest {})).await;
    assert_eq!(at.as_deref(), Some("doorman.example:5000"));
}

/// The level above speaks the protocol; its leases end by seconds of the clock, so that it is the real one.
#[tokio::test]
async fn a_region_is_lent_what_a_server_grants() {
    let [root, leaf] = [
        Limiter::connect("sqlite::memory:").await.unwrap(),
        Limiter::connect("sqlite::memory:").await.unwrap(),
    ];
    root.operator().set_zone("gpu", &capacity(100, Share::Fair), None, "test").await.unwrap();
    leaf.operator().set_zone("gpu", &capacity(1, Share::Fair), None, "test").await.unwrap();
    let parent = Parent::new(client(&root).await, "eu", "gpu");
    let mut region = Region::new(&leaf, "gpu", "gpu", parent.clone());
    let want = || Want::new("gpu", "gpu", "worker", 150).band(3);
    assert_eq!(leaf.leases().get(want()).await.unwrap().has, 1);
    let lent = region.refresh().await.unwrap();
    assert_eq!((lent.has, lent.refresh), (100, Duration::from_secs(16)));
    assert!(lent.length <= Duration::from_secs(60) && lent.length > Duration::from_secs(30));
    let lease = leaf.leases().get(want()).await.unwrap();
    assert_eq!((lease.has, lease.capacity), (100, 100));
    assert!(lease.length() < lent.length);
    let band = Demand { band: 3, clients: 1, wants: 150 };
    assert_eq!(root.leases().wanted("gpu", "gpu").await.unwrap(), [band]);
    // A task of its own may run it.
    fn may_be_spawned(_: impl Send) {}
    may_be_spawned(region.run());
    // A resource that is not there is told as such.
    let error = Parent::new(client(&leaf).await, "eu", "none").ask(&[band]).await.unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
}
