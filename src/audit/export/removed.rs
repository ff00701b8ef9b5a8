//! Removals by owners from the ledger, as they are exported.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use chrono::{DateTime, Utc};
use serde::Serialize;

use super::part::Hashed;
use super::{ExportRemovals, unwritten};
use crate::audit::Auditor;
use crate::chain::hex;
use crate::error::{Error, Result};
use crate::store::{REMOVALS, Removal};
use crate::zone::Zone;

/// An object in each line.
const FILE: &str = "removals.jsonl";

/// Writes what owners removed before a time, zone by zone: all of it, so that its chains can be followed from their beginnings.
pub(super) async fn removed(
    auditor: &Auditor,
    to: &Path,
    zones: &[Zone],
    until: DateTime<Utc>,
) -> Result<ExportRemovals> {
    let (partial, path) = (to.join(format!("{FILE}.partial")), to.join(FILE));
    let fault = |e| unwritten(&partial, e);
    let mut file = Hashed::create(&partial).map_err(fault)?;
    let mut rows = 0;
    for zone in zones {
        let mut after = 0;
        loop {
            let page = auditor.read(|store| store.removals(zone.id, after)).await?;
            let is_last = page.len() < REMOVALS;
            for removal in page.iter().filter(|removal| removal.removed_at < until) {
                let line = Removed { zone_id: zone.id, zone: &zone.name, removal };
                let line = serde_json::to_string(&line)
                    .map_err(|e| Error::database("a removal could not be written as JSON").caused_by(e))?;
                writeln!(file, "{line}").map_err(fault)?;
                rows += 1;
            }
            after = page.last().map_or(after, |last| last.seq);
            if is_last {
                break;
            }
        }
    }
    let (bytes, hash) = file.finish().map_err(fault)?;
    fs::rename(&partial, &path).map_err(|e| unwritten(&path, e))?;
    Ok(ExportRemovals { file: FILE.to_owned(), rows, bytes, sha256: hex(&hash) })
}

/// A removal as it is exported.
#[derive(Serialize)]
struct Removed<'r> {
    zone_id: i32,
    zone: &'r str,
    #[serde(flatten)]
    removal: &'r Removal,
}
