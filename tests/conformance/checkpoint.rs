//! Checkpoints find what was done to the ledger of before them, and nothing else.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use sha2::{Digest, Sha256};
use tallygate::audit::chain::{self, Hash, hex, unhex};
use tallygate::audit::checkpoint::{Changed, Checkpoint, Proof};
use tallygate::audit::verify::Verify;
use tallygate::ledger::{Entry, History};
use tallygate::{Charged, Check, Limiter};
use tempfile::TempDir;

use crate::chain::unhex as bytes;
use crate::db::{Db, Engine, bucket, log};
use crate::removals::record_a_drop;
use crate::verify::verify;

/// Two zones with eight buckets of three rows each, a checkpoint of them, and its heads.
struct World {
    db: Db,
    limiter: Limiter,
    checkpoint: Checkpoint,
    heads: PathBuf,
    _dir: TempDir,
}

impl World {
    async fn create(db: Db) -> Self {
        let limiter = db.limiter().await;
        limiter.operator().set_zone("log", &log(2, 60), None, "test").await.unwrap();
        limiter.operator().set_zone("level", &bucket(3, 7, 4), Some("tokens"), "test").await.unwrap();
        limiter.operator().set_zone("empty", &log(1, 60), None, "test").await.unwrap();
        for zone in ["log", "level"] {
            for n in 0..8 {
                for _ in 0..3 {
                    limiter.check(Check::new(zone, format!("key {n}"))).await.unwrap();
                }
            }
        }
        let dir = TempDir::new().unwrap();
        let heads = dir.path().join("heads");
        let checkpoint = limiter.auditor().checkpoint(Duration::ZERO, Some(&heads), |_| ()).await.unwrap();
        assert_eq!((checkpoint.buckets, checkpoint.rows, checkpoint.zones.len()), (16, 48, 3));
        assert_eq!(std::fs::metadata(&heads).unwrap().len(), 16 * 76);
        Self { db, limiter, checkpoint, heads, _dir: dir }
    }

    /// The findings of a check, without the heads and with them: zone, what changed, and the key.
    async fn found(&self) -> (Vec<Changed>, Vec<(String, Changed, Option<String>)>) {
        let auditor = self.limiter.auditor();
        let zones = auditor.compare(&self.checkpoint, None, |_| ()).await.unwrap().differences;
        let named = auditor.compare(&self.checkpoint, Some(&self.heads), |_| ()).await.unwrap().differences;
        let named = named.into_iter().map(|found| (found.zone, found.changed, found.key)).collect();
        (zones.into_iter().map(|found| found.changed).collect(), named)
    }

    async fn assert_bucket_found(&self, changed: Changed, key: Option<&str>) {
        let key = key.map(str::to_owned);
        let named = vec![("log".to_owned(), Changed::Buckets, None), ("log".to_owned(), changed, key)];
        assert_eq!(self.found().await, (vec![Changed::Buckets], named));
    }

    async fn execute(&self, sql: &str) {
        self.db.execute(sql).await;
    }

    /// A hash in SQL.
    fn quoted(&self, hash: &Hash) -> String {
        let digits = hex(hash);
        if self.db.engine == Engine::Postgres {
            format!("decode('{digits}', 'hex')")
        } else {
            format!("x'{digits}'")
        }
    }

    async fn hex_of(&self, what: &str) -> String {
        let encoded = match self.db.engine {
            Engine::Postgres => what.replace("{", "encode(").replace("}", ", 'hex')"),
            _ => what.replace("{", "hex(").replace("}", ")"),
        };
        self.db.connect().await.texts(&encoded).await.remove(0).to_lowercase()
    }
}

pub async fn a_ledger_that_went_on_is_unaltered(db: Db) {
    let world = World::create(db).await;
    let limiter = &world.limiter;
    for zone in ["log", "level", "empty"] {
        for n in 4..12 {
            limiter.check(Check::new(zone, format!("key {n}"))).await.unwrap();
        }
    }
    limiter.operator().set_zone("log", &log(9, 60), None, "test").await.unwrap();
    limiter.operator().set_zone("new", &log(9, 60), None, "test").await.unwrap();
    limiter.check(Check::new("new", "key 1")).await.unwrap();
    limiter.operator().ban("log", "key 1", Duration::from_secs(5), "why", "who").await.unwrap();
    assert_eq!(world.found().await, (vec![], vec![]));
    // Nor when what follows from the ledger is made anew.
    world.execute("delete from zone_bucket_lock where bucket_key = 'key 2'").await;
    assert_eq!(world.found().await, (vec![], vec![]));
    let later = limiter.auditor().checkpoint(Duration::ZERO, None, |_| ()).await.unwrap();
    assert_eq!((later.buckets, later.rows), (16 + 8 + 8 + 1 - 8 + 8, 48 + 24 + 1 + 1));
    // Buckets come in pages.
    let many: Vec<_> = (0..2_100).map(|n| Check::new("empty", format!("many {n}"))).collect();
    for some in many.chunks(100) {
        limiter.check_many(some.to_vec()).await.unwrap();
    }
    let later = limiter.auditor().checkpoint(Duration::ZERO, None, |_| ()).await.unwrap();
    assert_eq!(later.buckets, 33 + 2_100);
    assert_eq!(limiter.auditor().compare(&later, None, |_| ()).await.unwrap().differences, []);
}

