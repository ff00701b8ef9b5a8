//! Reports, beside a naive recount of the ledger.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use tallygate::audit::report::{
    Act, Acts, Before, BlockedBucket, Counts, Grain, NearBucket, Report, ReportOn, Sum, Timeline, Top,
    Volume, ZoneReport,
};
use tallygate::ledger::{Entry, History, Kind};
use tallygate::policy::{BanRule, BlockedRows, Limit, Mode, Override};
use tallygate::{Check, Limiter, Policy, Reason};
use uuid::Uuid;

use crate::db::{Clocked, Db, log};

const START_US: i64 = 1_800_000_000_000_000; // 2027-01-15 08:00 UTC
const ZONES: [&str; 6] = ["bulk", "idle", "login", "payments", "slots", "trial"];
/// More than a page of rows.
const BULK: usize = 10_500;

fn at(us: i64) -> DateTime<Utc> {
    DateTime::from_timestamp_micros(START_US + us).unwrap()
}

/// Two days in which everything happens that a ledger records.
async fn fill(db: &Db, clocked: &Clocked) {
    let limiter = &clocked.limiter;
    let minute = Duration::from_secs(60);
    let slots = Policy::concurrency(2, minute).unwrap();
    let ban = BanRule::new(3, minute, 2 * minute);
    clocked.set(START_US).await;
    for (zone, policy) in [
        ("bulk", log(3, 60).with_blocked_rows(BlockedRows::Coalesced)),
        ("idle", log(3, 60)),
        ("login", log(4, 60).with_soft_rate(Some(3)).with_ban(Some(ban))),
        ("payments", log(100, 60)),
        ("slots", slots),
        ("trial", log(2, 60).with_mode(Mode::Shadow)),
    ] {
        limiter.operator().set_zone(zone, &policy, None, "alice").await.unwrap();
    }
    let mut us = 0;
    for n in 0..240_u64 {
        // Some close together, some an hour apart.
        us += [1_000_000, 7_000_000, 0, 1_500_000_000][n as usize % 4];
        clocked.set(START_US + us).await;
        let key = ["<script>alert(1)</script>", "b", "c", "d", "e"][(n * n % 5) as usize];
        let txn = Uuid::now_v7();
        let slot = Check::new("slots", key).txn(txn);
        match n % 6 {
            0 | 1 => {
                for _ in 0..n % 7 {
                    limiter.check(Check::new("login", key)).await.unwrap();
                }
            }
            2 => {
                for _ in 0..4 {
                    limiter.check(Check::new("trial", key)).await.unwrap();
                }
            }
            3 if limiter.check(slot).await.unwrap().is_allowed() => drop(limiter.release(txn).await.unwrap()),
            4 if limiter.check(Check::new("payments", key).cost(30).txn(txn)).await.unwrap().is_allowed() => {
                drop(limiter.refund(txn).await.unwrap());
            }
            _ => {
                let reserved = limiter
                    .reserve(Check::new("payments", key).cost(n as i64).txn(txn), minute)
                    .await
                    .unwrap();
                match reserved.blocked {
                    true => {}
                    false if n % 4 == 1 => drop(limiter.cancel(txn).await.unwrap()),
                    false => drop(limiter.settle(txn, n as i64 / 2).await.unwrap()),
                }
            }
        }
    }
    limiter.operator().ban("login", "b", minute, "stuffing", "dora").await.unwrap();
    clocked.set(START_US + us + 1).await;
    limiter.operator().unban("login", "b", "a mistake", "dora").await.unwrap();
    clocked.set(START_US + us + 2).await;
    let limit = Some(Limit::new(50, minute, None).unwrap());
    let office = Override { limit, ban_exempt: false, for_us: None };
    limiter.operator().set_override("payments", "office", office, "more cards", "dora").await.unwrap();
    limiter.check(Check::new("payments", "office").cost(45)).await.unwrap();
    limiter.operator().remove_override("payments", "office", "moved", "erin").await.unwrap();
    let id =
        |zones: &[tallygate::policy::Zone], name| zones.iter().find(|zone| zone.name == name).unwrap().id;
    let zones = limiter.operator().zones().await.unwrap();
    for cost in [3, 1] {
        limiter.check(Check::new("bulk", "flood").cost(cost)).await.unwrap();
    }
    clocked.limiter.record_blocked(id(&zones, "bulk"), "flood", Uuid::now_v7(), 1, 17).await.unwrap();
    // At one time, so that a page ends between rows of the same time.
    for checks in (0..BULK).collect::<Vec<_>>().chunks(BULK / 3) {
        let check = |n: &usize| Check::new("bulk", format!("key {}", n * n % 4_001));
        limiter.check_many(checks.iter().map(check).collect()).await.unwrap();
    }
    limiter.check(Check::new("bulk", "outage")).await.unwrap();
    db.execute(
        "update zone_txn set kind = 'unchecked', reason = 'unchecked', spent = 0 where bucket_key = 'outage'",
    )
    .await;
    limiter.operator().set_zone("login", &log(6, 60), Some("logins"), "bob").await.unwrap();
}

