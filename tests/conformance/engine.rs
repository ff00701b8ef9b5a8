//! The mistakes that only the engine can make: what it remembers, what it appends, and who else is there.

use std::collections::HashMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use fastrand::Rng;
use futures_util::future::join_all;
use serde_json::{Value, json};
use tallygate::audit::verify::{FaultKind, Verify};
use tallygate::policy::{BanRule, Override};
use tallygate::schema::Role;
use tallygate::{BatchConfig, Charged, Check, Config, Decision, ErrorKind, Limiter, Policy};
use tokio::sync::watch;
use uuid::Uuid;

use crate::child::{Caller, Child, Work};
use crate::db::{Connected, Db, Engine, bucket, connected, log};
use crate::proxy::Proxy;
use crate::rounds;
use crate::verify::verify;

const HEAD: [(&str, &str); 26] = [
    ("zone_id", "1"),
    ("bucket_key", "'42'"),
    ("is_new", "false"),
    ("was_seq", "b.seq"),
    ("was_hash", "b.row_hash"),
    ("was_at", "b.last_at"),
    ("was_total", "b.spent_total"),
    ("seq", "b.seq + 1"),
    ("last_at", "b.now"),
    ("spent_total", "b.spent_total + 1"),
    ("level", "null"),
    ("strikes", "0"),
    ("banned_until", "null"),
    ("ban_strikes", "0"),
    ("carried", "null"),
    ("carried_at", "null"),
    ("carried_total", "null"),
    ("carried_seq", "null"),
    ("override_seq", "null"),
    ("zone_version", "b.version"),
    ("bans", "0"),
    ("holding", "false"),
    ("ended", "false"),
    ("shapes", "null"),
    ("salt", "b.salt"),
    ("row_hash", "sha256('')"),
];

const ROW: [(&str, &str); 29] = [
    ("head", "1"),
    ("txn_id", "gen_random_uuid()"),
    ("named", "true"),
    ("zone_id", "1"),
    ("zone_version", "b.version"),
    ("bucket_key", "'42'"),
    ("seq", "b.seq + 1"),
    ("kind", "'check'"),
    ("checks", "1"),
    ("blocked", "false"),
    ("reason", "'within_limit'"),
    ("critical", "false"),
    ("band", "null"),
    ("cost", "1"),
    ("spent", "1"),
    ("spent_total", "b.spent_total + 1"),
    ("remaining", "0"),
    ("zone_limit", "5"),
    ("retry_after_us", "null"),
    ("delay_us", "null"),
    ("level", "null"),
    ("strikes", "0"),
    ("target_at", "null"),
    ("created_at", "b.now"),
    ("prev_at", "b.last_at"),
    ("ends_at", "null"),
    ("member", "null"),
    ("salt", "null"),
    ("row_hash", "sha256('')"),
];

/// The arguments of `zone_engine_append_one` that are columns.
const ONE: &str = "head.zone_id head.bucket_key head.is_new head.was_seq head.was_hash head.was_at head.was_total head.zone_version \
    row.txn_id row.named row.kind row.checks row.blocked row.reason row.critical row.cost row.spent row.remaining row.zone_limit \
    row.retry_after_us row.delay_us row.ends_at row.member row.note head.last_at head.level head.strikes head.banned_until head.ban_strikes \
    head.carried head.carried_at head.carried_total head.carried_seq head.override_seq head.bans head.holding head.salt \
    head.row_hash";

/// An append of one check of cost 1 in the bucket "42", as it should be but for what is given: `head.column` or
/// `row.column`, and what stands in its place. The hash is made up.
fn append(others: &[(&str, &str)]) -> String {
    let others: HashMap<_, _> = others.iter().copied().collect();
    let list = |of: &str, columns: &[(&str, &str)]| {
        let value = |(name, value): &(&str, &str)| {
            (*others.get(format!("{of}.{name}").as_str()).unwrap_or(value)).to_owned()
        };
        columns.iter().map(value).collect::<Vec<_>>().join(", ")
    };
    format!(
        "select coalesce(a.fates[1], -1)::bigint
        from zone_engine_hold(array[1], array['42'], 0, array[false], null, '{{}}', '{{}}', '{{}}') b,
        lateral zone_engine_append(
            array[row({})::zone_engine_head], array[row({})::zone_engine_row], {}, false, false, null, true
        ) a",
        list("head", &HEAD),
        list("row", &ROW),
        others.get("parts").unwrap_or(&"'{}'")
    )
}

/// The same by values. None where that has no argument for what is given, beside what a head and its row have both.
fn append_one(others: &[(&str, &str)]) -> Option<String> {
    let is_argument = |name: &str| ONE.split(' ').any(|argument| argument == name);
    let is_of_both = |name: &str| {
        let column = name.strip_prefix("row.").map(|column| column.replace("created_at", "last_at"));
        let twin = column.map(|column| format!("head.{column}")).filter(|twin| is_argument(twin));
        twin.is_some_and(|twin| others.iter().any(|(other, _)| *other == twin))
    };
    if !others.iter().all(|(name, _)| is_argument(name) || is_of_both(name)) {
        return None;
    }
    let value = |argument: &str| {
        let (of, column) = argument.split_once('.').unwrap();
        let columns = if of == "head" { &HEAD[..] } else { &ROW[..] };
        let given = others.iter().find(|(name, _)| *name == argument);
        let honest = || columns.iter().find(|(name, _)| *name == column).map_or("null", |(_, value)| *value);
        given.map_or_else(honest, |(_, value)| *value)
    };
    let values: Vec<_> = ONE.split(' ').map(value).collect();
    Some(format!(
        "select a.fate::bigint
        from zone_engine_hold(array[1], array['42'], 0, array[false], null, '{{}}', '{{}}', '{{}}') b,
        lateral zone_engine_append_one({}, false, null, true) a",
        values.join(", ")
    ))
}

