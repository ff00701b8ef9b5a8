//! A payment and the limits that it spends, by card and by merchant: committed together or not at all.
//!
//! The limits join the transaction that inserts the payment. When the payment fails afterwards, its rollback gives back
//! what was spent in both: no clean-up, and no moment at which they disagree. A reversal gives back in both inside the
//! transaction that marks the payment. Afterwards the ledger explains each decision, and proves that it is what it was.
//!
//! Run it with: cargo run --example payment

use std::error::Error;
use std::time::Duration;

use sqlx::SqlitePool;
use sqlx::sqlite::SqlitePoolOptions;
use tallygate::audit::verify::Verify;
use tallygate::{Check, Combined, Config, Limiter, Policy, Pool};
use uuid::Uuid;

const CARD: &str = "card:9f3c";
const SHOP: &str = "shop:17";

/// Pays if both daily limits allow it: the card's and the merchant's.
async fn pay(
    pool: &SqlitePool,
    limiter: &Limiter,
    txn: Uuid,
    cents: i64,
) -> Result<Combined, Box<dyn Error>> {
    let limits = [("cards", CARD), ("merchants", SHOP)];
    let checks = limits.map(|(zone, key)| Check::new(zone, key).cost(cents).txn(txn)).to_vec();
    // SQLite decides who writes when a transaction begins; IMMEDIATE is what makes the checks exact.
    let mut tx = pool.begin_with("BEGIN IMMEDIATE").await?;
    let combined = limiter.check_all_in(&mut tx, checks).await?;
    if combined.blocked {
        // Committed too: the ledger keeps what was refused.
        tx.commit().await?;
        return Ok(combined);
    }
    // An error from here on drops `tx`, which rolls back the payment and what was spent.
    sqlx::query("insert into payment (txn_id, cents) values (?, ?)")
        .bind(txn)
        .bind(cents)
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    Ok(combined)
}

/// Takes a payment back, and gives back what it spent.
async fn reverse(pool: &SqlitePool, limiter: &Limiter, txn: Uuid, why: &str) -> Result<(), Box<dyn Error>> {
    let mut tx = pool.begin_with("BEGIN IMMEDIATE").await?;
    limiter.refund_in(&mut tx, txn).await?;
    sqlx::query("update payment set cents = 0, reversed = ? where txn_id = ?")
        .bind(why)
        .bind(txn)
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    Ok(())
}

/// The units that can still be spent by the card, and at the merchant.
async fn left(limiter: &Limiter) -> Result<[i64; 2], Box<dyn Error>> {
    Ok([limiter.peek("cards", CARD).await?.remaining, limiter.peek("merchants", SHOP).await?.remaining])
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::temp_dir().join(format!("tallygate-payment-{}.db", Uuid::now_v7()));
    let url = format!("sqlite:{}", path.display());
    // Makes the file with its schema; the service's own tables stand beside it.
    Limiter::connect(&url).await?;
    // A handler that is dropped in the midst of a call leaves nothing on its connection.
    let pool = SqlitePoolOptions::new()
        .after_release(|connection, _| Box::pin(async move { Ok(Pool::still_good(connection).await) }))
        .connect(&url)
        .await?;
    let limiter = Limiter::with_pool(pool.clone(), Config::default()).await?;
    let a_day = |cents| Policy::sliding_log(cents, Duration::from_secs(24 * 60 * 60));
    limiter.operator().set_zone("cards", &a_day(10_000)?, Some("cents"), "example").await?;
    limiter.operator().set_zone("merchants", &a_day(20_000)?, Some("cents"), "example").await?;
    sqlx::query(
        "create table payment (
            txn_id blob primary key, cents integer check (cents <> 6666), reversed text check (reversed <> '')
        )",
    )
    .execute(&pool)
    .await?;

    let [first, refused, second] = [(); 3].map(|()| Uuid::now_v7());
    assert!(pay(&pool, &limiter, first, 4_000).await?.is_allowed(), "fits, commits");
    assert_eq!(left(&limiter).await?, [6_000, 16_000]);

    // The card blocks: nothing is paid, and nothing is spent at the merchant either.
    let combined = pay(&pool, &limiter, refused, 7_000).await?;
    assert_eq!(combined.binding.as_deref(), Some("cards"));
    assert_eq!(left(&limiter).await?, [6_000, 16_000]);

    assert!(pay(&pool, &limiter, second, 5_000).await?.is_allowed());
    // Allowed, but the insert fails: what was spent comes back with it.
    limiter.operator().set_zone("cards", &a_day(20_000)?, None, "example").await?;
    assert!(pay(&pool, &limiter, Uuid::now_v7(), 6_666).await.is_err(), "the table refuses this amount");
    assert_eq!(left(&limiter).await?, [11_000, 11_000]);

    // A reversal that fails gives nothing back; one that is committed gives back in both, and once.
    assert!(reverse(&pool, &limiter, first, "").await.is_err(), "the table asks for a reason");
    assert_eq!(left(&limiter).await?, [11_000, 11_000]);
    for _ in 0..2 {
        reverse(&pool, &limiter, first, "not delivered").await?;
        assert_eq!(left(&limiter).await?, [15_000, 15_000]);
    }

    let paid: i64 = sqlx::query_scalar("select sum(cents) from payment").fetch_one(&pool).await?;
    assert_eq!(paid, 5_000);
    println!("paid {paid} cents; both limits say the same");

    // Months later somebody asks why. The ledger still knows, and decides the same again from the rows before.
    for txn in [refused, second] {
        for row in limiter.auditor().explain(txn, 10).await?.rows {
            assert_eq!(row.reproduced, Some(true));
            let used = row.counted.as_ref().map_or(0, |counted| counted.used);
            let (zone, cost, reason) = (&row.row.zone, row.row.cost, row.row.reason);
            println!("{zone}: {cost} cents were asked for when {used} were spent: {reason}");
        }
    }
    let verified = limiter.auditor().verify(&Verify::default(), |_| ()).await?;
    assert_eq!((verified.rows, verified.faults), (8, 0), "what failed left nothing");
    println!("{} rows verified", verified.rows);
    pool.close().await;
    std::fs::remove_file(path)?;
    Ok(())
}
