//! The calls that the project grew from work as they were written, without the faults that they had.

use futures_util::future::join_all;

use crate::db::{Connected, Db, Engine, bucket, log};
use crate::rounds;
use tallygate::Check;

const NOON_US: i64 = 1_793_534_400_000_000;

pub async fn check_velocity_answers_as_in_the_seed(db: Db) {
    let limiter = db.limiter().await;
    let zone = limiter.set_zone("login", &log(5, 60), None, "test").await.unwrap();
    assert_eq!(zone.id, 1);
    let mut session = db.connect_as(tallygate::Role::App).await;
    let mut blocked = Vec::new();
    for _ in 0..7 {
        blocked.push(
            session
                .number(match db.engine {
                    Engine::Postgres => "select blocked from check_velocity(1, '1_42')",
                    _ => "call check_velocity(1, '1_42')",
                })
                .await,
        );
    }
    assert_eq!(blocked, [0, 0, 0, 0, 0, 1, 1]);
    if db.engine == Engine::Postgres {
        let row = "select count(*) from check_velocity(1, '1_42')
            where blocked = 1 and id = 8 and zone_id = 1 and bucket_key = '1_42' and rate = 5 and window_seconds = 60";
        assert_eq!(session.number(row).await, 1);
    }
    let error = session.execute(match db.engine {
        Engine::Postgres => "select blocked from check_velocity(99, '1_42')",
        _ => "call check_velocity(99, '1_42')",
    });
    assert!(error.await.unwrap_err().to_string().contains("no zone 99"));
    db.assert_ledger_is_whole().await;
}

/// Tokens left after one call.
async fn request(session: &mut Connected, id: &str) -> i64 {
    session
        .number(&match session {
            Connected::Postgres(_) => format!("select rate_limiting_request('{id}', 1, 10)"),
            _ => format!("call rate_limiting_request('{id}', 1, 10)"),
        })
        .await
}

/// A session whose clock is set by the test.
async fn clocked(db: &Db) -> Connected {
    db.install_test_clock().await;
    db.connect_as(tallygate::Role::App).await
}

async fn at(session: &mut Connected, us: i64) {
    let sql = match session {
        Connected::Postgres(_) => format!(
            "select set_config('tallygate_test.clock', (timestamptz 'epoch' + {us} * interval '1 microsecond')::text, false)"
        ),
        _ => format!("set @tallygate_test_clock = date_add('1970-01-01', interval {us} microsecond)"),
    };
    session.execute(&sql).await.unwrap();
}

pub async fn rate_limiting_request_counts_down_and_refills(db: Db) {
    let mut session = clocked(&db).await;
    let mut left = Vec::new();
    for call in 0..13 {
        at(&mut session, NOON_US + call * 10_000).await;
        left.push(request(&mut session, "user1").await);
    }
    assert_eq!(left, [9, 8, 7, 6, 5, 4, 3, 2, 1, 0, -1, -1, -1]);
    let mut left = Vec::new();
    for call in 0..5 {
        at(&mut session, NOON_US + 120_000 + 4_000_000 + call * 10_000).await;
        left.push(request(&mut session, "user1").await);
    }
    assert_eq!(left, [3, 2, 1, 0, -1], "four seconds of silence are four tokens");
    assert_eq!(request(&mut session, "user2").await, 9, "another id has a bucket of its own");
    assert_eq!(db.number("select count(*) from zone_master").await, 1, "one zone for these parameters");
    assert_eq!(db.rows().await, 19, "every call is in the ledger");
}

pub async fn serializable_by_default_changes_nothing(db: Db) {
    let mut session = db.connect_as(tallygate::Role::App).await;
    session.execute("set default_transaction_isolation = serializable").await.unwrap();
    let mut left = Vec::new();
    for _ in 0..12 {
        left.push(request(&mut session, "user1").await);
    }
    assert_eq!(left, [9, 8, 7, 6, 5, 4, 3, 2, 1, 0, -1, -1]);
}

