//! Which zones need not wait for the disk, as far as it is known before their policies are read.
//!
//! The wait of a commit is the connection's on SQLite, and must be chosen before the transaction begins.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use crate::engine::Request;
use crate::zone::Durability;

/// The zones that were relaxed when they were last read.
#[derive(Default)]
pub(super) struct Relaxed(Mutex<HashSet<i32>>);

impl Relaxed {
    /// True when each row that the requests leave is of one of them.
    pub fn has_all_of(&self, requests: &[Request]) -> bool {
        let zones = self.zones();
        requests.iter().filter(|request| request.leaves_row()).all(|request| zones.contains(&request.zone_id))
    }

    /// Takes note of zones that were just read.
    pub fn learn(&self, durabilities: impl IntoIterator<Item = (i32, Durability)>) {
        let mut zones = self.zones();
        for (zone_id, durability) in durabilities {
            match durability {
                Durability::Relaxed => zones.insert(zone_id),
                Durability::Durable => zones.remove(&zone_id),
            };
        }
    }

    fn zones(&self) -> std::sync::MutexGuard<'_, HashSet<i32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;
    use uuid::Uuid;

    use crate::store::connections::Connections;
    use crate::store::{Address, Isolation, Sqlite, Terms};
    use crate::zone::{Durability, Policy, ZoneSetting};

    use super::*;
    use crate::engine::Passing;

    /// Does a call commit on the quick connection? Any other one sees that somebody else committed.
    async fn commits_quickly(store: &Sqlite, zones: &[i32]) -> bool {
        let version = async || -> i64 {
            let mut lease = store.lease().await.unwrap();
            let version = sqlx::query_scalar("pragma data_version").fetch_one(&mut *lease).await.unwrap();
            lease.end(Ok(version)).unwrap()
        };
        let before = version().await;
        let request = |&zone_id: &i32| Request {
            zone: String::new(),
            zone_id,
            key: "42".to_owned(),
            txn: Uuid::now_v7(),
            cost: 1,
            fresh: true,
            record: false,
            critical: false,
            member: None,
            ttl_us: None,
            shape: None,
        };
        let terms = Terms { isolation: Isolation::RowLock, until: Instant::now() + Duration::from_secs(30) };
        let requests: Vec<_> = zones.iter().map(request).collect();
        let decisions = store.decide(&requests, Passing::Each, terms).await.unwrap();
        assert!(
            decisions.iter().all(|decision| decision.as_ref().is_some_and(|decision| decision.seq.is_some()))
        );
        version().await != before
    }

    async fn synchronous(connections: &Connections<sqlx::Sqlite>) -> i64 {
        let until = Instant::now() + Duration::from_secs(30);
        let mut lease = connections.lease(until).await.unwrap();
        let synchronous = sqlx::query_scalar("pragma synchronous").fetch_one(&mut *lease).await.unwrap();
        lease.end(Ok(synchronous)).unwrap()
    }

    #[tokio::test]
    async fn a_commit_waits_unless_every_zone_in_it_is_relaxed_now() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("test.db").display());
        let address = Address::parse(&url).unwrap();
        crate::migrate::Migrator::new(&url).unwrap().apply().await.unwrap();
        let store = Sqlite::connect(&address, 1, true).await.unwrap();
        assert_eq!(synchronous(&store.connections).await, 2, "full");
        assert_eq!(synchronous(store.quick.as_ref().unwrap()).await, 1, "normal");
        let durable = Policy::sliding_log(100, Duration::from_secs(60)).unwrap();
        let relaxed = durable.with_durability(Durability::Relaxed);
        let set = async |store: &Sqlite, name: &str, policy| {
            let setting = ZoneSetting { name: name.to_owned(), policy, description: None };
            store.set_zones(&[setting], "test").await.unwrap().remove(0).id
        };
        let zone = set(&store, "a", relaxed).await;
        let other = set(&store, "b", durable).await;
        assert!(!commits_quickly(&store, &[zone]).await, "not known yet");
        assert!(commits_quickly(&store, &[zone]).await);
        assert!(!commits_quickly(&store, &[other]).await);
        assert!(!commits_quickly(&store, &[zone, other]).await, "one durable zone is enough");
        assert!(commits_quickly(&store, &[zone, zone]).await);

        let process = Sqlite::connect(&address, 1, true).await.unwrap();
        set(&process, "a", durable).await;
        assert!(!commits_quickly(&store, &[zone]).await, "seen under the lock");
        set(&process, "a", relaxed).await;
        assert!(!commits_quickly(&store, &[zone]).await, "learned with the next check");
        assert!(commits_quickly(&store, &[zone]).await);
    }
}
