//! Each change of a ledger is found, and nothing else is.

use std::collections::HashMap;
use std::time::Duration;

use tallygate::audit::verify::{Fault, FaultKind, Verified, Verify, Verifying};
use tallygate::policy::{BanRule, Override, Queueing};
use tallygate::queue::Offer;
use tallygate::schema::Role;
use tallygate::{Charged, Check, Limiter, Policy};

use crate::db::{Db, Engine, connected, log};
use crate::proxy::Proxy;
use crate::server::PATIENCE;

/// The faults that a verification finds.
pub async fn verify(limiter: &Limiter, what: &Verify) -> (Verified, Vec<Fault>) {
    let mut faults = Vec::new();
    let auditor = limiter.auditor();
    let verified = auditor.verify(what, |told| {
        if let Verifying::Fault(fault) = told {
            faults.push(fault);
        }
    });
    let verified = verified.await.unwrap();
    assert_eq!(verified.faults, faults.len() as u64);
    (verified, faults)
}

/// 8 rows in a bucket: a check, its refund, a reservation, its settlement, a check, a blocked one and the ban that it brings
/// about, and its end.
async fn live(limiter: &Limiter, key: &str) {
    let first = limiter.check(Check::new("login", key)).await.unwrap().txn_id;
    limiter.refund(Charged::by(first)).await.unwrap();
    let hour = Duration::from_secs(3600);
    let reserved = limiter.reserve(Check::new("login", key).cost(2), hour).await.unwrap().txn_id;
    limiter.settle(Charged::by(reserved), 1).await.unwrap();
    assert!(!limiter.check(Check::new("login", key).cost(2)).await.unwrap().blocked);
    assert!(limiter.check(Check::new("login", key)).await.unwrap().blocked);
    limiter.operator().unban("login", key, "why", "who").await.unwrap();
}

fn banning() -> Policy {
    let hour = Duration::from_secs(3600);
    log(3, 3600).with_ban(Some(BanRule::new(1, hour, hour)))
}

/// The network loses one answer of eight, and its connection with it.
pub async fn a_lost_connection_does_not_end_a_verification(db: Db) {
    let limiter = db.limiter().await;
    let mut txns = Vec::new();
    for zone in ["a", "b", "c", "d", "e", "f"] {
        limiter.operator().set_zone(zone, &log(3, 3600), None, "test").await.unwrap();
        txns.push(limiter.check(Check::new(zone, "42")).await.unwrap().txn_id);
    }
    let proxy = Proxy::before(&db.url_as(Role::Auditor)).await;
    let auditor = connected(&proxy.url).await.auditor();
    proxy.cut_one_of(8);
    let verified = auditor.verify(&Verify { jobs: 2, ..Verify::default() }, |_| ()).await.unwrap();
    assert_eq!((verified.zones, verified.rows, verified.faults), (6, 6, 0));
    for txn in txns {
        assert_eq!(auditor.explain(txn, 20).await.unwrap().rows.len(), 1);
    }
    assert!(proxy.cuts() > 0);
}

