//! From rows to values. The databases' rows are of different types, but their columns have the same names
//! and meanings. Where these macros are used, `error` translates a driver's error, `time` reads a time and
//! `text` a bucket's key.

macro_rules! get {
    ($row:ident, $column:literal) => {
        $row.try_get($column).map_err(error)?
    };
}

/// A decision from a row of the routines.
macro_rules! decision {
    ($row:ident, $request:ident) => {
        decision!($row, $request, get!($row, "blocked"))
    };
    ($row:ident, $request:ident, $blocked:expr) => {{
        let reason: &str = get!($row, "reason");
        Ok(Decision {
            zone: $request.zone.clone(),
            key: $request.key.clone(),
            txn_id: get!($row, "txn_id"),
            blocked: $blocked,
            reason: reason.parse()?,
            limit: get!($row, "zone_limit"),
            remaining: get!($row, "remaining"),
            retry_after_us: get!($row, "retry_after_us"),
            seq: get!($row, "seq"),
            zone_version: get!($row, "zone_version"),
            decided_at: time($row, "created_at")?,
            replayed: get!($row, "replayed"),
        })
    }};
}

/// The policy of a row of `zone_master` or `zone_version`.
macro_rules! policy {
    ($row:ident) => {{
        let algorithm: &str = get!($row, "algorithm");
        let durability: &str = get!($row, "durability");
        let blocked_rows: &str = get!($row, "blocked_rows");
        Policy::from_columns(
            algorithm.parse()?,
            get!($row, "rate"),
            get!($row, "window_us"),
            get!($row, "burst"),
        )?
        .with_durability(durability.parse()?)
        .with_blocked_rows(blocked_rows.parse()?)
    }};
}

/// What `zone_find` tells.
macro_rules! found {
    ($row:ident) => {{
        let blocked_rows: &str = get!($row, "blocked_rows");
        Ok(Found {
            id: get!($row, "id"),
            version: get!($row, "version"),
            blocked_rows: blocked_rows.parse()?,
        })
    }};
}

/// A zone from a row of `zone_master`.
macro_rules! zone {
    ($row:ident) => {
        Ok(Zone {
            id: get!($row, "id"),
            name: get!($row, "name"),
            description: get!($row, "description"),
            policy: policy!($row),
            version: get!($row, "version"),
            created_at: time($row, "created_at")?,
            updated_at: time($row, "updated_at")?,
        })
    };
}

/// A version from a row of `zone_version`.
macro_rules! zone_version {
    ($row:ident) => {
        Ok(ZoneVersion {
            version: get!($row, "version"),
            description: get!($row, "description"),
            policy: policy!($row),
            changed_at: time($row, "changed_at")?,
            changed_by: get!($row, "changed_by"),
        })
    };
}

/// An entry from a row of `zone_txn` joined with its zone's name.
macro_rules! entry {
    ($row:ident) => {{
        let reason: &str = get!($row, "reason");
        Ok(Entry {
            id: get!($row, "id"),
            decided_at: time($row, "created_at")?,
            zone: get!($row, "zone"),
            key: text($row, "bucket_key")?,
            seq: get!($row, "seq"),
            txn_id: get!($row, "txn_id"),
            kind: get!($row, "kind"),
            checks: get!($row, "checks"),
            blocked: get!($row, "blocked"),
            reason: reason.parse()?,
            cost: get!($row, "cost"),
            spent: get!($row, "spent"),
            spent_total: get!($row, "spent_total"),
            remaining: get!($row, "remaining"),
            retry_after_us: get!($row, "retry_after_us"),
            level: get!($row, "level"),
            zone_version: get!($row, "zone_version"),
        })
    }};
}
