//! Checks on MySQL and MariaDB.

use async_trait::async_trait;
use sqlx::mysql::MySqlRow;
use sqlx::{Connection, MySqlConnection, Row};

use super::joined::Joined;
use super::session::Session;
use super::{BEGIN, MySql, end, ended, error, lock_wait_s, rows, time, time_if};
use crate::decision::Decision;
use crate::engine::{self, Answered, Fate, Process, Remembering, Turn};
use crate::engine::{Action, Passing, Request};
use crate::entry::Recorded;
use crate::error::{Error, Result};
use crate::store::list::write_text;
use crate::store::{Isolation, Terms, all};

impl MySql {
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
        // Appended rows are compared with what the others append. Rows that are only looked at are not.
        if !requests.iter().any(Request::leaves_row)
            && let Err(error) = self.catch_up(&mut lease).await
        {
            return ended(lease, Err(error));
        }
        let decisions = match self.by_engine(&mut lease, requests, terms, passing).await {
            Some(decisions) => decisions,
            None => check_on(&mut lease, requests, terms, passing).await,
        };
        ended(lease, decisions)
    }

    /// None where the routines must decide. Under SERIALIZABLE these servers lock what is only read, and who has read cannot
    /// append before all others who have: so there the routines decide, which lock before they read.
    async fn by_engine(
        &self,
        connection: &mut MySqlConnection,
        requests: &[Request],
        terms: Terms,
        passing: Passing,
    ) -> Option<Result<Vec<Option<Decision>>>> {
        if terms.isolation == Isolation::Serializable {
            return None;
        }
        let mut server = Server { connection, process: &self.process, owner: Owner::by(terms) };
        self.process.decide(&mut server, requests, passing, false).await
    }

    /// The caller's own `innodb_lock_wait_timeout` holds.
    pub async fn check_in(
        &self,
        connection: &mut MySqlConnection,
        requests: &[Request],
    ) -> Result<Vec<Decision>> {
        self.check_joined(connection, requests, Passing::Each).await
    }

    pub async fn check_all_in(
        &self,
        connection: &mut MySqlConnection,
        requests: &[Request],
    ) -> Result<Vec<Decision>> {
        self.check_joined(connection, requests, Passing::Together).await
    }

    async fn check_joined(
        &self,
        connection: &mut MySqlConnection,
        requests: &[Request],
        passing: Passing,
    ) -> Result<Vec<Decision>> {
        let mut server = Server::of_caller(connection, &self.process);
        match self.process.decide_in(&mut server, requests, passing).await {
            Some(decisions) => decisions,
            None => all(decide(connection, requests, Begun::Before, None, passing).await?),
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
    pub connection: &'c mut MySqlConnection,
    pub process: &'c Process,
    pub owner: Owner,
}

impl<'c> Server<'c> {
    /// On a connection with a transaction of the caller's.
    pub fn of_caller(connection: &'c mut MySqlConnection, process: &'c Process) -> Self {
        Self { connection, process, owner: Owner::Caller }
    }
}

#[async_trait]
impl engine::Server for Server<'_> {
    async fn may_append(&mut self) -> Result<bool> {
        let may = sqlx::query_scalar(include_str!("engine_may.sql"));
        may.fetch_one(&mut *self.connection).await.map_err(error)
    }

    fn is_a_callers(&self) -> bool {
        matches!(self.owner, Owner::Caller)
    }

    async fn once(
        &mut self,
        requests: &[Request],
        passing: Passing,
        Turn { believe, hold }: Turn,
    ) -> Result<Vec<Answered>> {
        let Self { process, owner, .. } = *self;
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
        if !hold {
            let mut session = remembering(session(&mut *self.connection, false));
            return engine::check(&mut session, requests, passing).await.map(|done| done.answers);
        }
        let mut tx = self.connection.begin_with(BEGIN).await.map_err(error)?;
        let done = engine::check(&mut remembering(session(&mut tx, true)), requests, passing).await;
        let done = done.map(|done| done.answers);
        if done.as_ref().is_ok_and(|answers| answers.iter().any(Answered::is_undone)) {
            // Of what was refused something may have been written.
            tx.rollback().await.map_err(error)?;
            return Ok(requests.iter().map(|_| Answered::Undone(Fate::Stale)).collect());
        }
        end(tx, done).await
    }

    async fn act(&mut self, actions: &[Action]) -> Result<Vec<Recorded>> {
        let Self { process, owner, .. } = *self;
        let session = |connection| {
            let (policies, lock_wait_s) = (&process.policies, owner.lock_wait_s());
            Session { connection, policies, lock: true, skip_locked: false, lock_wait_s }
        };
        if let Owner::Caller = owner {
            return engine::act(&mut Joined::new(session(&mut *self.connection)), actions).await;
        }
        let mut tx = self.connection.begin_with(BEGIN).await.map_err(error)?;
        let recorded = engine::act(&mut session(&mut tx), actions).await;
        end(tx, recorded).await
    }
}

