//! Rows as they are stored, for who explains and verifies them.

/// A time in microseconds since 1970.
macro_rules! us {
    ($row:ident, $column:literal) => {
        time_if($row, $column)?.map(|at| at.timestamp_micros())
    };
}

macro_rules! salt {
    ($row:ident) => {{
        let salt: Option<&[u8]> = get!($row, "salt");
        salt.map(salt_of).transpose()?
    }};
}

/// A row of `zone_txn`, but for its bucket.
macro_rules! ledger_row {
    ($row:ident) => {
        Ok(LedgerRow {
            id: get!($row, "id"),
            txn_id: get!($row, "txn_id"),
            zone_version: get!($row, "zone_version"),
            seq: get!($row, "seq"),
            kind: choice!($row, "kind"),
            checks: get!($row, "checks"),
            blocked: get!($row, "blocked"),
            reason: choice!($row, "reason"),
            critical: get!($row, "critical"),
            cost: get!($row, "cost"),
            spent: get!($row, "spent"),
            spent_total: get!($row, "spent_total"),
            remaining: get!($row, "remaining"),
            zone_limit: get!($row, "zone_limit"),
            retry_after_us: get!($row, "retry_after_us"),
            delay_us: get!($row, "delay_us"),
            level: get!($row, "level"),
            strikes: get!($row, "strikes"),
            target_us: us!($row, "target_at"),
            at_us: time($row, "created_at")?.timestamp_micros(),
            prev_us: us!($row, "prev_at"),
            ends_us: us!($row, "ends_at"),
            member: text_if($row, "member")?,
            note: get!($row, "note"),
            actor: get!($row, "actor"),
            salt: salt!($row),
            row_hash: hash_of(get!($row, "row_hash"))?,
        })
    };
}

/// A bucket's key and a limit of its own, from a row of `zone_override`.
macro_rules! bucket_override {
    ($row:ident) => {{
        let own = BucketOverride {
            seq: get!($row, "seq"),
            limit: limit!($row),
            ban_exempt: get!($row, "ban_exempt"),
            until_us: us!($row, "ends_at"),
        };
        Ok((text($row, "bucket_key")?, own))
    }};
}

/// The head of a bucket, from a row of `zone_bucket_lock`.
macro_rules! stored_head {
    ($row:ident) => {{
        let (zone_version, carried): (Option<i32>, Option<i64>) =
            (get!($row, "zone_version"), get!($row, "carried"));
        let carried = match (carried, us!($row, "carried_at")) {
            (Some(amount), Some(at_us)) => {
                let (total, seq) = (get!($row, "carried_total"), get!($row, "carried_seq"));
                Some(Carried { at_us, amount, total, seq })
            }
            _ => None,
        };
        Ok(StoredHead {
            key: text($row, "bucket_key")?,
            head: Head {
                seq: get!($row, "seq"),
                last_us: us!($row, "last_at").unwrap_or_default(),
                spent_total: get!($row, "spent_total"),
                level: get!($row, "level"),
                zone_version: zone_version.unwrap_or_default(),
                carried,
                strikes: get!($row, "strikes"),
                banned_until_us: us!($row, "banned_until"),
                bans: get!($row, "bans"),
                ban_strikes: get!($row, "ban_strikes"),
                exception: None,
            },
            override_seq: get!($row, "override_seq"),
            holding: get!($row, "holding"),
            salt: salt!($row),
            row_hash: hash_of(get!($row, "row_hash"))?,
        })
    }};
}

/// The head that the last dropped row of a bucket left behind, from a row of `zone_txn_dropped`.
macro_rules! dropped {
    ($row:ident) => {
        Ok(StoredHead {
            key: text($row, "bucket_key")?,
            head: Head {
                seq: get!($row, "seq"),
                last_us: time($row, "created_at")?.timestamp_micros(),
                spent_total: get!($row, "spent_total"),
                level: get!($row, "level"),
                zone_version: get!($row, "zone_version"),
                strikes: get!($row, "strikes"),
                ..Head::default()
            },
            override_seq: None,
            holding: false,
            salt: salt!($row),
            row_hash: hash_of(get!($row, "row_hash"))?,
        })
    };
}

/// The seq of a head and what its bucket holds, from rows of `zone_bucket_lock` joined with `zone_hold`.
macro_rules! stored_holds {
    ($rows:ident) => {{
        let (mut head_seq, mut holds) = (0, Vec::new());
        for row in &$rows {
            head_seq = get!(row, "head_seq");
            let seq: Option<i64> = get!(row, "seq");
            if let Some(seq) = seq {
                holds.push(Hold {
                    seq,
                    charged_us: time(row, "charged_at")?.timestamp_micros(),
                    amount: get!(row, "amount"),
                    ends_us: time(row, "ends_at")?.timestamp_micros(),
                    member: text_if(row, "member")?,
                });
            }
        }
        Ok((head_seq, holds))
    }};
}

/// Versions with their hashes and clocks, from rows of `zone_version` and of `zone_calendar`.
macro_rules! chained_versions {
    ($rows:ident, $spans:ident) => {{
        let mut versions = Vec::with_capacity($rows.len());
        for row in &$rows {
            let version: Result<ZoneVersion> = zone_version!(row);
            let (version, row_hash) = (version?, hash_of(get!(row, "row_hash"))?);
            versions.push(Chained { version, row_hash, clock: Vec::new() });
        }
        for row in &$spans {
            let number: i32 = get!(row, "version");
            let of = versions.iter_mut().find(|version| version.version.version == number);
            if let Some(version) = of {
                version.clock.push(ClockSpan {
                    starts_us: get!(row, "starts_us"),
                    ends_us: get!(row, "ends_us"),
                    offset_us: get!(row, "offset_us"),
                    shown_us: get!(row, "shown_us"),
                });
            }
        }
        Ok(versions)
    }};
}