/// Every way to change a ledger without knowing how it is hashed, each in a bucket of its own, is found where it is and as
/// what it is; and nothing is said of a bucket that was left alone.
pub async fn each_change_of_a_ledger_is_found_where_it_is(db: Db) {
    let moved = match db.engine {
        Engine::Postgres => {
            "created_at = (created_at at time zone 'UTC' + interval '1 microsecond') at time zone 'UTC'"
        }
        Engine::Sqlite => "created_at = created_at + 1",
        _ => "created_at = date_add(created_at, interval 1 microsecond)",
    };
    let hash = match db.engine {
        Engine::Postgres => "row_hash = sha256('x')",
        Engine::Sqlite => "row_hash = zeroblob(32)",
        _ => "row_hash = unhex(sha2('x', 256))",
    };
    let set = |what: &str, seq: i64| format!("update zone_txn set {what} where seq = {seq} and");
    let head = |what: &str| format!("update zone_bucket_lock set {what} where");
    let delete = |which: &str| format!("delete from zone_txn where {which} and");
    let columns = "txn_id, zone_id, zone_version, bucket_key, seq, kind, blocked, reason, cost, spent, spent_total, \
                   remaining, zone_limit, prev_at, row_hash";
    let later = moved.split_once(" = ").unwrap().1;
    let insert = format!(
        "insert into zone_txn ({columns}, created_at) select {columns}, {later} from zone_txn where seq = 5 and"
    );
    let changes = [
        (set("remaining = 3", 3), FaultKind::Edited, 3),
        (set("note = 'else'", 8), FaultKind::Edited, 8),
        (set(moved, 5), FaultKind::Edited, 5),
        (set(hash, 4), FaultKind::Edited, 4),
        (set("spent_total = 2", 1), FaultKind::Edited, 1),
        (set("prev_at = created_at", 1), FaultKind::Edited, 1),
        (delete("seq = 4"), FaultKind::Missing, 4),
        (delete("seq = 1"), FaultKind::Missing, 1),
        (delete("seq >= 7"), FaultKind::Truncated, 7),
        (delete("seq > 0"), FaultKind::Truncated, 1),
        (set("seq = 99", 5), FaultKind::Edited, 99),
        ("update zone_txn set seq = 9 - seq where seq in (4, 5) and".to_owned(), FaultKind::Reordered, 4),
        (insert, FaultKind::Inserted, 5),
        (head("spent_total = 9"), FaultKind::WrongHead, 8),
        (head("bans = 7"), FaultKind::WrongHead, 8),
        (head(hash), FaultKind::WrongHead, 8),
        ("delete from zone_hold where seq = 3 and".to_owned(), FaultKind::WrongHead, 3),
    ];
    let limiter = db.limiter().await;
    limiter.operator().set_zone("login", &banning(), None, "test").await.unwrap();
    for n in 0..=changes.len() {
        live(&limiter, &format!("key {n:02}")).await;
    }
    let all = Verify { jobs: 2, ..Verify::default() };
    let (verified, faults) = verify(&limiter, &all).await;
    assert_eq!(faults, []);
    let buckets = changes.len() as u64 + 1;
    assert_eq!((verified.zones, verified.buckets, verified.rows), (1, buckets, 8 * buckets));
    if db.engine == Engine::Sqlite {
        db.execute("drop trigger zone_txn_first; drop trigger zone_txn_next").await;
    }
    for (n, (sql, ..)) in changes.iter().enumerate() {
        db.execute(&format!("{sql} bucket_key = 'key {n:02}'")).await;
    }
    let (_, faults) = verify(&limiter, &all).await;
    let mut by_key: HashMap<String, Vec<&Fault>> = HashMap::new();
    for fault in &faults {
        by_key.entry(fault.key.clone().unwrap()).or_default().push(fault);
    }
    for (n, (sql, what, seq)) in changes.iter().enumerate() {
        let found = by_key.remove(&format!("key {n:02}")).unwrap_or_default();
        let first = found.first().map(|fault| (fault.what, fault.seq));
        assert_eq!(first, Some((*what, Some(*seq))), "{sql}: {found:#?}");
        assert!(found.len() <= 2, "{sql}: {found:#?}");
    }
    assert!(by_key.is_empty(), "{by_key:#?}");
    // One bucket, and what comes behind one.
    let only = |key: &str| Verify { zone: Some("login".into()), key: Some(key.into()), ..Verify::default() };
    assert_eq!(verify(&limiter, &only("key 17")).await.0.faults, 0);
    assert_eq!(verify(&limiter, &only("key 12")).await.0.faults, 1);
    let after = Some(("login".to_owned(), "key 16".to_owned()));
    assert_eq!(verify(&limiter, &Verify { after, ..Verify::default() }).await.0.rows, 8);
}