pub async fn a_report_says_what_a_recount_of_the_ledger_says(db: Db) {
    let clocked = Clocked::create(&db).await;
    fill(&db, &clocked).await;
    let limiter = db.limiter().await;
    let whole = ReportOn { since: Some(at(0)), until: Some(at(30 * 86_400_000_000)), ..ReportOn::default() };
    let (zone, cut) = (Some("login".to_owned()), Some(at(40_000_000_000)));
    let mut parts = Vec::new();
    for (on, grain) in [
        (whole.clone(), Grain::Day),
        (ReportOn { until: Some(at(2 * 86_400_000_000)), top: 3, ..whole.clone() }, Grain::Hour),
        (ReportOn { zone: zone.clone(), since: cut, ..whole.clone() }, Grain::Day),
        (ReportOn { zone, since: cut, until: Some(at(50_000_000_000)), top: 1 }, Grain::Minute),
    ] {
        parts.clear();
        let report = limiter.auditor().report(&on, |part| parts.push(part)).await.unwrap();
        let mut recount = recount(&limiter, &on, grain).await;
        // The rows have a clock of their own, which may be ahead of the machine's.
        (recount.changes, recount.ahead) = (report.changes.clone(), report.ahead.clone());
        assert_eq!(report, recount, "{on:?}");
        assert!(parts.is_sorted() && parts.iter().all(|part| (0.0..=1.0).contains(part)), "{parts:?}");
    }

    // The recount cannot be wrong about this together with the report.
    let report = limiter.auditor().report(&whole, |_| ()).await.unwrap();
    let zone = |name| report.zones.iter().find(|zone| zone.zone == name).unwrap();
    let Counts { checks, coalesced, unchecked, .. } = zone("bulk").counts;
    assert_eq!((checks, coalesced, unchecked), (BULK as u64 + 2 + 17 + 1, 17, 1));
    assert_eq!(zone("idle").counts, Counts::default());
    for (name, count) in [
        ("soft", zone("login").counts.soft),
        ("bans", zone("login").bans),
        ("shadowed", zone("trial").counts.shadowed),
        ("blocked", zone("payments").counts.blocked),
    ] {
        assert!(count > 0, "nothing was {name}");
    }
    let undone: BTreeSet<_> =
        report.zones.iter().flat_map(|zone| zone.undone.keys().map(|kind| kind.as_str())).collect();
    assert_eq!(undone.into_iter().collect::<Vec<_>>(), ["cancel", "refund", "release", "settle"]);
    let acts: Vec<_> = report.actions.newest.iter().rev().map(|act| (act.kind.as_str(), act.limit)).collect();
    assert_eq!(
        acts,
        [("ban", None), ("unban", None), ("override", Some(50)), ("override_end", Some(100))],
        "{acts:?}"
    );

    // Zones change at the database's own time, whatever the test's clock says.
    let ever = ReportOn { since: Some(at(-START_US)), until: Some(at(START_US)), ..ReportOn::default() };
    let changes = limiter.auditor().report(&ever, |_| ()).await.unwrap().changes;
    assert_eq!(changes.len(), ZONES.len() + 1);
    let last = changes.last().unwrap();
    assert_eq!((last.zone.as_str(), last.version, last.changed_by.as_str()), ("login", 2, "bob"));
    let fields: Vec<_> = last.fields.iter().map(|f| format!("{}: {} to {}", f.field, f.from, f.to)).collect();
    assert_eq!(fields.len(), 4, "{fields:?}");
    for field in ["description: \"\" to \"logins\"", "rate: 4 to 6", "soft_rate: 3 to null"] {
        assert!(fields.iter().any(|f| f == field), "{fields:?}");
    }
    let made = changes.iter().find(|change| change.zone == "slots").unwrap();
    assert_eq!((made.version, made.changed_by.as_str(), made.fields.len()), (1, "alice", 0));
}

