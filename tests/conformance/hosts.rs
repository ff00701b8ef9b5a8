//! Several servers in one address: which of them is worked with, and what becomes of calls when it is gone.

use std::time::Duration;

use tallygate::schema::Role;
use tallygate::{Check, Config, Limiter};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::db::{Db, log};
use crate::proxy::Proxy;

fn host(url: &str) -> &str {
    url.rsplit_once('@').unwrap().1.split_once('/').unwrap().0
}

/// An address with several hosts, of addresses with one each.
fn list(urls: &[&str]) -> String {
    let (account, rest) = urls[0].rsplit_once('@').unwrap();
    let hosts: Vec<_> = urls.iter().map(|url| host(url)).collect();
    format!("{account}@{}/{}", hosts.join(","), rest.split_once('/').unwrap().1)
}

/// The same address at another host.
fn instead(url: &str, host: &str) -> String {
    let (account, rest) = url.rsplit_once('@').unwrap();
    format!("{account}@{host}/{}", rest.split_once('/').unwrap().1)
}

fn with(url: &str, parameter: &str) -> String {
    format!("{url}{}{parameter}", if url.contains('?') { '&' } else { '?' })
}

/// One that refuses connections, and one that takes them and says nothing.
pub async fn a_server_that_is_dead_or_silent_is_passed_by(db: Db) {
    let operator = db.limiter().await;
    operator.operator().set_zone("login", &log(5, 3600), None, "test").await.unwrap();
    let url = db.url_as(Role::App);
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let hosts = ["127.0.0.1:1".to_owned(), silent.local_addr().unwrap().to_string()];
    let [dead, silent_url] = hosts.each_ref().map(|host| instead(&url, host));
    let limiter = Limiter::connect(&list(&[&dead, &silent_url, &url])).await.unwrap();
    assert!(limiter.check(Check::new("login", "42")).await.unwrap().is_allowed());
    db.assert_ledger_is_whole().await;
}

/// Sixteen callers, two ways to the server, of which the one that they took breaks, comes back, and is taken again.
pub async fn calls_go_on_at_another_server_and_return_to_the_first(db: Db) {
    let operator = db.limiter().await;
    operator.operator().set_zone("login", &log(100, 3600), None, "test").await.unwrap();
    let url = db.url_as(Role::App);
    let (first, second) = (Proxy::before(&url).await, Proxy::before(&url).await);
    let limiter = Limiter::connect(&list(&[&first.url, &second.url])).await.unwrap();
    let load = async |limiter: &Limiter, key: &'static str, checks: usize| {
        let mut callers = JoinSet::new();
        for _ in 0..16 {
            let limiter = limiter.clone();
            callers.spawn(async move {
                let mut allowed = 0;
                for _ in 0..checks {
                    let decision = limiter.check(Check::new("login", key)).await.unwrap();
                    allowed += i64::from(decision.is_allowed());
                }
                allowed
            });
        }
        callers
    };
    let sum = async |callers: JoinSet<i64>| callers.join_all().await.into_iter().sum::<i64>();
    assert_eq!(sum(load(&limiter, "before", 10).await).await, 100);
    // A look at each server is all that the second one was asked.
    let (at_first, at_second) = (first.round_trips(), second.round_trips());
    assert!(at_second < 10 && at_second < at_first, "{at_first} and {at_second}");

    let callers = load(&limiter, "meanwhile", 20).await;
    let address = host(&first.url).to_owned();
    drop(first);
    assert_eq!(sum(callers).await, 100, "nobody failed, and the limit held");
    assert!(second.round_trips() > at_second);

    let first = Proxy::at(&address, &url).await;
    for _ in 0..300 {
        limiter.check(Check::new("login", "after")).await.unwrap();
        // The look itself is a few.
        if first.round_trips() > 20 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(first.round_trips() > 20, "{} round trips", first.round_trips());
    db.assert_ledger_is_whole().await;
}

pub async fn that_no_server_is_what_is_wanted_is_told(db: Db) {
    let url = db.url_as(Role::App);
    // For more looks than a time to wait can be doubled.
    let config = Config { deadline: Duration::from_secs(10), ..Config::default() };
    let connect = async |url: &str| match Limiter::connect_with(url, config).await {
        Ok(_) => panic!("connected"),
        Err(error) => error,
    };
    let replica = connect(&with(&url, "target=replica")).await;
    let told = replica.to_string();
    assert!(replica.is_transient() && told.contains("no server is a replica that can be read"), "{told}");
    assert!(told.contains("it takes writes"), "{told}");

    let dead = instead(&url, "127.0.0.1:1");
    let none = connect(&list(&[&dead, &dead])).await;
    assert!(none.is_transient() && none.to_string().contains("no server takes writes"), "{none}");

    let (account, rest) = url.rsplit_once('@').unwrap();
    let wrong = format!("{}:wr0ng@{rest}", account.rsplit_once(':').unwrap().0);
    let refused = connect(&list(&[&wrong, &wrong])).await;
    assert_eq!(refused.code(), "refused", "{refused}");
    assert!(!refused.to_string().contains("wr0ng"), "{refused}");

    let limiter = Limiter::connect(&with(&url, "target=primary")).await.unwrap();
    limiter.ping().await.unwrap();
}
