//! An owner who covers tracks. A verification, or a checkpoint that was kept elsewhere, shows whatever is changed in any table; or
//! `docs/chain.md` says that nothing does.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use chrono::Utc;
use fastrand::Rng;
use serde_json::json;
use tallygate::audit::checkpoint::Checkpoint;
use tallygate::audit::export::{Export, ExportFormat};
use tallygate::audit::report::ReportOn;
use tallygate::audit::verify::{Verified, Verify};
use tallygate::capacity::Want;
use tallygate::ledger::History;
use tallygate::policy::{BanRule, CalendarUnit, Limit, Override};
use tallygate::queue::{Offer, Take};
use tallygate::schema::Upkeep;
use tallygate::{Charged, Check, ErrorKind, Limiter, Policy, Result};
use tempfile::TempDir;
use uuid::Uuid;

use crate::db::{Clocked, Connected, Db, Engine, connected, log};
use crate::maintain::age;
use crate::server::PATIENCE;
use crate::{rounds, rounds_of_long};

const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);

/// Changes that nothing shows: a table, and a column, `delete` or `copy` of a row, or `*` for all. Each is in `docs/chain.md`.
const UNSEEN: &[(&str, &str)] = &[
    ("zone_txn", "id"),
    ("zone_txn_dropped", "level"),
    ("zone_txn_dropped", "strikes"),
    ("zone_txn_dropped", "zone_version"),
    ("zone_bucket_lock", "delete"),
    ("zone_txn", "prev_at"),
    ("zone_bucket_lock", "zone_id"),
    ("zone_bucket_lock", "bans"),
    ("zone_bucket_lock", "ban_strikes"),
    ("zone_bucket_lock", "banned_until"),
    ("zone_bucket_lock", "holding"),
    ("zone_bucket_lock", "shapes"),
    ("zone_bucket_lock", "sql_at"),
    ("zone_calendar", "copy"),
    ("zone_queue", "settled_at"),
    ("zone_bucket_removed", "*"),
    ("zone_upkeep_lock", "*"),
    ("tallygate_grant", "*"),
    ("tallygate_schema_history", "*"),
];

/// The tables with the columns that tell their rows apart.
const TABLES: &[(&str, &str)] = &[
    ("zone_master", "id"),
    ("zone_version", "zone_id version"),
    ("zone_calendar", "zone_id version starts_us"),
    ("zone_bucket_lock", "zone_id bucket_key"),
    ("zone_hold", "zone_id bucket_key seq"),
    ("zone_queue", "zone_id bucket_key"),
    ("zone_item", "zone_id bucket_key seq"),
    ("zone_override", "zone_id bucket_key seq"),
    ("zone_txn", "zone_id bucket_key seq"),
    ("zone_txn_dropped", "zone_id bucket_key"),
    ("zone_removal", "zone_id seq"),
    ("zone_bucket_removed", "zone_id"),
    ("zone_upkeep_lock", "id"),
    ("tallygate_shard", "name"),
    ("tallygate_grant", "role grantee"),
    ("tallygate_schema_history", "version"),
];

/// A ledger of everything that there is, and what its auditor keeps elsewhere.
struct World {
    db: Db,
    limiter: Limiter,
    checkpoint: Checkpoint,
    heads: PathBuf,
    dir: TempDir,
    txns: Vec<Uuid>,
}