async fn check_on(
    connection: &mut MySqlConnection,
    requests: &[Request],
    terms: Terms,
    passing: Passing,
) -> Result<Vec<Option<Decision>>> {
    let wait_s = Some(lock_wait_s(terms));
    match terms.isolation {
        // The procedure owns its transaction: one round trip.
        Isolation::RowLock => decide(connection, requests, Begun::ByRoutine, wait_s, passing).await,
        Isolation::Serializable => {
            let begin = "set transaction isolation level serializable; start transaction";
            let mut tx = connection.begin_with(begin).await.map_err(error)?;
            let decisions = decide(&mut tx, requests, Begun::Before, wait_s, passing).await;
            end(tx, decisions).await
        }
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

/// The transaction that a routine decides in.
#[derive(Clone, Copy)]
enum Begun {
    ByRoutine,
    Before,
}

/// Calls the routine that fits. `wait_s` is the longest wait for a lock; without it the session's own holds.
async fn decide(
    connection: &mut MySqlConnection,
    requests: &[Request],
    begun: Begun,
    wait_s: Option<i32>,
    passing: Passing,
) -> Result<Vec<Option<Decision>>> {
    if let ([request], Passing::Each | Passing::Unasked(_)) = (requests, passing) {
        return Ok(vec![decide_one(connection, request, begun, wait_s, passing.unasked()).await?]);
    }
    let checks = format!("[{}]", requests.iter().map(json).collect::<Vec<_>>().join(","));
    let call = match (passing, begun) {
        (Passing::Each | Passing::Free | Passing::Unasked(_), Begun::ByRoutine) => {
            "call zone_check_many_own(?, ?, ?)"
        }
        (Passing::Each | Passing::Free | Passing::Unasked(_), Begun::Before) => {
            "call zone_check_many(?, ?, ?)"
        }
        (Passing::Together, Begun::ByRoutine) => "call zone_check_all_own(?, ?)",
        (Passing::Together, Begun::Before) => "call zone_check_all(?, ?)",
    };
    let mut query = sqlx::query(call).bind(checks).bind(wait_s);
    if passing != Passing::Together {
        query = query.bind(passing.skips());
    }
    let rows = rows(connection, call, query, requests.len()).await?;
    rows.iter().zip(requests).map(|(row, request)| decision(row, request)).collect()
}

/// With `checks` nothing is decided, and the row stands for so many.
async fn decide_one(
    connection: &mut MySqlConnection,
    request: &Request,
    begun: Begun,
    wait_s: Option<i32>,
    checks: Option<i32>,
) -> Result<Option<Decision>> {
    let call = match begun {
        Begun::ByRoutine => "call zone_check_own(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        Begun::Before => "call zone_check(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    };
    let query = sqlx::query(call)
        .bind(request.zone_id)
        .bind(request.key.clone())
        .bind(request.txn)
        .bind(request.cost)
        .bind(request.record)
        .bind(wait_s)
        .bind(checks)
        .bind(request.critical)
        .bind(request.member.clone())
        .bind(request.ttl_us);
    let rows = rows(connection, call, query, 1).await?;
    let row = rows.first().ok_or_else(|| Error::database("a check got no decision"))?;
    decision(row, request)
}

/// A request as the routines read it. Fields that it does not have need not travel.
fn json(request: &Request) -> String {
    let mut json = format!(
        r#"{{"zone_id":{},"txn":"{}","cost":{},"record":{},"key":"#,
        request.zone_id,
        request.txn.simple(),
        request.cost,
        u8::from(request.record)
    );
    write_text(&request.key, &mut json);
    if request.critical {
        json.push_str(r#","critical":1"#);
    }
    if let Some(member) = &request.member {
        json.push_str(r#","member":"#);
        write_text(member, &mut json);
    }
    if let Some(ttl_us) = request.ttl_us {
        json.push_str(&format!(r#","ttl_us":{ttl_us}"#));
    }
    json + "}"
}

/// None for a request that was left undecided.
fn decision(row: &MySqlRow, request: &Request) -> Result<Option<Decision>> {
    match row.try_get("blocked").map_err(error)? {
        Some(blocked) => decision!(row, request, blocked).map(Some),
        None => Ok(None),
    }
}
