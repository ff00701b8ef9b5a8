//! Spreading the schema over the nodes of a cluster.

#[cfg(feature = "postgres")]
pub(super) mod citus;

use super::{Migrator, gate};
use crate::boxed::{BoxFuture, boxed};
use crate::error::{Error, Result};
use crate::store::Engine;

impl Migrator {
    /// Spreads the schema over the nodes of Citus: buckets by their keys, each with its ledger on one node; zones and all that is
    /// known of them on every node. The routines that are about one bucket run where it is. Returns the tables and
    /// routines that this was done to: none when nothing was left to do.
    ///
    /// Run it after [`apply`](Self::apply), at the coordinator, while nobody checks. The rows that are in the tables
    /// are moved.
    ///
    /// # Errors
    /// Invalid: the database is not PostgreSQL, lacks the extension, or is one of tests. Schema: something is not migrated. Transient: another
    /// migrator was at work for too long.
    pub fn distribute(&self) -> BoxFuture<'_, Result<Vec<String>>> {
        boxed(async move {
            match self.address.engine() {
                #[cfg(feature = "postgres")]
                Engine::Postgres => {
                    let schema = self.schema().await?.0;
                    gate(schema.as_ref())?;
                    if schema.is_some_and(|schema| schema.test_clock) {
                        return Err(Error::invalid(
                            "a database of tests stays on one node, since its clock is one row; distribute another one",
                        ));
                    }
                    citus::distribute(&self.address).await
                }
                _ => Err(refused()),
            }
        })
    }

    /// The tables and routines that [`distribute`](Self::distribute) would do this to, as far as they are there; the tables also
    /// where they are not.
    ///
    /// # Errors
    /// Invalid: the database is not PostgreSQL, or lacks the extension.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let migrator = tallygate::schema::Migrator::new("sqlite::memory:")?;
    /// assert!(migrator.undistributed().await.unwrap_err().is_invalid(), "SQLite is one file");
    /// # Ok::<(), tallygate::Error>(()) }).unwrap();
    /// ```
    pub fn undistributed(&self) -> BoxFuture<'_, Result<Vec<String>>> {
        boxed(async move {
            match self.address.engine() {
                #[cfg(feature = "postgres")]
                Engine::Postgres => citus::undistributed(&self.address).await,
                _ => Err(refused()),
            }
        })
    }
}

fn refused() -> Error {
    Error::invalid("only PostgreSQL has the extension citus; migrate this database without distributing it")
}