pub async fn what_cannot_be_reported_on_is_refused(db: Db) {
    let limiter = db.limiter().await;
    let now = Utc::now();
    for (on, because) in [
        (ReportOn { zone: Some("nowhere".into()), ..ReportOn::default() }, "there is no zone \"nowhere\""),
        (ReportOn { zone: Some("a\nb".into()), ..ReportOn::default() }, "cannot be used"),
        (
            ReportOn { since: Some(now), until: Some(now - TimeDelta::hours(1)), ..ReportOn::default() },
            "swap them",
        ),
        (ReportOn { top: 0, ..ReportOn::default() }, "use 1 to 1000"),
        (ReportOn { top: 1_001, ..ReportOn::default() }, "use 1 to 1000"),
    ] {
        let error = limiter.auditor().report(&on, |_| ()).await.unwrap_err();
        assert_eq!(error.is_unknown_zone(), because.contains("there is no zone"), "{error}");
        assert!(error.is_unknown_zone() || error.is_invalid(), "{error}");
        assert!(error.to_string().contains(because), "{error}");
    }
    // Nothing is no error.
    for since in [None, Some(now + TimeDelta::days(1)), Some(DateTime::<Utc>::MIN_UTC)] {
        let report =
            limiter.auditor().report(&ReportOn { since, ..ReportOn::default() }, |_| ()).await.unwrap();
        assert_eq!((report.rows, report.zones.len()), (0, 0));
    }
}

/// All rows of a time.
async fn rows(limiter: &Limiter, on: &ReportOn) -> Vec<Entry> {
    let mut history = History {
        zone: on.zone.clone(),
        since: on.since,
        until: on.until,
        limit: 10_000,
        ..History::default()
    };
    let mut rows = Vec::new();
    loop {
        let page = limiter.auditor().history(&history).await.unwrap();
        rows.extend(page.rows);
        history.before = page.next;
        if history.before.is_none() {
            return rows;
        }
    }
}

/// As long a time before, from all of its rows at once.
async fn recount_before(limiter: &Limiter, on: &ReportOn) -> Before {
    let (until, end) = (on.since.unwrap(), on.until.unwrap());
    let since = until - (end - until);
    let rows = rows(limiter, &ReportOn { since: Some(since), until: Some(until), ..on.clone() }).await;
    Before {
        since,
        until,
        first_at: rows.iter().map(|row| row.decided_at).min(),
        zones: zone_reports(on, &rows),
    }
}

/// Slices of the first length with which there are no more than 120.
fn timeline(decisions: &[&Entry], zones: &[&str]) -> Timeline {
    const MONDAY_US: i64 = 4 * 86_400_000_000;
    let moments = || decisions.iter().map(|row| row.decided_at.timestamp_micros() - MONDAY_US);
    let slice_us =
        [100_000, 1_000_000, 10_000_000, 60_000_000, 600_000_000, 3_600_000_000_i64].into_iter().find(|us| {
            let numbers = || moments().map(|moment| moment.div_euclid(*us));
            numbers().max().unwrap_or(0) - numbers().min().unwrap_or(0) < 120
        });
    let slice_us = slice_us.unwrap();
    let slice = |row: &Entry| (row.decided_at.timestamp_micros() - MONDAY_US).div_euclid(slice_us);
    let mut slices = Vec::new();
    for number in decisions.iter().map(|row| slice(row)).collect::<BTreeSet<_>>() {
        for zone in zones {
            let rows: Vec<_> =
                decisions.iter().copied().filter(|row| row.zone == *zone && slice(row) == number).collect();
            if !rows.is_empty() {
                let starts_at = DateTime::from_timestamp_micros(number * slice_us + MONDAY_US).unwrap();
                slices.push(Volume { starts_at, zone: (*zone).to_owned(), counts: counts(&rows) });
            }
        }
    }
    Timeline { slice_us, slices }
}