/// A user who may append may write a decision that does not follow. The database refuses one that it can see, and
/// nothing is written; the rest is found by a verification.
pub async fn what_does_not_follow_is_refused_or_found(db: Db) {
    if db.engine.is_mysql() {
        return forged_in_json(db).await;
    }
    let limiter = db.limiter().await;
    limiter.operator().set_zone("login", &log(5, 3600), None, "test").await.unwrap();
    for key in ["42", "other"] {
        limiter.check(Check::new("login", key)).await.unwrap();
    }
    let mut forger = db.connect_as(Role::App).await;
    // The time of the last row is not now any more.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let day = "interval '1 day'";
    let both = |column: &str, value: &str| {
        let (head, row) = (format!("head.{column}"), format!("row.{column}"));
        vec![(head, value.to_owned()), (row, value.to_owned())]
    };
    let time = |value: &str| {
        vec![("head.last_at".to_owned(), value.to_owned()), ("row.created_at".to_owned(), value.to_owned())]
    };
    let row = |column: &str, value: &str| vec![(format!("row.{column}"), value.to_owned())];
    let head = |column: &str, value: &str| vec![(format!("head.{column}"), value.to_owned())];
    let carried = |amount: &str, total: &str, seq: &str| {
        [("carried", amount), ("carried_at", "b.now"), ("carried_total", total), ("carried_seq", seq)]
            .map(|(column, value)| head(column, value).remove(0))
            .to_vec()
    };
    let part = |seq: &str, charged_at: &str, amount: i64, ends_at: &str| {
        let part = format!(
            "array[row(1, 1, '42', {seq}, {charged_at}, {amount}, {ends_at}, null)::zone_engine_part]"
        );
        vec![("parts".to_owned(), part)]
    };
    let ended = |kind: &str, amount: i64| {
        let mut of = both("spent_total", "b.spent_total");
        let kind = format!("'{kind}'");
        of.extend(
            [("kind", &*kind), ("reason", "'recorded'"), ("spent", "0")].map(|(c, v)| row(c, v).remove(0)),
        );
        of.extend(part("b.seq", "b.last_at", amount, "b.now"));
        of
    };
    let forged = [
        // The order.
        both("seq", "b.seq + 2"),
        both("seq", "b.seq"),
        row("seq", "b.seq + 2"),
        row("prev_at", &format!("b.last_at - {day}")),
        // Totals.
        both("spent_total", "b.spent_total + 2"),
        row("spent_total", "b.spent_total"),
        row("spent", "2"),
        row("spent", "-1"),
        row("cost", "1099511627777"),
        // Times.
        time("b.now + interval '1 minute'"),
        time("b.now - interval '1 minute'"),
        time("b.last_at"),
        time(&format!("b.last_at - {day}")),
        row("created_at", &format!("b.now - {day}")),
        // Times that no program can read.
        row("ends_at", "'infinity'"),
        row("target_at", "'294000-01-01'"),
        row("target_at", "'-infinity'"),
        head("banned_until", "'infinity'"),
        head("banned_until", "'294000-01-01'"),
        head("carried_at", "'infinity'"),
        head("carried_at", "'-infinity'"),
        part("b.seq + 1", "b.now", 1, "'infinity'"),
        // Numbers that no program counts.
        both("level", "'-9223372036854775808'"),
        both("strikes", "-1"),
        row("remaining", "-1"),
        row("zone_limit", "-1"),
        row("zone_limit", "1099511627777"),
        row("retry_after_us", "-1"),
        row("delay_us", "-1"),
        head("ban_strikes", "-1"),
        head("bans", "-1"),
        carried("-1", "0", "0"),
        carried("4398046511105", "0", "0"),
        carried("0", "-1", "0"),
        carried("0", "0", "-1"),
        head("override_seq", "0"),
        // It was carried, banned and excepted later than now.
        head("ban_strikes", "1"),
        carried("0", "b.spent_total + 2", "0"),
        carried("0", "0", "b.seq + 2"),
        head("override_seq", "b.seq + 2"),
        // More ends than was charged.
        part("b.seq + 1", "b.now", 2, "b.now + interval '1 hour'"),
        ended("refund", 2),
        ended("settle", 2),
        ended("cancel", 2),
        ended("release", 2),
        // Somebody else's chain, and no chain.
        row("bucket_key", "'other'"),
        row("zone_id", "2"),
        both("bucket_key", "'other'"),
        both("row_hash", "''"),
        row("row_hash", "sha256('another')"),
        head("was_hash", "sha256('another')"),
        head("is_new", "true"),
        // Kinds and reasons.
        row("kind", "'refund'"),
        row("kind", "'override'"),
        row("kind", "'unban'"),
        row("kind", "'ban'"),
        row("kind", "'unchecked'"),
        // Of a zone that was never open.
        [row("kind", "'unchecked'"), row("reason", "'unchecked'"), row("spent", "0")].concat(),
        row("kind", "null"),
        row("reason", "'unchecked'"),
        row("reason", "'recorded'"),
        row("reason", "'because'"),
        row("blocked", "true"),
        row("checks", "2"),
        // A lease says how important it is, and nothing else does.
        row("band", "1"),
        row("kind", "'lease'"),
        row("kind", "'offer'"),
        row("kind", "'take'"),
        row("kind", "'evict'"),
        // Another policy than that in force, and whose was decided before.
        both("zone_version", "b.version + 1"),
        row("txn_id", "'00000000-0000-0000-0000-000000000000'"),
    ];
    let mut by_values = 0;
    for others in &forged {
        let others: Vec<_> = others.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let one = append_one(&others);
        by_values += usize::from(one.is_some());
        for call in [append(&others)].into_iter().chain(one) {
            match forger.try_number(&call).await {
                Ok(fate) => assert_eq!(fate, 1, "{others:?}"),
                Err(error) => {
                    let code = error.as_database_error().and_then(|error| error.code()).unwrap_or_default();
                    assert!(
                        ["TG003", "TG009", "TG010", "23514", "23502"].contains(&&*code),
                        "{others:?}: {error}"
                    );
                }
            }
            assert_eq!(db.rows().await, 2, "{call}");
        }
    }
    assert!(by_values > 45, "{by_values}");
    // A head without a row, and one twice.
    let honest = append(&[]);
    let (before, rest) = honest.split_once("array[row(").unwrap();
    let (head, rest) = rest.split_once(")::zone_engine_head], array[row(").unwrap();
    let (row, end) = rest.split_once(")::zone_engine_row]").unwrap();
    let second = row.replacen('1', "2", 1);
    for (heads, rows) in [
        (vec![head], String::new()),
        (vec![head, head], format!("row({row})::zone_engine_row, row({second})::zone_engine_row")),
    ] {
        let heads: Vec<_> = heads.iter().map(|head| format!("row({head})::zone_engine_head")).collect();
        let sql = format!("{before}array[{}], array[{rows}]::zone_engine_row[]{end}", heads.join(", "));
        let error = forger.try_number(&sql).await.unwrap_err();
        assert!(error.to_string().contains("heads are not those of"), "{error}");
        assert_eq!(db.rows().await, 2);
    }
    // One twice, in an array that does not begin at 1.
    let shifted = format!(
        "{before}array_fill(row({head})::zone_engine_head, array[2], array[2]), \
         array[row({row})::zone_engine_row, row({second})::zone_engine_row]{end}"
    );
    let error = forger.try_number(&shifted).await.unwrap_err();
    assert!(error.to_string().contains("heads are not those of"), "{error}");
    assert_eq!(db.rows().await, 2);
    // Neither may an item's time, or that of a queue.
    let none = ["'{}'"; 6].join(", ");
    for times in [
        "'infinity', '{}', null, '{}', '{}', '{}', '{}', '{}'",
        "null, '{}', null, '{}', '{}', '{}', '{}', '{-infinity}'",
    ] {
        let items = format!("select zone_engine_items_set(1, '42', 0, 0, {times}, {none})");
        let error = forger.try_number(&items).await.unwrap_err();
        assert!(error.to_string().contains("does not follow"), "{error}");
    }
    // A bucket of no zone.
    let lock = "select count(*) from zone_engine_hold(array[999], array['42'], 0, array[true], null, '{}', '{}', '{}')";
    let error = forger.try_number(lock).await.unwrap_err();
    assert_eq!(error.as_database_error().and_then(|error| error.code()).as_deref(), Some("TG001"), "{error}");
    assert_eq!(db.number("select count(*) from zone_bucket_lock").await, 2);
    let (_, faults) = verify(&limiter, &Verify::default()).await;
    assert!(faults.is_empty(), "{faults:#?}");

    // Rows that it cannot see through.
    assert_eq!(forger.try_number(&append(&[])).await.unwrap(), 0);
    assert_eq!(forger.try_number(&append_one(&[]).unwrap()).await.unwrap(), 0);
    let (_, faults) = verify(&limiter, &Verify::default()).await;
    let found: Vec<_> = faults.iter().map(|fault| (fault.key.as_deref(), fault.seq)).collect();
    assert!(
        !found.is_empty() && found.iter().all(|(key, seq)| *key == Some("42") && *seq >= Some(2)),
        "{faults:#?}"
    );
    assert!(faults.iter().any(|fault| fault.what == FaultKind::Edited), "{faults:#?}");
}

/// The arguments of `zone_engine_append_one` on MySQL and MariaDB, by their places in what its twin of arrays is given.
const ONE_IN_JSON: [&str; 38] = [
    "0", "13", "1", "2", "14", "3", "4", "10", "17/0/18", "17/0/0", "17/0/15", "17/0/2", "17/0/3", "17/0/16",
    "17/0/4", "17/0/5", "17/0/6", "17/0/8", "17/0/9", "17/0/10", "17/0/11", "17/0/14", "17/0/17", "note",
    "6", "8", "9", "11/0/0", "11/0/1", "11/0/2", "11/0/3", "11/0/4", "11/0/5", "11/0/6", "11/0/7", "11/0/8",
    "16", "15",
];

