//! Behind PgBouncer in transaction mode, where each transaction may run on another server connection.

use futures_util::future::join_all;
use tallygate::{Check, Config, Isolation};
use testcontainers::core::{IntoContainerPort, WaitFor};
use testcontainers::runners::AsyncRunner;
use testcontainers::{ContainerAsync, GenericImage, ImageExt};

use crate::db::{Db, Told, log, told};
use crate::server;

const LIMIT: i64 = 100;
const SERVER_CONNECTIONS: i64 = 4;

/// 8 clients with a connection each, over 4 connections to the server.
pub async fn four_hundred_decisions_through_a_transaction_pool_are_right(mut db: Db) {
    let bouncer = start(&db.server().address().await).await;
    let port = bouncer.get_host_port_ipv4(6432).await.unwrap();
    let url = format!("postgres://postgres:{}@127.0.0.1:{port}/apart", server::PASSWORD.replace('\'', "%27"));
    let address = server::address(bouncer.id()).await;
    let direct = db.limiter().await;

    for isolation in [Isolation::RowLock, Isolation::Serializable] {
        let zone = format!("{isolation:?}");
        direct.operator().set_zone(&zone, &log(LIMIT, 3600), None, "test").await.unwrap();
        let config = Config { isolation, connections: 1, attempts: 1000, ..db.config() };
        let clients = (0..8).map(|client| {
            let (url, zone) = (url.clone(), zone.clone());
            tokio::spawn(async move {
                let limiter = tallygate::Limiter::connect_with(&url, config).await.unwrap();
                let mut answers = Vec::new();
                for call in 0.. {
                    let key = if call % 2 == 0 { "hot".to_owned() } else { format!("mild {client}") };
                    if call % 3 == 0 {
                        let pair = [Check::new(&zone, key), Check::new(&zone, "pair")];
                        let batch = limiter.check_many(pair.to_vec()).await.unwrap();
                        answers.extend(batch.iter().map(told));
                    } else {
                        answers.push(told(&limiter.check(Check::new(&zone, key)).await.unwrap()));
                    }
                    if answers.len() >= 50 {
                        break;
                    }
                }
                answers
            })
        });
        let answers: Vec<Told> = join_all(clients).await.into_iter().flat_map(Result::unwrap).collect();

        assert_eq!(answers.len(), 400, "{zone}");
        let hot = answers.iter().filter(|answer| answer["key"] == "hot");
        assert_eq!(hot.filter(|answer| answer["blocked"] == false).count() as i64, LIMIT, "{zone}");
        db.assert_ledger_says(&zone, &answers).await;
    }
    assert_eq!(db.rows().await, 2 * 400);
    db.assert_first_come(LIMIT).await;
    db.assert_ledger_is_whole().await;
    let shared = format!("select count(*) from pg_stat_activity where client_addr = '{address}'");
    let connections = db.number(&shared).await;
    assert!((1..=SERVER_CONNECTIONS).contains(&connections), "{connections} connections to the server");
}

async fn start(server: &str) -> ContainerAsync<GenericImage> {
    let name = std::env::var("TALLYGATE_TEST_PGBOUNCER_IMAGE")
        .unwrap_or_else(|_| "tallygate-test/pgbouncer:1".to_owned());
    let (repository, tag) = name.rsplit_once(':').unwrap_or((&name, "latest"));
    let request = GenericImage::new(repository, tag)
        .with_exposed_port(6432.tcp())
        .with_wait_for(WaitFor::message_on_stderr("process up"))
        .with_env_var("DB_HOST", server)
        .with_env_var("DB_PASSWORD", server::PASSWORD)
        .with_env_var("POOL_MODE", "transaction")
        .with_env_var("DEFAULT_POOL_SIZE", SERVER_CONNECTIONS.to_string());
    match server::labelled(request).start().await {
        Ok(container) => container,
        Err(error) => panic!("no PgBouncer to test through ({error}); run ./test, which provides it"),
    }
}
