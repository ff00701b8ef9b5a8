//! The knowledge that a server has of the cluster that it is a node of, and how it is made to know what the
//! others were told.

use sqlx::{MySqlConnection, Row};

use super::error;
use crate::error::Result;

/// The kind of cluster that a server is a node of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cluster {
    /// Nothing; or of servers of which one writes, and the others follow when they come to it.
    None,
    Galera,
    Group,
}

impl Cluster {
    /// Tells in the log what can stop it.
    pub async fn looked_over(connection: &mut MySqlConnection) -> Result<Self> {
        let (cluster, _) = Self::of(connection).await?;
        if cluster == Self::Galera {
            let wait = sqlx::query_scalar("select @@global.innodb_lock_wait_timeout");
            let wait_s: u64 = wait.fetch_one(connection).await.map_err(error)?;
            if wait_s > 1 {
                tracing::warn!(
                    wait_s,
                    "nodes of Galera that write the same bucket can all stand still for so long; set \
                     innodb_lock_wait_timeout = 1 in the configuration of each"
                );
            }
        }
        Ok(cluster)
    }

    /// And whether the server says that it can be worked with. A node that is cut off from the others of its Galera cluster
    /// answers no query, and nothing but this of itself.
    pub async fn of(connection: &mut MySqlConnection) -> Result<(Self, bool)> {
        let told = "show global variables where variable_name in ('wsrep_on', 'group_replication_group_name'); \
                    show global status like 'wsrep_ready'";
        let told = sqlx::raw_sql(told).fetch_all(connection).await.map_err(error)?;
        let (mut cluster, mut ready) = (Self::None, false);
        for row in &told {
            let (name, value): (String, String) =
                (row.try_get(0).map_err(error)?, row.try_get(1).map_err(error)?);
            match (&*name, &*value) {
                ("wsrep_on", "ON") => cluster = Self::Galera,
                ("wsrep_ready", "ON") => ready = true,
                ("group_replication_group_name", group) if !group.is_empty() => cluster = Self::Group,
                _ => {}
            }
        }
        Ok((cluster, ready || cluster != Self::Galera))
    }

    /// Sees to it that reads on this connection afterwards are no older than what any node has acknowledged before.
    /// Under `BEFORE` a group lets no transaction begin until then, and where most of the others cannot be reached,
    /// none at all.
    pub async fn catch_up(self, connection: &mut MySqlConnection) -> Result<()> {
        let wait = match self {
            Self::None => return Ok(()),
            Self::Galera => "set statement wsrep_sync_wait = 1 for select 1",
            Self::Group => {
                "set session group_replication_consistency = 'BEFORE'; start transaction; commit; \
                 set session group_replication_consistency = default"
            }
        };
        sqlx::raw_sql(wait).execute(connection).await.map(drop).map_err(error)
    }
}
