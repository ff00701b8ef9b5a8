//! P7: what a check costs. It reads as much with thousands of rows in the window as with a few, and it is one
//! round trip.

use std::time::Duration;

use sqlx::{AssertSqlSafe, Row};
use tallygate::policy::{Limit, Override};
use tallygate::schema::Role;
use tallygate::{Charged, Check, Config, Isolation, Limiter};
use uuid::Uuid;

use crate::db::{Connected, Db, Engine, log};
use crate::proxy::Proxy;

pub async fn a_check_reads_no_more_rows_of_a_long_window_than_of_a_short_one(db: Db) {
    let limiter = db.limiter().await;
    limiter.operator().set_zone("wide", &log(1_000_000, 3600), None, "test").await.unwrap();
    limiter.operator().set_zone("full", &log(3_000, 3600), None, "test").await.unwrap();
    // As on a busy day: the statistics know many buckets of one row, and then one of them gets hot.
    for chunk in 0..4 {
        let other = |n| Check::new("wide", format!("other {chunk} {n}"));
        limiter.check_many((0..500).map(other).collect()).await.unwrap();
    }
    match db.engine {
        Engine::Postgres => {
            db.execute("alter table zone_txn_first set (autovacuum_enabled = off)").await;
            db.execute("analyze").await;
        }
        Engine::Sqlite => db.execute("analyze").await,
        _ => db.execute("analyze table zone_txn").await,
    }
    let fill = async |zone: &'static str, count: usize| {
        for _ in 0..count / 500 {
            limiter.check_many(vec![Check::new(zone, "hot"); 500]).await.unwrap();
        }
    };
    let mut session = db.connect().await;
    for zone in ["wide", "full"] {
        // The session makes its plans while there is little to read, and keeps them.
        for _ in 0..20 {
            rows_read(&mut session, zone, "hot", 1).await;
        }
        let few = rows_read(&mut session, zone, "hot", 1).await;
        assert!(few > 0, "the reads are counted");
        fill(zone, 5_000).await;
        // Allowed in one zone; blocked in the other, which also looks for the wait.
        let many = rows_read(&mut session, zone, "hot", 1).await;
        // A plan that reads the window would read thousands.
        assert!(many <= few + 100, "{zone}: {few} rows were read at 20, {many} at 5,000");
    }
}

/// The same of a batch in a caller's transaction, with statistics that know of no row.
pub async fn a_batch_reads_no_more_rows_of_large_tables_than_of_small_ones(db: Db) {
    match db.engine {
        Engine::Postgres => {
            for table in ["zone_txn_first", "zone_txn_last", "zone_bucket_lock"] {
                db.execute(&format!("alter table {table} set (autovacuum_enabled = false)")).await;
            }
            db.execute("analyze").await;
        }
        _ => {
            for table in ["zone_txn", "zone_bucket_lock"] {
                db.execute(&format!("alter table {table} stats_auto_recalc = 0")).await;
                db.execute(&format!("analyze table {table}")).await;
            }
        }
    }
    let limiter = db.limiter().await;
    let token = crate::db::bucket(1_000_000, 3600, 1_000_000);
    for (zone, policy) in [("wide", log(1_000_000, 3600)), ("full", log(1_000, 3600)), ("token", token)] {
        limiter.operator().set_zone(zone, &policy, None, "test").await.unwrap();
    }
    let mut session = db.connect().await;
    for zone in ["wide", "full", "token"] {
        let mut rows_read = async |count| rows_read_by_batch(&limiter, &mut session, zone, count).await;
        // Past the length up to which a ledger is read from its beginning.
        for _ in 0..20 {
            rows_read(40).await;
        }
        let few = rows_read(40).await;
        assert!(few > 0, "the reads are counted");
        for chunk in 0..2 {
            let other = |n| Check::new(zone, format!("filler {chunk} {n}"));
            limiter.check_many((0..500).map(other).collect()).await.unwrap();
            limiter.check_many(vec![Check::new(zone, "hot"); 500]).await.unwrap();
        }
        let many = rows_read(40).await;
        assert!(many <= few + 200, "{zone}: {few} rows were read of small tables, {many} of large ones");
        // A row of the batch is read some times over, not once for each other row; that of a bucket which is made, a few times more.
        let (made, large) = (rows_read(400).await, rows_read(400).await);
        assert!(large <= 12 * many, "{zone}: {many} rows were read for 40 checks, {large} for 400");
        assert!(
            made <= large + 4 * 360,
            "{zone}: {large} rows were read of 400 buckets, {made} while 360 were made"
        );
    }
}

