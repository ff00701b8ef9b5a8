//! The service stays and its database is killed: Envoy does as its options say, and the ledger stays whole.

use std::collections::{BTreeMap, HashMap};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tallygate::audit::verify::Verify;
use tallygate::ledger::History;
use tallygate::uuid::Uuid;
use tallygate::{Config, Limiter};
use tallygate_envoy::proto::rate_limit_descriptor::Entry;
use tallygate_envoy::proto::rate_limit_response::Code;
use tallygate_envoy::proto::rate_limit_service_client::RateLimitServiceClient;
use tallygate_envoy::proto::{RateLimitDescriptor, RateLimitRequest};
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

use crate::envoy::{CLOSED, Envoy, shop, soon};
use crate::limits_of;
use crate::postgres::Postgres;

/// The number of logins that a user has, and how often one is tried.
const RATE: i64 = 10;
const TRIES: usize = 15;

/// The client that asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asker {
    Open,
    Closed,
    /// A client of gRPC without an Envoy.
    Direct,
}

const ASKERS: [Asker; 3] = [Asker::Open, Asker::Closed, Asker::Direct];

/// The answer that was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Passes,
    Blocked,
    Undecided,
}

/// A client of the service, who names his transactions.
#[derive(Clone)]
pub struct Direct(RateLimitServiceClient<Channel>);

impl Direct {
    pub fn to(address: std::net::SocketAddr) -> Self {
        let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect_lazy();
        Self(RateLimitServiceClient::new(channel))
    }

    /// Asks what the route of the document asks.
    pub async fn login(&self, address: Ipv4Addr, user: &str, txn: Uuid) -> Result<Code, Status> {
        let descriptor = |entries: &[(&str, &str)]| RateLimitDescriptor {
            entries: entries
                .iter()
                .map(|(k, v)| Entry { key: (*k).to_owned(), value: (*v).to_owned() })
                .collect(),
            ..RateLimitDescriptor::default()
        };
        let descriptors = vec![
            descriptor(&[("path", "/login"), ("remote_address", &address.to_string())]),
            descriptor(&[("user", user)]),
            descriptor(&[("x-request-id", &txn.to_string())]),
        ];
        let request = RateLimitRequest { domain: "shop".to_owned(), descriptors, hits_addend: 0 };
        Ok(self.0.clone().should_rate_limit(request).await?.into_inner().overall_code())
    }
}

/// An answer; of a direct client with its transaction and its user.
type Answered = (Asker, Told, Option<(Uuid, String)>);

/// All that was answered so far, in order.
#[derive(Default)]
struct Seen {
    answers: Mutex<Vec<Answered>>,
    is_over: AtomicBool,
}

impl Seen {
    fn add(&self, asker: Asker, told: Told, txn: Option<(Uuid, String)>) {
        self.answers.lock().unwrap().push((asker, told, txn));
    }

    fn count(&self, asker: Asker, told: Told) -> usize {
        let answers = self.answers.lock().unwrap();
        answers.iter().filter(|(by, what, _)| (*by, *what) == (asker, told)).count()
    }

    /// Waits until each asker was told so a number of times more.
    async fn more(&self, told: Told, times: usize) {
        let before = ASKERS.map(|asker| self.count(asker, told));
        let enough =
            || ASKERS.iter().zip(before).all(|(asker, before)| self.count(*asker, told) >= before + times);
        soon(&format!("{told:?} {times} times"), async || enough().then_some(())).await;
    }
}

/// Asks through an Envoy until it is over.
async fn ask_envoy(asker: Asker, envoy: Arc<Envoy>, seen: Arc<Seen>) {
    for n in 0.. {
        if seen.is_over.load(Ordering::Relaxed) {
            return;
        }
        let answer = envoy.get("/login", &format!("{asker:?}-{}", n / TRIES)).await;
        let is_decided = answer.field("x-ratelimit-remaining").is_some();
        let told = match (answer.status, is_decided, asker) {
            (200, true, _) => Told::Passes,
            (429, true, _) => Told::Blocked,
            (200, false, Asker::Open) | (500, false, Asker::Closed) => Told::Undecided,
            _ => panic!("{asker:?}: {answer:?}"),
        };
        seen.add(asker, told, None);
    }
}

