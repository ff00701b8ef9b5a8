//! A removal by an owner is as provable as what is left.

use std::time::Duration;

use chrono::Utc;
use sha2::{Digest, Sha256};
use tallygate::audit::chain::{self, Hash, hex};
use tallygate::audit::checkpoint::Changed;
use tallygate::audit::export::{Export, ExportFormat};
use tallygate::audit::verify::{Fault, FaultKind, Verify};
use tallygate::policy::{BanRule, Limit, Override};
use tallygate::schema::{Erased, Maintained, Upkeep};
use tallygate::{Check, Limiter};
use tempfile::TempDir;

use crate::db::{Clocked, Db, Engine, connected, log};
use crate::maintain::age;
use crate::verify::verify;

const DAY: Duration = Duration::from_secs(86_400);
const DAY_US: i64 = 86_400_000_000;

fn now_us() -> i64 {
    Utc::now().timestamp_micros()
}

/// A time as SQL has it.
fn at(engine: Engine, us: i64) -> String {
    match engine {
        Engine::Postgres => format!("timestamptz 'epoch' + {us} * interval '1 microsecond'"),
        Engine::Sqlite => us.to_string(),
        _ => format!("date_add(timestamp'1970-01-01 00:00:00', interval {us} microsecond)"),
    }
}

fn bytes(engine: Engine, hash: &Hash) -> String {
    let digits = hex(hash);
    if engine == Engine::Postgres { format!("decode('{digits}', 'hex')") } else { format!("x'{digits}'") }
}

/// Records a run of upkeep as the first removal of a zone, hash and all: as who may write every table can.
pub async fn record_a_drop(db: &Db, zone_id: i32, removed_us: i64, cut_us: i64, rows: i64) {
    let removal = chain::Removal {
        seq: 1,
        kind: "drop",
        removed_us,
        cut_us: Some(cut_us),
        key: None,
        buckets: 1,
        rows,
        actor: None,
        login: None,
        note: None,
    };
    let hash = bytes(db.engine, &removal.hash(&chain::removals(zone_id)));
    let (removed, cut) = (at(db.engine, removed_us), at(db.engine, cut_us));
    db.execute(&format!(
        "insert into zone_removal (zone_id, seq, kind, removed_at, cut_at, buckets, ledger_rows, login, row_hash)
        values ({zone_id}, 1, 'drop', {removed}, {cut}, 1, {rows}, null, {hash})"
    ))
    .await;
}

/// Says of a bucket of the first zone that its rows up to one were dropped, and removes them.
async fn forge(db: &Db, key: &str, seq: i64) {
    let of = format!("zone_id = 1 and bucket_key = '{key}'");
    let columns = "zone_id, bucket_key, seq, zone_version, spent_total, level, strikes, created_at, row_hash";
    let salt = format!("(select f.salt from zone_txn f where {of} and f.seq = 1)");
    let copy = format!("select {columns}, {salt} from zone_txn where {of} and seq = {seq}");
    db.execute(&format!("insert into zone_txn_dropped ({columns}, salt) {copy}")).await;
    db.execute(&format!("delete from zone_txn where {of} and seq <= {seq}")).await;
}

/// A row that does not count, as a killed statement leaves one on MySQL, beside the first of a bucket.
async fn leave_unsealed(db: &Db, key: &str) {
    if !db.engine.is_mysql() {
        return;
    }
    db.execute(&format!(
        "create table half as select * from zone_txn where bucket_key = '{key}' and seq = 1"
    ))
    .await;
    db.execute("update half set id = id + 1000000, seq = 100, sealed = false").await;
    db.execute("insert into zone_txn select * from half").await;
    db.execute("drop table half").await;
}

async fn heads_were_removed(db: &Db) {
    let now = at(db.engine, now_us());
    db.execute(&format!(
        "insert into zone_bucket_removed (zone_id, removed_at) select z.id, {now} from zone_master z"
    ))
    .await;
}

/// Once the connection of who was at work before is gone.
async fn maintain(owner: &Limiter, upkeep: Upkeep) -> Maintained {
    loop {
        match owner.owner().maintain(upkeep).await {
            Err(error) if error.is_transient() => tokio::time::sleep(Duration::from_millis(10)).await,
            done => return done.unwrap(),
        }
    }
}

