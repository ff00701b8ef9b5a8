//! The chain of hashes, by a reckoning of its own: from the bytes that docs/chain.md tells, and the rows.

use sha2::{Digest, Sha256};
use tallygate::policy::{Algorithm, BanRule, CalendarUnit, Limit, Override};
use tallygate::{Charged, Check, Policy};

use crate::db::{Clocked, Connected, Db, Engine, bucket, log};

/// Reads a row as one text: numbers in decimals, bytes and texts in hexadecimals, `-` for what is missing.
pub fn row_text(engine: Engine) -> String {
    let us = |column: &str| match engine {
        Engine::Postgres => format!("(extract(epoch from {column}) * 1000000)::bigint"),
        Engine::Sqlite => column.to_owned(),
        _ => format!("timestampdiff(microsecond, '1970-01-01', {column})"),
    };
    let number = |column: &str| match engine {
        Engine::Postgres => format!("coalesce(({column})::bigint::text, '-')"),
        _ => format!("coalesce({column}, '-')"),
    };
    let flag = |column: &str| match engine {
        Engine::Postgres => format!("coalesce({column}::int::text, '-')"),
        _ => format!("coalesce({column}, '-')"),
    };
    let text = |column: &str| match engine {
        Engine::Postgres => format!("coalesce(encode(convert_to({column}, 'UTF8'), 'hex'), '-')"),
        _ => format!("case when {column} is null then '-' else hex({column}) end"),
    };
    let bytes = |column: &str| match engine {
        Engine::Postgres => format!("coalesce(encode({column}, 'hex'), '-')"),
        _ => format!("case when {column} is null then '-' else hex({column}) end"),
    };
    let txn = match engine {
        Engine::Postgres => "replace(t.txn_id::text, '-', '')".to_owned(),
        _ => "hex(t.txn_id)".to_owned(),
    };
    let columns = [
        number("t.zone_id"),
        text("t.bucket_key"),
        number("t.seq"),
        txn,
        number("t.zone_version"),
        number("t.checks"),
        flag("t.blocked"),
        flag("t.critical"),
        number("t.cost"),
        number("t.spent"),
        number("t.spent_total"),
        number("t.remaining"),
        number("t.zone_limit"),
        number("t.retry_after_us"),
        number("t.delay_us"),
        number("t.level"),
        number("t.strikes"),
        number(&us("t.target_at")),
        number(&us("t.created_at")),
        number(&us("t.ends_at")),
        text("t.kind"),
        text("t.reason"),
        text("t.member"),
        text("t.note"),
        text("t.actor"),
        text("t.login"),
        number("o.rate"),
        number("o.window_us"),
        number("o.burst"),
        number("o.rate_gcd"),
        flag("o.ban_exempt"),
        bytes("t.salt"),
        bytes("t.row_hash"),
        bytes("b.row_hash"),
        number("d.seq"),
        bytes("d.salt"),
        bytes("d.row_hash"),
    ];
    format!(
        "select concat_ws('|', {}) from zone_txn t
         left join zone_bucket_lock b on b.zone_id = t.zone_id and b.bucket_key = t.bucket_key
         left join zone_txn_dropped d on d.zone_id = t.zone_id and d.bucket_key = t.bucket_key
         left join zone_override o
            on o.zone_id = t.zone_id and o.bucket_key = t.bucket_key and o.seq = t.seq
         order by t.zone_id, t.bucket_key, t.seq",
        columns.join(", ")
    )
}

/// Each row's hash is that of its bytes, and the bucket's, where it has a row, that of its last row. A row that follows
/// rows that are gone follows the last of them. Returns how many rows there are, and the hash of all of them as if
/// every bucket's salt were zeros.
pub async fn assert_chained(engine: Engine, connection: &mut Connected) -> (usize, String) {
    assert_rows_chained(&connection.texts(&row_text(engine)).await)
}