/// An id is looked for in its bucket: the buckets that follow it in an index cost nothing, however many rows they have, nor do those
/// that have rows of the same id.
pub async fn an_id_is_looked_for_in_its_bucket_alone(db: Db) {
    let limiter = db.limiter().await;
    limiter.operator().set_zone("login", &log(1_000_000, 3600), None, "test").await.unwrap();
    let mut session = db.connect().await;
    let Connected::Postgres(_) = session else {
        limiter.check(Check::new("login", "a")).await.unwrap();
        let few = rows_read(&mut session, "login", "a", 1).await;
        for _ in 0..4 {
            limiter.check_many(vec![Check::new("login", "b"); 500]).await.unwrap();
        }
        let many = rows_read(&mut session, "login", "a", 1).await;
        assert!(0 < few && many <= few + 10, "{few} rows were read alone, {many} before 2,000 others");
        return;
    };
    // Each new id is of the last millisecond, and so comes after all others of its bucket.
    let (new, of_others) = ("zone_txn_id_make()", "'01900000-0000-7000-8000-000000000000'::uuid");
    let hold = |id| {
        format!(
            "select zone_engine_hold(array[1], array['a'], 0, array[false], null, array[1], array['a'], array[{id}])"
        )
    };
    let refund = |id| format!("select zone_refund(1, 'a', {id})");
    let calls = [
        format!("select zone_check(1, 'a', {new}, 1)"),
        hold(new),
        refund(new),
        hold(of_others),
        refund(of_others),
    ];
    let mut read = [[0; 5]; 3];
    // The session makes its plans while there is little to read, and keeps them. Then an index is as deep as later.
    for (times, filled) in [10, 2_000, 10_000].into_iter().zip(&mut read) {
        let others = format!("select count(zone_check(1, 'b', null, 1)) from generate_series(1, {times})");
        session.execute(&others).await.unwrap();
        let others = format!(
            "select count(zone_check(1, 'c' || n, {of_others}, 1)) from generate_series(1, {times}) n"
        );
        session.execute(&others).await.unwrap();
        for (call, pages) in calls.iter().zip(filled) {
            for _ in 0..10 {
                let before = pages_read(&mut session).await;
                // Nothing was charged that could be given back.
                session.execute(call).await.ok();
                *pages = pages_read(&mut session).await - before;
            }
        }
    }
    for (n, call) in calls.iter().enumerate() {
        let (few, many) = (read[1][n], read[2][n]);
        assert!(
            0 < few && many <= few + 5,
            "{call}: {few} pages were read at 2,000 others, {many} at 12,000"
        );
    }
}