/// The call by values of what is an array in JSON. None where that has no argument for what was forged.
fn call_of_one(heads: &Value, forged: &[(String, Value)]) -> Option<String> {
    let is_argument = |place: &str| {
        let place = place.trim_start_matches("/0/");
        let twin = match place {
            "17/0/12" => "8",
            "17/0/13" => "9",
            "11" => "11/0/0",
            place => place,
        };
        ONE_IN_JSON.contains(&twin)
    };
    if !forged.iter().all(|(place, _)| is_argument(place)) {
        return None;
    }
    let value = |place: &&str| match heads.pointer(&format!("/0/{place}")) {
        Some(Value::String(text)) if matches!(*place, "14" | "15" | "16" | "17/0/18") => {
            let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
            if is_hex { format!("unhex('{text}')") } else { format!("'{text}'") }
        }
        Some(Value::String(text)) => format!("'{text}'"),
        Some(Value::Null) | None if matches!(*place, "11/0/1" | "11/0/7" | "11/0/8") => "0".to_owned(),
        Some(value) => value.to_string(),
        None => "null".to_owned(),
    };
    let values: Vec<_> = ONE_IN_JSON.iter().map(value).collect();
    Some(format!("call zone_engine_append_one({}, false, 5, true)", values.join(", ")))
}

/// The same on MySQL and MariaDB, where heads and rows are arrays in JSON.
async fn forged_in_json(db: Db) {
    let limiter = db.limiter().await;
    limiter.operator().set_zone("login", &log(5, 3600), None, "test").await.unwrap();
    for key in ["42", "other"] {
        limiter.check(Check::new("login", key)).await.unwrap();
    }
    let mut owner = db.connect().await;
    let mut forger = db.connect_as(Role::App).await;
    // The time of the last row is not now any more.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let us = "timestampdiff(microsecond, timestamp'1970-01-01 00:00:00', ";
    let was_us =
        owner.number(&format!("select {us}last_at) from zone_bucket_lock where bucket_key = '42'")).await;
    let was_hash =
        owner.texts("select hex(row_hash) from zone_bucket_lock where bucket_key = '42'").await.remove(0);
    let none = Value::Null;
    let made_up = "e3".repeat(32);
    let honest = |now_us: i64| {
        let txn = Uuid::now_v7().simple().to_string();
        let row = json!([
            1,
            2,
            1,
            0,
            0,
            1,
            1,
            2,
            0,
            5,
            none,
            none,
            none,
            0,
            none,
            "check",
            "within_limit",
            none,
            txn,
            none
        ]);
        json!([[1, 0, 1, was_us, 1, 2, now_us, 2, none, 0, 1, [], [], "42", was_hash, made_up, none, [row]]])
    };
    let day_us = 86_400_000_000_i64;
    let of_the_row = |column: usize, value: Value| vec![(format!("/0/17/0/{column}"), value)];
    let both = |head: usize, column: usize, value: Value| {
        vec![(format!("/0/{head}"), value.clone()), (format!("/0/17/0/{column}"), value)]
    };
    let of_the_head = |column: usize, value: Value| vec![(format!("/0/{column}"), value)];
    let besides = |place: usize, number: i64| {
        let mut besides = json!([null, 0, null, null, null, null, null, 0, 0, 0]);
        besides[place] = json!(number);
        of_the_head(11, json!([besides]))
    };
    let carried = |amount: i64, total: i64, seq: i64| {
        of_the_head(11, json!([[null, 0, amount, was_us, total, seq, null, 0, 0, 0]]))
    };
    let ended = |kind: &str, amount: i64| {
        let mut of =
            [of_the_row(15, json!(kind)), of_the_row(16, json!("recorded")), of_the_row(6, json!(0))]
                .concat();
        of.extend(both(7, 7, json!(1)));
        of.extend(of_the_head(12, json!([[1, amount, was_us, none, was_us]])));
        of
    };
    let now_us = format!("select {us}utc_timestamp(6))");
    let forged = [
        // The order.
        both(5, 1, json!(3)),
        both(5, 1, json!(1)),
        of_the_row(1, json!(3)),
        // Totals.
        both(7, 7, json!(3)),
        of_the_row(7, json!(1)),
        of_the_row(6, json!(2)),
        of_the_row(6, json!(-1)),
        of_the_row(5, json!(1_099_511_627_777_i64)),
        // Numbers that no program counts.
        both(8, 12, json!(i64::MIN)),
        both(9, 13, json!(-1)),
        of_the_row(8, json!(-1)),
        of_the_row(9, json!(-1)),
        of_the_row(9, json!(1_099_511_627_777_i64)),
        of_the_row(10, json!(-1)),
        of_the_row(11, json!(-1)),
        besides(1, -1),
        besides(7, -1),
        carried(-1, 0, 0),
        carried(4_398_046_511_105, 0, 0),
        carried(0, -1, 0),
        carried(0, 0, -1),
        besides(6, 0),
        besides(4, 0),
        // It was carried, banned and excepted later than now.
        besides(1, 1),
        carried(0, 3, 0),
        carried(0, 0, 3),
        besides(6, 3),
        // More ends than was charged.
        of_the_head(12, json!([[2, 2, was_us + 2 * day_us, none]])),
        ended("refund", 2),
        ended("settle", 2),
        ended("cancel", 2),
        ended("release", 2),
        // Times.
        of_the_head(6, json!(owner.number(&now_us).await + 60_000_000)),
        of_the_head(6, json!(owner.number(&now_us).await - 60_000_000)),
        of_the_head(6, json!(was_us)),
        of_the_head(6, json!(was_us - day_us)),
        of_the_head(6, none.clone()),
        of_the_head(3, json!(was_us - day_us)),
        // Somebody else's chain, and no chain.
        of_the_head(13, json!("other")),
        of_the_head(0, json!(2)),
        of_the_head(15, json!("")),
        of_the_head(15, json!("zz".repeat(32))),
        of_the_head(15, none.clone()),
        of_the_row(19, json!("ab".repeat(32))),
        of_the_head(14, json!("ab".repeat(32))),
        of_the_head(1, json!(1)),
        of_the_head(1, json!(2)),
        vec![("/0/1".into(), json!(1)), ("/0/2".into(), json!(0)), ("/0/3".into(), none.clone())],
        // Kinds and reasons.
        of_the_row(15, json!("refund")),
        of_the_row(15, json!("override")),
        of_the_row(15, json!("unban")),
        of_the_row(15, json!("ban")),
        of_the_row(15, json!("unchecked")),
        // Of a zone that was never open.
        [
            of_the_row(15, json!("unchecked")),
            of_the_row(16, json!("unchecked")),
            of_the_row(6, json!(0)),
            both(7, 7, json!(1)),
        ]
        .concat(),
        of_the_row(15, none.clone()),
        of_the_row(16, json!("unchecked")),
        of_the_row(16, json!("recorded")),
        of_the_row(16, json!("because")),
        of_the_row(3, json!(1)),
        of_the_row(2, json!(2)),
        // Another policy than that in force, and what names no transaction.
        of_the_head(10, json!(2)),
        of_the_row(18, json!("0".repeat(32))),
        of_the_row(18, json!("no transaction")),
        // No row, and what is none.
        of_the_head(17, json!([])),
        of_the_head(17, none.clone()),
        of_the_row(1, json!("two")),
        vec![("/0".into(), none.clone())],
    ];
    let call_of = |heads: &Value| {
        format!("call zone_engine_append('{}', false, 5, true)", heads.to_string().replace('\'', "''"))
    };
    let mut by_values = 0;
    for others in &forged {
        let mut heads = honest(owner.number(&now_us).await);
        for (place, value) in others {
            *heads.pointer_mut(place).unwrap() = value.clone();
        }
        let one = call_of_one(&heads, others);
        by_values += usize::from(one.is_some());
        for call in [call_of(&heads)].into_iter().chain(one) {
            if let Err(error) = forger.try_number(&call).await {
                let told = error.to_string();
                let told_by = ["TG003", "TG009", "TG010", "zone_txn_numbers_ck", "zone_txn_spent_ck"];
                assert!(told_by.iter().any(|code| told.contains(code)), "{others:?}, {call}: {told}");
            }
            assert_eq!(db.rows().await, 2, "{others:?}, {call}");
        }
    }
    assert!(by_values > 40, "{by_values} of {}", forged.len());
    // A bucket twice, none at all, and no array.
    let once = honest(owner.number(&now_us).await);
    for heads in [json!([once[0], once[0]]), json!([]), json!({})] {
        let error = forger.try_number(&call_of(&heads)).await.unwrap_err();
        assert!(error.to_string().contains("heads are not those of"), "{error}");
        assert_eq!(db.rows().await, 2);
    }
    // A bucket of no zone.
    forger.begin().await;
    let lock = r#"call zone_engine_hold('[[999,"42"]]', '[]', 0, true, 5)"#;
    let error = forger.try_number(lock).await.unwrap_err();
    assert!(error.to_string().contains("there is no zone 999"), "{error}");
    forger.execute("rollback").await.unwrap();
    assert_eq!(db.number("select count(*) from zone_bucket_lock").await, 2);
    let (_, faults) = verify(&limiter, &Verify::default()).await;
    assert!(faults.is_empty(), "{faults:#?}");

    // The policy changes after the bucket was held: a caller's transaction goes on by that which it was held by.
    owner.execute("set session transaction isolation level read uncommitted").await.unwrap();
    for (round, own, age_h, taken) in [(6, false, 0, true), (7, true, 0, false), (8, false, 1, false)] {
        let version = db.number("select version from zone_master").await;
        let mut heads = honest(owner.number(&now_us).await);
        heads[0][10] = json!(version);
        let set = limiter.operator().set_zone("login", &log(round, 3600), None, "test").await;
        assert_eq!(i64::from(set.unwrap().version), version + 1);
        let age = format!("update zone_version set changed_at = changed_at - interval {age_h} hour");
        db.execute(&format!("{age} where version = {version} + 1")).await;
        for call in [call_of(&heads), call_of_one(&heads, &[]).unwrap()] {
            if !own {
                forger.begin().await;
            }
            let told =
                forger.try_number(&call.replace(", false, 5, true)", &format!(", false, 5, {own})"))).await;
            assert_eq!(owner.number("select count(*) from zone_txn").await, 2 + i64::from(taken), "{call}");
            assert!(taken == told.is_ok(), "{call}: {told:?}");
            assert!(taken || told.unwrap_err().to_string().contains("TG009"), "{call}");
            forger.execute("rollback").await.unwrap();
        }
    }
    db.execute("update zone_version set changed_at = changed_at + interval 1 hour where version = 4").await;

    // Rows that it cannot see through.
    let mut heads = honest(owner.number(&now_us).await);
    heads[0][10] = json!(4);
    forger.try_number(&call_of(&heads)).await.unwrap();
    assert_eq!(db.rows().await, 3);
    // By values it follows that.
    let next = [("2", json!(2)), ("3", heads[0][6].clone()), ("4", json!(2)), ("14", json!(made_up))];
    let now_us = json!(owner.number(&now_us).await);
    let txn = json!(Uuid::now_v7().simple().to_string());
    for (place, value) in next.into_iter().chain([("6", now_us), ("17/0/18", txn)]) {
        *heads.pointer_mut(&format!("/0/{place}")).unwrap() = value;
    }
    forger.try_number(&call_of_one(&heads, &[]).unwrap()).await.unwrap();
    assert_eq!(db.rows().await, 4);
    let (_, faults) = verify(&limiter, &Verify::default()).await;
    let found: Vec<_> = faults.iter().map(|fault| (fault.key.as_deref(), fault.seq)).collect();
    assert!(
        !found.is_empty() && found.iter().all(|(key, seq)| *key == Some("42") && *seq >= Some(2)),
        "{faults:#?}"
    );
    assert!(faults.iter().any(|fault| fault.what == FaultKind::Edited), "{faults:#?}");
}

