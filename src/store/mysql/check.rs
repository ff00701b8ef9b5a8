//! Checks on MySQL and MariaDB.

use async_trait::async_trait;
use sqlx::{Connection, MySqlConnection, Row};

use super::joined::Joined;
use super::session::Session;
use super::{BEGIN, BEGIN_SERIALIZABLE, MySql, end, ended, error, lock_wait_s, number_of_error, rows, time};
use crate::chain::End;
use crate::decide::Head;
use crate::decision::Decision;
use crate::engine::{self, Answered, Fate, Loaded, Process, Remembering, Turn};
use crate::engine::{Passing, Request};
use crate::error::{Error, Result};
use crate::store::{Isolation, Terms, hash_of, salt_of};

impl MySql {
    /// None for those of buckets that somebody else holds and that are not to be waited for: nothing is recorded for them.
    pub async fn decide(
        &self,
        requests: &[Request],
        passing: Passing,
        terms: Terms,
    ) -> Result<Vec<Option<Decision>>> {
        let mut lease = self.connections.lease(terms.until).await?;
        // Appended rows are compared with what the others append. Rows that are only looked at are not.
        if !requests.iter().any(Request::leaves_row)
            && let Err(error) = self.catch_up(&mut lease).await
        {
            return ended(lease, Err(error));
        }
        let (owner, isolation) = (Owner::by(terms), terms.isolation);
        let mut server = Server { connection: &mut lease, process: &self.process, owner, isolation };
        let decisions = self.process.decide(&mut server, requests, passing).await;
        ended(lease, decisions)
    }

    /// The caller's own `innodb_lock_wait_timeout` holds.
    pub async fn decide_in(
        &self,
        connection: &mut MySqlConnection,
        requests: &[Request],
        passing: Passing,
    ) -> Result<Vec<Decision>> {
        let mut server = Server::of_caller(connection, &self.process);
        self.process.decide_in(&mut server, requests, passing).await
    }
}

/// A connection, as a call decides on it.
pub(super) struct Server<'c> {
    pub connection: &'c mut MySqlConnection,
    pub process: &'c Process,
    pub owner: Owner,
    pub isolation: Isolation,
}

impl<'c> Server<'c> {
    /// On a connection with a transaction of the caller's.
    pub fn of_caller(connection: &'c mut MySqlConnection, process: &'c Process) -> Self {
        Self { connection, process, owner: Owner::Caller, isolation: Isolation::RowLock }
    }
}

#[async_trait]
impl engine::Server for Server<'_> {
    /// Under SERIALIZABLE these servers lock what is only read, and who has read cannot append before all others who have.
    fn always_holds(&self) -> bool {
        self.isolation == Isolation::Serializable
    }

    async fn check_plain(&mut self, request: &Request) -> Result<Option<(Decision, Option<Loaded>)>> {
        let call = "call zone_engine_check(?, ?, ?, ?, ?, ?, ?, ?)";
        let query = sqlx::query(call)
            .bind(request.zone_id)
            .bind(request.key.clone())
            .bind(request.txn)
            .bind(request.cost)
            .bind(request.record)
            .bind(!request.fresh)
            .bind(self.owner.lock_wait_s())
            .bind(self.isolation == Isolation::RowLock);
        let rows = match self.isolation {
            Isolation::RowLock => rows(self.connection, call, query, 1).await,
            Isolation::Serializable => {
                let mut tx = self.connection.begin_with(BEGIN_SERIALIZABLE).await.map_err(error)?;
                let told = rows(&mut tx, call, query, 1).await;
                end(tx, told).await
            }
        };
        let rows = match rows {
            Err(error) if number_of_error(&error) == 31012 => return Ok(None),
            rows => rows?,
        };
        let row = rows.first().ok_or_else(|| Error::database("a check got no decision"))?;
        plain!(row, request)
    }

    async fn once(
        &mut self,
        requests: &[Request],
        passing: Passing,
        Turn { believe, hold }: Turn,
    ) -> Result<Vec<Answered>> {
        let Self { process, owner, isolation, .. } = *self;
        let session = |connection, lock| {
            let (policies, lock_wait_s) = (&process.policies, owner.lock_wait_s());
            Session { connection, policies, lock, skip_locked: passing.skips(), lock_wait_s }
        };
        if let Owner::Caller = owner {
            // It may be rolled back, so nothing is remembered.
            let mut session = Joined::new(session(&mut *self.connection, true));
            return engine::check(&mut session, requests, passing).await.map(|done| done.answers);
        }
        let remembering = |session| Remembering::new(session, &process.memory, believe);
        // A bucket that is only looked at is neither held nor made.
        if !hold || !requests.iter().any(Request::leaves_row) {
            let mut session = remembering(session(&mut *self.connection, false));
            return engine::check(&mut session, requests, passing).await.map(|done| done.answers);
        }
        let begin = match isolation {
            Isolation::RowLock => BEGIN,
            Isolation::Serializable => BEGIN_SERIALIZABLE,
        };
        let mut tx = self.connection.begin_with(begin).await.map_err(error)?;
        let done = engine::check(&mut remembering(session(&mut tx, true)), requests, passing).await;
        let done = done.map(|done| done.answers);
        if done.as_ref().is_ok_and(|answers| answers.iter().any(Answered::is_undone)) {
            // Of what was refused something may have been written.
            tx.rollback().await.map_err(error)?;
            return Ok(requests.iter().map(|_| Answered::Undone(Fate::Stale)).collect());
        }
        end(tx, done).await
    }
}

/// The owner of the transaction that a decision is made in.
#[derive(Clone, Copy)]
pub(super) enum Owner {
    /// The call's own: it says how long to wait for locks.
    Call { lock_wait_s: i32 },
    /// Nothing of it is ours to choose.
    Caller,
}

impl Owner {
    /// A call on such terms.
    pub fn by(terms: Terms) -> Self {
        Self::Call { lock_wait_s: lock_wait_s(terms) }
    }

    /// The longest wait for a lock; None where the session's own `innodb_lock_wait_timeout` holds.
    fn lock_wait_s(self) -> Option<i32> {
        match self {
            Self::Call { lock_wait_s } => Some(lock_wait_s),
            Self::Caller => None,
        }
    }
}
