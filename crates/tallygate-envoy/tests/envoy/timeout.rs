//! Envoy waits 20 ms by itself. The tests show what it does then, what becomes of the charge, and how long
//! answers take.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tallygate::ledger::History;
use tallygate::sqlx::{self, Connection, PgConnection};
use tallygate::uuid::Uuid;
use tallygate::{Check, Config, Limiter};
use tallygate_envoy::proto::rate_limit_response::Code;

use crate::envoy::{CLOSED, Envoy, shop, soon};
use crate::limits_of;
use crate::outage::Direct;
use crate::postgres::Postgres;

/// The change that makes Envoy wait as long as it does by itself.
const DEFAULT_TIMEOUT: (&str, &str) = ("timeout: 0.25s # 20 ms by itself\n", "\n");

/// The number of times that it is asked in vain.
const TIMES: usize = 3;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an Envoy and Docker: run tests/with-envoy, or set TALLYGATE_ENVOY to its path"]
async fn envoy_leaves_after_20_ms_and_what_it_asked_is_charged_all_the_same() {
    let postgres = Postgres::begin().await;
    let config = Config { deadline: Duration::from_secs(60), ..Config::default() };
    let limiter = Limiter::connect_with(&postgres.url, config).await.unwrap();
    let (limits, shop) = (limits_of(limiter, [1_000, 1_000]).await, shop().await);
    let open = Envoy::begin(shop, limits.address, &[DEFAULT_TIMEOUT]).await;
    let closed = Envoy::begin(shop, limits.address, &[DEFAULT_TIMEOUT, CLOSED]).await;
    let direct = Direct::to(limits.address);
    assert_eq!(direct.login(Ipv4Addr::BROADCAST, "bob", Uuid::now_v7()).await.unwrap(), Code::Ok);

    // Another program holds the row of the address that Envoy sees.
    limits.limiter.check(Check::new("login", "remote_address=127.0.0.1")).await.unwrap();
    let mut other = PgConnection::connect(&postgres.url).await.unwrap();
    let mut held = other.begin().await.unwrap();
    let lock = "select from zone_bucket_lock where bucket_key = 'remote_address=127.0.0.1' for update";
    sqlx::query(lock).fetch_all(&mut *held).await.unwrap();
    // With a user a request asks about two limits, and without one about one: those are two ways to the database.
    for (envoy, status) in [(&open, 200), (&closed, 500)] {
        for user in ["alice", ""] {
            for _ in 0..TIMES {
                let answer = envoy.get("/login", user).await;
                assert_eq!((answer.status, answer.field("x-ratelimit-remaining")), (status, None));
            }
        }
    }
    // Meanwhile it decides for others.
    assert_eq!(direct.login(Ipv4Addr::BROADCAST, "bob", Uuid::now_v7()).await.unwrap(), Code::Ok);
    let asked = 2 * TIMES as u64;
    for (envoy, passed) in [(&open, asked), (&closed, 0)] {
        for (name, expected) in [
            ("cluster.shop.ratelimit.error", asked),
            ("cluster.shop.ratelimit.failure_mode_allowed", passed),
            ("cluster.shop.ratelimit.ok", 0),
        ] {
            assert_eq!(envoy.counted(name).await, expected, "{name}");
        }
        // A call that waited for a connection as well is no timeout to this counter.
        assert!(envoy.counted("cluster.tallygate.upstream_rq_timeout").await > 0);
    }
    held.rollback().await.unwrap();

    let mut left = Vec::new();
    for envoy in [&open, &closed] {
        left.extend(envoy.log(2 * TIMES).await);
    }
    for (_, request_id, told) in left {
        assert_eq!(told, None);
        let history = History { txn: Some(request_id.parse().unwrap()), ..History::default() };
        soon("the charge", async || {
            let rows = limits.limiter.auditor().history(&history).await.unwrap().rows;
            rows.iter().any(|row| row.zone == "login" && !row.blocked && row.spent == 1).then_some(())
        })
        .await;
    }
    let remaining = limits.limiter.peek("login", "remote_address=127.0.0.1").await.unwrap().remaining;
    assert_eq!(remaining, 1_000 - 1 - 4 * TIMES as i64);
    // A call that comes now is decided about: sooner or later, within 20 ms too.
    let decided = async || open.get("/login", "alice").await.field("x-ratelimit-remaining").map(drop);
    soon("a decision within 20 ms", decided).await;
}