/// Each column of a row, changed by itself in a bucket of its own, is found, and as an edit. The number of a row is in no
/// hash and in no order, since each node of a cluster gives its own: it may change. A row that says another zone or key is one that is missing here and too much there.
pub async fn every_column_of_a_row_is_held(db: Db) {
    let (txn, later) = match db.engine {
        // Citus takes nothing there that could be another thing on each node.
        Engine::Postgres => (
            "'01234567-89ab-7def-8123-456789abcdef'",
            "(created_at at time zone 'UTC' + interval '1 microsecond') at time zone 'UTC'",
        ),
        Engine::Sqlite => ("randomblob(16)", "created_at + 1"),
        _ => ("random_bytes(16)", "date_add(created_at, interval 1 microsecond)"),
    };
    let (salt, hash) = match db.engine {
        Engine::Postgres => ("decode(repeat('07', 16), 'hex')", "sha256('x')"),
        Engine::Sqlite => ("zeroblob(16)", "zeroblob(32)"),
        _ => ("repeat('s', 16)", "unhex(sha2('x', 256))"),
    };
    let (edited, missing) = (FaultKind::Edited, FaultKind::Missing);
    let mut changes = vec![
        ("txn_id", txn, 5, edited),
        ("zone_id", "2", 5, missing),
        ("zone_version", "1", 5, edited),
        ("bucket_key", "'elsewhere'", 5, missing),
        ("seq", "50", 5, edited),
        ("kind", "'reserve'", 5, edited),
        ("checks", "2", 5, edited),
        ("blocked", "not blocked", 5, edited),
        ("reason", "'soft'", 5, edited),
        ("critical", "not critical", 5, edited),
        ("band", "1", 5, edited),
        ("cost", "cost + 1", 5, edited),
        ("spent", "spent - 1", 5, edited),
        ("spent_total", "spent_total + 1", 5, edited),
        ("remaining", "remaining + 1", 5, edited),
        ("zone_limit", "zone_limit + 1", 5, edited),
        ("retry_after_us", "1", 5, edited),
        ("delay_us", "1", 5, edited),
        ("level", "1", 5, edited),
        ("strikes", "strikes + 1", 5, edited),
        ("target_at", "created_at", 5, edited),
        ("created_at", later, 5, edited),
        ("prev_at", later, 5, edited),
        ("ends_at", "created_at", 5, edited),
        ("member", "'somebody'", 5, edited),
        ("note", "'for no reason'", 5, edited),
        ("actor", "'somebody'", 8, edited),
        ("login", "'somebody'", 8, edited),
        ("salt", salt, 1, edited),
        ("row_hash", hash, 5, edited),
    ];
    if db.engine.is_mysql() {
        changes.push(("sealed", "false", 5, missing));
    }
    let limiter = db.limiter().await;
    limiter.operator().set_zone("login", &banning(), None, "test").await.unwrap();
    limiter
        .operator()
        .set_zone("login", &banning().with_on_outage(tallygate::policy::OnOutage::Open), None, "test")
        .await
        .unwrap();
    let mut connection = db.connect().await;
    let columns = "select count(*) from information_schema.columns
                   where table_name = 'zone_txn' and table_schema in (current_schema(), database())";
    let columns = match db.engine {
        Engine::Postgres => columns.replace(", database()", ""),
        Engine::Sqlite => "select count(*) from pragma_table_info('zone_txn')".to_owned(),
        _ => columns.replace("current_schema(), ", ""),
    };
    assert_eq!(connection.number(&columns).await, changes.len() as i64 + 1, "a column that is not tried");
    if db.is_spread {
        // No statement changes the key by which a row is on its node.
        changes.retain(|(column, ..)| *column != "bucket_key");
    }
    live(&limiter, "id").await;
    for (column, ..) in &changes {
        live(&limiter, column).await;
    }
    assert_eq!(verify(&limiter, &Verify::default()).await.1, []);
    if db.engine == Engine::Sqlite {
        db.execute("drop trigger zone_txn_first; drop trigger zone_txn_next").await;
    }
    for (column, value, seq, _) in &changes {
        db.execute(&format!(
            "update zone_txn set {column} = {value} where seq = {seq} and bucket_key = '{column}'"
        ))
        .await;
    }
    db.execute("update zone_txn set id = id + 100000 where seq = 3 and bucket_key = 'id'").await;
    let (_, faults) = verify(&limiter, &Verify::default()).await;
    assert!(faults.iter().all(|fault| fault.key.as_deref() != Some("id")), "{faults:#?}");
    for (column, value, seq, kind) in &changes {
        let found: Vec<_> = faults.iter().filter(|fault| fault.key.as_deref() == Some(*column)).collect();
        let seq = if *column == "seq" { 50 } else { *seq };
        // A salt is held to that of the head besides.
        let told = found.iter().any(|fault| (fault.what, fault.seq) == (*kind, Some(seq)));
        assert!(told, "{column} = {value} is {kind:?} in row {seq}: {found:#?}");
    }
    let strays = faults.iter().filter(|fault| fault.key.as_deref() == Some("elsewhere")).count();
    assert!(strays > 0 || db.is_spread, "the row in a bucket that is not its own");
}