impl World {
    async fn create(db: Db) -> Self {
        age(&db).await;
        let owner = connected(&db.url).await;
        owner.owner().maintain(Upkeep::default()).await.unwrap();
        // Old rows, which will be dropped: an override and a ban of theirs stay in force.
        let clocked = Clocked::create(&db).await;
        let days_ago = |days: i64| Utc::now().timestamp_micros() - days * 86_400_000_000;
        clocked.set(days_ago(190)).await;
        let banning = log(3, 3600).with_ban(Some(BanRule::new(1, HOUR, HOUR)));
        clocked.limiter.operator().set_zone("login", &log(9, 3600), None, "test").await.unwrap();
        for days in [150, 20] {
            clocked.set(days_ago(days)).await;
            for key in ["old", "barred", "quiet"] {
                if key != "quiet" || days == 150 {
                    clocked.limiter.check_many(vec![Check::new("login", key); 2]).await.unwrap();
                }
            }
            if days == 150 {
                let own = Limit::new(5, HOUR, None).unwrap();
                let own = Override { limit: Some(own), ban_exempt: true, for_us: None };
                clocked.limiter.operator().set_override("login", "old", own, "n", "b").await.unwrap();
                clocked.limiter.operator().ban("login", "barred", 400 * DAY, "n", "b").await.unwrap();
            }
        }
        drop(clocked);
        db.remove_test_clock().await;
        let limiter = db.limiter().await;
        let set = async |zone: &str, policy: &Policy| {
            limiter.operator().set_zone(zone, policy, Some("what for"), "test").await.unwrap();
        };
        set("login", &banning).await;
        set("pay", &Policy::token_bucket(60, Duration::from_secs(60), Some(90)).unwrap()).await;
        set("llm", &log(1_000, 3600)).await;
        set("month", &Policy::calendar(5, CalendarUnit::Month, "Europe/Berlin".parse().unwrap()).unwrap())
            .await;
        set("slots", &Policy::concurrency(3, DAY).unwrap()).await;
        set("mail", &Policy::queue(5, Duration::from_secs(1), 9).unwrap()).await;
        set("gpu", &Policy::capacity(9, DAY).unwrap()).await;
        let mut txns = Vec::new();
        for key in ["k", "l"] {
            for zone in ["login", "pay", "month", "slots"] {
                for _ in 0..4 {
                    txns.push(limiter.check(Check::new(zone, key)).await.unwrap().txn_id);
                }
            }
            limiter.reserve(Check::new("pay", key), DAY).await.unwrap();
            let first = limiter.check(Check::new("llm", key)).await.unwrap().txn_id;
            limiter.refund(Charged::by(first)).await.unwrap();
            let check = Check::new("llm", key).cost(9);
            let spent = limiter.reserve_predicted(check.clone(), DAY, "shape").await.unwrap();
            limiter.settle(Charged::by(spent.decision.txn_id), 4).await.unwrap();
            limiter.reserve_predicted(check, DAY, "shape").await.unwrap();
            let own = Limit::new(7, HOUR, None).unwrap();
            let own = Override { limit: Some(own), ban_exempt: false, for_us: Some(86_400_000_000) };
            limiter.operator().set_override("pay", key, own, "n", "b").await.unwrap();
            for n in 0..3 {
                let offer = Offer::new("mail", key).payload(&json!(n)).deadline(DAY);
                assert!(!limiter.queues().offer(offer).await.unwrap().blocked);
            }
            limiter.queues().take(Take::new("mail", key, DAY)).await.unwrap();
            limiter.leases().get(Want::new("gpu", "resource", key, 3)).await.unwrap();
        }
        limiter.check(Check::new("login", "gone")).await.unwrap();
        let keep = Upkeep::default().keep(63 * DAY);
        loop {
            // The connection of who was at work before may not be gone yet.
            match owner.owner().maintain(keep).await {
                Err(error) if error.is_transient() => tokio::time::sleep(Duration::from_millis(10)).await,
                done => break drop(done.unwrap()),
            }
        }
        loop {
            match owner.owner().erase("login", "gone", "request", "privacy").await {
                Err(error) if error.is_transient() => tokio::time::sleep(Duration::from_millis(10)).await,
                erased => break drop(erased.unwrap()),
            }
        }
        let dir = TempDir::new().unwrap();
        let heads = dir.path().join("heads");
        let checkpoint = limiter.auditor().checkpoint(Duration::ZERO, Some(&heads), |_| ()).await.unwrap();
        Self { db, limiter, checkpoint, heads, dir, txns }
    }

    async fn verified(&self) -> Result<Verified> {
        let auditor = self.limiter.auditor();
        alive(async move { auditor.verify(&Verify::default(), |_| ()).await }).await
    }

    /// Is it as the checkpoint has it?
    async fn is_unaltered(&self) -> bool {
        let (auditor, kept, heads) = (self.limiter.auditor(), self.checkpoint.clone(), self.heads.clone());
        let compared = alive(async move { auditor.compare(&kept, Some(&heads), |_| ()).await }).await;
        compared.is_ok_and(|compared| compared.differences.is_empty())
    }