/// A check of a caller of the routines.
pub fn sql_check(engine: Engine, zone: &str, key: &str, cost: i64) -> String {
    match engine {
        Engine::Postgres => format!("select seq from zone_check('{zone}', '{key}', null, {cost})"),
        _ => format!("call zone_check('{zone}', '{key}', null, {cost}, null, null)"),
    }
}

/// The arguments of `zone_operator_append` for a ban of the bucket "42", on PostgreSQL and elsewhere, as they should be but for the
/// hash, which is made up.
const BAN: [(&str, &str, &str); 31] = [
    ("zone_id", "1", "1"),
    ("bucket_key", "'42'", "'42'"),
    ("was_seq", "b.seq", "1"),
    ("was_hash", "b.row_hash", "{hash}"),
    ("zone_version", "b.version", "1"),
    ("txn_id", "gen_random_uuid()", "unhex(replace(uuid(), '-', ''))"),
    ("kind", "'ban'", "'ban'"),
    ("remaining", "0", "0"),
    ("zone_limit", "5", "5"),
    ("at", "b.now", "{now}"),
    ("ends_at", "b.now + interval '1 hour'", "{now} + 3600000000"),
    ("level", "b.level", "null"),
    ("strikes", "b.strikes", "0"),
    ("banned_until", "b.now + interval '1 hour'", "{now} + 3600000000"),
    ("ban_strikes", "b.ban_strikes", "0"),
    ("carried", "b.carried", "null"),
    ("carried_at", "b.carried_at", "null"),
    ("carried_total", "b.carried_total", "null"),
    ("carried_seq", "b.carried_seq", "null"),
    ("override_seq", "b.override_seq", "null"),
    ("bans", "b.bans", "0"),
    ("holding", "b.holding", "false"),
    ("rate", "null", "null"),
    ("window_us", "null", "null"),
    ("burst", "null", "null"),
    ("rate_gcd", "null", "null"),
    ("ban_exempt", "null", "null"),
    ("note", "'why'", "'why'"),
    ("actor", "'who'", "'who'"),
    ("login", "session_user::text", "user()"),
    ("row_hash", "sha256('')", "unhex(sha2('', 256))"),
];

