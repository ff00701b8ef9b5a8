//! The rules of time zones: a zone is decided by those that it was set with, whichever this process has.

use chrono::{Timelike, Utc};
use tallygate::audit::verify::Verify;
use tallygate::policy::{CalendarUnit, TimeZoneName, Zone};
use tallygate::{Check, Limiter, Policy};

use crate::db::Db;
use crate::verify::verify;

/// Rules of a release, by which the clock of Vancouver shows so many hours now.
fn showing(hours: u32, release: &str) -> TimeZoneName {
    let offset_s = i64::from(hours * 3_600) - i64::from(Utc::now().num_seconds_from_midnight());
    TimeZoneName::with_clock("America/Vancouver", &format!("{release} {offset_s}")).unwrap()
}

/// Two in each day.
fn daily(time_zone: TimeZoneName) -> Policy {
    Policy::calendar(2, CalendarUnit::Day, time_zone).unwrap()
}

async fn set(limiter: &Limiter, policy: &Policy) -> Zone {
    limiter.operator().set_zone("daily", policy, None, "test").await.unwrap()
}

/// Of three checks those that pass, and the full hours until the day of the last is over.
async fn three(limiter: &Limiter) -> (usize, i64) {
    let (mut passed, mut wait_us) = (0, 0);
    for _ in 0..3 {
        let decided = limiter.check(Check::new("daily", "42")).await.unwrap();
        passed += usize::from(decided.is_allowed());
        wait_us = decided.retry_after_us.unwrap_or_default();
    }
    (passed, wait_us / 3_600_000_000)
}

pub async fn a_zone_is_decided_by_the_rules_that_it_was_set_with(db: Db) {
    let limiter = db.limiter().await;
    let own: TimeZoneName = "America/Vancouver".parse().unwrap();
    // Six hours from what this process knows.
    let policy = daily(showing((own.shows(Utc::now()).hour() + 6) % 24, "1999a"));
    let hours = policy.by_calendar().unwrap().time_zone.shows(Utc::now()).hour();
    let zone = set(&limiter, &policy).await;
    // Another limiter knows them from the database alone.
    let limiter = db.limiter().await;
    assert_eq!(three(&limiter).await, (2, i64::from(23 - hours)));
    assert_eq!(limiter.peek("daily", "42").await.unwrap().remaining, 0);
    let versions = limiter.operator().zone_versions(&zone).await.unwrap();
    assert_eq!(versions[0].policy, policy);
    assert_ne!(versions[0].policy, daily(own));
    assert_eq!(verify(&limiter, &Verify::default()).await.1, []);
}

pub async fn later_rules_are_a_new_version_and_older_ones_never_come_back(db: Db) {
    let limiter = &db.limiter().await;
    let old = daily(showing(1, "1999a"));
    assert_eq!(set(limiter, &old).await.version, 1);
    assert_eq!(set(limiter, &old).await.version, 1);
    assert_eq!(three(limiter).await, (2, 22));
    let later = showing(23, "2999b");
    let zone = set(limiter, &daily(later)).await;
    assert_eq!((zone.version, zone.policy), (2, daily(later)));
    // The same day, but an hour before its end.
    assert_eq!(three(limiter).await, (0, 0));
    let offset_s = later.shows(Utc::now()).offset().local_minus_utc();
    let same = TimeZoneName::with_clock("America/Vancouver", &format!("2999c {offset_s}")).unwrap();
    let own: TimeZoneName = "America/Vancouver".parse().unwrap();
    for other in [old, daily(showing(1, "2999b")), daily(same), daily(own)] {
        let zone = set(limiter, &other).await;
        assert_eq!((zone.version, zone.policy), (2, daily(later)), "{other:?}");
    }
    let softer = set(limiter, &old.with_soft_rate(Some(1))).await;
    assert_eq!((softer.version, softer.policy), (3, daily(later).with_soft_rate(Some(1))));
    let tokyo = daily(TimeZoneName::with_clock("Asia/Tokyo", "1999a 32400").unwrap());
    assert_eq!(set(limiter, &tokyo).await.policy, tokyo, "the rules of another time zone");
    assert_eq!(verify(limiter, &Verify::default()).await.1, []);
}

pub async fn stored_rules_that_cannot_be_read_are_told_by_table_and_column(db: Db) {
    let zone = set(&db.limiter().await, &daily(showing(1, "1999a"))).await;
    let mut owner = db.connect().await;
    for table in ["zone_master", "zone_version"] {
        owner.execute(&format!("update {table} set clock = '2026c 0 5:5 \u{1b}[2J'")).await.unwrap();
    }
    let reader = db.limiter().await;
    for (table, error) in [
        ("zone_master", reader.operator().zones().await.unwrap_err()),
        ("zone_version", reader.operator().zone_versions(&zone).await.unwrap_err()),
        ("zone_", reader.auditor().verify(&Verify::default(), |_| ()).await.unwrap_err()),
    ] {
        let told = error.to_string();
        assert!(told.starts_with(table) && told.contains("\"clock\""), "{told}");
        assert!(!told.contains('\u{1b}') && !error.is_transient(), "{told}");
    }
}