/// The part of the charges in a window that ends is looked at again for each halving of the search for the exact
/// wait, not for each other such piece.
pub async fn a_wait_among_four_times_as_many_refunds_or_reservations_reads_about_four_times_as_much(db: Db) {
    let limiter = db.limiter().await;
    let later = |seconds: &str| match db.engine {
        Engine::Postgres => format!("t.created_at + ({seconds}) * interval '1 second'"),
        _ => format!("date_add(t.created_at, interval {seconds} second)"),
    };
    let mut session = db.connect().await;
    // All is given back but the last charge, and each has ended. Or each ends at a time of its own, and the check waits
    // for half of them.
    for (zone, ends_at, share) in [("refunds", later("0"), 1_000), ("reservations", later("1000 + t.seq"), 2)]
    {
        limiter.operator().set_zone(zone, &log(2_000, 3600), None, "test").await.unwrap();
        let mut read = Vec::new();
        for pieces in [250, 1_000] {
            let key = format!("{pieces} pieces");
            // One after the other, since those of a batch are of one time.
            for _ in 0..pieces {
                assert!(limiter.check(Check::new(zone, &key)).await.unwrap().is_allowed());
            }
            let of_bucket = format!(
                "zone_id = (select id from zone_master where name = '{zone}') and bucket_key = '{key}'"
            );
            session
                .execute(&format!(
                    "insert into zone_hold (zone_id, bucket_key, seq, charged_at, amount, ends_at)
                    select t.zone_id, t.bucket_key, t.seq, t.created_at, t.spent, {ends_at}
                    from zone_txn t where {of_bucket}"
                ))
                .await
                .unwrap();
            let holding = format!("update zone_bucket_lock set holding = true where {of_bucket}");
            session.execute(&holding).await.unwrap();
            // One that remembers nothing, since no act of the library's brought this about.
            let limiter = db.limiter().await;
            let room = limiter.peek(zone, &key).await.unwrap().remaining;
            assert!(limiter.check(Check::new(zone, &key).cost(room)).await.unwrap().is_allowed());
            read.push(rows_read(&mut session, zone, &key, (pieces / share).max(1)).await);
        }
        let [few, many] = read[..] else { unreachable!() };
        assert!(few >= 2 * 250, "the reads are counted: {few}");
        assert!(many <= 6 * few, "{zone}: {few} rows were read among 250, {many} among 1,000");
    }
}

/// The overrides of a bucket, as a verification asks for them, are not found by looking at all its rows for each.
pub async fn overrides_are_read_without_the_other_rows_of_their_bucket(db: Db) {
    let limiter = db.limiter().await;
    limiter.operator().set_zone("login", &log(1_000_000, 3600), None, "test").await.unwrap();
    limiter.check_many(vec![Check::new("login", "hot"); 480]).await.unwrap();
    for rate in 1..=20 {
        let limit = Limit::new(rate, Duration::from_secs(3600), None).unwrap();
        let own = Override { limit: Some(limit), ban_exempt: false, for_us: None };
        limiter.operator().set_override("login", "hot", own, "", "test").await.unwrap();
    }
    let mut auditor = db.connect_as(Role::Auditor).await;
    if let Connected::Postgres(auditor) = &mut auditor {
        let overrides = include_str!("../../src/store/postgres/bucket_overrides.sql");
        let overrides = overrides.replace("$1", "1").replace("$2", "'hot'").replace("$3", "'hot'");
        let plan = sqlx::raw_sql(AssertSqlSafe(format!("explain {overrides}"))).fetch_all(auditor).await;
        let plan: String = plan.unwrap().iter().map(|row| row.get::<String, _>(0) + "\n").collect();
        assert!(plan.contains("zone_override") && !plan.contains("zone_txn"), "{plan}");
        return;
    }
    let (first, end) = ("'1970-01-01'", "'9999-01-01'");
    for (sql, values) in [
        (include_str!("../../src/store/mysql/bucket_overrides.sql"), vec!["1", "'hot'", "'hot'"]),
        (
            include_str!("../../src/store/mysql/evidence.sql"),
            vec!["1", "''", first, first, "0", first, end, "1", "''", first, end],
        ),
    ] {
        let filled = values.iter().fold(sql.to_owned(), |sql, value| sql.replacen('?', value, 1));
        let read = handlers_read(&mut auditor, &filled).await;
        assert!((20..5 * 500).contains(&read), "{read} rows were read: {filled}");
    }
}

/// One for a check, alone or in a batch, whoever chose its id; three under SERIALIZABLE, where a batch on MySQL and MariaDB looks at
/// its buckets before.
pub async fn a_check_is_one_round_trip(db: Db) {
    let proxy = Proxy::before(&db.url_as(Role::App)).await;
    let more = usize::from(db.engine.is_mysql());
    // Over several nodes those of a batch are held and appended one by one, in a transaction.
    let (batch, serializable) = if db.is_spread { (7, 7) } else { (1, 3 + more) };
    for (isolation, trips) in [(Isolation::RowLock, 2 + batch), (Isolation::Serializable, 6 + serializable)] {
        let config = Config { isolation, connections: 4, ..db.config() };
        let limiter = Limiter::connect_with(&proxy.url, config).await.unwrap();
        db.limiter().await.operator().set_zone("login", &log(1_000, 3600), None, "test").await.unwrap();
        let calls = async || {
            limiter.check(Check::new("login", "42")).await.unwrap();
            limiter.check(Check::new("login", "42").txn(Uuid::now_v7())).await.unwrap();
            limiter.check_many(vec![Check::new("login", "42"), Check::new("login", "43")]).await.unwrap();
        };
        // The first calls prepare their statements.
        for _ in 0..5 {
            calls().await;
        }
        let before = proxy.round_trips();
        for _ in 0..20 {
            calls().await;
        }
        assert_eq!(proxy.round_trips() - before, 20 * trips, "{isolation:?}");
    }
}

