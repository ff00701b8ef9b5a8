//! Events besides checks, on PostgreSQL.

use sqlx::{Connection, PgConnection, Row};
use uuid::Uuid;

use super::check::lock_wait_ms;
use super::engine::Session;
use super::{Postgres, end, error, text, time, time_if};
use crate::decide::{Override, Shape, Standing, Undo};
use crate::decision::Decision;
use crate::entry::{Overridden, Recorded};
use crate::error::Result;
use crate::lease::{Lease, Want};
use crate::store::engine;
use crate::store::{Action, Range, Request, Spending, Taking, Terms, Took, What};
use crate::zone::Limit;

/// Does the engine's work in a transaction that holds the bucket from the first look on.
macro_rules! holding {
    ($self:ident, $terms:ident, $session:ident => $work:expr) => {{
        let mut lease = $self.connections.lease($terms.until).await?;
        let done = async {
            let begin = "begin isolation level read committed";
            let mut tx = lease.begin_with(begin).await.map_err(error)?;
            let (policies, lock_wait_ms) = (&$self.process.policies, lock_wait_ms($terms));
            let mut $session =
                Session { connection: &mut tx, policies, lock: true, skip_locked: false, lock_wait_ms };
            let done = $work;
            end(tx, done).await
        };
        let done = done.await;
        lease.end(done)
    }};
}

/// Looks, and holds nothing.
macro_rules! looking {
    ($self:ident, $terms:ident, $session:ident => $work:expr) => {{
        let mut lease = $self.connections.lease($terms.until).await?;
        let (policies, lock_wait_ms) = (&$self.process.policies, lock_wait_ms($terms));
        let mut $session =
            Session { connection: &mut lease, policies, lock: false, skip_locked: false, lock_wait_ms };
        let done = $work;
        lease.end(done)
    }};
}

pub(super) use {holding, looking};

impl Postgres {
    /// One action alone is one round trip.
    pub async fn act(&self, actions: &[Action], terms: Terms) -> Result<Vec<Recorded>> {
        let mut lease = self.connections.lease(terms.until).await?;
        let recorded = act_on(&mut lease, actions, lock_wait_ms(terms)).await;
        lease.end(recorded)
    }

    pub async fn grant(&self, zone_id: i32, want: &Want, txn: Uuid, terms: Terms) -> Result<Lease> {
        holding!(self, terms, session => engine::lease(&mut session, zone_id, want, txn).await)
    }

    pub async fn take_units(&self, taking: &Taking, terms: Terms) -> Result<Option<Took>> {
        holding!(self, terms, session => engine::take_units(&mut session, taking).await)
    }

    pub async fn settle_units(&self, action: &Action, terms: Terms) -> Result<Vec<Recorded>> {
        holding!(self, terms, session => engine::act(&mut session, std::slice::from_ref(action)).await)
    }

    pub async fn leases(&self, zone_id: i32, key: &str, terms: Terms) -> Result<Vec<Standing>> {
        looking!(self, terms, session => engine::standing(&mut session, (zone_id, key)).await)
    }

    /// Holds the bucket from the first look on.
    pub async fn reserve_predicted(&self, request: &Request, terms: Terms) -> Result<(Decision, i64)> {
        holding!(self, terms, session => engine::reserve(&mut session, request).await)
    }

    pub async fn known_shape(
        &self,
        zone_id: i32,
        key: &str,
        shape: &str,
        terms: Terms,
    ) -> Result<Option<Shape>> {
        looking!(self, terms, session => engine::known(&mut session, (zone_id, key), shape).await)
    }

    /// The caller's own `lock_timeout` holds.
    pub async fn act_in(&self, connection: &mut PgConnection, actions: &[Action]) -> Result<Vec<Recorded>> {
        act_in_order(connection, actions, None).await
    }

    pub async fn charges(&self, txn: Uuid) -> Result<Vec<Spending>> {
        self.charges_in(&mut *self.lease().await?, txn).await
    }

    pub async fn charges_in(&self, connection: &mut PgConnection, txn: Uuid) -> Result<Vec<Spending>> {
        let charges = "select c.zone, c.bucket_key, c.kind, c.spent, c.holds from zone_charges($1) c";
        let rows = sqlx::query(charges).bind(txn).fetch_all(connection).await.map_err(error)?;
        rows.iter().map(|row| spending!(row)).collect()
    }

    pub async fn overrides(&self, range: &Range) -> Result<Vec<Overridden>> {
        let rows = sqlx::query(include_str!("overrides.sql"))
            .bind(range.zone_id)
            .bind(&range.from)
            .bind(&range.to)
            .fetch_all(&mut *self.lease().await?)
            .await
            .map_err(error)?;
        rows.iter().map(|row| overridden!(row)).collect()
    }
}

async fn act_on(
    connection: &mut PgConnection,
    actions: &[Action],
    lock_wait_ms: i32,
) -> Result<Vec<Recorded>> {
    if let [action] = actions {
        return Ok(vec![act_one(connection, action, Some(lock_wait_ms)).await?]);
    }
    let mut tx = connection.begin().await.map_err(error)?;
    let recorded = act_in_order(&mut tx, actions, Some(lock_wait_ms)).await;
    end(tx, recorded).await
}

async fn act_in_order(
    connection: &mut PgConnection,
    actions: &[Action],
    lock_wait_ms: Option<i32>,
) -> Result<Vec<Recorded>> {
    let mut recorded = Vec::with_capacity(actions.len());
    for action in actions {
        recorded.push(act_one(connection, action, lock_wait_ms).await?);
    }
    Ok(recorded)
}

/// Without `lock_wait_ms` the session's own `lock_timeout` holds.
async fn act_one(
    connection: &mut PgConnection,
    action: &Action,
    lock_wait_ms: Option<i32>,
) -> Result<Recorded> {
    let query = match action.what {
        What::Undo(_) => sqlx::query(include_str!("undo.sql")),
        What::Unchecked(_) => sqlx::query(include_str!("unchecked.sql")),
        _ => sqlx::query(include_str!("mark.sql")),
    };
    let query = bind_action!(query, action).bind(lock_wait_ms);
    let row = &query.fetch_one(connection).await.map_err(error)?;
    recorded!(row, action)
}
