//! A limiter as a house has it: the service checks as *app*, zones and bans are set as *operator*, and the ledger is
//! read as *auditor*. No test needs to say so, and none has more rights than it needs.

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tallygate::{
    Checkpoint, Explained, Export, HeadDifference, History, Limiter, Manifest, Overridden, Override, Page,
    Policy, Proof, Recorded, Report, ReportOn, Result, Role, Verified, Verify, Verifying, Zone, ZoneVersion,
};
use tokio::sync::OnceCell;
use uuid::Uuid;

use crate::db::{Db, Engine};

#[derive(Clone)]
pub struct Staff {
    app: Limiter,
    operator: Other,
    auditor: Other,
}

/// Connected when it is first needed.
#[derive(Clone)]
struct Other {
    url: String,
    limiter: Arc<OnceCell<Limiter>>,
}

impl Staff {
    pub fn of(db: &Db, app: Limiter) -> Self {
        let other = |role| Other {
            url: db.url_as(role),
            // SQLite has no users, and the test clock is the limiter's own.
            limiter: Arc::new(OnceCell::new_with((db.engine == Engine::Sqlite).then(|| app.clone()))),
        };
        Self { operator: other(Role::Operator), auditor: other(Role::Auditor), app }
    }

    pub fn with_operator(mut self, operator: Limiter) -> Self {
        self.operator.limiter = Arc::new(OnceCell::new_with(Some(operator)));
        self
    }
}

impl Other {
    async fn limiter(&self) -> &Limiter {
        self.limiter.get_or_init(async || Limiter::connect(&self.url).await.unwrap()).await
    }
}

impl Deref for Staff {
    type Target = Limiter;

    fn deref(&self) -> &Limiter {
        &self.app
    }
}

impl Staff {
    pub async fn set_zone(
        &self,
        name: &str,
        policy: &Policy,
        description: Option<&str>,
        by: &str,
    ) -> Result<Zone> {
        self.operator.limiter().await.set_zone(name, policy, description, by).await
    }

    pub async fn zones(&self) -> Result<Vec<Zone>> {
        self.operator.limiter().await.zones().await
    }

    pub async fn zone(&self, name: &str) -> Result<Option<Zone>> {
        self.operator.limiter().await.zone(name).await
    }

    pub async fn zone_versions(&self, zone: &Zone) -> Result<Vec<ZoneVersion>> {
        self.operator.limiter().await.zone_versions(zone).await
    }

    pub async fn ban(&self, zone: &str, key: &str, time: Duration, note: &str, by: &str) -> Result<Recorded> {
        self.operator.limiter().await.ban(zone, key, time, note, by).await
    }

    pub async fn unban(&self, zone: &str, key: &str, note: &str, by: &str) -> Result<Recorded> {
        self.operator.limiter().await.unban(zone, key, note, by).await
    }

    pub async fn set_override(
        &self,
        zone: &str,
        key: &str,
        over: Override,
        note: &str,
        by: &str,
    ) -> Result<Recorded> {
        self.operator.limiter().await.set_override(zone, key, over, note, by).await
    }

    pub async fn remove_override(&self, zone: &str, key: &str, note: &str, by: &str) -> Result<Recorded> {
        self.operator.limiter().await.remove_override(zone, key, note, by).await
    }

    pub async fn overrides(&self, zone: &str) -> Result<Vec<Overridden>> {
        self.operator.limiter().await.overrides(zone).await
    }

    pub async fn history(&self, history: &History) -> Result<Page> {
        self.auditor.limiter().await.history(history).await
    }

    pub async fn explain(&self, txn: Uuid, charges: usize) -> Result<Explained> {
        self.auditor.limiter().await.explain(txn, charges).await
    }

    pub async fn verify(&self, what: &Verify, tell: impl FnMut(Verifying)) -> Result<Verified> {
        self.auditor.limiter().await.verify(what, tell).await
    }

    pub async fn report(&self, on: &ReportOn, progress: impl FnMut(f64)) -> Result<Report> {
        self.auditor.limiter().await.report(on, progress).await
    }

    pub async fn checkpoint(
        &self,
        margin: Duration,
        heads: Option<&Path>,
        progress: impl FnMut(u64),
    ) -> Result<Checkpoint> {
        self.auditor.limiter().await.checkpoint(margin, heads, progress).await
    }

    pub async fn compare(
        &self,
        checkpoint: &Checkpoint,
        heads: Option<&Path>,
        progress: impl FnMut(u64),
    ) -> Result<Vec<HeadDifference>> {
        self.auditor.limiter().await.compare(checkpoint, heads, progress).await
    }

    pub async fn prove(
        &self,
        txn: Uuid,
        checkpoint: &Checkpoint,
        disclose: bool,
        rows_max: u32,
    ) -> Result<Proof> {
        self.auditor.limiter().await.prove(txn, checkpoint, disclose, rows_max).await
    }

    pub async fn export(&self, export: &Export, progress: impl FnMut(u64)) -> Result<Manifest> {
        self.auditor.limiter().await.export(export, progress).await
    }
}