/// Bans and overrides are appended by operators alone, each under the name that the session was logged in by.
pub async fn an_operators_act_is_one_and_by_its_own_name(db: Db) {
    let limiter = db.limiter().await;
    limiter.operator().set_zone("login", &log(5, 3600), None, "test").await.unwrap();
    limiter.check(Check::new("login", "42")).await.unwrap();
    for role in [Role::App, Role::Caller, Role::Auditor] {
        let other = connected(&db.url_as(role)).await;
        let error = other.operator().ban("login", "42", Duration::from_mins(1), "", "x").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused, "{role}: {error}");
        assert!(error.to_string().contains("tallygate grant operator USER"), "{role}: {error}");
    }
    let hex = if db.engine == Engine::Postgres { "encode(row_hash, 'hex')" } else { "hex(row_hash)" };
    let hash = format!("select {hex} from zone_bucket_lock where bucket_key = '42'");
    let hash = format!("x'{}'", db.connect().await.texts(&hash).await.remove(0));
    let now = "timestampdiff(microsecond, timestamp'1970-01-01 00:00:00', utc_timestamp(6))";
    let call = |others: &[(&str, &str)]| {
        let values = BAN.map(|(name, postgres, mysql)| {
            let honest = if db.engine == Engine::Postgres { postgres } else { mysql };
            let value = others.iter().find(|(other, _)| *other == name).map_or(honest, |(_, value)| *value);
            value.replace("{now}", now).replace("{hash}", &hash)
        });
        let values = values.join(", ");
        match db.engine {
            Engine::Postgres => format!(
                "select a.fate::bigint
                from zone_engine_hold(array[1], array['42'], 0, array[true], null, '{{}}', '{{}}', '{{}}') b,
                lateral zone_operator_append({values}) a"
            ),
            _ => format!("call zone_operator_append({values})"),
        }
    };
    // The time of the last row is not now any more.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let mut app = db.connect_as(Role::App).await;
    app.begin().await;
    assert!(app.try_number(&call(&[])).await.unwrap_err().to_string().contains("denied"));
    app.execute("rollback").await.unwrap();
    let mut operator = db.connect_as(Role::Operator).await;
    // The session is free to choose its warnings, keys and isolation.
    let hostile = match db.engine {
        Engine::Postgres => "set default_transaction_isolation = 'serializable'; set enable_indexscan = off",
        _ => "set session sql_mode = '', sql_safe_updates = 1, autocommit = 0",
    };
    operator.execute(hostile).await.unwrap();
    let long = format!("'{}'", "w".repeat(1001));
    let (early, late, empty) = match db.engine {
        Engine::Postgres => ("b.now - interval '1 minute'", "b.now + interval '1 minute'", "''::bytea"),
        _ => ("{now} - 60000000", "{now} + 60000000", "x''"),
    };
    let one = |name, value| vec![(name, value)];
    let years = match db.engine {
        Engine::Postgres => "b.now + interval '11 years'",
        _ => "{now} + 347000000000000",
    };
    for others in [
        // Somebody else, and nobody.
        one("login", "'tallygate_owner'"),
        one("login", "null"),
        // Kinds that no operator writes.
        one("kind", "'check'"),
        one("kind", "'BAN'"),
        one("kind", "'refund'"),
        one("kind", "'unchecked'"),
        one("kind", "null"),
        // Rows that do not follow.
        one("was_seq", "2"),
        one("was_seq", "null"),
        one("was_hash", empty),
        one("zone_version", "2"),
        one("at", early),
        one("at", late),
        one("at", "null"),
        one("banned_until", early),
        one("override_seq", "2"),
        one("override_seq", "3"),
        one("strikes", "1"),
        one("ban_strikes", "1"),
        one("bans", "-1"),
        one("carried", "-1"),
        one("remaining", "-1"),
        one("zone_limit", "1099511627777"),
        one("row_hash", empty),
        one("note", &long),
        one("actor", &long),
        // Another bucket, and none.
        one("bucket_key", "'43'"),
        one("zone_id", "2"),
        // No ban to end, no override to end, and an override that is not there; a ban that is longer than any.
        vec![("kind", "'unban'"), ("banned_until", "null"), ("ends_at", "null")],
        vec![("kind", "'override_end'"), ("banned_until", "null"), ("ends_at", "null")],
        one("override_seq", "1"),
        vec![("ends_at", years), ("banned_until", years)],
        // A ban beside an override.
        vec![("kind", "'override'"), ("override_seq", "2"), ("ban_exempt", "true")],
    ] {
        let call = call(&others);
        operator.begin().await;
        let error = operator.try_number(&call).await.expect_err(&call);
        let code = error.as_database_error().and_then(|error| error.code()).unwrap_or_default();
        let told_by = ["TG001", "TG003", "TG009", "TG010"];
        assert!(told_by.contains(&&*code), "{others:?}: {error}");
        operator.execute("rollback").await.unwrap();
        assert_eq!(db.rows().await, 1, "{others:?}");
    }
    // A limit that cannot be counted.
    let limit = [("kind", "'override'"), ("override_seq", "2"), ("banned_until", "null"), ("rate", "-1")];
    operator.begin().await;
    operator.try_number(&call(&limit)).await.unwrap_err();
    operator.execute("rollback").await.unwrap();
    assert_eq!(db.number("select count(*) from zone_override").await, 0);
    let (_, faults) = verify(&limiter, &Verify::default()).await;
    assert!(faults.is_empty(), "{faults:#?}");

    // A hash that is made up.
    operator.begin().await;
    operator.try_number(&call(&[])).await.unwrap();
    operator.execute("commit").await.unwrap();
    assert_eq!(db.rows().await, 2);
    let (_, faults) = verify(&limiter, &Verify::default()).await;
    assert!(
        faults.iter().any(|fault| fault.what == FaultKind::Edited && fault.seq == Some(2)),
        "{faults:#?}"
    );
}

/// The rows that a caller's snapshot hides are known to each of its calls: also to those after its own rows, which lie behind them.
/// The session's next transaction begins anew.
pub async fn what_a_snapshot_hides_is_known_to_every_later_call(db: Db) {
    let limiter = db.limiter().await;
    let others = db.limiter().await;
    let bans = BanRule::new(100, Duration::from_secs(60), Duration::from_secs(60));
    limiter.operator().set_zone("login", &log(12, 3600).with_ban(Some(bans)), None, "test").await.unwrap();
    let check = |key: &str| Check::new("login", key).txn(Uuid::now_v7());
    let mut caller = db.connect_as(Role::App).await;
    if db.engine == Engine::MariaDb {
        let hostile = "set session innodb_snapshot_isolation = off, max_error_count = 0";
        caller.execute(hostile).await.unwrap();
    }
    let begin = "set transaction isolation level repeatable read; start transaction with consistent snapshot";
    let mut decided = 0;
    for key in ["42", "42", "new"] {
        caller.execute(begin).await.unwrap();
        let hidden = [check(key), check(key), check(key)];
        for check in &hidden {
            others.check(check.clone()).await.unwrap();
        }
        let own = [check(key), check(key)];
        let joined = async |caller: &mut Connected, check: &Check| {
            let decision = limiter.check_in(caller.joined(), check.clone()).await.unwrap();
            assert_eq!(decision.limit, 12);
            (decision.replayed, decision.remaining, decision.seq.unwrap())
        };
        let before = if key == "42" { decided } else { 0 };
        let at = |n: i64| (12 - before - n, before + n);
        for (n, check, replayed) in [
            (4, &own[0], false),
            (1, &hidden[0], true),
            (3, &hidden[2], true),
            (4, &own[0], true),
            (5, &own[1], false),
            (2, &hidden[1], true),
            (5, &own[1], true),
        ] {
            let (remaining, seq) = at(n);
            assert_eq!(joined(&mut caller, check).await, (replayed, remaining, seq), "{key} {n}");
        }
        assert_eq!(caller.number("select json_length(@tallygate_hidden)").await, 2, "a witness and a bucket");
        // Both at once, and one that another bucket's row has made the witness of.
        let both = vec![Check::new("login", "other"), Check::new("login", key)];
        let both = limiter.check_all_in(caller.joined(), both).await.unwrap();
        assert!(both.is_allowed());
        caller.execute("commit").await.unwrap();
        decided += 6;
    }
    assert!(
        caller.number("select cast(@@session.max_error_count as signed)").await > 0,
        "handlers hear what is not found"
    );
    // A policy that it hides, and that others have decided by.
    caller.execute(begin).await.unwrap();
    limiter.operator().set_zone("login", &log(20, 3600), None, "test").await.unwrap();
    others.check(check("42")).await.unwrap();
    assert!(limiter.check_in(caller.joined(), check("42")).await.unwrap_err().is_transient());
    assert_eq!(limiter.check_in(caller.joined(), check("other")).await.unwrap().limit, 12);
    caller.execute("rollback").await.unwrap();
    db.assert_ledger_is_whole().await;
}