/// A row of a zone that has no bans, as it is hashed.
fn row_of(entry: &Entry) -> chain::Row<'_> {
    chain::Row {
        txn: entry.txn_id,
        seq: entry.seq,
        zone_version: entry.zone_version,
        checks: entry.checks,
        blocked: entry.blocked,
        band: None,
        critical: entry.critical,
        cost: entry.cost,
        spent: entry.spent,
        spent_total: entry.spent_total,
        remaining: entry.remaining,
        limit: 2,
        retry_after_us: entry.retry_after_us,
        delay_us: entry.delay_us,
        level: entry.level,
        strikes: 0,
        target_us: None,
        decided_us: entry.decided_at.timestamp_micros(),
        ends_us: None,
        kind: entry.kind,
        reason: entry.reason,
        member: None,
        note: None,
        actor: None,
        login: None,
        exception: None,
    }
}

/// A person who blocked a customer says that it was allowed, and mends the whole chain and the head behind
/// it.
pub async fn a_chain_that_was_rewritten_with_right_hashes_is_found(db: Db) {
    let world = World::create(db).await;
    let of =
        |key: &str| History { zone: Some("log".into()), key: Some(key.to_owned()), ..History::default() };
    let mut rows = world.limiter.auditor().history(&of("key 3")).await.unwrap().rows;
    rows.reverse();
    let bucket = "zone_id = 1 and bucket_key = 'key 3'";
    let salt =
        unhex(&world.hex_of(&format!("select {{salt}} from zone_txn where {bucket} and seq = 1")).await);
    let salt: chain::Salt = salt.unwrap();
    let start = chain::bucket(Some(&salt), 1, "key 3");
    let right = rows.iter().fold(start, |before, row| row_of(row).hash(&before, Some(&salt)));
    let recorded = world.hex_of(&format!("select {{row_hash}} from zone_bucket_lock where {bucket}")).await;
    assert_eq!(hex(&right), recorded, "the reckoning of this test is right");

    rows[0].remaining += 1;
    let mut hash = start;
    for row in &rows {
        hash = row_of(row).hash(&hash, Some(&salt));
        let (remaining, seq, hash) = (row.remaining, row.seq, world.quoted(&hash));
        world
            .execute(&format!(
                "update zone_txn set remaining = {remaining}, row_hash = {hash} where {bucket} and seq = {seq}"
            ))
            .await;
    }
    let hash = world.quoted(&hash);
    world.execute(&format!("update zone_bucket_lock set row_hash = {hash} where {bucket}")).await;
    world.assert_bucket_found(Changed::BucketRewritten, Some("key 3")).await;
}

pub async fn a_bucket_or_rows_that_were_removed_are_found(db: Db) {
    let world = World::create(db).await;
    world.execute("delete from zone_txn where zone_id = 1 and bucket_key = 'key 7' and seq = 3").await;
    world.assert_bucket_found(Changed::BucketShortened, Some("key 7")).await;
    // As after an older backup was restored, until something differs otherwise.
    let compare = async |heads| {
        let compared = world.limiter.auditor().compare(&world.checkpoint, heads, |_| ()).await.unwrap();
        (compared.ends_earlier, compared.unnamed)
    };
    assert_eq!((compare(Some(&*world.heads)).await, compare(None).await), ((true, 0), (false, 0)));
    world.execute("delete from zone_txn where zone_id = 1 and bucket_key = 'key 7'").await;
    world.execute("delete from zone_bucket_lock where zone_id = 1 and bucket_key = 'key 7'").await;
    world.assert_bucket_found(Changed::BucketGone, None).await;
    assert_eq!(compare(Some(&*world.heads)).await, (true, 0));
    let hash = world.quoted(&[7; 32]);
    for table in ["zone_txn", "zone_bucket_lock"] {
        let of = "where zone_id = 1 and bucket_key = 'key 2' and seq = 3";
        world.execute(&format!("update {table} set row_hash = {hash} {of}")).await;
    }
    assert_eq!(compare(Some(&*world.heads)).await, (false, 0));
}