/// The seed's first call could fail with 23505: half of 16 clients died.
pub async fn the_first_calls_of_a_new_id_never_fail(db: Db) {
    let mut sessions = Vec::new();
    for _ in 0..16 {
        sessions.push(db.connect_as(tallygate::Role::App).await);
    }
    for round in 0..rounds(20, 500) {
        // A zone that is new and an id that is new, then an id that is new in a zone that is there.
        for (id, refill) in [("new".to_owned(), round + 2), (format!("new {round}"), 1)] {
            let calls = sessions.iter_mut().map(async |session| {
                session
                    .number(&match session {
                        Connected::Postgres(_) => {
                            format!("select rate_limiting_request('{id}', {refill}, 100)")
                        }
                        _ => format!("call rate_limiting_request('{id}', {refill}, 100)"),
                    })
                    .await
            });
            let left = join_all(calls).await;
            let full = refill as i64 * 100;
            // What flows in while they race can show a number twice; never more than was there.
            assert!(left.iter().all(|left| (full - 16..full).contains(left)), "{left:?}");
        }
    }
    assert_eq!(db.rows().await as usize, 2 * 16 * rounds(20, 500));
    db.assert_ledger_is_whole().await;
}

/// The seed rounded each refill, so calls that came often earned nothing.
pub async fn half_tokens_are_not_lost(db: Db) {
    let mut session = clocked(&db).await;
    at(&mut session, NOON_US).await;
    for _ in 0..10 {
        request(&mut session, "user1").await;
    }
    let mut passed = 0;
    for call in 1..=100 {
        at(&mut session, NOON_US + call * 400_000).await;
        passed += i64::from(request(&mut session, "user1").await >= 0);
    }
    assert_eq!(passed, 40, "40 seconds are 40 tokens, however often one asks");
}

/// The seed took a token for a refusal too, so a client that polled never recovered.
pub async fn a_refused_call_costs_nothing(db: Db) {
    let mut session = clocked(&db).await;
    at(&mut session, NOON_US).await;
    for _ in 0..10 {
        request(&mut session, "user1").await;
    }
    for poll in 1..100 {
        at(&mut session, NOON_US + poll * 10_000).await;
        assert_eq!(request(&mut session, "user1").await, -1);
    }
    at(&mut session, NOON_US + 1_000_000).await;
    assert_eq!(request(&mut session, "user1").await, 0, "the token is there when its second is over");
}

/// The seed took the transaction's start for the time of its decision, so a late one earned time twice.
pub async fn the_wait_for_the_lock_earns_nothing_twice(db: Db) {
    let limiter = db.limiter().await;
    // 100 tokens a second, and room for 100.
    limiter.set_zone("z", &bucket(100, 1, 100), None, "test").await.unwrap();
    limiter.check(Check::new("z", "42").cost(100)).await.unwrap();
    let mut caller = db.connect_as(tallygate::Role::App).await;
    match db.engine {
        Engine::Postgres => caller.execute("begin; select 1").await.unwrap(),
        _ => caller
            .execute("set transaction isolation level read committed; start transaction; select 1")
            .await
            .unwrap(),
    }
    tokio::time::sleep(std::time::Duration::from_millis(400)).await;
    let later = limiter.check(Check::new("z", "42").cost(1)).await.unwrap();
    let late = limiter.check_in(caller.joined(), Check::new("z", "42").cost(1)).await.unwrap();
    caller.execute("commit").await.unwrap();
    assert!(late.decided_at >= later.decided_at, "the transaction began earlier and is decided later");
    let between_us = (late.decided_at - later.decided_at).num_microseconds().unwrap();
    let earned = between_us / 10_000 + 1;
    assert!(
        late.remaining < later.remaining + earned,
        "{} after {} and {between_us} µs",
        late.remaining,
        later.remaining
    );
}