/// A call that was killed, at any time, in a caller's transaction that commits all the same: whole decisions or none.
pub async fn a_killed_statement_leaves_no_half_in_a_callers_transaction(db: Db) {
    let limiter = db.limiter().await;
    let hour = Duration::from_secs(3600);
    let slots = Policy::concurrency(1_000, hour).unwrap();
    let zones = ["log", "bucket", "slots"];
    for (zone, policy) in zones.iter().zip([log(1_000, 3600), bucket(1_000, 3600, 1_000), slots]) {
        limiter.operator().set_zone(zone, &policy, None, "test").await.unwrap();
    }
    let (mut killer, mut caller) = (db.connect().await, db.connect_as(Role::App).await);
    let id = caller.number("select cast(connection_id() as signed)").await;
    let (mut killed, mut usual_us) = (0, 20_000);
    for round in 0..rounds(300, 6_000) {
        let one_of_all = |zone: &str| Check::new(zone, (round / 30).to_string());
        let check = |zone: &str| one_of_all(zone).txn(Uuid::now_v7());
        let charged = match round % 4 {
            3 => Some(limiter.reserve(check("log").cost(3), hour).await.unwrap().txn_id),
            _ => None,
        };
        caller.begin().await;
        let call = async {
            let caller = caller.joined();
            match (round % 4, charged) {
                (0, _) => limiter.check_in(caller, check("log")).await.map(drop),
                (1, _) => limiter.check_all_in(caller, zones.map(one_of_all).to_vec()).await.map(drop),
                (2, _) => limiter.reserve_in(caller, check("bucket").cost(2), hour).await.map(drop),
                (_, charged) => limiter.settle_in(caller, charged.unwrap(), 1).await.map(drop),
            }
        };
        let wait = Duration::from_micros(fastrand::u64(0..usual_us));
        let kill = async {
            tokio::time::sleep(wait).await;
            killer.execute(&format!("kill query {id}")).await.unwrap();
        };
        let began = Instant::now();
        let (called, ()) = tokio::join!(async { call.await.map(|()| began.elapsed()) }, kill);
        match &called {
            Ok(took) => usual_us = (usual_us + took.as_micros() as u64) / 2,
            Err(error) => assert!(error.is_transient(), "{error}"),
        }
        killed += u32::from(called.is_err());
        // The kill may have come when the call was over.
        caller.execute("commit").await.ok();
        caller.execute("commit").await.unwrap();
    }
    println!("{killed} calls were killed");
    assert!(killed > 20, "only {killed} calls were killed");
    let (verified, faults) = verify(&limiter, &Verify::default()).await;
    assert!(verified.rows > 0 && faults.is_empty(), "{} faults: {:?}", faults.len(), faults.first());
}

/// A policy that changes between the two statements of a joined check does not end the caller's transaction: that in force when the
/// bucket was held decides, and no other.
pub async fn a_policy_that_changes_meanwhile_ends_no_callers_transaction(db: Db) {
    let limiter = db.limiter().await;
    limiter.operator().set_zone("login", &log(5, 3600), None, "test").await.unwrap();
    limiter.check(Check::new("login", "42")).await.unwrap();
    let mut caller = db.connect_as(Role::App).await;
    for (round, own, age, taken) in
        [(6, false, "0", true), (7, true, "0", false), (8, false, "1 hour", false)]
    {
        let version = db.number("select version from zone_master").await;
        caller.begin().await;
        let held = "select now::text || ' ' || encode(row_hash, 'hex')
            from zone_engine_hold(array[1], array['42'], 0, array[true], null, '{}', '{}', '{}')";
        let held = caller.texts(held).await.remove(0);
        let (now, hash) = held.rsplit_once(' ').unwrap();
        let set = limiter.operator().set_zone("login", &log(round, 3600), None, "test").await;
        assert_eq!(set.unwrap().version, version as i32 + 1);
        let next = format!("where version = {version} + 1");
        let changed = format!("select (changed_at - interval '{age}')::text from zone_version {next}");
        let changed = db.connect().await.texts(&changed).await.remove(0);
        db.execute(&format!("update zone_version set changed_at = '{changed}' {next}")).await;
        let at = format!("'{now}'::timestamptz");
        let call = append_one(&[
            ("head.zone_version", &version.to_string()),
            ("head.last_at", &at),
            ("head.was_hash", &format!("'\\x{hash}'::bytea")),
        ]);
        let call = call.unwrap().replace("false, null, true) a", &format!("false, null, {own}) a"));
        match caller.try_number(&call).await {
            Ok(fate) => assert_eq!((fate, taken), (0, true)),
            Err(error) => {
                let code = error.as_database_error().and_then(|error| error.code()).unwrap_or_default();
                assert_eq!((&*code, taken), ("TG009", false), "{error}");
            }
        }
        caller.execute("rollback").await.unwrap();
    }
}

/// An application reads and writes no table, and may call what the list names.
pub async fn an_app_touches_no_table(db: Db) {
    let limiter = db.limiter().await;
    limiter.operator().set_zone("login", &log(5, 3600), None, "test").await.unwrap();
    let mut owner = db.connect().await;
    let mut engine = db.connect_as(Role::App).await;
    let (may, relations) = match db.engine {
        Engine::Postgres => (
            "select distinct p.proname::text from pg_proc p
            where p.pronamespace = current_schema()::regnamespace and has_function_privilege(p.oid, 'execute')
            order by 1",
            "select c.relname::text from pg_class c
            where c.relnamespace = current_schema()::regnamespace and c.relkind in ('r', 'v', 'p')
                and c.relname not like 'citus%'",
        ),
        _ => (
            "select r.routine_name from information_schema.routines r
            where r.routine_schema = database() order by 1",
            "select t.table_name from information_schema.tables t where t.table_schema = database()",
        ),
    };
    let mut expected = vec![
        "check_velocity",
        "check_velocity_in",
        "rate_limiting_request",
        "rate_limiting_request_in",
        "tallygate_schema_version",
        "zone_bucket_place",
        "zone_charges",
        "zone_check",
        "zone_check_in",
        "zone_engine_append",
        "zone_engine_append_one",
        "zone_engine_ask",
        "zone_engine_charges",
        "zone_engine_check",
        "zone_engine_hold",
        "zone_engine_hold_one",
        "zone_engine_items",
        "zone_engine_items_set",
        "zone_engine_leases",
        "zone_engine_past",
        "zone_engine_payloads",
        "zone_engine_queue",
        "zone_engine_shapes",
        "zone_engine_versions",
        "zone_find",
        "zone_refund",
        "zone_refund_in",
    ];
    // PostgreSQL's routines join by themselves, and its zone_engine_hold has a way for one; the others tell an earlier decision by it.
    expected.retain(|name| match db.engine {
        Engine::Postgres => !name.ends_with("_in") && *name != "zone_engine_hold_one",
        _ => *name != "zone_engine_past",
    });
    assert_eq!(engine.texts(may).await, expected);
    let relations = owner.texts(relations).await;
    assert!(relations.len() > 14, "{relations:?}");
    for relation in relations {
        let error = engine.execute(&format!("select 1 from {relation}")).await.unwrap_err().to_string();
        assert!(
            error.contains("permission denied") || error.contains("command denied"),
            "{relation}: {error}"
        );
    }
    if db.engine == Engine::Postgres {
        let id = limiter.operator().zone("login").await.unwrap().unwrap().id;
        let told = format!(
            "select 10 * count(*) + count(v.changed_by) + count(v.login) from zone_engine_versions({id}, 1) v"
        );
        assert_eq!(engine.number(&told).await, 10, "a version is told without who set it");
    }
}