/// The same of rows that are texts already, wherever they come from.
pub fn assert_rows_chained(rows: &[String]) -> (usize, String) {
    let (mut hash, mut salt, mut unsalted, mut head) = (Vec::new(), Vec::new(), Vec::new(), String::new());
    let mut all = Sha256::new();
    let mut bucket = Vec::new();
    for row in rows {
        let columns: Vec<&str> = row.split('|').collect();
        let new = bucket != columns[..2];
        bucket = columns[..2].to_vec();
        let number = |at: usize| columns[at].parse::<i64>().unwrap();
        let or_least = |at: usize| if columns[at] == "-" { i64::MIN } else { number(at) };
        if new {
            assert!(
                ["", "-"].contains(&&*head) || head.eq_ignore_ascii_case(&hex(&hash)),
                "the head before {row}"
            );
        }
        if new && number(2) > 1 {
            assert_eq!(number(34), number(2) - 1, "what is gone before {row}");
            salt = unhex(columns[35].trim_start_matches('-'));
            hash = unhex(columns[36]);
        } else if let Some(start) = erased(columns[1]).filter(|_| new) {
            assert_eq!(columns[31], "-", "a salt in {row}");
            (salt, hash) = (Vec::new(), start);
        } else if new {
            salt = unhex(columns[31]);
            assert_eq!(salt.len(), 16);
            let start = |salt: &[u8]| {
                let zone = (number(0) as i32).to_be_bytes();
                Sha256::digest([salt, &zone[..], &unhex(columns[1])].concat()).to_vec()
            };
            hash = start(&salt);
            unsalted = start(&[0; 16]);
        } else {
            assert_eq!(columns[31], "-", "a salt in {row}");
        }
        let link = |before: &[u8], salt: &[u8]| {
            let mut bytes = before.to_vec();
            bytes.extend(unhex(columns[3]));
            bytes.extend(number(2).to_be_bytes());
            bytes.extend((number(4) as i32).to_be_bytes());
            bytes.extend((number(5) as i32).to_be_bytes());
            bytes.extend([number(6) as u8, number(7) as u8]);
            for at in 8..20 {
                bytes.extend(or_least(at).to_be_bytes());
            }
            bytes.extend(unhex(columns[20]));
            bytes.push(b'|');
            bytes.extend(unhex(columns[21]));
            for text in &columns[22..26] {
                if *text == "-" {
                    bytes.push(0);
                } else {
                    bytes.push(1);
                    let erased = erased(text).filter(|_| salt.is_empty());
                    bytes.extend(
                        erased.unwrap_or_else(|| Sha256::digest([salt, &unhex(text)].concat()).to_vec()),
                    );
                }
            }
            if columns[30] == "-" {
                bytes.push(0);
            } else {
                bytes.push(1);
                (26..30).for_each(|at| bytes.extend(or_least(at).to_be_bytes()));
                bytes.push(number(30) as u8);
            }
            Sha256::digest(bytes).to_vec()
        };
        hash = link(&hash, &salt);
        unsalted = link(&unsalted, &[0; 16]);
        assert!(columns[32].eq_ignore_ascii_case(&hex(&hash)), "the hash of {row} is {}", hex(&hash));
        head = columns[33].to_owned();
        all.update(&unsalted);
    }
    assert!(["", "-"].contains(&&*head) || head.eq_ignore_ascii_case(&hex(&hash)), "the last head");
    (rows.len(), hex(&all.finalize()))
}