/// Asks directly until it is over. Each answer comes, and says what the protocol has for it.
async fn ask_directly(name: usize, direct: Direct, seen: Arc<Seen>) {
    for n in 0.. {
        if seen.is_over.load(Ordering::Relaxed) {
            return;
        }
        let (txn, user) = (Uuid::now_v7(), format!("{name}-{}", n / TRIES));
        let answer =
            tokio::time::timeout(Duration::from_secs(30), direct.login(Ipv4Addr::LOCALHOST, &user, txn))
                .await;
        let told = match answer.expect("an answer though the database is away") {
            Ok(Code::Ok) => Told::Passes,
            Ok(Code::OverLimit) => Told::Blocked,
            Err(status) if status.code() == tonic::Code::Unavailable => Told::Undecided,
            other => panic!("{other:?}"),
        };
        seen.add(Asker::Direct, told, Some((txn, user)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an Envoy and Docker: run tests/with-envoy, or set TALLYGATE_ENVOY to its path"]
async fn the_database_is_killed_under_load_and_comes_back() {
    let postgres = Postgres::begin().await;
    let config = Config { deadline: Duration::from_secs(1), ..Config::default() };
    let limiter = Limiter::connect_with(&postgres.url, config).await.unwrap();
    let (limits, shop) = (limits_of(limiter, [1_000_000, RATE]).await, shop().await);
    let open = Arc::new(Envoy::begin(shop, limits.address, &[]).await);
    let closed = Arc::new(Envoy::begin(shop, limits.address, &[CLOSED]).await);
    let (seen, direct) = (Arc::new(Seen::default()), Direct::to(limits.address));
    let mut askers: Vec<_> =
        (0..4).map(|name| tokio::spawn(ask_directly(name, direct.clone(), seen.clone()))).collect();
    askers.push(tokio::spawn(ask_envoy(Asker::Open, open.clone(), seen.clone())));
    askers.push(tokio::spawn(ask_envoy(Asker::Closed, closed.clone(), seen.clone())));

    seen.more(Told::Blocked, 10).await;
    postgres.kill();
    seen.more(Told::Undecided, 10).await;
    postgres.restart().await;
    for told in [Told::Passes, Told::Blocked] {
        seen.more(told, 10).await;
    }
    seen.is_over.store(true, Ordering::Relaxed);
    for asker in askers {
        asker.await.unwrap();
    }

    // The counts of Envoy are those of its clients.
    let undecided = [Asker::Open, Asker::Closed].map(|asker| seen.count(asker, Told::Undecided) as u64);
    for (envoy, undecided, passed) in [(&open, undecided[0], undecided[0]), (&closed, undecided[1], 0)] {
        assert_eq!(envoy.counted("cluster.shop.ratelimit.error").await, undecided);
        assert_eq!(envoy.counted("cluster.shop.ratelimit.failure_mode_allowed").await, passed);
    }

    // A client that was told nothing asks again, and is told what is in the ledger, whenever that came to be.
    let answers = std::mem::take(&mut *seen.answers.lock().unwrap());
    let mut told = HashMap::new();
    for (asker, answered, txn) in &answers {
        let Some((txn, user)) = txn else { continue };
        let is_blocked = match answered {
            Told::Undecided => {
                direct.login(Ipv4Addr::LOCALHOST, user, *txn).await.unwrap() == Code::OverLimit
            }
            _ => *answered == Told::Blocked,
        };
        assert!(told.insert(*txn, is_blocked).is_none(), "{asker:?}");
    }
    for (asker, envoy) in [(Asker::Open, &open), (Asker::Closed, &closed)] {
        let asked = answers.iter().filter(|(by, ..)| *by == asker).count();
        for (status, request_id, decided) in envoy.log(asked).await {
            let Some(decided) = decided else { continue };
            assert_eq!(decided["transaction"], request_id);
            told.insert(request_id.parse().unwrap(), status == 429);
        }
    }
    let auditor = limits.limiter.auditor();
    let (mut rows, mut before) = (HashMap::<_, Vec<bool>>::new(), None);
    let mut spent = BTreeMap::<_, i64>::new();
    loop {
        let history = History { limit: 1_000, before, ..History::default() };
        let page = auditor.history(&history).await.unwrap();
        for row in page.rows {
            rows.entry(row.txn_id).or_default().push(row.blocked);
            *spent.entry((row.zone, row.key)).or_default() += row.spent;
        }
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    // Each answer is in the ledger once, of both limits.
    for (txn, is_blocked) in told {
        assert_eq!(rows.get(&txn), Some(&vec![is_blocked; 2]), "{txn}");
    }
    let most = spent.iter().filter(|((zone, _), _)| zone == "login-user").map(|(_, spent)| *spent).max();
    assert_eq!(most, Some(RATE));
    let verified = auditor.verify(&Verify::default(), |_| ()).await.unwrap();
    assert_eq!((verified.faults, verified.not_derivable), (0, 0), "{verified:?}");
    assert_eq!(verified.rows as usize, rows.values().map(Vec::len).sum::<usize>());
}