/// Of a bucket that another process decided, the first time and later, and while that goes on; in a caller's transaction, with those
/// that begin and commit it; and of a refund.
pub async fn each_way_of_a_check_takes_so_many_round_trips(db: Db) {
    let proxy = Proxy::before(&db.url_as(Role::App)).await;
    let config = Config { connections: 1, ..db.config() };
    let limiter = Limiter::connect_with(&proxy.url, config).await.unwrap();
    let other = db.limiter().await;
    other.operator().set_zone("login", &log(100, 3600), None, "test").await.unwrap();
    let mut caller = Connected::open(db.engine, &proxy.url).await.unwrap();
    let mut trips = [0; 7];
    // The first calls prepare their statements.
    for n in 0..8 {
        let check = || Check::new("login", format!("{n}"));
        other.check(check()).await.unwrap();
        let mut told = vec![proxy.round_trips()];
        let decided = limiter.check(check()).await.unwrap();
        told.push(proxy.round_trips());
        // Reads what was charged in its window.
        limiter.check(check()).await.unwrap();
        told.push(proxy.round_trips());
        limiter.check(check()).await.unwrap();
        told.push(proxy.round_trips());
        // Refused once, and then decided by the routine for so many calls.
        for calls in [1, 8] {
            for _ in 0..calls {
                other.check(check()).await.unwrap();
                limiter.check(check()).await.unwrap();
            }
            told.push(proxy.round_trips());
        }
        caller.begin().await;
        limiter.check_in(caller.joined(), check()).await.unwrap();
        caller.execute("commit").await.unwrap();
        told.push(proxy.round_trips());
        limiter.refund(Charged::by(decided.txn_id).in_bucket("login", format!("{n}"))).await.unwrap();
        told.push(proxy.round_trips());
        trips = std::array::from_fn(|way| told[way + 1] - told[way]);
    }
    // The driver knows nothing of the transaction that a statement began: one trip more tells on PostgreSQL.
    let expected = match db.engine {
        Engine::Postgres if db.is_spread => [1, 1, 1, 1, 8, 2 + 3, 5],
        Engine::Postgres => [1, 2, 1, 2, 8, 2 + 3, 5],
        _ => [1, 2, 1, 2, 8, 2 + 2, 4],
    };
    assert_eq!(trips, expected, "unknown, known, remembered, contested, eight more, joined, refund");
    db.assert_ledger_is_whole().await;
}

/// As [`rows_read`], of a batch of the library's, with a check of the bucket "hot".
async fn rows_read_by_batch(limiter: &Limiter, session: &mut Connected, zone: &str, count: usize) -> i64 {
    let key = |n: usize| if n == 0 { "hot".to_owned() } else { format!("other {n}") };
    let checks = (0..count).map(|n| Check::new(zone, key(n))).collect();
    session.begin().await;
    let (first, before) = (reads(session).await, reads(session).await);
    limiter.check_all_in(session.joined(), checks).await.unwrap();
    // To look at the counters is counted too.
    let read = reads(session).await - before - (before - first);
    session.execute("commit").await.unwrap();
    read
}

/// The number of reads of a statement on MySQL and MariaDB.
async fn handlers_read(session: &mut Connected, call: &str) -> i64 {
    let (first, before) = (reads(session).await, reads(session).await);
    session.execute(call).await.unwrap();
    reads(session).await - before - (before - first)
}

