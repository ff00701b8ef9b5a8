//! An export is the ledger.

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use chrono::{DateTime, Utc};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use sha2::{Digest, Sha256};
use tallygate::audit::export::{Export, ExportFormat, Manifest};
use tallygate::policy::{BanRule, Limit, Override};
use tallygate::{Charged, Check, Limiter, Policy};
use tempfile::TempDir;

use crate::chain::{assert_rows_chained, hex, row_text};
use crate::db::{Db, bucket, log};

/// Rows of every kind that fills a column, in three zones.
async fn live(limiter: &Limiter) {
    let day = Duration::from_secs(86_400);
    let zones = [
        ("log, \"quoted\"", log(2, 60).with_ban(Some(BanRule::new(3, day, day)))),
        ("level", bucket(3, 7, 4)),
        ("members", Policy::distinct(2, day).unwrap()),
    ];
    for (name, policy) in &zones {
        limiter.operator().set_zone(name, policy, None, "test").await.unwrap();
    }
    for n in 0..40 {
        let key = ["a", "a,b", "line \"1\"", "naïve", "'"][n % 5];
        let log = limiter.check(Check::new(zones[0].0, key)).await.unwrap();
        limiter.check(Check::new("level", key).cost(1 + n as i64 % 3)).await.unwrap();
        let member = Check::new("members", key).member(format!("card {}", n % 7));
        limiter.check(member).await.unwrap();
        if n % 3 == 0 && !log.blocked {
            limiter.refund(Charged::by(log.txn_id)).await.unwrap();
        }
    }
    let limit = Limit::new(9, Duration::from_secs(60), None).unwrap();
    let over = Override { limit: Some(limit), ban_exempt: true, for_us: None };
    limiter.operator().set_override("level", "naïve", over, "ß", "ada").await.unwrap();
    let over = Override { limit: None, ..over };
    limiter.operator().set_override("level", "'", over, "why", "ada").await.unwrap();
    limiter.operator().ban(zones[0].0, "a", day, "he said \"no\",\nthen left", "ada").await.unwrap();
    limiter.operator().unban(zones[0].0, "a", "", "bob").await.unwrap();
}

fn of(to: &Path, format: ExportFormat, part_rows: u32) -> Export {
    Export {
        to: to.to_owned(),
        format,
        zone: None,
        since: None,
        until: Some(Utc::now() + Duration::from_secs(3_600)),
        part_rows,
    }
}

/// The rows of an export as texts, each column by its name.
fn read(to: &Path, manifest: &Manifest) -> Vec<HashMap<String, String>> {
    let mut rows: Vec<HashMap<String, String>> = Vec::new();
    for part in &manifest.parts {
        let path = to.join(&part.file);
        let bytes = fs::read(&path).unwrap();
        assert_eq!((bytes.len() as u64, hex(&Sha256::digest(&bytes))), (part.bytes, part.sha256.clone()));
        let before = rows.len();
        match manifest.written_as {
            ExportFormat::Csv => {
                let mut reader = csv::Reader::from_reader(&bytes[..]);
                let names = reader.headers().unwrap().clone();
                for record in reader.records() {
                    let record = record.unwrap();
                    rows.push(
                        names
                            .iter()
                            .zip(&record)
                            .map(|(name, text)| (name.to_owned(), text.to_owned()))
                            .collect(),
                    );
                }
            }
            ExportFormat::JsonLines => {
                for line in std::str::from_utf8(&bytes).unwrap().lines() {
                    let row: HashMap<String, serde_json::Value> = serde_json::from_str(line).unwrap();
                    let text = |value: serde_json::Value| match value {
                        serde_json::Value::String(text) => text,
                        serde_json::Value::Null => String::new(),
                        other => other.to_string(),
                    };
                    rows.push(row.into_iter().map(|(name, value)| (name, text(value))).collect());
                }
            }
            ExportFormat::Parquet => {
                let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
                for row in reader.get_row_iter(None).unwrap() {
                    let text = |field: &Field| match field {
                        Field::Long(number) => number.to_string(),
                        Field::Bool(flag) => flag.to_string(),
                        Field::Str(text) => text.clone(),
                        Field::TimestampMicros(us) => DateTime::from_timestamp_micros(*us)
                            .unwrap()
                            .to_rfc3339_opts(chrono::SecondsFormat::Micros, true),
                        Field::Null => String::new(),
                        other => panic!("{other:?}"),
                    };
                    let row = row.unwrap();
                    rows.push(
                        row.get_column_iter().map(|(name, field)| (name.clone(), text(field))).collect(),
                    );
                }
            }
            other => panic!("{other:?} is read by no test"),
        }
        assert_eq!((rows.len() - before) as u64, part.rows);
        for (place, row) in [(&part.first, &rows[before]), (&part.last, rows.last().unwrap())] {
            let told = (place.zone_id.to_string(), &place.bucket_key, place.seq.to_string(), &place.row_hash);
            assert_eq!(
                told,
                (row["zone_id"].clone(), &row["bucket_key"], row["seq"].clone(), &row["row_hash"])
            );
        }
    }
    rows
}

