//! The changes from one version of a zone to the next.

use serde_json::{Map, Value};

use super::values::{FieldChange, PolicyChange};
use crate::error::{Error, Result};
use crate::zone::{Zone, ZoneVersion};

/// Each version with what is not as in the one before it, oldest first.
pub(super) fn changes(zone: &Zone, versions: &[ZoneVersion]) -> Result<Vec<PolicyChange>> {
    let mut before = None;
    let mut changes = Vec::with_capacity(versions.len());
    for version in versions {
        let now = fields(version)?;
        let changed = now.iter().filter_map(|(field, to)| {
            let from = before.as_ref().and_then(|before: &Map<_, _>| before.get(field))?;
            (from != to).then(|| FieldChange { field: field.clone(), from: from.clone(), to: to.clone() })
        });
        changes.push(PolicyChange {
            zone: zone.name.clone(),
            version: version.version,
            changed_at: version.changed_at,
            changed_by: version.changed_by.clone(),
            login: version.login.clone(),
            policy: version.policy,
            fields: changed.collect(),
        });
        before = Some(now);
    }
    Ok(changes)
}

/// The policy, the release of its time zone's rules, and the description, by the names that they have in JSON.
fn fields(version: &ZoneVersion) -> Result<Map<String, Value>> {
    let fault = |e| Error::database("a policy could not be written as JSON").caused_by(e);
    let mut fields = match serde_json::to_value(version.policy).map_err(fault)? {
        Value::Object(fields) => fields,
        other => Map::from_iter([("policy".to_owned(), other)]),
    };
    let release = version.policy.by_calendar().map(|calendar| calendar.time_zone.release());
    fields.insert("tzdata".to_owned(), release.into());
    fields.insert("description".to_owned(), version.description.as_str().into());
    Ok(fields)
}
