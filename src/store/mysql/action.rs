//! Events besides checks, on MySQL and MariaDB.

use sqlx::{Connection, MySqlConnection, Row};
use uuid::Uuid;

use super::joined::Joined;
use super::session::Session;
use super::{BEGIN, MySql, called, clock, end, ended, error, lock_wait_s, text, time, time_if};
use crate::decision::Decision;
use crate::engine::{self, Action, Request};
use crate::entry::{Overridden, Recorded};
use crate::error::Result;
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
        holding!(self, terms, session => engine::act(&mut session, actions).await)
    }

    /// The caller's own `innodb_lock_wait_timeout` holds.
    pub async fn act_in(
        &self,
        connection: &mut MySqlConnection,
        actions: &[Action],
    ) -> Result<Vec<Recorded>> {
        let policies = &self.process.policies;
        let session = Session { connection, policies, lock: true, skip_locked: false, lock_wait_s: None };
        engine::act(&mut Joined::new(session), actions).await
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
