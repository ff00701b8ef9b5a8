//! A payment and the limit that it spends, committed together or not at all.
//!
//! The check joins the transaction that inserts the payment. When the payment fails afterwards, its
//! rollback gives back what was spent: no clean-up, and no moment at which the two disagree. Afterwards the ledger
//! explains each decision, and proves that it is what it was.
//!
//! Run it with: cargo run --example payment

use std::error::Error;
use std::time::Duration;

use sqlx::SqlitePool;
use tallygate::{Check, Config, Decision, Limiter, Policy, Verify};

const CARD: &str = "card:9f3c";

/// Pays if the card's daily limit allows it.
async fn pay(pool: &SqlitePool, limiter: &Limiter, cents: i64) -> Result<Decision, Box<dyn Error>> {
    // SQLite decides who writes when a transaction begins; IMMEDIATE is what makes the check exact.
    let mut tx = pool.begin_with("BEGIN IMMEDIATE").await?;
    let decision = limiter.check_in(&mut *tx, Check::new("payments", CARD).cost(cents)).await?;
    if decision.blocked {
        // Committed too: the ledger keeps what was refused.
        tx.commit().await?;
        return Ok(decision);
    }
    // An error from here on drops `tx`, which rolls back the payment and what was spent.
    sqlx::query("insert into payment (txn_id, card, cents) values (?, ?, ?)")
        .bind(decision.txn_id)
        .bind(CARD)
        .bind(cents)
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    Ok(decision)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::temp_dir().join(format!("tallygate-payment-{}.db", uuid::Uuid::now_v7()));
    let url = format!("sqlite:{}", path.display());
    // Makes the file with its schema; the service's own tables stand beside it.
    Limiter::connect(&url).await?;
    let pool = SqlitePool::connect(&url).await?;
    let limiter = Limiter::with_pool(pool.clone(), Config::default()).await?;
    let day = Duration::from_secs(24 * 60 * 60);
    limiter.set_zone("payments", &Policy::sliding_log(10_000, day)?, Some("cents"), "example").await?;
    sqlx::query(
        "create table payment (txn_id blob primary key, card text, cents integer check (cents <> 6666))",
    )
    .execute(&pool)
    .await?;

    assert!(pay(&pool, &limiter, 4_000).await?.is_allowed(), "fits, commits");
    assert_eq!(limiter.peek("payments", CARD).await?.remaining, 6_000);

    // Blocked: nothing is paid, nothing is spent.
    let refused = pay(&pool, &limiter, 7_000).await?;
    assert!(refused.blocked);
    assert_eq!(limiter.peek("payments", CARD).await?.remaining, 6_000);

    let allowed = pay(&pool, &limiter, 5_000).await?;
    assert!(allowed.is_allowed());
    // Allowed, but the insert fails: what was spent comes back with it.
    limiter.set_zone("payments", &Policy::sliding_log(20_000, day)?, None, "example").await?;
    assert!(pay(&pool, &limiter, 6_666).await.is_err(), "the table refuses this amount");
    assert_eq!(limiter.peek("payments", CARD).await?.remaining, 11_000);

    let paid: i64 = sqlx::query_scalar("select sum(cents) from payment").fetch_one(&pool).await?;
    assert_eq!(paid, 9_000);
    println!("paid {paid} cents; the limit says the same");

    // Months later somebody asks why. The ledger still knows, and decides the same again from the rows before.
    for decision in [&refused, &allowed] {
        let explained = limiter.explain(decision.txn_id, 10).await?;
        let row = &explained.rows[0];
        assert_eq!(row.reproduced, Some(true));
        let used = row.counted.as_ref().map_or(0, |counted| counted.used);
        println!("{} cents were asked for when {used} were spent: {}", row.row.cost, row.row.reason);
    }
    let verified = limiter.verify(&Verify::default(), |_| ()).await?;
    assert_eq!((verified.rows, verified.faults), (3, 0), "the payment that failed left nothing");
    println!("{} rows verified", verified.rows);
    pool.close().await;
    std::fs::remove_file(path)?;
    Ok(())
}