/// Likewise.
async fn erase(owner: &Limiter, key: &str, note: &str) -> Erased {
    loop {
        match owner.owner().erase("login", key, note, "privacy").await {
            Err(error) if error.is_transient() => tokio::time::sleep(Duration::from_millis(10)).await,
            erased => return erased.unwrap(),
        }
    }
}

fn told(faults: &[Fault]) -> Vec<(Option<&str>, FaultKind, Option<i64>)> {
    faults.iter().map(|fault| (fault.key.as_deref(), fault.what, fault.seq)).collect()
}

/// No hash is rewritten: the last of the rows stands in `zone_txn_dropped`, as if upkeep had dropped them.
pub async fn rows_that_no_run_of_upkeep_dropped_are_missing(db: Db) {
    let limiter = db.limiter().await;
    let policy = log(1, 60).with_ban(Some(BanRule::new(2, Duration::from_secs(3600), DAY)));
    limiter.operator().set_zone("login", &policy, None, "test").await.unwrap();
    for key in ["gone", "begun anew", "bribed", "alice"] {
        for _ in 0..4 {
            limiter.check(Check::new("login", key)).await.unwrap();
        }
    }
    let over = Override { limit: None, ban_exempt: true, for_us: None };
    limiter.operator().set_override("login", "bribed", over, "n", "b").await.unwrap();
    limiter.operator().remove_override("login", "bribed", "n", "b").await.unwrap();
    limiter.check(Check::new("login", "bribed")).await.unwrap();
    let dir = TempDir::new().unwrap();
    let heads = dir.path().join("heads");
    let checkpoint = limiter.auditor().checkpoint(Duration::ZERO, Some(&heads), |_| ()).await.unwrap();
    assert_eq!((checkpoint.buckets, checkpoint.rows), (4, 4 * 5 + 3));
    assert_eq!(verify(&limiter, &Verify::default()).await.1, []);

    // All rows of a bucket, its head and its ban; the first rows of one, and its ban; an override's row and its override.
    forge(&db, "gone", 5).await;
    db.execute("delete from zone_bucket_lock where bucket_key = 'gone'").await;
    forge(&db, "begun anew", 3).await;
    db.execute("update zone_bucket_lock set banned_until = null where bucket_key = 'begun anew'").await;
    forge(&db, "bribed", 6).await;
    db.execute("delete from zone_override").await;
    heads_were_removed(&db).await;
    let (_, faults) = verify(&limiter, &Verify::default()).await;
    let missing = |key| (Some(key), FaultKind::Missing, Some(1));
    for key in ["gone", "begun anew", "bribed"] {
        assert!(told(&faults).contains(&missing(key)), "{key}: {faults:#?}");
    }
    for heads in [None, Some(heads.as_path())] {
        let compared = limiter.auditor().compare(&checkpoint, heads, |_| ()).await.unwrap();
        let found: Vec<_> =
            compared.differences.iter().map(|found| (found.changed, found.was, found.is)).collect();
        assert_eq!(found, [(Changed::RowsGone, 5 + 3 + 6, 0)]);
        assert_eq!((compared.dropped, compared.dropped_since), (0, 0));
    }

    // A run that is made up, with the right hash: it dropped what the zone still needed.
    record_a_drop(&db, 1, now_us(), now_us(), 14).await;
    let (_, faults) = verify(&limiter, &Verify::default()).await;
    // One ban has its row still, and is not in force; the other is in force without its row.
    let [lifted, kept] =
        [("begun anew", 5), ("bribed", 8)].map(|(key, seq)| (Some(key), FaultKind::WrongHead, Some(seq)));
    assert_eq!(told(&faults), [(None, FaultKind::WrongRemoval, None), lifted, kept], "{faults:#?}");
    assert!(faults[0].detail.contains("still needed"), "{faults:#?}");
}

/// Three buckets with rows of every age, of which those older than 60 days were dropped.
struct Dropped {
    limiter: Limiter,
    owner: Limiter,
    /// The number of rows that were dropped.
    rows: u64,
}

impl Dropped {
    const UPKEEP: Upkeep = Upkeep {
        keep: Some(Duration::from_secs(60 * 86_400)),
        ahead: Duration::ZERO,
        idle: None,
        dry_run: false,
    };

