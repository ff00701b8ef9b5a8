//! Questions of clients of Doorman, at the server that everybody asks.

use std::time::Duration;

use tallygate::ledger::History;
use tallygate::{Limiter, Policy};
use tallygate_doorman::proto::capacity_client::CapacityClient;
use tallygate_doorman::proto::{
    DiscoveryRequest, GetCapacityRequest, ReleaseCapacityRequest, ResourceRequest,
};
use tallygate_server::{Config, Right, Tokens};
use tonic::transport::Endpoint;
use tonic::{Code, Request};

use crate::client::Serving;

const SETTINGS: &str = "
[doorman]
listen = '127.0.0.1:0'
[[doorman.template]]
resource = 'gpu/*'
zone = 'gpu'
";

fn by<T>(token: Option<&str>, message: T) -> Request<T> {
    let mut request = Request::new(message);
    if let Some(token) = token {
        request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    }
    request
}

fn wants(wants: f64) -> GetCapacityRequest {
    let resource = ResourceRequest { resource_id: "gpu/h100".to_owned(), priority: 0, has: None, wants };
    GetCapacityRequest { client_id: "host:1".to_owned(), resource: vec![resource] }
}

#[tokio::test]
async fn a_client_is_known_by_its_token_which_is_for_the_zone() {
    let tokens = [("render", Right::App, "gpu"), ("other", Right::App, "g*"), ("login", Right::App, "login")];
    let tokens = tokens.into_iter().chain([("reader", Right::Auditor, "*")]);
    let made: Vec<_> =
        tokens.map(|(name, right, zone)| Tokens::make(name, &[right], &[zone.to_owned()]).unwrap()).collect();
    let mut entries: Vec<_> = made.iter().map(|made| made.entry.clone()).collect();
    // Of two thirds of all priorities, the less important ones.
    entries[1] = Tokens::up_to(85, &entries[1]);
    let [render, other, login, reader] = [0, 1, 2, 3].map(|n| Some(made[n].secret.as_str()));
    let serving = Serving::begin(SETTINGS, &entries).await;
    let limiter =
        Limiter::connect(&format!("sqlite:{}", serving.file("tallygate.db").display())).await.unwrap();
    let gpu = Policy::capacity(100, Duration::from_secs(60)).unwrap();
    limiter.operator().set_zone("gpu", &gpu, None, "test").await.unwrap();
    let at = serving.doorman.clone().unwrap();
    let channel = Endpoint::from_shared(at.clone()).unwrap().connect().await.unwrap();
    let mut client = CapacityClient::new(channel);

    let told = client.get_capacity(by(render, wants(60.0))).await.unwrap().into_inner();
    assert_eq!(told.response[0].gets.capacity, 60.0);
    let told = client.get_capacity(by(other, wants(60.0))).await.unwrap().into_inner();
    assert_eq!(told.response[0].gets.capacity, 40.0, "another client, though it calls itself the same");
    for (priority, code) in [(170, None), (171, Some(Code::PermissionDenied))] {
        let mut asked = wants(60.0);
        asked.resource[0].priority = priority;
        let told = client.get_capacity(by(other, asked)).await;
        assert_eq!(told.err().map(|status| status.code()), code, "priority {priority}");
    }
    for (token, code) in
        [(login, Code::PermissionDenied), (reader, Code::PermissionDenied), (None, Code::Unauthenticated)]
    {
        assert_eq!(client.get_capacity(by(token, wants(1.0))).await.unwrap_err().code(), code);
    }
    let release =
        ReleaseCapacityRequest { client_id: "host:1".to_owned(), resource_id: vec!["gpu/h100".to_owned()] };
    client.release_capacity(by(other, release)).await.unwrap();
    let history = History::default().zone("gpu").key("gpu/h100").limit(10);
    let rows = limiter.auditor().history(&history).await.unwrap().rows;
    let rows: Vec<_> = rows.iter().map(|row| (row.member.as_deref().unwrap(), row.spent)).collect();
    assert_eq!(
        rows,
        [("other/host:1", 0), ("other/host:1", 40), ("other/host:1", 40), ("render/host:1", 60)]
    );

    let found = client.discovery(by(render, DiscoveryRequest {})).await.unwrap().into_inner();
    let master = found.mastership.master_address.unwrap();
    assert!(found.is_master && at.ends_with(&format!("//{master}")), "{master}");
    drop(client);
    let (_folder, served) = serving.stop();
    served.await.unwrap().unwrap();
}

#[test]
fn it_is_not_offered_unless_it_is_asked_for() {
    assert_eq!(Config::read("").unwrap().doorman, None);
    let doorman = Config::read(SETTINGS).unwrap().doorman.unwrap();
    assert_eq!((doorman.address, doorman.templates[0].zone()), (None, "gpu"));
}
