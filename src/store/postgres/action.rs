//! Events besides checks, on PostgreSQL.

use sqlx::{Connection, PgConnection, Row};
use uuid::Uuid;

use super::check::Owner;
use super::session::Session;
use super::{Postgres, clock, end, error, text, time, time_if};
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
            let begin = "begin isolation level read committed";
            let mut tx = lease.begin_with(begin).await.map_err(error)?;
            let (process, owner) = (&$self.process, Owner::by($terms));
            let mut $session =
                Session { connection: &mut tx, process, lock: true, skip_locked: false, owner };
            match $work {
                Ok($done) if $leaves_nothing => tx.rollback().await.map_err(error).map(|()| $done),
                done => end(tx, done).await,
            }
        };
        let done = done.await;
        lease.end(done)
    }};
}

/// Looks, and holds nothing.
macro_rules! looking {
    ($self:ident, $terms:ident, $session:ident => $work:expr) => {{
        let mut lease = $self.connections.lease($terms.until).await?;
        let (process, owner) = (&$self.process, Owner::by($terms));
        let mut $session =
            Session { connection: &mut lease, process, lock: false, skip_locked: false, owner };
        let done = $work;
        lease.end(done)
    }};
}

acts!(Postgres);

impl Postgres {
    pub async fn act(&self, actions: &[Action], terms: Terms) -> Result<Vec<Recorded>> {
        holding!(self, terms, session => engine::act(&mut session, actions).await)
    }

    /// The caller's own `lock_timeout` holds.
    pub async fn act_in(&self, connection: &mut PgConnection, actions: &[Action]) -> Result<Vec<Recorded>> {
        let (process, owner) = (&self.process, Owner::Caller);
        engine::act(&mut Session { connection, process, lock: true, skip_locked: false, owner }, actions)
            .await
    }

    pub async fn charges(&self, txn: Uuid) -> Result<Vec<Spending>> {
        self.charges_in(&mut *self.lease().await?, txn).await
    }

    pub async fn charges_in(&self, connection: &mut PgConnection, txn: Uuid) -> Result<Vec<Spending>> {
        let charges = "select c.zone, c.bucket_key, c.kind, c.spent, c.holds from zone_charges($1) c";
        let rows = sqlx::query(charges).bind(txn).fetch_all(connection).await.map_err(error)?;
        crate::store::rows_of("zone_txn", &rows, |row| spending!(row))
    }

    pub async fn overrides(&self, range: &Range) -> Result<Vec<Overridden>> {
        let mut connection = self.lease().await?;
        let now = clock(&mut connection).await?;
        let rows = sqlx::query(include_str!("overrides.sql"))
            .bind(range.zone_id)
            .bind(&range.from)
            .bind(&range.to)
            .bind(now)
            .fetch_all(&mut *connection)
            .await
            .map_err(error)?;
        crate::store::rows_of("zone_override", &rows, |row| overridden!(row))
    }
}