    async fn before(db: &Db) -> Self {
        age(db).await;
        let owner = connected(&db.url).await;
        maintain(&owner, Upkeep::default()).await;
        let clocked = Clocked::create(db).await;
        // As old as its rows, where its time is the test's too.
        clocked.set(now_us() - 190 * DAY_US).await;
        clocked.limiter.operator().set_zone("login", &log(9, 60), None, "test").await.unwrap();
        for days in [150, 120, 100, 50, 1] {
            for key in ["long", "quiet", "young"] {
                if key == "long" || (key == "quiet") == (days >= 100) {
                    clocked.set(now_us() - days * DAY_US).await;
                    clocked.limiter.check_many(vec![Check::new("login", key); 2]).await.unwrap();
                }
            }
        }
        drop(clocked);
        db.remove_test_clock().await;
        leave_unsealed(db, "quiet").await;
        Self { limiter: db.limiter().await, owner, rows: 2 * (3 + 3) }
    }

    async fn create(db: &Db) -> Self {
        let dropped = Self::before(db).await;
        maintain(&dropped.owner, Self::UPKEEP).await;
        dropped
    }
}

/// Bans and overrides in force are recorded anew before their rows go; nothing without a row is in force.
pub async fn what_is_in_force_keeps_its_row(db: Db) {
    age(&db).await;
    let owner = connected(&db.url).await;
    maintain(&owner, Upkeep::default()).await;
    let clocked = Clocked::create(&db).await;
    clocked.set(now_us() - 190 * DAY_US).await;
    clocked.limiter.operator().set_zone("login", &log(2, 3600), None, "test").await.unwrap();
    let limit = Limit::new(5, Duration::from_secs(3600), None).unwrap();
    let forever = Override { limit: Some(limit), ban_exempt: false, for_us: None };
    let year = Override { for_us: Some(400 * DAY_US), ban_exempt: true, ..forever };
    for days in [150, 50, 1] {
        clocked.set(now_us() - days * DAY_US).await;
        for key in ["vip", "year", "banned", "plain", "quiet"] {
            if key != "quiet" || days == 150 {
                clocked.limiter.check_many(vec![Check::new("login", key); 3]).await.unwrap();
            }
        }
        if days == 150 {
            let operator = clocked.limiter.operator();
            operator.set_override("login", "vip", forever, "contract 7", "alice").await.unwrap();
            operator.set_override("login", "year", year, "contract 8", "alice").await.unwrap();
            operator.ban("login", "banned", 365 * DAY, "fraud", "bob").await.unwrap();
        }
    }
    drop(clocked);
    db.remove_test_clock().await;
    let limiter = db.limiter().await;
    assert_eq!(verify(&limiter, &Verify::default()).await.1, []);
    let before = limiter.operator().overrides("login").await.unwrap();

    let rows = maintain(&owner, Dropped::UPKEEP).await.rows_removed;
    assert!(rows > 0 || db.engine != Engine::Sqlite);
    let (verified, faults) = verify(&limiter, &Verify::default()).await;
    assert_eq!(faults, []);
    // Of a ban whose row was dropped nothing is known until it was recorded anew.
    assert_eq!((verified.dropped, verified.not_derivable_buckets), (5 * 3 + 3, 1), "{verified:?}");
    let after = limiter.operator().overrides("login").await.unwrap();
    assert_eq!(after.len(), 2);
    for (was, is) in before.iter().zip(&after) {
        assert_eq!((&was.key, was.limit, was.ban_exempt), (&is.key, is.limit, is.ban_exempt));
        assert_eq!(is.set_by.as_deref(), Some("tallygate maintain"));
        let note = is.note.as_deref().unwrap();
        assert!(note.starts_with("goes on; by alice at ") && note.ends_with(was.note.as_deref().unwrap()));
        let later = is.ends_at.zip(was.ends_at).map(|(is, was)| is - was);
        assert!(later.is_none_or(|later| later >= chrono::TimeDelta::zero()) && is.set_at > was.set_at);
    }
    assert!(limiter.check(Check::new("login", "banned")).await.unwrap().blocked);
    assert_eq!(limiter.check(Check::new("login", "vip")).await.unwrap().limit, 5);
    let kept = db.rows().await;
    maintain(&owner, Dropped::UPKEEP).await;
    assert_eq!(db.rows().await, kept, "once");
    assert_eq!(verify(&limiter, &Verify::default()).await.1, []);

    // Crimes of an owner, where the rows are gone that would tell.
    let mut connection = db.connect().await;
    let columns = "zone_id, bucket_key, seq, rate, window_us, burst, rate_gcd, ban_exempt, ends_at";
    let later = at(db.engine, now_us() + DAY_US);
    let hold = format!(
        "insert into zone_hold (zone_id, bucket_key, seq, charged_at, amount, ends_at) values (1, 'plain', 2, {}, 1, {later})",
        at(db.engine, now_us() - 150 * DAY_US)
    );
    let head = |key: &str, what: &str| {
        vec![format!("update zone_bucket_lock set {what} where bucket_key = '{key}'")]
    };
    let own = |key: &str, seq: i64| {
        format!(
            "insert into zone_override ({columns}) values (1, '{key}', {seq}, 1000000, 3600000000, null, 1000000, {}, null)",
            if db.engine == Engine::Sqlite { "0" } else { "false" }
        )
    };
    let secret = |key: &str| [vec![own(key, 2)], head(key, "override_seq = 2")].concat();
    let holding = if db.engine == Engine::Sqlite { "holding = 1" } else { "holding = true" };
    let crimes = [
        ("plain", secret("plain")),
        ("quiet", secret("quiet")),
        // Of a check that is still there, and that no head names; and of buckets that never were.
        ("plain", vec![own("plain", 5)]),
        ("nobody", vec![own("nobody", 2)]),
        ("nobody", vec![hold.replace("'plain'", "'nobody'")]),
        // Of a row that was dropped, and was none of an override.
        ("plain", head("plain", "override_seq = 2")),
        ("quiet", head("quiet", "override_seq = 2")),
        ("vip", head("vip", "override_seq = null")),
        ("banned", head("banned", "banned_until = null, bans = 0, ban_strikes = 0")),
        ("plain", head("plain", &format!("banned_until = {later}"))),
        ("quiet", head("quiet", &format!("banned_until = {later}"))),
        ("plain", [vec![hold.clone()], head("plain", holding)].concat()),
        ("quiet", [vec![hold.replace("'plain'", "'quiet'")], head("quiet", holding)].concat()),
    ];
    for (key, crime) in crimes {
        let tables = ["zone_bucket_lock", "zone_override", "zone_hold"];
        for table in tables {
            connection.execute(&format!("create table kept_{table} as select * from {table}")).await.unwrap();
        }
        for sql in &crime {
            connection.execute(sql).await.unwrap();
        }
        let found = verify(&limiter, &Verify::default()).await.1;
        assert!(!found.is_empty(), "{crime:?}");
        let here = |fault: &Fault| fault.key.as_deref() == Some(key) && fault.what == FaultKind::WrongHead;
        assert!(found.iter().all(here), "{crime:?}: {found:#?}");
        for table in tables {
            connection.execute(&format!("delete from {table}")).await.unwrap();
            connection.execute(&format!("insert into {table} select * from kept_{table}")).await.unwrap();
            connection.execute(&format!("drop table kept_{table}")).await.unwrap();
        }
    }
    assert_eq!(verify(&limiter, &Verify::default()).await.1, []);

    // Crimes for the first checks behind the run, which are undone before anybody looks.
    let of_year = "select override_seq from zone_bucket_lock where bucket_key = 'year'";
    let of_year = format!("override_seq = {}", connection.number(of_year).await);
    let no_more = "delete from zone_override where bucket_key = 'quiet'".to_owned();
    let crimes = [
        ("quiet", secret("quiet"), [vec![no_more], head("quiet", "override_seq = null")].concat()),
        ("year", head("year", "override_seq = null"), head("year", &of_year)),
    ];
    for (key, crime, undo) in crimes {
        for sql in &crime {
            connection.execute(sql).await.unwrap();
        }
        db.limiter().await.check_many(vec![Check::new("login", key); 4]).await.unwrap();
        for sql in &undo {
            connection.execute(sql).await.unwrap();
        }
        let found = verify(&limiter, &Verify::default()).await.1;
        let is_it =
            |fault: &Fault| fault.key.as_deref() == Some(key) && fault.what == FaultKind::NotReproducible;
        assert!(found.iter().any(is_it), "{crime:?}: {found:#?}");
    }
}

