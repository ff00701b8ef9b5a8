//! Checks on PostgreSQL.

use async_trait::async_trait;
use sqlx::postgres::PgRow;
use sqlx::{Connection, PgConnection, Row};
use tokio::time::Instant;

use super::distributed::is_distributed;
use super::session::Session;
use super::{Postgres, end, error, time, time_if};
use crate::decision::Decision;
use crate::engine::{self, Answered, Fate, Process, Remembering, Turn};
use crate::engine::{Action, Passing, Request};
use crate::entry::Recorded;
use crate::error::{Error, Result};
use crate::store::{Isolation, Terms, all};

impl Postgres {
    pub async fn check(&self, requests: &[Request], terms: Terms) -> Result<Vec<Decision>> {
        all(self.check_each(requests, terms, Passing::Each).await?)
    }

    /// As `check`, but what somebody else holds is not waited for: None, and nothing is recorded for it.
    pub async fn check_free(&self, requests: &[Request], terms: Terms) -> Result<Vec<Option<Decision>>> {
        self.check_each(requests, terms, Passing::Free).await
    }

    pub async fn check_all(&self, requests: &[Request], terms: Terms) -> Result<Vec<Decision>> {
        all(self.check_each(requests, terms, Passing::Together).await?)
    }

    async fn check_each(
        &self,
        requests: &[Request],
        terms: Terms,
        passing: Passing,
    ) -> Result<Vec<Option<Decision>>> {
        let mut lease = self.connections.lease(terms.until).await?;
        let decisions = match self.by_engine(&mut lease, requests, terms, passing).await {
            Some(decisions) => decisions,
            None => check_on(&mut lease, requests, terms, passing).await,
        };
        lease.end(decisions)
    }

    /// None where the routines must decide.
    async fn by_engine(
        &self,
        connection: &mut PgConnection,
        requests: &[Request],
        terms: Terms,
        passing: Passing,
    ) -> Option<Result<Vec<Option<Decision>>>> {
        let (owner, isolation) = (Owner::by(terms), terms.isolation);
        let mut server = Server { connection, process: &self.process, owner, isolation };
        self.process.decide(&mut server, requests, passing, isolation == Isolation::Serializable).await
    }

    /// The caller's own `lock_timeout` holds.
    pub async fn check_in(
        &self,
        connection: &mut PgConnection,
        requests: &[Request],
    ) -> Result<Vec<Decision>> {
        self.check_joined(connection, requests, Passing::Each).await
    }

    pub async fn check_all_in(
        &self,
        connection: &mut PgConnection,
        requests: &[Request],
    ) -> Result<Vec<Decision>> {
        self.check_joined(connection, requests, Passing::Together).await
    }

    async fn check_joined(
        &self,
        connection: &mut PgConnection,
        requests: &[Request],
        passing: Passing,
    ) -> Result<Vec<Decision>> {
        let mut server = Server::of_caller(connection, &self.process);
        match self.process.decide_in(&mut server, requests, passing).await {
            Some(decisions) => decisions,
            None => all(decide(connection, requests, Owner::Caller, passing).await?),
        }
    }

    /// The isolation that was asked for does not matter here: nothing is decided, and the row lock keeps the
    /// ledger in order.
    pub async fn record_blocked(&self, request: &Request, checks: i32, terms: Terms) -> Result<()> {
        let terms = Terms { isolation: Isolation::RowLock, ..terms };
        let request = Request { record: true, ..request.clone() };
        self.check_each(&[request], terms, Passing::Unasked(checks)).await.map(drop)
    }
}