    /// All that a person may ask for: each answers, or says which table, row and column it cannot read. Those that do not.
    async fn read(&self, edit: &Edit) -> Vec<String> {
        let mut unnamed = Vec::new();
        let mut named = |what: &str, answer: Option<tallygate::Error>| {
            if let Some(error) = answer.filter(|error| !edit.is_named_by(error)) {
                unnamed.push(format!("{what}: {}: {error}", edit.sql));
            }
        };
        let auditor = || self.limiter.auditor();
        for zone in [None, Some("login"), Some("pay"), Some("mail")] {
            let zone = zone.map(str::to_owned);
            let (of, one) = (zone.clone(), auditor());
            let history = History { zone: zone.clone(), limit: 1_000, ..History::default() };
            named("history", alive(async move { one.history(&history).await }).await.err());
            let one = auditor();
            let on = ReportOn { zone, since: Some(Utc::now() - 200 * DAY), ..ReportOn::default() };
            named("report", alive(async move { one.report(&on, |_| ()).await }).await.err());
            let Some(of) = of else { continue };
            let (one, operator, zone) = (auditor(), self.limiter.operator(), of.clone());
            named("override list", alive(async move { operator.overrides(&zone).await }).await.err());
            let zone = of.clone();
            named("bans", alive(async move { one.bans(&zone).await }).await.err());
            let one = auditor();
            named("standing", alive(async move { one.bucket(&of, "k").await }).await.err());
        }
        for txn in self.txns.iter().step_by(7).copied() {
            let one = auditor();
            named("explain", alive(async move { one.explain(txn, 20).await }).await.err());
        }
        for zone in ["login", "pay", "llm", "month", "slots"] {
            let limiter = self.limiter.clone();
            // A routine may say it in the database's words.
            let peeked = alive(async move { limiter.peek(zone, "k").await }).await.err();
            named("peek", peeked.filter(|_| self.db.engine == Engine::Sqlite));
        }
        let operator = self.limiter.operator();
        named("zone list", alive(async move { operator.zones().await }).await.err());
        let export = Export {
            to: self.dir.path().join(Uuid::now_v7().to_string()),
            format: ExportFormat::JsonLines,
            zone: None,
            since: None,
            until: Some(Utc::now() + DAY),
            part_rows: 1_000,
        };
        let one = auditor();
        named("export", alive(async move { one.export(&export, |_| ()).await }).await.err());
        unnamed
    }
}

/// A call that comes to an end, and to none by a panic.
async fn alive<T: Send + 'static>(call: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
    tokio::time::timeout(PATIENCE, tokio::spawn(call)).await.expect("an end").expect("no panic")
}

struct Edit {
    table: String,
    column: String,
    sql: String,
    /// A time or a number that no program may be able to read.
    is_odd: bool,
    /// Those of the table, with their types.
    columns: Rc<[Column]>,
}

type Column = (String, String);

impl Edit {
    /// Does an error of the database's say which table and column it cannot read? That may be another column of the row, which
    /// contradicts this one; or it can be read, and contradicts the ledger. Errors of other kinds say what a person asked for.
    fn is_named_by(&self, error: &tallygate::Error) -> bool {
        let told = error.to_string();
        error.kind() != ErrorKind::Database
            || told.contains("; it was changed from outside")
            || told.contains(&self.table)
                && self.columns.iter().any(|(column, _)| told.contains(&format!("{column:?}")))
    }

    /// Did it put a time of zeros, which drivers of MySQL read as null, in the place of null?
    async fn is_null_for_null(&self, owner: &mut Connected) -> bool {
        let Some((_, row)) = self.sql.split_once(" = '0000-00-00' where ") else { return false };
        let sql = format!("select count(*) from kept_{} where {} is null and {row}", self.table, self.column);
        owner.number(&sql).await == 1
    }
}

/// Numbers that hardly any column can have.
const NUMBERS: &[&str] = &["-1", "9223372036854775807", "-9223372036854775808", "2147483647", "32767"];