/// With the document of the chain alone.
pub async fn what_upkeep_drops_is_recorded_and_chained_and_a_checkpoint_tells_how_much_it_was(db: Db) {
    let dropped = Dropped::before(&db).await;
    let limiter = &dropped.limiter;
    let checkpoint = limiter.auditor().checkpoint(Duration::ZERO, None, |_| ()).await.unwrap();
    maintain(&dropped.owner, Dropped::UPKEEP).await;
    assert_eq!(maintain(&dropped.owner, Dropped::UPKEEP).await.rows_removed, 0, "there is nothing more");
    assert_eq!(verify(limiter, &Verify::default()).await.1, []);
    let compared = limiter.auditor().compare(&checkpoint, None, |_| ()).await.unwrap();
    assert_eq!(compared.differences, []);
    assert_eq!((compared.dropped, compared.dropped_since), (dropped.rows, dropped.rows));
    let later = limiter.auditor().checkpoint(Duration::ZERO, None, |_| ()).await.unwrap();
    let compared = limiter.auditor().compare(&later, None, |_| ()).await.unwrap();
    assert_eq!((compared.dropped, compared.dropped_since), (dropped.rows, 0));
    assert_eq!((checkpoint.zones[0].removals, later.zones[0].removals), (0, 1));
    let erased = erase(&dropped.owner, "quiet", "request ö").await;
    assert_eq!(erased.rows, 0, "all of them were dropped");

    let us = |column: &str| match db.engine {
        Engine::Postgres => format!("(extract(epoch from {column}) * 1000000)::bigint::text"),
        Engine::Sqlite => column.to_owned(),
        _ => format!("timestampdiff(microsecond, '1970-01-01', {column})"),
    };
    let text = |column: &str| match db.engine {
        Engine::Postgres => format!("encode(convert_to({column}, 'UTF8'), 'hex')"),
        Engine::Sqlite => format!("hex({column})"),
        _ => format!("hex(convert({column} using utf8mb4))"),
    };
    let hash = if db.engine == Engine::Postgres { "encode(row_hash, 'hex')" } else { "lower(hex(row_hash))" };
    let or = |column: String| format!("coalesce({column}, '')");
    // This is bytes on one database and a text on the others.
    let key = if db.engine.is_mysql() { "hex(bucket_key)".to_owned() } else { text("bucket_key") };
    let columns = [
        "seq".to_owned(),
        "kind".to_owned(),
        us("removed_at"),
        or(us("cut_at")),
        or(key),
        "buckets".to_owned(),
        "ledger_rows".to_owned(),
        or(text("actor")),
        or(text("login")),
        or(text("note")),
        hash.to_owned(),
    ];
    let sql = format!(
        "select concat_ws('|', {}) from zone_removal where zone_id = 1 order by seq",
        columns.join(", ")
    );
    let rows = db.connect().await.texts(&sql).await;
    let digest = |bytes: &[u8]| crate::chain::hex(&Sha256::digest(bytes));
    let mut before = digest(b"removals|1");
    let mut seen = Vec::new();
    for row in &rows {
        let columns: Vec<_> = row.split('|').collect();
        let key = String::from_utf8(crate::chain::unhex(columns[4])).unwrap();
        seen.push([columns[1], &key, columns[5], columns[6]].join(" "));
        let said = columns[7..10].iter().map(|said| match *said {
            "" => String::new(),
            said => digest(&crate::chain::unhex(said)),
        });
        let mut line = vec![before];
        line.extend(columns[..7].iter().map(|column| (*column).to_owned()));
        line[5] = key;
        line.extend(said);
        before = digest(line.join("|").as_bytes());
        assert_eq!(before, columns[10], "{row}");
        assert_eq!(columns[8].is_empty(), db.engine == Engine::Sqlite, "the login in {row}");
    }
    assert_eq!(seen, [format!("drop  2 {}", dropped.rows), format!("erase {} 1 0", erased.key)]);

    // An export has all of it.
    let dir = TempDir::new().unwrap();
    let export = Export {
        to: dir.path().join("to"),
        format: ExportFormat::Csv,
        zone: None,
        since: None,
        until: Some(Utc::now() + DAY),
        part_rows: 9,
    };
    let manifest = limiter.auditor().export(&export, |_| ()).await.unwrap();
    let text = std::fs::read(export.to.join("removals.jsonl")).unwrap();
    let file = manifest.removals.unwrap();
    assert_eq!((file.rows, file.bytes, file.sha256), (2, text.len() as u64, digest(&text)));
    let lines = String::from_utf8(text).unwrap();
    let lines: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for (line, row) in lines.iter().zip(&rows) {
        assert!(row.ends_with(line["row_hash"].as_str().unwrap()), "{line} is not {row}");
    }
    let (drop, erase) = (&lines[0], &lines[1]);
    assert_eq!((&drop["zone"], &drop["ledger_rows"]), (&"login".into(), &dropped.rows.into()));
    assert_eq!((&erase["bucket_key"], &erase["note"]), (&erased.key.into(), &"request ö".into()));
}

