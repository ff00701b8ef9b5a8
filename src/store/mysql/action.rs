//! Events besides checks, on MySQL and MariaDB.

use sqlx::{Connection, MySqlConnection, Row};
use uuid::Uuid;

use super::check::{Owner, Server};
use super::session::Session;
use super::{BEGIN, MySql, called, clock, end, ended, error, lock_wait_s, rows, text, time, time_if};
use crate::decide::Undo;
use crate::decision::Decision;
use crate::engine::{Action, Request, What};
use crate::entry::{Overridden, Recorded};
use crate::error::{Error, Result};
use crate::store::{Range, Spending, Terms};
use crate::zone::Limit;

/// Does the engine's work in a transaction that holds the bucket from the first look on. One that leaves no row is taken back,
/// and with it the bucket's row if that was made for it.
macro_rules! holding {
    ($self:ident, $terms:ident, $session:ident => $work:expr) => {
        holding!($self, $terms, $session => $work, done => false)
    };
    ($self:ident, $terms:ident, $session:ident => $work:expr, $done:ident => $leaves_nothing:expr) => {{
        let mut lease = $self.connections.lease($terms.until).await?;
        let done = async {
            let mut tx = lease.begin_with(BEGIN).await.map_err(error)?;
            let (policies, lock_wait_s) = (&$self.process.policies, Some(lock_wait_s($terms)));
            let mut $session =
                Session { connection: &mut tx, policies, lock: true, skip_locked: false, lock_wait_s };
            match $work {
                Ok($done) if $leaves_nothing => tx.rollback().await.map_err(error).map(|()| $done),
                done => end(tx, done).await,
            }
        };
        let done = done.await;
        ended(lease, done)
    }};
}

/// Looks, and holds nothing.
macro_rules! looking {
    ($self:ident, $terms:ident, $session:ident => $work:expr) => {{
        let mut lease = $self.connections.lease($terms.until).await?;
        let (policies, lock_wait_s) = (&$self.process.policies, Some(lock_wait_s($terms)));
        let mut $session =
            Session { connection: &mut lease, policies, lock: false, skip_locked: false, lock_wait_s };
        let done = $work;
        ended(lease, done)
    }};
}

acts!(MySql);

impl MySql {
    pub async fn act(&self, actions: &[Action], terms: Terms) -> Result<Vec<Recorded>> {
        let mut lease = self.connections.lease(terms.until).await?;
        let mut server = Server { connection: &mut lease, process: &self.process, owner: Owner::by(terms) };
        let recorded = match self.process.act(&mut server, actions).await {
            Some(recorded) => recorded,
            None => act_on(&mut lease, actions, lock_wait_s(terms)).await,
        };
        ended(lease, recorded)
    }

    /// The caller's own `innodb_lock_wait_timeout` holds.
    pub async fn act_in(
        &self,
        connection: &mut MySqlConnection,
        actions: &[Action],
    ) -> Result<Vec<Recorded>> {
        let mut server = Server::of_caller(connection, &self.process);
        match self.process.act(&mut server, actions).await {
            Some(recorded) => recorded,
            None => act_in_order(connection, actions, None).await,
        }
    }

    pub async fn charges(&self, txn: Uuid) -> Result<Vec<Spending>> {
        self.charges_in(&mut *self.lease().await?, txn).await
    }

    pub async fn charges_in(&self, connection: &mut MySqlConnection, txn: Uuid) -> Result<Vec<Spending>> {
        let call = "call zone_charges(?)";
        let rows = called(connection, call, sqlx::query(call).bind(txn)).await?;
        crate::store::rows_of("zone_txn", &rows, |row| spending!(row))
    }

    pub async fn overrides(&self, range: &Range) -> Result<Vec<Overridden>> {
        let mut connection = self.lease().await?;
        let now = clock(&mut connection).await?;
        let rows = sqlx::query(include_str!("overrides.sql"))
            .bind(range.zone_id)
            .bind(&range.from)
            .bind(&range.to)
            .bind(now.naive_utc())
            .fetch_all(&mut *connection)
            .await
            .map_err(error)?;
        crate::store::rows_of("zone_override", &rows, |row| overridden!(row))
    }
}

async fn act_on(connection: &mut MySqlConnection, actions: &[Action], wait_s: i32) -> Result<Vec<Recorded>> {
    if let [action] = actions {
        let call = "call zone_undo_own(?, ?, ?, ?, ?, ?)";
        return Ok(vec![act_one(connection, action, call, Some(wait_s)).await?]);
    }
    let mut tx = connection.begin_with(BEGIN).await.map_err(error)?;
    let recorded = act_in_order(&mut tx, actions, Some(wait_s)).await;
    end(tx, recorded).await
}

async fn act_in_order(
    connection: &mut MySqlConnection,
    actions: &[Action],
    wait_s: Option<i32>,
) -> Result<Vec<Recorded>> {
    let call = "call zone_undo(?, ?, ?, ?, ?, ?)";
    let mut recorded = Vec::with_capacity(actions.len());
    for action in actions {
        recorded.push(act_one(connection, action, call, wait_s).await?);
    }
    Ok(recorded)
}

/// Without `wait_s` the session's own `innodb_lock_wait_timeout` holds.
async fn act_one(
    connection: &mut MySqlConnection,
    action: &Action,
    call: &'static str,
    wait_s: Option<i32>,
) -> Result<Recorded> {
    let query = bind_undo!(sqlx::query(call), action).bind(wait_s);
    let rows = rows(connection, call, query, 1).await?;
    let row = rows.first().ok_or_else(|| Error::database("an action got no answer"))?;
    recorded!(row, action)
}