/// Two processes with memories of any age, and somebody who calls the routines: every decision follows from the rows
/// before it, as a verification derives them again.
pub async fn what_is_remembered_is_never_believed_over_the_database(db: Db) {
    let config = Config { attempts: 50, ..db.config() };
    let limiters = [db.limiter_with(config).await, db.limiter_with(config).await];
    let mut sql = db.connect_as(Role::App).await;
    let second = Duration::from_secs(1);
    let policies = [
        log(5, 1),
        bucket(5, 1, 5),
        Policy::fixed_window(4, second).unwrap(),
        Policy::sliding_counter(6, second, 4).unwrap(),
        log(3, 2).with_ban(Some(BanRule::new(3, second, second))),
        log(4, 1).with_count_blocked(true),
    ];
    let zones: Vec<_> = (0..policies.len()).map(|n| format!("zone {n}")).collect();
    for (zone, policy) in zones.iter().zip(&policies) {
        limiters[0].operator().set_zone(zone, policy, None, "test").await.unwrap();
    }
    let mut rng = Rng::with_seed(13);
    let mut charged: Vec<Uuid> = Vec::new();
    let steps = rounds(1_500, 20_000);
    for step in 0..steps {
        let limiter = &limiters[rng.usize(..2)];
        let zone = &zones[rng.usize(..zones.len())];
        let key = format!("key {}", rng.u8(..3));
        let cost = rng.i64(1..3);
        match rng.u8(..100) {
            0..55 => {
                let mut check = Check::new(zone, &key).cost(cost);
                // Now and then one that was there before.
                if rng.bool() {
                    let old = charged.get(rng.usize(..charged.len().max(1)) * 4).copied();
                    check = check.txn(old.unwrap_or_else(Uuid::now_v7));
                }
                match limiter.check(check).await {
                    Ok(decision) => charged.push(decision.txn_id),
                    Err(error) => assert!(error.is_conflict(), "{error}"),
                }
            }
            55..65 => {
                let checks = (0..4).map(|n| Check::new(zone, format!("key {}", n % 3))).collect();
                limiter.check_many(checks).await.unwrap();
            }
            65..75 => {
                // In the zones that are plain.
                let told = sql.try_number(&sql_check(db.engine, zone, &key, cost)).await;
                assert!(
                    told.as_ref().map_or_else(|error| error.to_string().contains("is not plain"), |_| true),
                    "{told:?}"
                );
            }
            75..82 => {
                let charge = charged[rng.usize(..charged.len().max(1))];
                limiter.refund(Charged::by(charge)).await.ok();
            }
            82..86 => {
                limiter.operator().ban(zone, &key, second / 4, "why", "who").await.unwrap();
            }
            86..88 => {
                limiter.operator().unban(zone, &key, "why", "who").await.ok();
            }
            88..91 => {
                let over = Override { limit: None, ban_exempt: true, for_us: Some(300_000) };
                limiter.operator().set_override(zone, &key, over, "why", "who").await.unwrap();
            }
            91..93 => {
                let policy = &policies[rng.usize(..policies.len())];
                limiter.operator().set_zone(zone, policy, None, "test").await.unwrap();
            }
            _ => tokio::time::sleep(Duration::from_millis(rng.u64(..40))).await,
        }
        if step % 500 == 499 {
            db.assert_ledger_is_whole().await;
        }
    }
    let (verified, faults) = verify(&limiters[0], &Verify::default()).await;
    assert!(faults.is_empty(), "{faults:#?}");
    assert!(verified.rows as usize > steps / 2, "{}", verified.rows);
}

/// Where nearly all buckets are new that nobody remembers, the next is taken for new: one round trip. One that is not is
/// decided as what it is. The zone is not plain, so that no routine decides in one round trip anyway.
pub async fn a_bucket_that_is_taken_for_new_is_decided_as_what_it_is(db: Db) {
    let other = db.limiter().await;
    other.operator().set_zone("login", &log(3, 3600).with_soft_rate(Some(2)), None, "test").await.unwrap();
    for _ in 0..3 {
        other.check(Check::new("login", "full")).await.unwrap();
    }
    let paid = other.check(Check::new("login", "paid").txn(Uuid::now_v7())).await.unwrap();

    let proxy = Proxy::before(&db.url_as(Role::App)).await;
    let limiter = Limiter::connect_with(&proxy.url, Config { connections: 1, ..db.config() }).await.unwrap();
    let new = async |buckets: Range<usize>| {
        let before = proxy.round_trips();
        for n in buckets {
            assert_eq!(limiter.check(Check::new("login", format!("new {n}"))).await.unwrap().remaining, 2);
        }
        proxy.round_trips() - before
    };
    new(0..40).await;
    assert_eq!(new(40..60).await, 20);
    assert!(limiter.check(Check::new("login", "full")).await.unwrap().blocked);

    new(60..80).await;
    let checks = ["full", "paid", "newer", "newest"].map(|key| Check::new("login", key).txn(paid.txn_id));
    let decisions = limiter.check_many(checks.to_vec()).await.unwrap();
    assert_eq!(decisions.iter().map(|decision| decision.remaining).collect::<Vec<_>>(), [0, 2, 2, 2]);
    assert!(decisions[1].replayed && decisions[1].seq == paid.seq);

    // Where many are not new all are asked for again: two round trips.
    new(80..100).await;
    for n in 0..9 {
        other.check(Check::new("login", format!("old {n}"))).await.unwrap();
        limiter.check(Check::new("login", format!("old {n}"))).await.unwrap();
    }
    assert_eq!(new(100..101).await, 2);
    db.assert_ledger_is_whole().await;
}

/// Two processes on the same buckets in turns: whoever came too late holds them from the first look on for a while, and asks
/// for no charges that he knows.
pub async fn a_bucket_that_is_fought_over_is_held_from_the_first_look_on(db: Db) {
    let other = db.limiter().await;
    other.operator().set_zone("login", &log(3, 3600), None, "test").await.unwrap();
    let proxy = Proxy::before(&db.url_as(Role::App)).await;
    let limiter = Limiter::connect_with(&proxy.url, Config { connections: 1, ..db.config() }).await.unwrap();
    let checks = |keys: &[&str]| keys.iter().map(|key| Check::new("login", *key)).collect::<Vec<_>>();
    let in_turns = async |keys: &[&str]| {
        other.check_many(checks(keys)).await.unwrap();
        let before = proxy.round_trips();
        let decisions = limiter.check_many(checks(keys)).await.unwrap();
        assert!(decisions.iter().all(|decision| decision.blocked && decision.retry_after_us.is_some()));
        proxy.round_trips() - before
    };
    // Statements are prepared by then.
    for keys in [&["one"][..], &["three", "two"], &["four", "one"]] {
        for _ in 0..5 {
            limiter.check_many(checks(keys)).await.unwrap();
        }
        in_turns(keys).await;
        in_turns(keys).await;
    }

    // One by itself is refused, and then the routine's.
    for _ in 0..3 {
        limiter.check_many(checks(&["lone"])).await.unwrap();
    }
    assert_eq!(in_turns(&["lone"]).await, 2);
    for _ in 0..8 {
        assert_eq!(in_turns(&["lone"]).await, 1);
    }
    assert_eq!(in_turns(&["lone"]).await, 3);

    // Several are refused, looked at and appended; then held: begun, looked at, appended, committed.
    for _ in 0..5 {
        limiter.check_many(checks(&["five", "six"])).await.unwrap();
    }
    assert_eq!(in_turns(&["five", "six"]).await, 3);
    for _ in 0..8 {
        assert_eq!(in_turns(&["five", "six"]).await, 4);
    }
    assert_eq!(in_turns(&["five", "six"]).await, 3);
    db.assert_ledger_is_whole().await;
}