/// Every edit of every column of a row, beside another row of its table.
fn edits(
    engine: Engine,
    (table, columns): (&str, &Rc<[Column]>),
    (column, of): &Column,
    (row, other): (&str, &str),
) -> Vec<Edit> {
    let times: &[&str] = match engine {
        Engine::Postgres => &[
            "'infinity'",
            "'-infinity'",
            "'294000-01-01'",
            "'200000-01-01'",
            "'4713-01-01 BC'",
            "'1970-01-01'",
        ],
        Engine::Sqlite => &["9223372036854775807", "-9223372036854775808", "8210266876799999999", "0"],
        _ => &["'9999-12-31 23:59:59.999999'", "'0000-00-00'", "'1000-01-01'"],
    };
    let is_time = of.starts_with("timestamp")
        || of.starts_with("datetime")
        || column.ends_with("_at")
        || column == "banned_until";
    let hex = |bytes: usize| match engine {
        Engine::Postgres => format!("decode('{}', 'hex')", "07".repeat(bytes)),
        _ => format!("x'{}'", "07".repeat(bytes)),
    };
    let mut values: Vec<String> = vec!["null".to_owned()];
    let add =
        |values: &mut Vec<String>, all: &[&str]| values.extend(all.iter().map(|value| (*value).to_owned()));
    if is_time {
        add(&mut values, times);
        values.push(match engine {
            Engine::Sqlite => format!("{column} + 1"),
            Engine::Postgres => {
                format!("({column} at time zone 'UTC' + interval '1 microsecond') at time zone 'UTC'")
            }
            _ => format!("date_add({column}, interval 1 microsecond)"),
        });
    } else if of.contains("int") && !of.starts_with("tinyint") {
        add(&mut values, &["0", "1", "2"]);
        add(&mut values, NUMBERS);
        values.push(format!("{column} + 1"));
        values.push(format!("{column} - 1"));
    } else if of.starts_with("bool") {
        values.push(format!("not {column}"));
    } else if of.starts_with("tinyint") {
        add(&mut values, &["0", "1"]);
    } else if of == "uuid" {
        add(&mut values, &["'01234567-89ab-7def-8123-456789abcdef'"]);
    } else if of.contains("bytea") || of.contains("blob") || of.starts_with("binary") {
        values.extend([hex(0), hex(16), hex(32)]);
    } else {
        add(&mut values, &["'x'", "''", "'k'", "'erased:x'"]);
    }
    let set = |value: &str| format!("update {table} set {column} = {value} where {row}");
    let mut all: Vec<String> = values.iter().map(|value| set(value)).collect();
    let kept = |of: &str| format!("(select t.{column} from kept_{table} t where {of})");
    all.push(format!("{}; update {table} set {column} = {} where {other}", set(&kept(other)), kept(row)));
    let odd = if is_time { times } else { NUMBERS };
    let edit = |sql: String| Edit {
        is_odd: odd.iter().any(|odd| sql.contains(&format!("{column} = {odd} where"))),
        table: table.to_owned(),
        column: column.clone(),
        sql,
        columns: Rc::clone(columns),
    };
    all.into_iter().map(edit).collect()
}

/// The text of each column's type, by table; not of those that the database computes.
async fn columns(db: &Db, owner: &mut Connected) -> BTreeMap<String, Rc<[Column]>> {
    let sql = match db.engine {
        Engine::Postgres => {
            "select c.relname || ' ' || a.attname || ' ' || coalesce(
                nullif(format_type(t.typbasetype, null), '-'), format_type(t.oid, null))
            from pg_class c
            join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
            join pg_type t on t.oid = a.atttypid
            where c.relnamespace = current_schema()::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
                and a.attgenerated = ''
            order by c.relname, a.attnum"
        }
        Engine::Sqlite => {
            "select m.name || ' ' || c.name || ' ' || lower(c.type)
            from sqlite_schema m, pragma_table_info(m.name) c
            where m.type = 'table' and m.name not like 'sqlite%'
            order by m.name, c.cid"
        }
        _ => {
            "select concat(table_name, ' ', column_name, ' ', cast(data_type as char))
            from information_schema.columns
            where table_schema = database() and coalesce(generation_expression, '') = '' and (table_name, 'BASE TABLE') in (
                select t.table_name, t.table_type from information_schema.tables t where t.table_schema = database()
            )
            order by table_name, ordinal_position"
        }
    };
    let mut tables = BTreeMap::<_, Vec<_>>::new();
    for line in owner.texts(sql).await {
        let [table, column, of] = line.splitn(3, ' ').collect::<Vec<_>>().try_into().unwrap();
        tables.entry(table.to_owned()).or_default().push((column.to_owned(), of.to_owned()));
    }
    tables.retain(|table, _| !table.starts_with("kept_") && table != "tallygate_schema_lock");
    tables.into_iter().map(|(table, columns)| (table, columns.into())).collect()
}

