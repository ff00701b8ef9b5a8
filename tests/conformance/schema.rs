//! Migrating: once, however many start at once.

use futures_util::future::join_all;
use tallygate::{Limiter, Migrator};

use crate::db::Db;
use crate::rounds;

pub async fn twenty_migrators_at_once_all_succeed(db: Db) {
    for _ in 0..rounds(2, 10) {
        let empty = Db::create_empty(db.engine, "migrators").await;
        let migrate = (0..20).map(|_| {
            let migrator = Migrator::new(&empty.url).unwrap();
            tokio::spawn(async move { migrator.apply().await.unwrap().len() })
        });
        let applied: Vec<usize> = join_all(migrate).await.into_iter().map(Result::unwrap).collect();
        let all = Migrator::new(&empty.url).unwrap().migrations().len();
        assert_eq!(applied.iter().sum::<usize>(), all, "each migration ran once");
        assert_eq!(applied.iter().filter(|count| **count > 0).count(), 1, "one worked, the others waited");
        assert!(Migrator::new(&empty.url).unwrap().pending().await.unwrap().is_empty());
        Limiter::connect(&empty.url).await.unwrap();
    }
}

pub async fn migrating_again_changes_nothing(db: Db) {
    assert!(Migrator::new(&db.url).unwrap().apply().await.unwrap().is_empty());
    assert!(Migrator::new(&db.url).unwrap().pending().await.unwrap().is_empty());
}