/// A row as the ledger's own rows are read in the tests of the chain.
fn text(row: &HashMap<String, String>, head: &str) -> String {
    let or_none = |text: String| if text.is_empty() { "-".to_owned() } else { text };
    let plain = |name: &str| or_none(row[name].clone());
    let texts = |name: &str| or_none(hex(row[name].as_bytes()));
    let flag = |name: &str| match row[name].as_str() {
        "true" => "1".to_owned(),
        "false" => "0".to_owned(),
        "" => "-".to_owned(),
        other => panic!("{other}"),
    };
    let time = |name: &str| match row[name].as_str() {
        "" => "-".to_owned(),
        text => text.parse::<DateTime<Utc>>().unwrap().timestamp_micros().to_string(),
    };
    let columns = [
        plain("zone_id"),
        texts("bucket_key"),
        plain("seq"),
        row["txn_id"].replace('-', ""),
        plain("zone_version"),
        plain("checks"),
        flag("blocked"),
        flag("critical"),
        plain("cost"),
        plain("spent"),
        plain("spent_total"),
        plain("remaining"),
        plain("zone_limit"),
        plain("retry_after_us"),
        plain("delay_us"),
        plain("level"),
        plain("strikes"),
        time("target_at"),
        time("created_at"),
        time("ends_at"),
        texts("kind"),
        texts("reason"),
        texts("member"),
        texts("note"),
        texts("actor"),
        texts("login"),
        plain("override_rate"),
        plain("override_window_us"),
        plain("override_burst"),
        plain("override_rate_gcd"),
        flag("override_ban_exempt"),
        plain("salt"),
        plain("row_hash"),
        head.to_owned(),
        // No older rows were removed.
        "-|-|-".to_owned(),
    ];
    columns.join("|")
}

/// In each format, what was exported is the ledger column by column; and with the document of the chain alone its hashes
/// follow from the files.
pub async fn what_is_exported_is_the_ledger_and_its_chain_in_every_format(db: Db) {
    let limiter = db.limiter().await;
    live(&limiter).await;
    // Pages end inside of a bucket and between two.
    for (key, checks) in [("hot", 2_500), ("hotter", 2_100)] {
        limiter.check_many(vec![Check::new("level", key); checks]).await.unwrap();
    }
    let keys: Vec<_> = (0..900).map(|n| Check::new("level", format!("key {n}"))).collect();
    for some in keys.chunks(100) {
        limiter.check_many(some.to_vec()).await.unwrap();
    }
    let ledger: Vec<String> =
        db.connect().await.texts(&row_text(db.engine)).await.iter().map(|row| row.to_lowercase()).collect();
    assert!(ledger.len() > 5_620, "{}", ledger.len());
    for format in [ExportFormat::Csv, ExportFormat::JsonLines, ExportFormat::Parquet] {
        let dir = TempDir::new().unwrap();
        let manifest = limiter.auditor().export(&of(dir.path(), format, 2_300), |_| ()).await.unwrap();
        assert_eq!((manifest.complete, manifest.rows, manifest.parts.len()), (true, ledger.len() as u64, 3));
        let rows = read(dir.path(), &manifest);
        let bucket = |row: &HashMap<String, String>| (row["zone_id"].clone(), row["bucket_key"].clone());
        let heads: HashMap<_, _> = rows.iter().map(|row| (bucket(row), row["row_hash"].clone())).collect();
        let texts: Vec<String> = rows.iter().map(|row| text(row, &heads[&bucket(row)])).collect();
        for (exported, recorded) in texts.iter().zip(&ledger) {
            assert_eq!(exported, recorded, "{format:?}");
        }
        assert_eq!(assert_rows_chained(&texts).0, ledger.len());
        for pair in rows.windows(2).filter(|pair| bucket(&pair[0]) == bucket(&pair[1])) {
            assert_eq!(pair[1]["prev_at"], pair[0]["created_at"]);
        }
    }
    // A part of it, by zone and time.
    let dir = TempDir::new().unwrap();
    let whole = limiter
        .auditor()
        .export(&of(&dir.path().join("1"), ExportFormat::Csv, 10_000), |_| ())
        .await
        .unwrap();
    let rows = read(&dir.path().join("1"), &whole);
    let of_level: Vec<_> = rows.iter().filter(|row| row["zone"] == "level").collect();
    let mut times: Vec<&String> = of_level.iter().map(|row| &row["created_at"]).collect();
    times.sort();
    let (since, until) = (times[10], times[30]);
    let part = Export {
        zone: Some("level".into()),
        since: Some(since.parse().unwrap()),
        until: Some(until.parse().unwrap()),
        ..of(&dir.path().join("2"), ExportFormat::Csv, 3)
    };
    let manifest = limiter.auditor().export(&part, |_| ()).await.unwrap();
    let wanted = of_level.into_iter().filter(|row| row["created_at"] >= *since && row["created_at"] < *until);
    assert_eq!(read(&part.to, &manifest).iter().collect::<Vec<_>>(), wanted.collect::<Vec<_>>());
}