/// Conditions that name each row of a table, in their order.
async fn rows(db: &Db, owner: &mut Connected, table: &str, keys: &str) -> Vec<String> {
    let text = |column: &str| match db.engine {
        Engine::Postgres => format!("{column}::text"),
        Engine::Sqlite => format!("cast({column} as text)"),
        _ => format!("cast({column} as char)"),
    };
    let keys: Vec<_> = keys.split(' ').collect();
    let told: Vec<_> = keys.iter().map(|key| text(key)).collect();
    let sql = format!("select concat_ws('|', {}) from {table} order by {}", told.join(", "), keys.join(", "));
    let condition = |row: &String| {
        let of = |(key, value): (&&str, &str)| match value.parse::<i64>() {
            Ok(number) => format!("{key} = {number}"),
            Err(_) => format!("{key} = '{value}'"),
        };
        keys.iter().zip(row.split('|')).map(of).collect::<Vec<_>>().join(" and ")
    };
    owner.texts(&sql).await.iter().map(condition).collect()
}

/// Each edit of each table, in a small round some of them: whatever the database takes is seen, or in the list.
pub async fn an_owner_who_covers_tracks_is_found(db: Db) {
    let document = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/chain.md")).unwrap();
    for (table, column) in UNSEEN {
        let name = match *column {
            "*" | "delete" | "copy" => format!("`{table}`"),
            column => format!("`{table}.{column}`"),
        };
        assert!(document.contains(&name), "{name} is not told");
    }
    let world = World::create(db).await;
    let engine = world.db.engine;
    let verified = world.verified().await.unwrap();
    assert_eq!(verified.faults, 0);
    assert!(verified.dropped > 0 && world.is_unaltered().await, "{verified:?}");
    let mut owner = world.db.connect().await;
    let prepare: &[&str] = match engine {
        Engine::Postgres => &[
            "set session_replication_role = replica",
            "alter table zone_master drop constraint zone_master_time_ck",
            "alter table zone_version drop constraint zone_version_time_ck",
        ],
        Engine::Sqlite => {
            &["pragma foreign_keys = off", "drop trigger zone_txn_first", "drop trigger zone_txn_next"]
        }
        _ => &["set session foreign_key_checks = 0", "set session sql_mode = ''"],
    };
    for sql in prepare {
        owner.execute(sql).await.unwrap();
    }
    let tables = columns(&world.db, &mut owner).await;
    // A file has no users, and nobody is granted anything.
    let is_here = |table: &str| engine != Engine::Sqlite || table != "tallygate_grant";
    let known: Vec<_> = TABLES.iter().filter(|(table, _)| is_here(table)).collect();
    assert_eq!(
        tables.keys().map(String::as_str).collect::<BTreeSet<_>>(),
        known.iter().map(|(table, _)| *table).collect(),
        "the tables that there are"
    );
    let mut rng = Rng::with_seed(7);
    let mut all = Vec::new();
    for (table, keys) in known {
        owner.execute(&format!("create table kept_{table} as select * from {table}")).await.unwrap();
        let mut rows = rows(&world.db, &mut owner, table, keys).await;
        rng.shuffle(&mut rows);
        rows.truncate(rounds(4, 30));
        let columns = &tables[*table];
        let names: Vec<_> = columns.iter().map(|(column, _)| column.as_str()).collect();
        for (n, row) in rows.iter().enumerate() {
            let other = &rows[(n + 1) % rows.len()];
            for column in columns.iter() {
                all.extend(edits(engine, (table, columns), column, (row, other)));
            }
            let whole = |what: &str, sql: String| Edit {
                table: (*table).to_owned(),
                column: what.to_owned(),
                sql,
                is_odd: false,
                columns: Rc::clone(columns),
            };
            all.push(whole("delete", format!("delete from {table} where {row}")));
            for (key, of) in columns.iter().filter(|(column, _)| keys.split(' ').any(|key| key == column)) {
                if key == "zone_id" && *table != "zone_txn" {
                    // Nobody reads rows of a zone that there never was.
                    continue;
                }
                let other = if of.contains("int") { format!("{key} + 1000") } else { "'copy'".to_owned() };
                let values = names.iter().map(|name| match *name {
                    name if name == key => other.clone(),
                    "id" if *table == "zone_txn" => "id + 1000000".to_owned(),
                    name => name.to_owned(),
                });
                let values = values.collect::<Vec<_>>().join(", ");
                let names = names.join(", ");
                let copy =
                    format!("insert into {table} ({names}) select {values} from kept_{table} where {row}");
                all.push(whole("copy", copy));
            }
        }
    }
    let tried = rounds_of_long(120, 15_000).min(all.len());
    rng.shuffle(&mut all);
    let mut missed = BTreeMap::<(String, String), String>::new();
    let (mut refused, mut seen, mut unnamed, mut read) = (0, 0, Vec::new(), BTreeMap::new());
    for (n, edit) in all.iter().take(tried).enumerate() {
        if n % 1_000 == 0 {
            eprintln!("{engine}: {n} of {tried} edits, {seen} seen, {} missed, {unnamed:?}", missed.len());
        }
        let table = &edit.table;
        let mut taken = true;
        for sql in edit.sql.split("; ") {
            taken &= owner.execute(sql).await.is_ok();
        }
        let differ = |one: &str, two: &str| {
            format!("(select count(*) from (select * from {one} except select * from {two}) d)")
        };
        let (kept, now) = (format!("kept_{table}"), table.as_str());
        let changed = format!("select {} + {}", differ(&kept, now), differ(now, &kept));
        if owner.number(&changed).await == 0 {
            refused += usize::from(!taken);
            continue;
        }
        // All that a person may ask for, of a few rows with each such value.
        let value = edit.sql.split(" where ").next();
        if edit.is_odd && *read.entry(value).and_modify(|times| *times += 1).or_insert(1) <= 3 {
            unnamed.extend(world.read(edit).await);
        }
        // The checkpoint is compared in a hundredth of the time of a verification, which must name what is odd.
        let mut is_found = !world.is_unaltered().await;
        if edit.is_odd || !is_found {
            is_found |= match world.verified().await {
                Ok(verified) => verified.faults > 0,
                Err(error) => {
                    if edit.is_odd && !edit.is_named_by(&error) {
                        unnamed.push(format!("verify: {}: {error}", edit.sql));
                    }
                    true
                }
            };
        }
        // Nobody reads an override of a dropped row by which no row was decided that is left.
        let is_read = table != "zone_override" || !edit.sql.contains("bucket_key = 'old'");
        if is_found {
            seen += 1;
        } else if is_read && !edit.is_null_for_null(&mut owner).await {
            missed.entry((table.clone(), edit.column.clone())).or_insert_with(|| edit.sql.clone());
        }
        owner.execute(&format!("delete from {table}")).await.unwrap();
        let names = edit.columns.iter().map(|(column, _)| column.as_str()).collect::<Vec<_>>().join(", ");
        let back = format!("insert into {table} ({names}) select {names} from kept_{table}");
        owner.execute(&back).await.unwrap();
    }
    eprintln!("{engine}: of {tried} edits {refused} were refused and {seen} seen, of all {}", all.len());
    missed.retain(|(table, column), _| {
        !UNSEEN.iter().any(|(of, one)| of == table && (*one == "*" || one == column))
    });
    assert!(missed.is_empty() && unnamed.is_empty(), "{missed:#?} {unnamed:#?}");
    assert_eq!(world.verified().await.unwrap(), verified, "all is as it was");
    assert!(seen > tried / 4, "{seen} of {tried}");
}