/// Checks of several callers whose buckets somebody else has moved are looked at together, and not each by itself.
pub async fn what_a_call_left_goes_with_the_next(db: Db) {
    let other = db.limiter().await;
    other.operator().set_zone("login", &log(9, 3600), None, "test").await.unwrap();
    let proxy = Proxy::before(&db.url_as(Role::App)).await;
    let config = Config { connections: 2, ..db.config() };
    let limiter = Limiter::connect_with(&proxy.url, config).await.unwrap();
    let all = async |by: &Limiter| {
        join_all((0..20).map(|n| by.check(Check::new("login", format!("user {n}"))))).await
    };
    all(&limiter).await;
    all(&other).await;
    let before = proxy.round_trips();
    for decision in all(&limiter).await {
        assert_eq!(decision.unwrap().seq, Some(3));
    }
    // The first may have gone alone, in two; the others were refused, looked at and appended, in one call or in a few. Each by
    // itself they take 22.
    let took = proxy.round_trips() - before;
    assert!(took <= 14, "{took}");
    db.assert_ledger_is_whole().await;
}

/// Sixteen processes, half of them by the routines, on the same three buckets; the policy changes, buckets are banned,
/// charges given back; sessions, two of the processes and the server are killed. All is exact, every answer is in the ledger,
/// and nobody starves.
pub async fn sixteen_processes_by_both_ways_are_exact_and_nobody_starves(mut db: Db) {
    let policies = [log(20, 1), log(30, 1)];
    let staff = db.limiter().await;
    staff.operator().set_zone("login", &policies[0], None, "test").await.unwrap();
    let work = |by_sql| {
        let (url, zone) = (db.url_of_own_sessions(Role::App), "login".to_owned());
        Work::Caller(Caller { url, zone, by_sql })
    };
    let by = [work(None), work(Some(db.engine))];
    let mut children = join_all((0..16).map(|n| Child::start(&by[n % 2]))).await;
    let (over, is_over) = watch::channel(false);
    let time = Duration::from_secs(rounds(8, 120) as u64);
    let mut callers = Vec::new();
    for (n, child) in children.iter_mut().enumerate() {
        child.go().await;
        let mut is_over = is_over.clone();
        callers.push(async move {
            match n {
                14.. => child.answers_until_killed(time / 4).await,
                _ => child.answers_until(async { drop(is_over.wait_for(|over| *over).await) }).await,
            }
        });
    }
    let meddle = async {
        let mut rng = Rng::with_seed(0);
        let mut acts = 0;
        for _ in 0..2 {
            let mut killer = db.connect().await;
            let until = Instant::now() + time / 2;
            while Instant::now() < until {
                tokio::time::sleep(Duration::from_millis(50)).await;
                let operator = staff.operator();
                let key = format!("key {}", rng.u8(..3));
                let acted = match rng.u8(..10) {
                    0 => operator.set_zone("login", &policies[rng.usize(..2)], None, "test").await.is_ok(),
                    1 => operator.ban("login", &key, Duration::from_millis(20), "why", "who").await.is_ok(),
                    2 => db.kill_a_session(&mut killer).await,
                    _ => false,
                };
                acts += usize::from(acted);
            }
            db.server().kill().await;
            let engine = db.engine;
            db.server().restart(engine).await;
        }
        over.send(true).unwrap();
        acts
    };
    let (answers, acts) = tokio::join!(join_all(callers), meddle);
    assert!(acts > 3, "{acts}");
    db.assert_ledger_is_whole().await;
    let (_, faults) = verify(&staff, &Verify::default()).await;
    assert!(faults.is_empty(), "{faults:#?}");
    let told: Vec<_> = answers.iter().flatten().filter(|told| !told.is_null()).cloned().collect();
    db.assert_ledger_says("login", &told).await;
    // Of those that lived.
    let counts: Vec<_> = answers[..14].iter().map(Vec::len).collect();
    let share = |answers: &[usize]| {
        let sum: usize = answers.iter().sum();
        100 * answers.iter().min().unwrap() * answers.len() / sum.max(1)
    };
    let of = |first: usize| counts.iter().skip(first).step_by(2).copied().collect::<Vec<_>>();
    let (engines, routines) = (of(0), of(1));
    println!(
        "engines {engines:?}: the worst has {} % of a fair share; SQL callers {routines:?}: {} %",
        share(&engines),
        share(&routines)
    );
    assert!(share(&engines) >= 10 && share(&routines) >= 10, "{engines:?} {routines:?}");
    let all: usize = counts.iter().sum();
    assert!(
        engines.iter().sum::<usize>() * 20 >= all && routines.iter().sum::<usize>() * 20 >= all,
        "{counts:?}"
    );
}

/// A policy of a newer program, and a right that was taken back.
pub async fn what_it_cannot_do_says_what_is_lacking(db: Db) {
    let limiter = db.limiter().await;
    for zone in ["login", "newer"] {
        limiter.operator().set_zone(zone, &log(5, 3600), None, "test").await.unwrap();
    }
    let mut session = db.connect().await;
    session.execute("update zone_version set algorithm = 'guesswork' where zone_id = 2").await.unwrap();
    let error = limiter.check(Check::new("newer", "42")).await.unwrap_err();
    assert!(error.to_string().contains("install the newer tallygate"), "{error}");
    assert_eq!(limiter.check(Check::new("login", "42")).await.unwrap().remaining, 4);

    // A caller in SQL has not what the library needs.
    let limiter = connected(&db.url_as(Role::Caller)).await;
    let checks = vec![Check::new("login", "1"), Check::new("login", "2")];
    let error = limiter.check_many(checks).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(error.to_string().contains("tallygate grant app USER"), "{error}");
    assert_eq!(db.rows().await, 1);
}

/// Of a bucket whose head was edited to what no program can read, in one call with those of others.
pub async fn a_bucket_that_cannot_be_read_fails_alone(db: Db) {
    let batch = Some(BatchConfig { lanes: 1, ..BatchConfig::default() });
    let limiter = db.limiter().await;
    limiter.operator().set_zone("login", &log(1_000, 3600), None, "test").await.unwrap();
    for key in 0..10 {
        limiter.check(Check::new("login", key.to_string())).await.unwrap();
    }
    // Another limiter remembers no head.
    let limiter = db.limiter_with(Config { batch, ..db.config() }).await;
    db.execute("update zone_bucket_lock set strikes = -1 where bucket_key = '7'").await;
    let results = join_all((0..60).map(|n| limiter.check(Check::new("login", (n % 10).to_string())))).await;
    let (of_it, others): (Vec<_>, Vec<_>) = results.into_iter().enumerate().partition(|(n, _)| n % 10 == 7);
    for (n, result) in others {
        assert!(result.as_ref().is_ok_and(Decision::is_allowed), "{n}: {result:?}");
    }
    let errors: Vec<_> = of_it.into_iter().map(|(_, result)| result.unwrap_err()).collect();
    assert!(errors.iter().all(|error| error.to_string().contains("\"strikes\"")), "{errors:?}");
    // The routine that callers in SQL have, and that a check comes to whose bucket is fought over, decides there no more than the
    // library.
    for (column, bad) in [("strikes", "-1"), ("level", "-9223372036854775808"), ("seq", "281474976710657")] {
        db.execute("update zone_bucket_lock set strikes = 0 where bucket_key = '7'").await;
        db.execute(&format!("update zone_bucket_lock set {column} = {bad} where bucket_key = '7'")).await;
        let error = db.connect().await.execute(&sql_check(db.engine, "login", "7", 1)).await.unwrap_err();
        assert!(error.to_string().contains(&format!("\"{column}\"")), "{error}");
    }
    assert_eq!(db.rows().await as usize, 10 + 60 - errors.len());
}
