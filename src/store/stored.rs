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
            zone_version: counted!($row, "zone_version"),
            seq: counted!($row, "seq"),
            kind: choice!($row, "kind"),
            checks: counted!($row, "checks"),
            blocked: get!($row, "blocked"),
            reason: choice!($row, "reason"),
            critical: get!($row, "critical"),
            band: band!($row),
            cost: counted!($row, "cost"),
            spent: counted!($row, "spent"),
            spent_total: counted!($row, "spent_total"),
            remaining: counted!($row, "remaining"),
            zone_limit: counted!($row, "zone_limit"),
            retry_after_us: counted!($row, "retry_after_us"),
            delay_us: counted!($row, "delay_us"),
            level: counted!($row, "level"),
            strikes: counted!($row, "strikes"),
            target_us: us!($row, "target_at"),
            at_us: time($row, "created_at")?.timestamp_micros(),
            prev_us: us!($row, "prev_at"),
            ends_us: us!($row, "ends_at"),
            member: text_if($row, "member")?,
            note: get!($row, "note"),
            actor: get!($row, "actor"),
            login: get!($row, "login"),
            salt: salt!($row),
            row_hash: hash_of(get!($row, "row_hash"))?,
        })
    };
}

/// A bucket's key and a limit of its own, from a row of `zone_override`.
macro_rules! bucket_override {
    ($row:ident) => {{
        let own = Exception {
            seq: counted!($row, "seq"),
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
        let zone_version: Option<i32> = counted!($row, "zone_version");
        let [amount, total, seq]: [Option<i64>; 3] =
            [counted!($row, "carried"), counted!($row, "carried_total"), counted!($row, "carried_seq")];
        let carried = match (amount, us!($row, "carried_at"), total, seq) {
            (Some(amount), Some(at_us), Some(total), Some(seq)) => Some(Carried { at_us, amount, total, seq }),
            (None, None, None, None) => None,
            _ => {
                return Err(Error::database(
                    "of carried, carried_at, carried_total and carried_seq some are missing; it was changed from outside",
                ));
            }
        };
        Ok(StoredHead {
            key: text($row, "bucket_key")?,
            head: Head {
                seq: counted!($row, "seq"),
                last_us: us!($row, "last_at").unwrap_or_default(),
                spent_total: counted!($row, "spent_total"),
                level: counted!($row, "level"),
                zone_version: zone_version.unwrap_or_default(),
                carried,
                strikes: counted!($row, "strikes"),
                banned_until_us: us!($row, "banned_until"),
                bans: counted!($row, "bans"),
                ban_strikes: counted!($row, "ban_strikes"),
                exception: None,
            },
            override_seq: counted!($row, "override_seq"),
            holding: get!($row, "holding"),
            salt: salt!($row),
            row_hash: hash_of(get!($row, "row_hash"))?,
            moved_to: get!($row, "moved_to"),
            moved_by: get!($row, "moved_by"),
            shapes: crate::store::shapes::shapes_of(get!($row, "shapes"))?,
        })
    }};
}

/// The head that the last dropped row of a bucket left behind, from a row of `zone_txn_dropped`.
macro_rules! dropped {
    ($row:ident) => {
        Ok(StoredHead {
            key: text($row, "bucket_key")?,
            head: Head {
                seq: counted!($row, "seq"),
                last_us: time($row, "created_at")?.timestamp_micros(),
                spent_total: counted!($row, "spent_total"),
                level: counted!($row, "level"),
                zone_version: counted!($row, "zone_version"),
                strikes: counted!($row, "strikes"),
                ..Head::default()
            },
            override_seq: None,
            holding: false,
            salt: salt!($row),
            row_hash: hash_of(get!($row, "row_hash"))?,
            moved_to: None,
            moved_by: None,
            shapes: Vec::new(),
        })
    };
}

/// The seq of a head and what its bucket holds, from rows of `zone_bucket_lock` joined with `zone_hold`.
macro_rules! stored_item {
    ($row:ident) => {{
        let payload = text_if($row, "payload")?;
        Ok(StoredItem {
            item: Item {
                seq: counted!($row, "seq"),
                txn: get!($row, "txn_id"),
                cost: counted!($row, "cost"),
                band: band!($row).unwrap_or(u8::MAX),
                offered_us: time($row, "offered_at")?.timestamp_micros(),
                deadline_us: us!($row, "deadline_at"),
                place: choice!($row, "place"),
                due_us: us!($row, "due_at"),
                takes: counted!($row, "takes"),
                last: get!($row, "is_last"),
                receipt: counted!($row, "receipt"),
                payload: payload.is_some(),
            },
            payload,
            recorded: text_if($row, "recorded")?,
        })
    }};
}

/// The holds of a bucket, and the seq of its head.
macro_rules! stored_holds {
    ($rows:ident) => {{
        let (mut head_seq, mut holds) = (0, Vec::new());
        for row in &$rows {
            head_seq = get!(row, "head_seq");
            let seq: Option<i64> = counted!(row, "seq");
            if let Some(seq) = seq {
                holds.push(Hold {
                    seq,
                    charged_us: time(row, "charged_at")?.timestamp_micros(),
                    amount: counted!(row, "amount"),
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
            versions.push(crate::store::row_of("zone_version", row, |row| {
                let (version, row_hash) = (zone_version!(row)?, hash_of(get!(row, "row_hash"))?);
                let (gcd, zone_gcd) = (get!(row, "rate_gcd"), get!(row, "zone_gcd"));
                Ok(Chained { version, gcd, zone_gcd, row_hash, clock: Vec::new() })
            })?);
        }
        for row in &$spans {
            let (number, span): (i32, _) = crate::store::row_of("zone_calendar", row, |row| {
                let span = ClockSpan {
                    starts_us: get!(row, "starts_us"),
                    ends_us: get!(row, "ends_us"),
                    offset_us: get!(row, "offset_us"),
                    shown_us: get!(row, "shown_us"),
                };
                Ok((get!(row, "version"), span))
            })?;
            let of = versions.iter_mut().find(|version| version.version.version == number);
            if let Some(version) = of {
                version.clock.push(span);
            }
        }
        Ok(versions)
    }};
}

/// The removal by an owner, from a row of `zone_removal`.
macro_rules! removal {
    ($row:ident) => {
        Ok(Removal {
            seq: counted!($row, "seq"),
            kind: get!($row, "kind"),
            removed_at: time($row, "removed_at")?,
            cut_at: time_if($row, "cut_at")?,
            bucket_key: text_if($row, "bucket_key")?,
            buckets: counted!($row, "buckets"),
            ledger_rows: counted!($row, "ledger_rows"),
            actor: get!($row, "actor"),
            login: get!($row, "login"),
            note: get!($row, "note"),
            row_hash: hash_of(get!($row, "row_hash"))?,
        })
    };
}

/// The removal that one follows, from a row of `removal/last.sql`.
macro_rules! before_removal {
    ($row:ident) => {{
        let (seq, hash): (Option<i64>, Option<&[u8]>) = (counted!($row, "seq"), get!($row, "row_hash"));
        Before {
            last: seq.zip(hash).map(|(seq, hash)| Ok::<_, Error>((seq, hash_of(hash)?))).transpose()?,
            removed_at: time(&$row, "removed_at")?,
            login: get!($row, "login"),
        }
    }};
}

/// A zone as it stood at a time.
macro_rules! zone_at {
    ($row:ident) => {
        Ok(ZoneAt {
            id: get!($row, "id"),
            name: get!($row, "name"),
            version: counted!($row, "version"),
            version_hash: hash_of(get!($row, "row_hash"))?,
        })
    };
}

/// A bucket as it stood at a time.
macro_rules! bucket_at {
    ($row:ident) => {{
        let (seq, hash): (Option<i64>, Option<&[u8]>) = (counted!($row, "seq"), get!($row, "row_hash"));
        Ok(BucketAt {
            key: text($row, "bucket_key")?,
            salt: salt!($row),
            is_lost: false,
            dropped: None,
            last: seq.zip(hash).map(|(seq, hash)| Ok((seq, hash_of(hash)?))).transpose()?,
        })
    }};
}

/// A row with all that its hash is made of.
macro_rules! evidence {
    ($row:ident) => {{
        let exception = crate::store::row_of("zone_override", $row, |$row| {
            let seq: Option<i64> = get!($row, "exception_seq");
            let Some(seq) = seq else { return Ok(None) };
            let (limit, ban_exempt) = (limit!($row), get!($row, "ban_exempt"));
            Ok(Some(Exception { seq, limit, ban_exempt, until_us: None }))
        })?;
        Ok(Evidence {
            key: text($row, "bucket_key")?,
            row: ledger_row($row)?,
            exception,
            salt: salt!($row),
            row_hash: hash_of(get!($row, "row_hash"))?,
        })
    }};
}

/// The reads of the audit from a store, by the statements that stand beside the caller: each page a statement of its
/// own.
macro_rules! ledger_reads {
    ($store:ident, $row:ty) => {
        impl $store {
            pub async fn ledger_txn(&self, txn: Uuid) -> Result<Vec<(Bucket, LedgerRow)>> {
                let rows = sqlx::query(include_str!("ledger_txn.sql")).bind(txn);
                let rows = rows.fetch_all(&mut *self.lease().await?).await.map_err(error)?;
                let bucket = |row: &$row| Ok::<_, Error>((get!(row, "zone_id"), text(row, "bucket_key")?));
                rows.iter().map(|row| Ok((bucket(row)?, ledger_row(row)?))).collect()
            }

            pub async fn ledger_range(&self, range: &Range, limit: u32) -> Result<Vec<(String, LedgerRow)>> {
                let rows = self.range(include_str!("ledger_range.sql"), range, limit).await?;
                rows.iter().map(|row| Ok((text(row, "bucket_key")?, ledger_row(row)?))).collect()
            }

            pub async fn heads(&self, range: &Range, limit: u32) -> Result<Vec<StoredHead>> {
                let rows = self.range(include_str!("heads_range.sql"), range, limit).await?;
                crate::store::rows_of("zone_bucket_lock", &rows, |row| stored_head!(row))
            }

            pub async fn dropped(&self, range: &Range, limit: u32) -> Result<Vec<StoredHead>> {
                let rows = self.range(include_str!("dropped_range.sql"), range, limit).await?;
                crate::store::rows_of("zone_txn_dropped", &rows, |row| dropped!(row))
            }

            pub async fn strays(&self, range: &Range, limit: u32) -> Result<Vec<String>> {
                let rows = self.range(include_str!("strays.sql"), range, limit).await?;
                rows.iter().map(|row| text(row, "bucket_key")).collect()
            }

            async fn range(&self, sql: &'static str, range: &Range, limit: u32) -> Result<Vec<$row>> {
                let rows = sqlx::query(sql).bind(range.zone_id).bind(&range.from).bind(&range.to);
                let rows = rows.bind(i64::from(limit));
                rows.fetch_all(&mut *self.lease().await?).await.map_err(error)
            }

            pub async fn bucket_overrides(&self, range: &Range) -> Result<Vec<(String, Exception)>> {
                let rows = sqlx::query(include_str!("bucket_overrides.sql"));
                let rows = rows.bind(range.zone_id).bind(&range.from).bind(&range.to);
                let rows = rows.fetch_all(&mut *self.lease().await?).await.map_err(error)?;
                crate::store::rows_of("zone_override", &rows, |row| bucket_override!(row))
            }

            pub async fn heads_removed(&self, zone_id: i32) -> Result<bool> {
                let removed = sqlx::query_scalar(include_str!("heads_removed.sql")).bind(zone_id);
                let removed = removed.fetch_optional(&mut *self.lease().await?).await.map_err(error)?;
                Ok(removed.unwrap_or(false))
            }

            pub async fn removals(&self, zone_id: i32, after: i64) -> Result<Vec<Removal>> {
                let rows = sqlx::query(include_str!("removals.sql")).bind(zone_id).bind(after);
                let rows = rows.fetch_all(&mut *self.lease().await?).await.map_err(error)?;
                crate::store::rows_of("zone_removal", &rows, |row| removal!(row))
            }

            pub async fn bucket_holds(&self, (zone_id, key): &Bucket) -> Result<(i64, Vec<Hold>)> {
                let rows = sqlx::query(include_str!("bucket_holds.sql")).bind(zone_id).bind(key);
                let rows = rows.fetch_all(&mut *self.lease().await?).await.map_err(error)?;
                let read = || stored_holds!(rows);
                read().map_err(|error: Error| error.at(format!("zone_hold: bucket_key {key:?}")))
            }

            pub async fn bucket_load(&self, (zone_id, key): &Bucket) -> Result<(i64, Kept)> {
                let row = sqlx::query(include_str!("queue/loaded.sql")).bind(zone_id).bind(key);
                let row = row.fetch_optional(&mut *self.lease().await?).await.map_err(error)?;
                let Some(row) = &row else { return Ok((0, Kept::default())) };
                let read = || {
                    let (waiting, away): (Option<i64>, Option<i64>) =
                        (counted!(row, "waiting"), counted!(row, "away"));
                    let load = Load { waiting: waiting.unwrap_or(0), away: away.unwrap_or(0) };
                    Ok(Kept { load, settled_us: us!(row, "settled_at") })
                };
                let kept =
                    read().map_err(|error: Error| error.at(format!("zone_queue: bucket_key {key:?}")))?;
                Ok((get!(row, "head_seq"), kept))
            }

            pub async fn bucket_items(&self, (zone_id, key): &Bucket, after: i64) -> Result<Vec<StoredItem>> {
                let rows = sqlx::query(include_str!("queue/bucket.sql")).bind(zone_id).bind(key).bind(after);
                let rows = rows.fetch_all(&mut *self.lease().await?).await.map_err(error)?;
                crate::store::rows_of(&format!("zone_item: bucket_key {key:?}"), &rows, |row| {
                    stored_item!(row)
                })
            }

            pub async fn zone_chain(&self, zone_id: i32) -> Result<Vec<Chained>> {
                let mut lease = self.lease().await?;
                let rows = sqlx::query(include_str!("zone_chain.sql")).bind(zone_id);
                let rows = rows.fetch_all(&mut *lease).await.map_err(error)?;
                let spans = sqlx::query(include_str!("zone_clocks.sql")).bind(zone_id);
                let spans = spans.fetch_all(&mut *lease).await.map_err(error)?;
                chained_versions!(rows, spans)
            }

            pub async fn ledger_zone_after(&self, zone_id: i32) -> Result<Option<i32>> {
                let next = sqlx::query_scalar(include_str!("ledger_zone_after.sql")).bind(zone_id);
                next.fetch_one(&mut *self.lease().await?).await.map_err(error)
            }
        }

        pub(super) fn ledger_row(row: &$row) -> Result<LedgerRow> {
            crate::store::row_of("zone_txn", row, |row| ledger_row!(row))
        }
    };
}