/// A call that decides by the engine.
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
    async fn may_append(&mut self) -> Result<bool> {
        let may = sqlx::query_scalar(include_str!("engine_may.sql"));
        let may: bool = may.fetch_one(&mut *self.connection).await.map_err(error)?;
        Ok(may && !is_distributed(self.connection).await?)
    }

    fn is_a_callers(&self) -> bool {
        !self.owner.is_call()
    }

    async fn once(
        &mut self,
        requests: &[Request],
        passing: Passing,
        Turn { believe, hold }: Turn,
    ) -> Result<Vec<Answered>> {
        let Self { process, owner, isolation, .. } = *self;
        let (policies, skip_locked) = (&process.policies, passing.skips());
        if let Owner::Caller = owner {
            // It may be rolled back, so nothing is remembered.
            let connection = &mut *self.connection;
            let mut session = Session { connection, policies, lock: true, skip_locked, owner };
            return engine::check(&mut session, requests, passing).await.map(|done| done.answers);
        }
        let begin = match isolation {
            Isolation::Serializable => Some("begin isolation level serializable"),
            Isolation::RowLock if hold => Some("begin isolation level read committed"),
            Isolation::RowLock => None,
        };
        let lock = hold && isolation == Isolation::RowLock;
        let session = |connection| {
            let session = Session { connection, policies, lock, skip_locked, owner };
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

    async fn act(&mut self, actions: &[Action]) -> Result<Vec<Recorded>> {
        let Self { process, owner, .. } = *self;
        let (policies, lock, skip_locked) = (&process.policies, true, false);
        let connection = &mut *self.connection;
        if let Owner::Caller = owner {
            let mut session = Session { connection, policies, lock, skip_locked, owner };
            return engine::act(&mut session, actions).await;
        }
        let mut tx = connection.begin_with("begin isolation level read committed").await.map_err(error)?;
        let mut session = Session { connection: &mut tx, policies, lock, skip_locked, owner };
        let recorded = engine::act(&mut session, actions).await;
        end(tx, recorded).await
    }
}

async fn check_on(
    connection: &mut PgConnection,
    requests: &[Request],
    terms: Terms,
    passing: Passing,
) -> Result<Vec<Option<Decision>>> {
    let owner = Owner::by(terms);
    match terms.isolation {
        // A statement of its own is a transaction of its own: one round trip.
        Isolation::RowLock => decide(connection, requests, owner, passing).await,
        Isolation::Serializable => {
            let mut tx = connection.begin_with("begin isolation level serializable").await.map_err(error)?;
            let decisions = decide(&mut tx, requests, owner, passing).await;
            end(tx, decisions).await
        }
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

async fn decide(
    connection: &mut PgConnection,
    requests: &[Request],
    owner: Owner,
    passing: Passing,
) -> Result<Vec<Option<Decision>>> {
    if let ([request], Passing::Each | Passing::Unasked(_)) = (requests, passing) {
        return Ok(vec![decide_one(connection, request, owner, passing.unasked()).await?]);
    }
    let column = |of: fn(&Request) -> bool| requests.iter().map(of).collect::<Vec<_>>();
    let zone_ids: Vec<_> = requests.iter().map(|r| r.zone_id).collect();
    let keys: Vec<_> = requests.iter().map(|r| r.key.as_str()).collect();
    let costs: Vec<_> = requests.iter().map(|r| r.cost).collect();
    // A column that no request has need not travel.
    let critical = requests.iter().any(|r| r.critical).then(|| column(|r| r.critical));
    let members: Vec<_> = requests.iter().map(|r| r.member.as_deref()).collect();
    let members = members.iter().any(Option::is_some).then_some(members);
    let ttls_us: Vec<_> = requests.iter().map(|r| r.ttl_us).collect();
    let ttls_us = ttls_us.iter().any(Option::is_some).then_some(ttls_us);
    let query = match passing {
        Passing::Each | Passing::Free | Passing::Unasked(_) => sqlx::query(include_str!("check_many.sql"))
            .bind(zone_ids)
            .bind(keys)
            .bind(requests.iter().map(|r| r.txn).collect::<Vec<_>>())
            .bind(costs)
            .bind(column(|r| r.record))
            .bind(owner.lock_wait_ms())
            .bind(passing.skips())
            .bind(owner.is_call()),
        Passing::Together => sqlx::query(include_str!("check_all.sql"))
            .bind(zone_ids)
            .bind(keys)
            .bind(requests.first().map(|r| r.txn))
            .bind(costs)
            .bind(column(|r| r.record))
            .bind(owner.lock_wait_ms())
            .bind(owner.is_call()),
    };
    let query = query.bind(critical).bind(members).bind(ttls_us);
    let rows = query.fetch_all(connection).await.map_err(error)?;
    if rows.len() != requests.len() {
        return Err(Error::database(format!("{} checks got {} decisions", requests.len(), rows.len())));
    }
    rows.iter().zip(requests).map(|(row, request)| decision(row, request)).collect()
}

/// With `checks` nothing is decided, and the row stands for so many.
async fn decide_one(
    connection: &mut PgConnection,
    request: &Request,
    owner: Owner,
    checks: Option<i32>,
) -> Result<Option<Decision>> {
    let row = sqlx::query(include_str!("check.sql"))
        .bind(request.zone_id)
        .bind(&request.key)
        .bind(request.txn)
        .bind(request.cost)
        .bind(request.record)
        .bind(owner.lock_wait_ms())
        .bind(owner.is_call())
        .bind(checks)
        .bind(request.critical)
        .bind(&request.member)
        .bind(request.ttl_us)
        .fetch_one(connection)
        .await
        .map_err(error)?;
    decision(&row, request)
}

/// None for a request that was left undecided.
fn decision(row: &PgRow, request: &Request) -> Result<Option<Decision>> {
    match row.try_get("blocked").map_err(error)? {
        Some(blocked) => decision!(row, request, blocked).map(Some),
        None => Ok(None),
    }
}