/// The hash that stands in the place of a text, which is given in hexadecimals.
fn erased(text: &str) -> Option<Vec<u8>> {
    let text = String::from_utf8(unhex(text)).unwrap();
    text.strip_prefix("erased:").map(unhex)
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn unhex(digits: &str) -> Vec<u8> {
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

/// The same checks and the same refunds at the same times have the same hashes on every database.
pub async fn the_same_rows_have_the_same_hashes_everywhere(db: Db) {
    let clocked = Clocked::create(&db).await;
    let limiter = &clocked.limiter;
    let start_us = 1_767_225_600_000_000;
    clocked.set(start_us).await;
    let day = std::time::Duration::from_secs(86_400);
    let ban = BanRule::new(2, day, day);
    let zones = [
        ("log", log(9, 60)),
        ("level", bucket(3, 7, 4)),
        ("bans", log(1, 60).with_ban(Some(ban)).with_reserve(0)),
        ("members", Policy::distinct(2, day).unwrap()),
        ("soft", Policy::fixed_window(9, day).unwrap().with_soft_rate(Some(2)).with_reserve(3)),
        ("queue", Policy::new(Algorithm::LeakyQueue, 2, day, Some(3)).unwrap()),
    ];
    for (name, policy) in &zones {
        limiter.operator().set_zone(name, policy, None, "test").await.unwrap();
    }
    let mut n = 0;
    for step in 0..12 {
        clocked.set(start_us + step * 7_000_003).await;
        let mut batch = Vec::new();
        for (name, _) in &zones {
            n += 1;
            let check = Check::new(*name, ["ä 42", "k"][n as usize % 2]).txn(uuid::Uuid::from_u128(n));
            batch.push(match (*name, n % 5) {
                ("members", at) => check.member(["card:ö", "b", "c"][at as usize % 3]),
                ("log", 0) => check.cost(3).reserved_for(day),
                ("soft", 0..3) => check.critical(),
                _ => check,
            });
        }
        if step % 2 == 0 {
            limiter.check_many(batch).await.unwrap();
        } else {
            for check in batch {
                limiter.check(check).await.unwrap();
            }
        }
    }
    limiter.refund(Charged::by(uuid::Uuid::from_u128(2))).await.unwrap();
    limiter.settle(Charged::by(uuid::Uuid::from_u128(25)), 5).await.unwrap();
    let mut connection = db.connect().await;
    let (rows, hash) = assert_chained(db.engine, &mut connection).await;
    assert_eq!(
        (rows, hash.as_str()),
        (75, "af5dfe241380dd452990810ffdc2d132b362a9736be5b08a392736f464760394")
    );
    for name in ["ban", "reserve", "settle", "refund"] {
        let of_kind = format!("select count(*) from zone_txn where kind = '{name}'");
        assert!(connection.number(&of_kind).await > 0, "no {name}");
    }

    // An act of a person has an id of the library's own, so these hashes are different each time.
    limiter.operator().ban("log", "x", day, "zu oft: ß", "alice").await.unwrap();
    let limit = Limit::new(7, day, None).unwrap();
    let over = Override { limit: Some(limit), ban_exempt: true, for_us: Some(5_000_000) };
    limiter.operator().set_override("log", "x", over, "a note", "bob").await.unwrap();
    limiter.operator().remove_override("log", "x", "back", "bob").await.unwrap();
    assert_eq!(assert_chained(db.engine, &mut connection).await.0, rows + 3);
}

/// Each version's hash is that of its text, after that of the version before.
pub async fn every_version_of_a_zone_is_chained(db: Db) {
    let limiter = db.limiter().await;
    let day = std::time::Duration::from_secs(86_400);
    limiter.operator().set_zone("log", &log(5, 60), Some("d|ö"), "alice").await.unwrap();
    let monthly = Policy::calendar(5, CalendarUnit::Month, "Europe/Berlin".parse().unwrap()).unwrap();
    let monthly = monthly.with_soft_rate(Some(3)).with_ban(Some(BanRule::new(2, day, day)));
    limiter.operator().set_zone("log", &monthly, None, "bob").await.unwrap();
    limiter.operator().set_zone("log", &monthly, None, "nobody, since nothing changes").await.unwrap();
    if db.engine != Engine::Sqlite {
        let call = if db.engine == Engine::Postgres { "select" } else { "call" };
        db.execute(&format!("{call} rate_limiting_request('k', 2, 60)")).await;
    }
    let mut connection = db.connect().await;
    let us = match db.engine {
        Engine::Postgres => "(extract(epoch from v.changed_at) * 1000000)::bigint",
        Engine::Sqlite => "v.changed_at",
        _ => "timestampdiff(microsecond, '1970-01-01', v.changed_at)",
    };
    let (hex, text) = match db.engine {
        Engine::Postgres => ("encode(v.row_hash, 'hex')", "encode(convert_to({}, 'UTF8'), 'hex')"),
        _ => ("hex(v.row_hash)", "hex({})"),
    };
    let flag = if db.engine == Engine::Postgres { "v.count_blocked::int" } else { "v.count_blocked + 0" };
    let or = |column: &str| match db.engine {
        Engine::Postgres => format!("coalesce(v.{column}::text, '')"),
        _ => format!("coalesce(v.{column}, '')"),
    };
    let columns = [
        "v.zone_id".to_owned(),
        text.replace("{}", "z.name"),
        hex.to_owned(),
        text.replace("{}", "v.description"),
        text.replace("{}", "v.changed_by"),
        us.to_owned(),
        text.replace("{}", "coalesce(v.login, '')"),
        "v.version".to_owned(),
        or("clock"),
    ];
    let policy = [
        "algorithm",
        "rate",
        "window_us",
        "burst",
        "rate_gcd",
        "slots",
        "calendar",
        "time_zone",
        "soft_rate",
        "reserve",
        "mode",
        "",
        "ban_after",
        "ban_within_us",
        "ban_for_us",
        "ban_factor",
        "ban_max_us",
        "ban_from",
        "on_outage",
        "running_buckets",
        "durability",
        "blocked_rows",
    ];
    let columns: Vec<_> = columns
        .into_iter()
        .chain(policy.iter().map(|name| if name.is_empty() { flag.to_owned() } else { or(name) }))
        .collect();
    let sql = format!(
        "select concat_ws('|', {}) from zone_version v join zone_master z on z.id = v.zone_id
         order by v.zone_id, v.version",
        columns.join(", ")
    );
    let versions = connection.texts(&sql).await;
    assert_eq!(versions.len(), if db.engine == Engine::Sqlite { 2 } else { 3 });
    let digest = |text: &[u8]| self::hex(&Sha256::digest(text));
    let mut before = String::new();
    for row in versions {
        let columns: Vec<_> = row.split('|').collect();
        if columns[7] == "1" {
            before = digest(&[columns[0].as_bytes(), b"|", &unhex(columns[1])].concat());
        }
        let mut line = vec![before, columns[7].to_owned()];
        line.extend(columns[9..].iter().map(|column| (*column).to_owned()));
        line.extend([columns[5].to_owned(), digest(&unhex(columns[3])), digest(&unhex(columns[4]))]);
        line.push(if columns[6].is_empty() { String::new() } else { digest(&unhex(columns[6])) });
        line.push(if columns[8].is_empty() { String::new() } else { digest(columns[8].as_bytes()) });
        before = digest(line.join("|").as_bytes());
        assert!(before.eq_ignore_ascii_case(columns[2]), "{row}");
    }
}