/// Announced, and cut off before anything was noted or removed: the next run finishes it and counts nothing twice.
pub async fn a_run_that_was_cut_off_is_finished_and_counted_once(db: Db) {
    let dropped = Dropped::before(&db).await;
    let cut_us = now_us() - 110 * DAY_US;
    record_a_drop(&db, 1, now_us(), cut_us, 2 * (2 + 2)).await;
    assert_eq!(verify(&dropped.limiter, &Verify::default()).await.1, []);
    maintain(&dropped.owner, Dropped::UPKEEP).await;
    assert_eq!(verify(&dropped.limiter, &Verify::default()).await.1, []);
    let integer = if db.engine.is_mysql() { "signed" } else { "bigint" };
    let told = db.number(&format!("select cast(sum(ledger_rows) as {integer}) from zone_removal")).await;
    assert_eq!(told, dropped.rows as i64);
}

/// A zone does not change into another kind.
pub async fn each_change_of_what_was_dropped_is_found(db: Db) {
    let dropped = Dropped::create(&db).await;
    let limiter = &dropped.limiter;
    assert_eq!(verify(limiter, &Verify::default()).await.1, []);
    // A bucket of which nothing is left says that it never was.
    db.execute("create table kept as select * from zone_txn_dropped where bucket_key = 'quiet'").await;
    db.execute("delete from zone_txn_dropped where bucket_key = 'quiet'").await;
    db.execute("delete from zone_bucket_lock where bucket_key = 'quiet'").await;
    let (_, faults) = verify(limiter, &Verify::default()).await;
    assert_eq!(told(&faults), [(None, FaultKind::WrongRemoval, None)], "{faults:#?}");
    db.execute("insert into zone_txn_dropped select * from kept").await;
    heads_were_removed(&db).await;
    assert_eq!(verify(limiter, &Verify::default()).await.1, []);
    // Rows of yesterday, said to be older than what upkeep dropped.
    forge(&db, "young", 4).await;
    db.execute("delete from zone_bucket_lock where bucket_key = 'young'").await;
    let old = at(db.engine, now_us() - 180 * DAY_US);
    db.execute(&format!("update zone_txn_dropped set created_at = {old} where bucket_key = 'young'")).await;
    let (_, faults) = verify(limiter, &Verify::default()).await;
    assert_eq!(told(&faults), [(None, FaultKind::WrongRemoval, None)], "{faults:#?}");
    assert!(faults[0].detail.contains("dropped 12 rows"), "{faults:#?}");
}