/// Clients that ask at once, each again a while after its answer.
const CLIENTS: u8 = 8;
const PAUSE: Duration = Duration::from_millis(20);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an Envoy and Docker: run tests/with-envoy, or set TALLYGATE_ENVOY to its path"]
async fn how_long_an_answer_takes() {
    let postgres = Postgres::begin().await;
    // Not where temporary files are, which is often memory.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let sqlite = format!("sqlite:{}", folder.path().join("tallygate.db").display());
    let rounds = if std::env::var_os("TALLYGATE_SOAK").is_some() { 1_000 } else { 50 };
    println!("{CLIENTS} clients, each again {PAUSE:?} after its answer; milliseconds over gRPC\n");
    println!("| | answers | p50 | p99 | p99.9 | longest | over 20 ms | Envoy let pass undecided |");
    println!("|---|---|---|---|---|---|---|---|");
    for (name, url) in [("PostgreSQL", &postgres.url), ("SQLite", &sqlite)] {
        let limits = limits_of(Limiter::connect(url).await.unwrap(), [1_000_000; 2]).await;
        let direct = Direct::to(limits.address);
        let mut took = each_client(rounds, move |address, user| {
            let direct = direct.clone();
            async move {
                let begin = Instant::now();
                assert_eq!(direct.login(address, &user, Uuid::now_v7()).await.unwrap(), Code::Ok);
                begin.elapsed()
            }
        })
        .await;
        took.sort();
        let at = |part: f64| took[((took.len() - 1) as f64 * part).round() as usize].as_secs_f64() * 1e3;
        let late = took.iter().filter(|took| took.as_millis() >= 20).count();
        let envoy = Arc::new(Envoy::begin(shop().await, limits.address, &[DEFAULT_TIMEOUT]).await);
        let front = Arc::clone(&envoy);
        let answers = each_client(rounds, move |address, user| {
            let front = Arc::clone(&front);
            async move { assert_eq!(front.get_from(address, "/login", &user).await.status, 200) }
        });
        let asked = answers.await.len() as u64;
        let passed = envoy.counted("cluster.shop.ratelimit.failure_mode_allowed").await;
        assert_eq!(envoy.counted("cluster.shop.ratelimit.ok").await + passed, asked);
        println!(
            "| {name} | {} | {:.1} | {:.1} | {:.1} | {:.1} | {late} | {passed} of {asked} |",
            took.len(),
            at(0.5),
            at(0.99),
            at(0.999),
            at(1.0)
        );
    }
}

/// The answers to the clients, each at an address and by a name of its own, in so many rounds.
async fn each_client<T: Send + 'static, F>(
    rounds: usize,
    ask: impl Fn(Ipv4Addr, String) -> F + Clone + Send + 'static,
) -> Vec<T>
where
    F: Future<Output = T> + Send,
{
    let clients = (1..=CLIENTS).map(|client| {
        let ask = ask.clone();
        tokio::spawn(async move {
            let mut answers = Vec::with_capacity(rounds);
            for _ in 0..rounds {
                answers.push(ask(Ipv4Addr::new(127, 0, 0, client), format!("user-{client}")).await);
                tokio::time::sleep(PAUSE).await;
            }
            answers
        })
    });
    let mut all = Vec::new();
    for client in clients.collect::<Vec<_>>() {
        all.extend(client.await.unwrap());
    }
    all
}