pub async fn what_was_interrupted_is_gone_on_with_to_the_same_bytes(db: Db) {
    let limiter = db.limiter().await;
    live(&limiter).await;
    let dir = TempDir::new().unwrap();
    for format in [ExportFormat::Csv, ExportFormat::JsonLines, ExportFormat::Parquet] {
        let name = format!("{format:?}");
        let (whole, cut) = (dir.path().join(&name), dir.path().join(name + " cut"));
        let export = of(&whole, format, 11);
        let manifest = limiter.auditor().export(&export, |_| ()).await.unwrap();
        let parts = manifest.parts.len();
        assert!(parts > 9);
        for kept in [0, 1, 5, parts - 1, parts] {
            // As after a kill: some files are whole, the next one is not, and the manifest knows the whole ones.
            fs::create_dir(&cut).unwrap();
            let mut told: serde_json::Value =
                serde_json::from_str(&fs::read_to_string(whole.join("manifest.json")).unwrap()).unwrap();
            told["complete"] = false.into();
            told["rows"] = manifest.parts[..kept].iter().map(|part| part.rows).sum::<u64>().into();
            told["parts"].as_array_mut().unwrap().truncate(kept);
            fs::write(cut.join("manifest.json"), told.to_string()).unwrap();
            for part in &manifest.parts[..kept] {
                fs::copy(whole.join(&part.file), cut.join(&part.file)).unwrap();
            }
            if let Some(part) = manifest.parts.get(kept) {
                fs::write(cut.join(format!("{}.partial", part.file)), "half a row").unwrap();
            }
            // A row that comes meanwhile is younger.
            limiter.check(Check::new("level", "a")).await.unwrap();
            let export = Export { to: cut.clone(), until: None, ..export.clone() };
            limiter.auditor().export(&export, |_| ()).await.unwrap();
            let mut names: Vec<_> =
                fs::read_dir(&cut).unwrap().map(|file| file.unwrap().file_name()).collect();
            names.sort();
            assert_eq!(names.len(), parts + 2, "{names:?}");
            for name in names {
                assert!(
                    fs::read(whole.join(&name)).unwrap() == fs::read(cut.join(&name)).unwrap(),
                    "{name:?}"
                );
            }
            fs::remove_dir_all(&cut).unwrap();
        }
        // Again, there is nothing to do; something else is refused, and so is a file that was changed.
        let again = Export { until: None, ..export.clone() };
        assert_eq!(limiter.auditor().export(&again, |_| ()).await.unwrap(), manifest);
        let other = Export { part_rows: 12, ..again.clone() };
        let refused = limiter.auditor().export(&other, |_| ()).await.unwrap_err();
        assert!(refused.is_invalid() && refused.to_string().contains("other rows"), "{refused}");
        fs::write(whole.join(&manifest.parts[2].file), "less").unwrap();
        let refused = limiter.auditor().export(&again, |_| ()).await.unwrap_err();
        assert!(refused.to_string().contains("is not as it was written"), "{refused}");
    }
    let other = of(dir.path(), ExportFormat::Csv, 11);
    let refused = limiter.auditor().export(&other, |_| ()).await.unwrap_err();
    assert!(refused.to_string().contains("has other files"), "{refused}");
}