/// Three erasures of buckets with two rows each.
async fn erased(db: &Db) -> (Limiter, Vec<String>) {
    let (limiter, owner) = (db.limiter().await, connected(&db.url).await);
    limiter.operator().set_zone("login", &log(9, 60), None, "test").await.unwrap();
    let mut keys = Vec::new();
    for key in ["a", "b", "c", "left"] {
        limiter.check_many(vec![Check::new("login", key); 2]).await.unwrap();
        if key != "left" {
            leave_unsealed(db, key).await;
            let erased = erase(&owner, key, &format!("request {key}")).await;
            assert_eq!(erased.rows, 2);
            keys.push(erased.key);
        }
    }
    assert_eq!(verify(&limiter, &Verify::default()).await.1, []);
    (limiter, keys)
}

pub async fn each_change_of_an_erasure_is_found(db: Db) {
    let (limiter, keys) = erased(&db).await;
    let (a, c) = (keys[0].as_str(), keys[2].as_str());
    let later = at(db.engine, now_us());
    let zone = || (None, FaultKind::WrongRemoval, None);
    db.execute("create table kept as select * from zone_removal").await;
    db.execute("create table rows_kept as select * from zone_txn").await;
    for (sql, found) in [
        ("update zone_removal set actor = 'somebody else' where seq = 1".to_owned(), vec![zone()]),
        ("update zone_removal set login = 'somebody else' where seq = 2".to_owned(), vec![zone()]),
        ("update zone_removal set note = 'another reason' where seq = 3".to_owned(), vec![zone()]),
        (format!("update zone_removal set removed_at = {later} where seq = 3"), vec![zone()]),
        (
            "delete from zone_removal where seq = 1".to_owned(),
            vec![zone(), (Some(a), FaultKind::WrongRemoval, None)],
        ),
        ("delete from zone_removal where seq = 3".to_owned(), vec![(Some(c), FaultKind::WrongRemoval, None)]),
        // Its last rows, and all: it has no head any more that tells.
        (
            format!("delete from zone_txn where bucket_key = '{a}' and seq = 2"),
            vec![(Some(a), FaultKind::Truncated, Some(2))],
        ),
        (
            format!("delete from zone_txn where bucket_key = '{a}'"),
            vec![(Some(a), FaultKind::Truncated, Some(1))],
        ),
    ] {
        db.execute(&sql).await;
        let (_, faults) = verify(&limiter, &Verify::default()).await;
        let mut seen = told(&faults);
        seen.sort_unstable_by_key(|fault| fault.0.map(str::to_owned));
        assert_eq!(seen, found, "{sql}: {faults:#?}");
        db.execute("delete from zone_removal").await;
        db.execute("insert into zone_removal select * from kept").await;
        db.execute(&format!("delete from zone_txn where bucket_key = '{a}'")).await;
        if db.engine == Engine::Sqlite {
            db.execute("drop trigger if exists zone_txn_first; drop trigger if exists zone_txn_next").await;
        }
        db.execute(&format!("insert into zone_txn select * from rows_kept where bucket_key = '{a}'")).await;
        assert_eq!(verify(&limiter, &Verify::default()).await.1, [], "put back after {sql}");
    }
}