/// The report, from all rows at once.
async fn recount(limiter: &Limiter, on: &ReportOn, grain: Grain) -> Report {
    let rows = rows(limiter, on).await;
    let length_us = [(Grain::Minute, 60), (Grain::Hour, 3_600), (Grain::Day, 86_400)]
        .into_iter()
        .find_map(|(of, seconds)| (of == grain).then_some(seconds * 1_000_000))
        .unwrap();
    let starts_at = |row: &Entry| {
        let us = row.decided_at.timestamp_micros();
        DateTime::from_timestamp_micros(us - us % length_us).unwrap()
    };
    let decisions: Vec<&Entry> = rows.iter().filter(|row| row.reason != Reason::Recorded).collect();
    let zones: Vec<&str> =
        ZONES.into_iter().filter(|name| on.zone.as_deref().is_none_or(|zone| zone == *name)).collect();
    let of =
        |zone: &str| -> Vec<&Entry> { decisions.iter().copied().filter(|row| row.zone == zone).collect() };

    let mut volumes = Vec::new();
    for starts_at_this in decisions.iter().map(|row| starts_at(row)).collect::<BTreeSet<_>>() {
        for zone in &zones {
            let rows: Vec<_> = of(zone).into_iter().filter(|row| starts_at(row) == starts_at_this).collect();
            if !rows.is_empty() {
                volumes.push(Volume {
                    starts_at: starts_at_this,
                    zone: (*zone).to_owned(),
                    counts: counts(&rows),
                });
            }
        }
    }
    Report {
        since: on.since.unwrap(),
        until: on.until.unwrap(),
        rows: rows.len() as u64,
        grain,
        timeline: timeline(&decisions, &zones),
        before: Some(recount_before(limiter, on).await),
        zones: zone_reports(on, &rows),
        volumes,
        blocked_most: most(&decisions, on.top, |row| row.blocked),
        shadowed_most: most(&decisions, on.top, |row| !row.blocked && !row.reason.allows()),
        near_limit: nearest(&decisions, on.top),
        bans: acts(rows.iter().filter(|row| is_ban(row)).collect()),
        actions: acts(rows.iter().filter(|row| is_act(row)).collect()),
        changes: Vec::new(),
        ahead: BTreeMap::new(),
    }
}

fn is_ban(row: &Entry) -> bool {
    row.kind == Kind::Ban && row.actor.is_none()
}

fn is_act(row: &Entry) -> bool {
    ["ban", "unban", "override", "override_end"].contains(&row.kind.as_str()) && row.actor.is_some()
}

fn zone_reports(on: &ReportOn, rows: &[Entry]) -> Vec<ZoneReport> {
    let zones = ZONES.into_iter().filter(|name| on.zone.as_deref().is_none_or(|zone| zone == *name));
    let report = |zone: &str| {
        let all: Vec<&Entry> = rows.iter().filter(|row| row.zone == zone).collect();
        let decided: Vec<_> = all.iter().copied().filter(|row| row.reason != Reason::Recorded).collect();
        let counts = counts(&decided);
        let mut reasons = BTreeMap::new();
        for row in &decided {
            *reasons.entry(row.reason.as_str()).or_default() += row.checks as u64;
        }
        let mut undone = BTreeMap::<Kind, Sum>::new();
        for row in all.iter().filter(|row| row.kind.is_undo()) {
            let undone = undone.entry(row.kind).or_default();
            *undone = Sum { rows: undone.rows + 1, cost: undone.cost + row.cost };
        }
        ZoneReport {
            zone: zone.to_owned(),
            counts,
            blocked_share: if counts.checks == 0 {
                0.0
            } else {
                counts.blocked as f64 / counts.checks as f64
            },
            reasons,
            undone,
            handed_out: BTreeMap::new(),
            bans: all.iter().filter(|row| is_ban(row)).count() as u64,
            actions: all.iter().filter(|row| is_act(row)).count() as u64,
        }
    };
    zones.map(report).collect()
}