pub async fn a_bucket_or_rows_with_old_times_are_found(db: Db) {
    let world = World::create(db).await;
    let copy = |key: &str, seq: &str, from: i64, of: &str| {
        format!(
            "insert into zone_txn (txn_id, zone_id, zone_version, bucket_key, seq, kind, blocked, reason, cost, spent,
                spent_total, remaining, zone_limit, created_at, prev_at, salt, row_hash)
            select txn_id, zone_id, zone_version, {key}, {seq}, kind, blocked, reason, cost, spent,
                spent_total, remaining, zone_limit, created_at, prev_at, salt, row_hash
            from zone_txn where zone_id = 1 and bucket_key = '{of}' and seq = {from}"
        )
    };
    world.execute(&copy("bucket_key", "4", 3, "key 0")).await;
    world.assert_bucket_found(Changed::BucketLengthened, Some("key 0")).await;
    world.execute("delete from zone_txn where zone_id = 1 and bucket_key = 'key 0' and seq = 4").await;
    assert_eq!(world.found().await, (vec![], vec![]));
    world.execute(&copy("'key 00'", "1", 1, "key 0")).await;
    world.assert_bucket_found(Changed::BucketAdded, Some("key 00")).await;
}

/// Rows of before that upkeep dropped are compared by the last of them; where that is younger, nothing is said of the bucket.
pub async fn what_was_dropped_is_compared_as_far_as_it_is_known(db: Db) {
    let world = World::create(db).await;
    let drop_up_to = async |key: &str, seq: i64| {
        let of = format!("zone_id = 1 and bucket_key = '{key}'");
        let columns =
            "zone_id, bucket_key, seq, zone_version, spent_total, level, strikes, created_at, row_hash";
        let salt = format!("(select f.salt from zone_txn f where {of} and f.seq = 1)");
        world
            .execute(&format!(
                "insert into zone_txn_dropped ({columns}, salt)
                select {columns}, {salt} from zone_txn where {of} and seq = {seq}"
            ))
            .await;
        world.execute(&format!("delete from zone_txn where {of} and seq <= {seq}")).await;
    };
    // Some rows, all of the time with one behind them, and all with the head.
    for _ in 0..2 {
        world.limiter.check(Check::new("log", "key 1")).await.unwrap();
        world.limiter.check(Check::new("log", "key 3")).await.unwrap();
    }
    // By a run that may have dropped them: the zone needs the last two minutes before it.
    let now_us = chrono::Utc::now().timestamp_micros();
    record_a_drop(&world.db, 1, now_us + 86_400_000_000, now_us + 3_600_000_000, 2 + 3 + 3 + 4).await;
    drop_up_to("key 0", 2).await;
    drop_up_to("key 1", 3).await;
    drop_up_to("key 2", 3).await;
    world.execute("delete from zone_bucket_lock where zone_id = 1 and bucket_key <= 'key 2'").await;
    assert_eq!(world.found().await, (vec![], vec![]));
    let later = world.limiter.auditor().checkpoint(Duration::ZERO, None, |_| ()).await.unwrap();
    assert_eq!((later.buckets, later.rows), (16, 48 + 4));

    drop_up_to("key 3", 4).await;
    let dropped = ("log".to_owned(), Changed::BucketsDropped, None);
    assert_eq!(world.found().await, (vec![Changed::BucketsDropped], vec![dropped.clone()]));
    let told = world.limiter.auditor().compare(&world.checkpoint, None, |_| ()).await.unwrap().differences;
    assert_eq!((told[0].was, told[0].is), (8, 1));
    // Its last row was decided by them: that is neither a fault nor explained.
    let only = Verify { zone: Some("log".into()), key: Some("key 3".into()), ..Verify::default() };
    let (verified, faults) = verify(&world.limiter, &only).await;
    assert_eq!((faults, verified.rows, verified.not_derivable), (vec![], 1, 1));
    let of = History { zone: only.zone, key: only.key, ..History::default() };
    let last = world.limiter.auditor().history(&of).await.unwrap().rows.remove(0);
    let explained = world.limiter.auditor().explain(last.txn_id, 9).await.unwrap().rows.remove(0);
    assert_eq!((explained.reproduced, explained.counted), (None, None));
    assert!(explained.missing.unwrap().contains("rows that were dropped"));

    // A remembered row is compared like a row; a bucket that is lost hides no other.
    let other = world.quoted(&chain::sha256(&[b"other"]));
    world
        .execute(&format!("update zone_txn_dropped set row_hash = {other} where bucket_key = 'key 2'"))
        .await;
    let zone = ("log".to_owned(), Changed::Buckets, None);
    let bucket = ("log".to_owned(), Changed::BucketRewritten, Some("key 2".to_owned()));
    assert_eq!(world.found().await, (vec![Changed::BucketsDropped], vec![dropped, zone, bucket]));
}