/// A policy that was changed in the history of a zone is found, and one that is in force without being in it.
pub async fn a_change_of_a_zone_is_found(db: Db) {
    let limiter = db.limiter().await;
    for rate in [3, 4, 5] {
        limiter.operator().set_zone("login", &log(rate, 3600), None, "test").await.unwrap();
    }
    limiter.check(Check::new("login", "a")).await.unwrap();
    assert_eq!(verify(&limiter, &Verify::default()).await.1, []);
    // It follows from rate and window, and routines decide by it.
    let mut owner = db.connect().await;
    if db.engine == Engine::Postgres {
        let refused = owner.execute("update zone_master set rate_gcd = 1").await.unwrap_err();
        assert!(refused.to_string().contains("zone_master_gcd_ck"), "{refused}");
        owner.execute("alter table zone_master drop constraint zone_master_gcd_ck").await.unwrap();
    }
    for table in ["zone_master", "zone_version"] {
        owner.execute(&format!("update {table} set rate_gcd = 1 where rate = 5")).await.unwrap();
        let (_, faults) = verify(&limiter, &Verify::default()).await;
        let says = |fault: &Fault| {
            fault.detail.contains("says that its rate_gcd is 1, and by its rate and window it is 5")
        };
        assert!(faults.iter().any(says), "{table}: {faults:?}");
        owner.execute(&format!("update {table} set rate_gcd = 5 where rate = 5")).await.unwrap();
    }
    assert_eq!(verify(&limiter, &Verify::default()).await.1, []);
    for (sql, detail) in [
        ("update zone_master set created_at = updated_at", "zone_master says that the zone was made"),
        ("update zone_version set changed_by = 'else' where version = 1", "version 1, its"),
        ("update zone_version set login = 'else' where version = 3", "version 3, its"),
        ("delete from zone_version where version = 2", "version 2 is not there"),
        ("update zone_master set reserve = 1", "zone_master does not say"),
    ] {
        db.execute(sql).await;
        let (_, faults) = verify(&limiter, &Verify::default()).await;
        let found = faults.iter().find(|fault| fault.detail.starts_with(detail));
        assert_eq!(found.map(|fault| fault.what), Some(FaultKind::WrongZone), "{sql}: {faults:?}");
        assert!(faults.iter().all(|fault| fault.key.is_none()), "{faults:?}");
    }
    // A part of a rule is what no program stores.
    for (part, rest) in
        [("ban_after = 1", "ban_for_us"), ("calendar = 'day'", "time_zone"), ("max_takes = 1", "backlog")]
    {
        db.execute(&format!("update zone_version set {part} where version = 1")).await;
        let error = limiter.auditor().verify(&Verify::default(), |_| ()).await.unwrap_err().to_string();
        assert!(error.contains("zone_version") && error.contains(rest), "{error}");
        let (column, _) = part.split_once(' ').unwrap();
        db.execute(&format!("update zone_version set {column} = null where version = 1")).await;
    }
}