/// The reads so far: in the transaction that is open on PostgreSQL, of the session on MySQL and MariaDB. The counters are never set
/// back: that would set back those of all sessions of the server.
async fn reads(session: &mut Connected) -> i64 {
    match session {
        Connected::Postgres(_) => session.number(ROWS_READ).await,
        // MariaDB does not count as read what its index condition turned away.
        _ => session.status("Handler_read%").await + session.status("Handler_icp_attempts").await,
    }
}

/// The pages of the ledger's indexes that were read on PostgreSQL: of a row that an index turns away by itself nothing else tells.
async fn pages_read(session: &mut Connected) -> i64 {
    session.execute("select pg_stat_force_next_flush()").await.unwrap();
    session
        .number(
            "select sum(idx_blks_hit + idx_blks_read)::bigint from pg_statio_user_indexes
            where relname like 'zone_txn%'",
        )
        .await
}

/// The reads of PostgreSQL in the transaction that is open.
const ROWS_READ: &str = "select sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))::bigint
    from pg_stat_xact_user_tables where schemaname = current_schema()";

/// Rows of the ledger and other tables that one check with an id of the caller's own reads.
async fn rows_read(session: &mut Connected, zone: &str, key: &str, cost: i64) -> i64 {
    let zone_id = session.number(&format!("select id from zone_master where name = '{zone}'")).await;
    match session {
        Connected::Postgres(_) => {
            // The reads of earlier transactions are told as long as they were not handed over.
            session.execute("select pg_stat_force_next_flush()").await.unwrap();
            session.execute("begin").await.unwrap();
            let check = format!("select zone_check({zone_id}, '{key}', gen_random_uuid(), {cost})");
            session.execute(&check).await.unwrap();
            let rows = session.number(ROWS_READ).await;
            session.execute("commit").await.unwrap();
            rows
        }
        Connected::MySql(_) => {
            let txn = Uuid::now_v7().simple();
            let check = format!("call zone_check({zone_id}, '{key}', unhex('{txn}'), {cost}, 0, 5)");
            session.execute(&check).await.unwrap();
            let check = check.replace(&txn.to_string(), &Uuid::now_v7().simple().to_string());
            handlers_read(session, &check).await
        }
        // Of the embedded engine's statements SQLite tells how it would read.
        Connected::Sqlite(_) => {
            assert_plans(session).await;
            1
        }
    }
}

/// Each statement of a batch takes its list apart and finds what it names through an index of the table.
async fn assert_plans(session: &mut Connected) {
    macro_rules! statement {
        ($name:literal) => {
            ($name, include_str!(concat!("../../src/store/sqlite/", $name, ".sql")))
        };
    }
    for ((name, sql), searches) in [
        (statement!("heads"), &["SEARCH b USING PRIMARY KEY (zone_id=? AND bucket_key=?)"][..]),
        (statement!("versions"), &["SEARCH v USING PRIMARY KEY (zone_id=? AND version>?)"]),
        (
            statement!("past"),
            &["SEARCH t USING INDEX zone_txn_txn (txn_id=? AND zone_id=? AND bucket_key=?)"],
        ),
        (
            statement!("windows"),
            &["SEARCH t USING COVERING INDEX zone_txn_bucket (zone_id=? AND bucket_key=? AND created_at>?)"],
        ),
        (
            statement!("waits"),
            &["SEARCH t USING COVERING INDEX zone_txn_bucket (zone_id=? AND bucket_key=? AND created_at<?)"],
        ),
        (statement!("append"), &[]),
    ] {
        let plan = session.plan(&sql.replace("?1", "'[]'")).await;
        for search in searches {
            assert!(plan.contains(search), "{name}: {plan}");
        }
        assert!(plan.contains("SCAN j VIRTUAL TABLE") || name == "append", "{name}: {plan}");
        let scans = plan
            .lines()
            .filter(|line| line.contains("SCAN") && !line.contains("SCAN j ") && !line.contains("SCAN s "));
        assert_eq!(scans.collect::<Vec<_>>(), Vec::<&str>::new(), "{name}: {plan}");
        assert!(!plan.contains("TEMP B-TREE") || name == "versions", "{name}: {plan}");
    }
}