pub async fn a_version_that_was_edited_or_a_zone_that_was_removed_is_found(db: Db) {
    let world = World::create(db).await;
    // Any other hash stands for the right one of other words.
    let other = world.quoted(&chain::sha256(&[b"other"]));
    world
        .execute(&format!(
            "update zone_version set description = 'it was so', row_hash = {other} where zone_id = 2"
        ))
        .await;
    let versions = ("level".to_owned(), Changed::Versions, None);
    assert_eq!(world.found().await, (vec![Changed::Versions], vec![versions.clone()]));
    world.execute("delete from zone_version where zone_id = 3").await;
    let gone = ("empty".to_owned(), Changed::ZoneGone, None);
    assert_eq!(world.found().await.1, [gone, versions]);
}

pub async fn a_transaction_is_proven_by_two_files_alone(db: Db) {
    let world = World::create(db).await;
    let limiter = &world.limiter;
    let of =
        |key: &str| History { zone: Some("log".into()), key: Some(key.to_owned()), ..History::default() };
    for (key, seq) in [("key 0", 1), ("key 4", 2), ("key 7", 3)] {
        let mut rows = limiter.auditor().history(&of(key)).await.unwrap().rows;
        rows.retain(|row| row.seq == seq);
        let row = &rows[0];
        let proof = limiter.auditor().prove(row.txn_id, &world.checkpoint, true, 100).await.unwrap();
        let text = serde_json::to_string(&proof).unwrap();
        let proven = Proof::parse(&text).unwrap().check(&world.checkpoint).unwrap();
        assert_eq!(proven.len(), 1);
        let proven = &proven[0];
        let told = (proven.seq, proven.blocked, proven.cost, proven.remaining, proven.decided_at);
        assert_eq!(told, (row.seq, row.blocked, row.cost, row.remaining, row.decided_at));
        assert_eq!((proven.zone.as_str(), proven.key.as_deref()), ("log", Some(key)));
        assert_eq!((proven.kind.as_str(), proven.reason.as_str()), ("check", row.reason.as_str()));

        // Without disclosure nothing tells the key, nor does the salt that could be tried with.
        let proof = limiter.auditor().prove(row.txn_id, &world.checkpoint, false, 100).await.unwrap();
        assert_eq!(proof.buckets[0].disclosed, None);
        assert_eq!(proof.check(&world.checkpoint).unwrap()[0].key, None);
    }
    // With what came of it later, and no more rows than are allowed.
    let first = limiter.auditor().history(&of("key 4")).await.unwrap().rows.remove(2);
    limiter.refund(Charged::by(first.txn_id)).await.unwrap();
    let later = limiter.auditor().checkpoint(Duration::ZERO, None, |_| ()).await.unwrap();
    let proof = limiter.auditor().prove(first.txn_id, &later, false, 4).await.unwrap();
    let kinds: Vec<_> = proof.check(&later).unwrap().into_iter().map(|row| row.kind).collect();
    assert_eq!(kinds, ["check", "refund"]);
    assert!(limiter.auditor().prove(first.txn_id, &later, false, 3).await.unwrap_err().is_invalid());
    // Of another checkpoint, or of a younger transaction, there is no proof.
    assert!(proof.check(&world.checkpoint).unwrap_err().to_string().contains("is of the checkpoint"));
    let young = limiter.check(Check::new("log", "key 4")).await.unwrap();
    let refused = limiter.auditor().prove(young.txn_id, &later, false, 100).await.unwrap_err();
    assert!(refused.to_string().contains("is younger than the checkpoint"), "{refused}");
    // Nor of a ledger that is not what it was.
    world.execute("update zone_txn set cost = cost + 1 where bucket_key = 'key 4' and seq = 2").await;
    let refused = limiter.auditor().prove(first.txn_id, &later, false, 100).await.unwrap_err();
    assert!(refused.to_string().contains("not what their hashes say"), "{refused}");
    world.execute("delete from zone_txn where zone_id = 1 and bucket_key = 'key 5' and seq = 3").await;
    let refused = limiter.auditor().prove(first.txn_id, &later, false, 100).await.unwrap_err();
    assert!(refused.to_string().contains("not what it was at the checkpoint"), "{refused}");
}