/// Its limit is in the row's hash, its end is in the row.
pub async fn an_override_that_was_lengthened_is_found(db: Db) {
    let limiter = db.limiter().await;
    limiter.operator().set_zone("login", &log(9, 60), None, "test").await.unwrap();
    let over = Override { limit: None, ban_exempt: true, for_us: Some(3_600_000_000) };
    for key in ["short", "open", "right"] {
        limiter.check(Check::new("login", key)).await.unwrap();
        limiter.operator().set_override("login", key, over, "n", "b").await.unwrap();
    }
    assert_eq!(verify(&limiter, &Verify::default()).await.1, []);
    let later = match db.engine {
        Engine::Postgres => "(ends_at at time zone 'UTC' + interval '10 years') at time zone 'UTC'",
        Engine::Sqlite => "ends_at + 315360000000000",
        _ => "date_add(ends_at, interval 10 year)",
    };
    db.execute(&format!("update zone_override set ends_at = {later} where bucket_key = 'short'")).await;
    db.execute("update zone_override set ends_at = null where bucket_key = 'open'").await;
    let (_, faults) = verify(&limiter, &Verify::default()).await;
    let found: Vec<_> = faults.iter().map(|fault| (fault.key.as_deref(), fault.what, fault.seq)).collect();
    let wrong = |key| (Some(key), FaultKind::WrongHead, Some(2));
    assert_eq!(found, [wrong("open"), wrong("short")], "{faults:#?}");
}

/// PostgreSQL stores infinity, and years of which no calendar knows. Such a time is one error that names where it is; a year that
/// can be read is a fault where it is derived. Nothing is ever said to be verified over either.
pub async fn a_time_that_cannot_be_read_is_never_verified(db: Db) {
    let limiter = db.limiter().await;
    let operator = limiter.operator();
    operator.set_zone("login", &banning(), None, "test").await.unwrap();
    let queue = Policy::new(tallygate::policy::Algorithm::Queue, 1, Duration::from_secs(1), Some(1)).unwrap();
    let queue = queue.with_queueing(Some(Queueing { backlog: 9, max_takes: 2 }));
    operator.set_zone("mail", &queue, None, "test").await.unwrap();
    // More parts than wait for those who walk.
    for zone in ["p", "q", "r", "s"] {
        operator.set_zone(zone, &banning(), None, "test").await.unwrap();
    }
    live(&limiter, "k").await;
    let over = Override { limit: None, ban_exempt: true, for_us: Some(3_600_000_000) };
    operator.set_override("login", "k", over, "n", "b").await.unwrap();
    assert!(!limiter.queues().offer(Offer::new("mail", "k")).await.unwrap().blocked);
    let mut owner = db.connect().await;
    // A fault of a later zone, which is told whatever cannot be read before it.
    limiter.check(Check::new("s", "k")).await.unwrap();
    let last = "zone_id = (select id from zone_master where name = 's')";
    owner.execute(&format!("update zone_txn set remaining = 77 where {last}")).await.unwrap();
    let unreadable = ["infinity", "-infinity", "294000-01-01"];
    for table in ["zone_master", "zone_version"] {
        let column = if table == "zone_master" { "updated_at" } else { "changed_at" };
        for time in unreadable {
            let refused =
                owner.execute(&format!("update {table} set {column} = '{time}'")).await.unwrap_err();
            assert!(refused.to_string().contains(&format!("{table}_time_ck")), "{refused}");
        }
        owner.execute(&format!("alter table {table} drop constraint {table}_time_ck")).await.unwrap();
    }
    let all = |jobs| {
        let auditor = limiter.auditor();
        async move {
            let (mut told, what) = (0, Verify::default().jobs(jobs));
            let hear = |news| told += u64::from(matches!(news, Verifying::Fault(_)));
            let verified = tokio::time::timeout(PATIENCE, auditor.verify(&what, hear)).await;
            (verified.expect("an end"), told)
        }
    };
    assert_eq!(all(1).await.0.unwrap().faults, 1);
    let cases = [
        ("zone_bucket_lock", "bucket_key = 'k' and zone_id = 1", vec!["last_at", "banned_until"]),
        ("zone_txn", "bucket_key = 'k' and seq = 3", vec!["target_at", "created_at", "prev_at", "ends_at"]),
        ("zone_hold", "bucket_key = 'k' and seq = 3", vec!["charged_at", "ends_at"]),
        ("zone_override", "bucket_key = 'k'", vec!["ends_at"]),
        ("zone_item", "bucket_key = 'k'", vec!["offered_at", "deadline_at", "due_at"]),
        ("zone_version", "zone_id = 1", vec!["changed_at"]),
        ("zone_master", "id = 1", vec!["created_at", "updated_at"]),
    ];
    for (table, row, columns) in cases {
        for column in columns {
            let us = format!(
                "select coalesce((extract(epoch from {column}) * 1000000)::bigint, -1) from {table} where {row}"
            );
            let us = owner.number(&us).await;
            for (jobs, time) in [(1, "infinity"), (2, "-infinity"), (2, "294000-01-01"), (1, "200000-01-01")]
            {
                owner.execute(&format!("update {table} set {column} = '{time}' where {row}")).await.unwrap();
                let (verified, faults) = all(jobs).await;
                match verified {
                    Ok(verified) => {
                        assert!(
                            !unreadable.contains(&time) && verified.faults > 1,
                            "{table}.{column} = {time}"
                        );
                    }
                    Err(error) => {
                        let told = error.to_string();
                        assert!(
                            told.contains(table)
                                && told.contains(&format!("{column:?}"))
                                && (faults == 1 || table == "zone_master"),
                            "{table}.{column} = {time}: {told}"
                        );
                    }
                }
            }
            let back = chrono::DateTime::from_timestamp_micros(us).unwrap().to_rfc3339();
            let back = if us == -1 { "null".to_owned() } else { format!("'{back}'") };
            owner.execute(&format!("update {table} set {column} = {back} where {row}")).await.unwrap();
        }
    }
    assert_eq!(all(2).await.0.unwrap().faults, 1);
}