/// By who knows what erasure does, and may write every table.
pub async fn a_bucket_that_was_erased_by_hand_is_found(db: Db) {
    let (limiter, _) = erased(&db).await;
    let mut connection = db.connect().await;
    let hex = match db.engine {
        Engine::Postgres => "select encode(salt, 'hex') from zone_bucket_lock where bucket_key = 'left'",
        _ => "select lower(hex(salt)) from zone_bucket_lock where bucket_key = 'left'",
    };
    let salt = connection.texts(hex).await.remove(0);
    let salt: chain::Salt = chain::unhex(&salt).unwrap();
    let tombstone = chain::tombstone(&chain::bucket(Some(&salt), 1, "left"));
    db.execute(&format!(
        "update zone_txn set bucket_key = '{tombstone}', salt = null where bucket_key = 'left'"
    ))
    .await;
    db.execute("delete from zone_bucket_lock where bucket_key = 'left'").await;
    let (_, faults) = verify(&limiter, &Verify::default()).await;
    assert_eq!(told(&faults), [(Some(tombstone.as_str()), FaultKind::WrongRemoval, None)], "{faults:#?}");
}

/// With the right hash: only a checkpoint that was kept shows it.
pub async fn an_erasure_that_was_rewritten_with_its_hash_is_found_by_a_checkpoint(db: Db) {
    let (limiter, keys) = erased(&db).await;
    let checkpoint = limiter.auditor().checkpoint(Duration::ZERO, None, |_| ()).await.unwrap();
    assert_eq!(checkpoint.zones[0].removals, 3);
    assert_eq!(limiter.auditor().compare(&checkpoint, None, |_| ()).await.unwrap().differences, []);
    db.execute("delete from zone_removal").await;
    let mut before = chain::removals(1);
    for (seq, key) in (1..).zip(&keys) {
        let removal = chain::Removal {
            seq,
            kind: "erase",
            removed_us: now_us() - DAY_US,
            cut_us: None,
            key: Some(key),
            buckets: 1,
            rows: 2,
            actor: Some("somebody else"),
            login: None,
            note: Some("another reason"),
        };
        before = removal.hash(&before);
        let (when, hash) = (at(db.engine, removal.removed_us), bytes(db.engine, &before));
        db.execute(&format!(
            "insert into zone_removal (zone_id, seq, kind, removed_at, bucket_key, buckets, ledger_rows, actor, login, note,
                row_hash)
            values (1, {seq}, 'erase', {when}, '{key}', 1, 2, 'somebody else', null, 'another reason', {hash})"
        ))
        .await;
    }
    assert_eq!(verify(&limiter, &Verify::default()).await.1, []);
    let found = limiter.auditor().compare(&checkpoint, None, |_| ()).await.unwrap().differences;
    let found: Vec<_> = found.iter().map(|found| (found.changed, found.was, found.is)).collect();
    assert_eq!(found, [(Changed::Removals, 3, 3)]);
}