/// From docs/chain.md and the rows, by a reckoning of its own.
pub async fn a_checkpoint_and_a_proof_are_what_the_document_says(db: Db) {
    let world = World::create(db).await;
    let rows = world.db.connect().await.texts(&crate::chain::row_text(world.db.engine)).await;
    let mut heads: BTreeMap<(i32, Vec<u8>), (u64, Vec<u8>)> = BTreeMap::new();
    let mut start = Vec::new();
    for row in rows {
        let columns: Vec<&str> = row.split('|').collect();
        let (zone, seq): (i32, u64) = (columns[0].parse().unwrap(), columns[2].parse().unwrap());
        if seq == 1 {
            start = digest(&[&bytes(columns[31]), &zone.to_be_bytes(), &bytes(columns[1])]);
        }
        heads.insert((zone, start.clone()), (seq, bytes(columns[32])));
    }
    let head = |zone: i32, start: &[u8], seq: u64, hash: &[u8]| {
        digest(&[&[0], &zone.to_be_bytes(), start, &seq.to_be_bytes(), hash])
    };
    let mut zones = Vec::new();
    for zone in &world.checkpoint.zones {
        let id = zone.zone_id;
        let of_zone = heads.iter().filter(|((zone, _), _)| *zone == id);
        let leaves: Vec<_> =
            of_zone.clone().map(|((zone, start), (seq, hash))| head(*zone, start, *seq, hash)).collect();
        assert_eq!((leaves.len() as u64, of_zone.map(|(_, (seq, _))| seq).sum()), (zone.buckets, zone.rows));
        assert_eq!(bytes(&zone.buckets_root), tree(&leaves));
        let version = format!(
            "select {{row_hash}} from zone_version where zone_id = {id} and version = {}",
            zone.version
        );
        assert_eq!(zone.version_hash, world.hex_of(&version).await);
        zones.push(digest(&[
            &[0],
            &digest(&[format!("{id}|{}", zone.zone).as_bytes()]),
            &id.to_be_bytes(),
            &zone.version.to_be_bytes(),
            &bytes(&zone.version_hash),
            &zone.buckets.to_be_bytes(),
            &zone.rows.to_be_bytes(),
            &tree(&leaves),
            &0_u64.to_be_bytes(),
            &digest(&[format!("removals|{id}").as_bytes()]),
        ]));
    }
    let Checkpoint { made_at, cut_at, root, .. } = &world.checkpoint;
    assert_eq!(bytes(root), tree(&zones));
    let at = |at: &chrono::DateTime<chrono::Utc>| at.format("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
    let text = format!("tallygate checkpoint 1\n{}\n{}\n{root}\n", at(made_at), at(cut_at));
    assert_eq!(bytes(&world.checkpoint.digest), digest(&[text.as_bytes()]));

    // The proof of a second row of three, in a tree of eight.
    let of = History { zone: Some("log".into()), key: Some("key 5".into()), ..History::default() };
    let row = world.limiter.auditor().history(&of).await.unwrap().rows.remove(1);
    let proof = world.limiter.auditor().prove(row.txn_id, &world.checkpoint, true, 9).await.unwrap();
    let bucket = &proof.buckets[0];
    let hash = bucket.rows.iter().fold(bytes(&bucket.before), |hash, row| digest(&[&hash, &bytes(row)]));
    let mut up = head(bucket.zone_id, &bytes(&bucket.start), 3, &hash);
    for (level, beside) in bucket.path.iter().enumerate() {
        let beside = bytes(beside);
        let is_right = bucket.index >> level & 1 == 1;
        up = if is_right { digest(&[&[1], &beside, &up]) } else { digest(&[&[1], &up, &beside]) };
    }
    assert_eq!((bucket.path.len(), bucket.rows.len()), (3, 2));
    assert_eq!(crate::chain::hex(&up), world.checkpoint.zones[0].buckets_root);
    assert_eq!(bytes(&bucket.rows[0])[..16], *row.txn_id.as_bytes());
    let disclosed = bucket.disclosed.as_ref().unwrap();
    let start = digest(&[&bytes(&disclosed.salt), &bucket.zone_id.to_be_bytes(), disclosed.key.as_bytes()]);
    assert_eq!(bytes(&bucket.start), start);
}

fn tree(leaves: &[Vec<u8>]) -> Vec<u8> {
    match leaves {
        [] => digest(&[]),
        [leaf] => leaf.clone(),
        _ => {
            let (left, right) = leaves.split_at(leaves.len().next_power_of_two() / 2);
            digest(&[&[1], &tree(left), &tree(right)])
        }
    }
}

fn digest(parts: &[&[u8]]) -> Vec<u8> {
    Sha256::digest(parts.concat()).to_vec()
}