/// Rows that the engine itself wrote, over a head that lied to it and a transaction that was hidden from it: their hashes
/// close, but they do not follow.
pub async fn a_decision_that_does_not_follow_from_the_rows_before_it_is_found(db: Db) {
    let limiter = db.limiter().await;
    limiter.operator().set_zone("login", &log(2, 3600), None, "test").await.unwrap();
    let txn = uuid::Uuid::now_v7();
    for key in ["lied to", "twice"] {
        for _ in 0..2 {
            limiter.check(Check::new("login", key)).await.unwrap();
        }
    }
    limiter.check(Check::new("login", "once").txn(txn)).await.unwrap();
    db.execute("update zone_bucket_lock set spent_total = 1 where bucket_key = 'lied to'").await;
    // A process that remembers the bucket is not lied to.
    let limiter = db.limiter().await;
    assert!(!limiter.check(Check::new("login", "lied to")).await.unwrap().blocked);
    let own = limiter.check(Check::new("login", "twice").txn(txn)).await.unwrap();
    let id = |txn: uuid::Uuid| match db.engine {
        Engine::Postgres => format!("'{txn}'"),
        _ => format!("x'{}'", txn.simple()),
    };
    let rename = |from, to| {
        format!(
            "update zone_txn set txn_id = {} where bucket_key = 'twice' and txn_id = {}",
            id(to),
            id(from)
        )
    };
    let hidden = uuid::Uuid::now_v7();
    db.execute(&rename(txn, hidden)).await;
    let again = limiter.check(Check::new("login", "twice").txn(txn)).await.unwrap();
    assert_eq!((own.seq, again.seq, again.replayed), (Some(3), Some(4), false));
    db.execute(&rename(hidden, txn)).await;
    let (_, faults) = verify(&limiter, &Verify::default()).await;
    let found: Vec<_> = faults.iter().map(|fault| (fault.key.as_deref(), fault.what, fault.seq)).collect();
    let lied = (Some("lied to"), FaultKind::NotReproducible, Some(3));
    assert_eq!(found, [lied, (Some("twice"), FaultKind::Repeated, Some(4))], "{faults:#?}");
    assert!(faults[0].detail.contains("blocked is false, the rows before it lead to true"), "{faults:#?}");
}