fn counts(rows: &[&Entry]) -> Counts {
    let sum = |of: fn(&Entry) -> bool| rows.iter().filter(|row| of(row)).map(|row| row.checks as u64).sum();
    Counts {
        checks: sum(|_| true),
        allowed: sum(|row| !row.blocked),
        blocked: sum(|row| row.blocked),
        soft: sum(|row| row.reason == Reason::Soft),
        shadowed: sum(|row| !row.blocked && !row.reason.allows()),
        coalesced: sum(|row| row.kind == Kind::Coalesced),
        unchecked: sum(|row| row.kind == Kind::Unchecked),
    }
}

type Buckets<'r> = BTreeMap<(&'r str, &'r str), Vec<&'r Entry>>;

fn by_bucket<'r>(rows: &[&'r Entry]) -> Buckets<'r> {
    let mut buckets = Buckets::new();
    for row in rows {
        buckets.entry((&row.zone, &row.key)).or_default().push(row);
    }
    buckets
}

fn most(rows: &[&Entry], top: u32, counted: fn(&Entry) -> bool) -> Top<BlockedBucket> {
    let rows: Vec<_> = rows.iter().copied().filter(|row| counted(row)).collect();
    let bucket = |((zone, key), rows): ((&str, &str), Vec<&Entry>)| BlockedBucket {
        zone: zone.to_owned(),
        key: key.to_owned(),
        blocked: rows.iter().map(|row| row.checks as u64).sum(),
        error: 0,
        first_at: rows.iter().map(|row| row.decided_at).min().unwrap(),
        last_at: rows.iter().map(|row| row.decided_at).max().unwrap(),
        last_txn: rows.iter().max_by_key(|row| (row.decided_at, row.id)).unwrap().txn_id,
    };
    let mut buckets: Vec<_> = by_bucket(&rows).into_iter().map(bucket).collect();
    buckets.sort_by_key(|bucket| Reverse(bucket.blocked));
    buckets.truncate(top as usize);
    Top { exact: true, buckets }
}

fn nearest(rows: &[&Entry], top: u32) -> Top<NearBucket> {
    let limit = |zone: &str, key: &str| match (zone, key) {
        ("payments", "office") => 50,
        ("payments", _) => 100,
        ("login", _) => 4,
        ("bulk", _) => 3,
        _ => 2,
    };
    let mut buckets = Vec::new();
    for ((zone, key), rows) in by_bucket(rows) {
        if !rows.iter().all(|row| row.reason.allows()) {
            continue;
        }
        let rows: Vec<_> = rows.into_iter().filter(|row| row.kind != Kind::Unchecked).collect();
        if let Some(row) = rows.iter().min_by_key(|row| (row.remaining, Reverse((row.decided_at, row.id)))) {
            let (zone, key, limit) = (zone.to_owned(), key.to_owned(), limit(zone, key));
            let (remaining, decided_at, txn_id) = (row.remaining, row.decided_at, row.txn_id);
            let as_little = rows.iter().filter(|other| other.remaining == remaining);
            let checks = as_little.map(|row| row.checks as u64).sum();
            buckets.push(NearBucket { zone, key, remaining, limit, decided_at, txn_id, checks });
        }
    }
    buckets.sort_by_key(|bucket| {
        // Every limit divides it.
        let parts = bucket.remaining * (600 / bucket.limit);
        (parts, Reverse(bucket.decided_at))
    });
    buckets.truncate(top as usize);
    Top { exact: true, buckets }
}

fn acts(mut rows: Vec<&Entry>) -> Acts {
    rows.sort_by_key(|row| (Reverse(row.decided_at), row.zone.clone(), Reverse(row.id)));
    let act = |row: &&Entry| Act {
        recorded_at: row.decided_at,
        txn_id: row.txn_id,
        zone: row.zone.clone(),
        key: row.key.clone(),
        kind: row.kind,
        ends_at: row.ends_at,
        limit: match row.kind.as_str() {
            "override" => Some(50),
            "override_end" => Some(100),
            _ => None,
        },
        actor: row.actor.clone(),
        login: row.login.clone(),
        note: row.note.clone(),
    };
    Acts { total: rows.len() as u64, newest: rows.iter().take(1_000).map(act).collect() }
}
