//! The news on a channel of PostgreSQL.

use std::time::Duration;

use sqlx::postgres::PgListener;
use tokio::sync::broadcast::Sender;
use tokio::time::timeout;

use super::{Postgres, error, pool};
use crate::error::Result;

/// The time for which it is listened on after nobody wants to hear anything.
const IDLE: Duration = Duration::from_secs(30);

impl Postgres {
    /// Hands on what is told of queues, while anybody hears it; on a connection of its own, which no pool has.
    pub async fn listen(&self, told: &Sender<String>) -> Result<()> {
        let own = pool(self.connections.options(), 1);
        let mut listener = PgListener::connect_with(&own).await.map_err(error)?;
        listener.listen("tallygate_queue").await.map_err(error)?;
        while told.receiver_count() > 0 {
            if let Ok(heard) = timeout(IDLE, listener.recv()).await {
                // It may be that nobody wants to hear it.
                let _ = told.send(heard.map_err(error)?.payload().to_owned());
            }
        }
        Ok(())
    }
}
