//! Checks on PostgreSQL.

use async_trait::async_trait;
use sqlx::{Connection, PgConnection, Row};
use tokio::time::Instant;

use super::session::Session;
use super::{Postgres, end, error, time};
use crate::chain::End;
use crate::decide::Head;
use crate::decision::Decision;
use crate::engine::{self, Answered, Fate, Loaded, Process, Remembering, Turn};
use crate::engine::{Passing, Request};
use crate::error::Result;
use crate::store::{Isolation, Terms, hash_of, salt_of};

impl Postgres {
    /// None for those of buckets that somebody else holds and that are not to be waited for: nothing is recorded for them.
    pub async fn decide(
        &self,
        requests: &[Request],
        passing: Passing,
        terms: Terms,
    ) -> Result<Vec<Option<Decision>>> {
        let mut lease = self.connections.lease(terms.until).await?;
        let (owner, isolation) = (Owner::by(terms), terms.isolation);
        let mut server = Server { connection: &mut lease, process: &self.process, owner, isolation };
        // Citus has no plan for a statement that passes over locked rows.
        let passing = match passing {
            Passing::Free if self.process.is_spread() => Passing::Each,
            passing => passing,
        };
        let decisions = self.process.decide(&mut server, requests, passing).await;
        lease.end(decisions)
    }

    /// The caller's own `lock_timeout` holds.
    pub async fn decide_in(
        &self,
        connection: &mut PgConnection,
        requests: &[Request],
        passing: Passing,
    ) -> Result<Vec<Decision>> {
        let mut server = Server::of_caller(connection, &self.process);
        self.process.decide_in(&mut server, requests, passing).await
    }
}

/// A connection, as a call decides on it.
pub(super) struct Server<'c> {
    pub connection: &'c mut PgConnection,
    pub process: &'c Process,
    pub owner: Owner,
    pub isolation: Isolation,
}

impl<'c> Server<'c> {
    /// On a connection with a transaction of the caller's, whose isolation is what it is.
    pub fn of_caller(connection: &'c mut PgConnection, process: &'c Process) -> Self {
        Self { connection, process, owner: Owner::Caller, isolation: Isolation::RowLock }
    }
}

#[async_trait]
impl engine::Server for Server<'_> {
    fn always_holds(&self) -> bool {
        self.process.is_spread()
    }

    async fn check_plain(&mut self, request: &Request) -> Result<Option<(Decision, Option<Loaded>)>> {
        let query = sqlx::query(include_str!("engine_check.sql"))
            .bind(request.zone_id)
            .bind(&request.key)
            .bind(request.txn)
            .bind(request.cost)
            .bind(request.record)
            .bind(!request.fresh)
            .bind(self.owner.lock_wait_ms());
        let row = match self.isolation {
            // A statement of its own is a transaction of its own.
            Isolation::RowLock => query.fetch_one(&mut *self.connection).await,
            Isolation::Serializable => {
                let begin = self.connection.begin_with("begin isolation level serializable");
                let mut tx = begin.await.map_err(error)?;
                let row = query.fetch_one(&mut *tx).await;
                if row.is_ok() { tx.commit().await } else { tx.rollback().await }.map_err(error)?;
                row
            }
        };
        let row = &match row {
            Err(sqlx::Error::Database(fault)) if fault.code().as_deref() == Some("TG012") => return Ok(None),
            row => row.map_err(error)?,
        };
        plain!(row, request)
    }

    async fn once(
        &mut self,
        requests: &[Request],
        passing: Passing,
        Turn { believe, hold }: Turn,
    ) -> Result<Vec<Answered>> {
        let Self { process, owner, isolation, .. } = *self;
        let skip_locked = passing.skips();
        if let Owner::Caller = owner {
            // It may be rolled back, so nothing is remembered.
            let connection = &mut *self.connection;
            let mut session = Session { connection, process, lock: true, skip_locked, owner };
            return engine::check(&mut session, requests, passing).await.map(|done| done.answers);
        }
        let begin = match isolation {
            Isolation::Serializable => Some("begin isolation level serializable"),
            Isolation::RowLock if hold => Some("begin isolation level read committed"),
            Isolation::RowLock => None,
        };
        // Citus has no plan for making a bucket and its row in one.
        let lock = hold && (isolation == Isolation::RowLock || process.is_spread());
        let session = |connection| {
            let session = Session { connection, process, lock, skip_locked, owner };
            Remembering::new(session, &process.memory, believe)
        };
        let Some(begin) = begin else {
            let done = engine::check(&mut session(&mut *self.connection), requests, passing).await;
            return done.map(|done| done.answers);
        };
        let mut tx = self.connection.begin_with(begin).await.map_err(error)?;
        let done = engine::check(&mut session(&mut tx), requests, passing).await.map(|done| done.answers);
        if done.as_ref().is_ok_and(|answers| answers.iter().any(Answered::is_undone)) {
            // The refusal has ended the transaction.
            tx.rollback().await.map_err(error)?;
            return Ok(requests.iter().map(|_| Answered::Undone(Fate::Stale)).collect());
        }
        end(tx, done).await
    }
}

/// The owner of the transaction that a decision is made in.
#[derive(Clone, Copy)]
pub(super) enum Owner {
    /// The call's own: it says how long to wait for locks, and the zones how long the commit waits for the disk.
    Call { lock_wait_ms: i32 },
    /// Nothing of it is ours to choose.
    Caller,
}

impl Owner {
    /// A call on such terms.
    pub fn by(terms: Terms) -> Self {
        let wait = terms.until.saturating_duration_since(Instant::now());
        Self::Call { lock_wait_ms: i32::try_from(wait.as_millis().max(1)).unwrap_or(i32::MAX) }
    }

    /// The longest wait for a lock; None where the session's own `lock_timeout` holds.
    pub fn lock_wait_ms(self) -> Option<i32> {
        match self {
            Self::Call { lock_wait_ms } => Some(lock_wait_ms),
            Self::Caller => None,
        }
    }

    pub fn is_call(self) -> bool {
        matches!(self, Self::Call { .. })
    }
}
