//! From rows to values. The databases' rows are of different types, but their columns have the same names
//! and meanings. Where these macros are used, `error` translates a driver's error, `time` reads a time and
//! `text` a bucket's key; `time_if` and `text_if` read what may be missing.

macro_rules! get {
    ($row:ident, $column:literal) => {
        $row.try_get($column).map_err(error)?
    };
}

/// A number that programs count.
macro_rules! counted {
    ($row:ident, $column:literal) => {
        counted!($column, get!($row, $column))
    };
    ($column:literal, $number:expr) => {
        crate::store::columns::counted($column, const { crate::store::columns::range($column) }, $number)?
    };
}

/// A decision of the routine for plain zones, and what it left of the bucket where that is simple. None for one that was made before:
/// that may have been of a kind of which the routine does not tell all.
macro_rules! plain {
    ($row:ident, $request:ident) => {{
        let replayed: bool = get!($row, "replayed");
        if replayed {
            return Ok(None);
        }
        let decided_at = time($row, "created_at")?;
        let decision = Decision {
            zone: $request.zone.clone(),
            key: $request.key.clone(),
            txn_id: $request.txn,
            blocked: get!($row, "blocked"),
            reason: choice!($row, "reason"),
            limit: counted!($row, "zone_limit"),
            remaining: counted!($row, "remaining"),
            retry_after_us: counted!($row, "retry_after_us"),
            delay_us: None,
            ends_at: None,
            seq: counted!($row, "seq"),
            zone_version: counted!($row, "zone_version"),
            decided_at,
            replayed,
            local: None,
        };
        let simple: bool = get!($row, "is_simple");
        let loaded = if simple {
            let (salt, hash): (Option<&[u8]>, &[u8]) = (get!($row, "salt"), get!($row, "row_hash"));
            let head = Head {
                seq: counted!($row, "seq"),
                last_us: decided_at.timestamp_micros(),
                spent_total: counted!($row, "spent_total"),
                level: counted!($row, "level"),
                zone_version: decision.zone_version,
                strikes: counted!($row, "strikes"),
                ..Head::default()
            };
            let end = End { salt: salt.map(salt_of).transpose()?, hash: hash_of(hash)? };
            Some(Loaded { head, end: Some(end), ..Loaded::default() })
        } else {
            None
        };
        Ok(Some((decision, loaded)))
    }};
}

/// A lease as it was granted.
macro_rules! standing {
    ($row:ident) => {
        Ok(Standing {
            seq: counted!($row, "seq"),
            since_us: get!($row, "since_us"),
            client: text_if($row, "member")?.unwrap_or_default(),
            wants: counted!($row, "wants"),
            weight: counted!($row, "weight"),
            band: band!($row).unwrap_or(u8::MAX),
            has: counted!($row, "has"),
            ends_us: get!($row, "ends_us"),
        })
    };
}

/// The load of a queue.
macro_rules! load {
    ($row:ident) => {{
        let load = || Ok(Load { waiting: counted!($row, "waiting"), away: counted!($row, "away") });
        load().map_err(|error: crate::error::Error| error.at("zone_queue"))?
    }};
}

/// An item of a queue.
macro_rules! item {
    ($row:ident) => {
        Ok(Item {
            seq: counted!($row, "seq"),
            txn: get!($row, "txn_id"),
            cost: counted!($row, "cost"),
            band: band!($row).unwrap_or(u8::MAX),
            offered_us: get!($row, "offered_us"),
            deadline_us: get!($row, "deadline_us"),
            place: choice!($row, "place"),
            due_us: get!($row, "due_us"),
            takes: counted!($row, "takes"),
            last: get!($row, "is_last"),
            receipt: counted!($row, "receipt"),
            payload: get!($row, "payload"),
        })
    };
}

/// Binds which items are asked for, as the routine `zone_engine_items` takes it.
#[cfg(any(feature = "postgres", feature = "mysql"))]
macro_rules! bind_which {
    ($query:expr, $which:expr) => {{
        let (which, band, after, most) = $which.asked();
        $query.bind(which).bind(band).bind(after.0).bind(after.1).bind(most)
    }};
}

/// The payload that was given with an item of a queue.
macro_rules! stored {
    ($row:ident) => {
        Ok(Stored {
            seq: counted!($row, "seq"),
            payload: text_if($row, "payload")?,
            recorded: text_if($row, "recorded")?,
        })
    };
}

/// The importance of what a row asks.
macro_rules! band {
    ($row:ident) => {{
        let band: Option<i16> = counted!($row, "band");
        band.and_then(|band| u8::try_from(band).ok())
    }};
}

/// A name of a choice.
macro_rules! choice {
    ($row:ident, $column:literal) => {
        crate::store::columns::named($column, get!($row, $column))?
    };
}

/// The policy of a row of `zone_master` or `zone_version`.
macro_rules! policy {
    ($row:ident) => {{
        use crate::store::columns::{named, torn};
        let calendar: [Option<&str>; 3] =
            [get!($row, "calendar"), get!($row, "time_zone"), get!($row, "clock")];
        let calendar = match calendar {
            [Some(unit), Some(time_zone), Some(clock)] => {
                let time_zone = crate::zone::TimeZoneName::stored(time_zone, clock)?;
                Some(Calendar { unit: named("calendar", unit)?, time_zone })
            }
            [None, None, None] => None,
            _ => return Err(torn(&["calendar", "time_zone", "clock"])),
        };
        let ban: (Option<i32>, Option<i64>, Option<i64>) =
            (get!($row, "ban_after"), get!($row, "ban_within_us"), get!($row, "ban_for_us"));
        let longer: (Option<i32>, Option<i64>, Option<&str>) =
            (get!($row, "ban_factor"), get!($row, "ban_max_us"), get!($row, "ban_from"));
        let ban = match (ban, longer) {
            ((Some(after), Some(within_us), Some(for_us)), (Some(factor), Some(longest_us), Some(from))) => {
                let from = named("ban_from", from)?;
                Some(BanRule { after, within_us, for_us, factor, longest_us, from })
            }
            ((None, None, None), (None, None, None)) => None,
            _ => {
                let columns =
                    ["ban_after", "ban_within_us", "ban_for_us", "ban_factor", "ban_max_us", "ban_from"];
                return Err(torn(&columns));
            }
        };
        let (share, refresh_us): (Option<&str>, Option<i64>) =
            (get!($row, "share"), get!($row, "refresh_us"));
        let (safe_capacity, guaranteed): (Option<i64>, Option<i64>) =
            (get!($row, "safe_capacity"), get!($row, "guaranteed"));
        let sharing = match (share, refresh_us) {
            (Some(share), Some(refresh_us)) => {
                Some(Sharing { share: named("share", share)?, refresh_us, safe_capacity, guaranteed })
            }
            (None, None) if safe_capacity.or(guaranteed).is_none() => None,
            _ => return Err(torn(&["share", "refresh_us", "safe_capacity", "guaranteed"])),
        };
        let queueing: (Option<i64>, Option<i32>) = (get!($row, "backlog"), get!($row, "max_takes"));
        let queueing = match queueing {
            (Some(backlog), Some(max_takes)) => Some(Queueing { backlog, max_takes }),
            (None, None) => None,
            _ => return Err(torn(&["backlog", "max_takes"])),
        };
        let policy = Policy::from_columns(
            choice!($row, "algorithm"),
            get!($row, "rate"),
            get!($row, "window_us"),
            get!($row, "burst"),
        );
        policy
            .map_err(crate::error::Error::stored)?
            .with_calendar(calendar)
            .with_soft_rate(get!($row, "soft_rate"))
            .with_reserve(get!($row, "reserve"))
            .with_mode(choice!($row, "mode"))
            .with_count_blocked(get!($row, "count_blocked"))
            .with_ban(ban)
            .with_on_outage(choice!($row, "on_outage"))
            .with_running_buckets(choice!($row, "running_buckets"))
            .with_durability(choice!($row, "durability"))
            .with_blocked_rows(choice!($row, "blocked_rows"))
            .stored(get!($row, "slots"), sharing, queueing, get!($row, "local_us"))
            .map_err(crate::error::Error::stored)
    }};
}

/// Binds the columns of a policy, in the order of the tables.
macro_rules! bind_policy {
    ($query:expr, $policy:expr) => {{
        let (policy, ban, calendar, sharing, queueing) =
            ($policy, $policy.ban(), $policy.by_calendar(), $policy.sharing(), $policy.queueing());
        $query
            .bind(policy.algorithm().as_str())
            .bind(policy.rate())
            .bind(policy.window_us())
            .bind(policy.burst())
            .bind(policy.gcd())
            .bind(policy.slots())
            .bind(calendar.map(|calendar| calendar.unit.as_str()))
            .bind(calendar.map(|calendar| calendar.time_zone.to_string()))
            .bind(policy.soft_rate())
            .bind(policy.reserve())
            .bind(policy.mode().as_str())
            .bind(policy.count_blocked())
            .bind(ban.map(|ban| ban.after))
            .bind(ban.map(|ban| ban.within_us))
            .bind(ban.map(|ban| ban.for_us))
            .bind(ban.map(|ban| ban.factor))
            .bind(ban.map(|ban| ban.longest_us))
            .bind(ban.map(|ban| ban.from.as_str()))
            .bind(policy.on_outage().as_str())
            .bind(policy.running_buckets().as_str())
            .bind(policy.durability().as_str())
            .bind(policy.blocked_rows().as_str())
            .bind(sharing.map(|sharing| sharing.share.as_str()))
            .bind(sharing.map(|sharing| sharing.refresh_us))
            .bind(sharing.and_then(|sharing| sharing.safe_capacity))
            .bind(sharing.and_then(|sharing| sharing.guaranteed))
            .bind(queueing.map(|queueing| queueing.backlog))
            .bind(queueing.map(|queueing| queueing.max_takes))
            .bind(policy.local_us())
            .bind(calendar.map(|calendar| calendar.time_zone.clock()))
    }};
}

/// Binds the columns of a bucket that moves, as the routines that append one row take them; `at` makes a time of microseconds.
macro_rules! bind_head {
    ($query:expr, $moved:expr, $at:expr) => {{
        let Moved { head, holding, .. } = $moved;
        let (carried, at) = (head.carried, $at);
        $query
            .bind(head.level)
            .bind(head.strikes)
            .bind(head.banned_until_us.map(at).transpose()?)
            .bind(head.ban_strikes)
            .bind(carried.map(|carried| carried.amount))
            .bind(carried.map(|carried| at(carried.at_us)).transpose()?)
            .bind(carried.map(|carried| carried.total))
            .bind(carried.map(|carried| carried.seq))
            .bind(head.exception.map(|exception| exception.seq))
            .bind(head.bans)
            .bind(holding)
    }};
}

/// Binds a check of one bucket to the routine that appends it, but for how it goes about others.
macro_rules! bind_append_one {
    ($query:expr, $moved:expr, $written:expr, $at:expr) => {{
        let Moved { name, is_new, before, before_hash, head, end, .. } = $moved;
        let Written { row, named, before_us, .. } = $written;
        let at = $at;
        let query = $query
            .bind(name.0)
            .bind(name.1)
            .bind(is_new)
            .bind(before.seq)
            .bind(&before_hash[..])
            .bind(before_us.map(at).transpose()?)
            .bind(before.spent_total)
            .bind(head.zone_version)
            .bind(row.txn)
            .bind(named)
            .bind(row.kind.as_str())
            .bind(row.checks)
            .bind(row.blocked)
            .bind(row.reason.as_str())
            .bind(row.critical)
            .bind(row.cost)
            .bind(row.spent)
            .bind(row.remaining)
            .bind(row.limit)
            .bind(row.retry_after_us)
            .bind(row.delay_us)
            .bind(row.ends_us.map(at).transpose()?)
            .bind(row.member)
            .bind(row.note)
            .bind(at(head.last_us)?);
        bind_head!(query, $moved, at).bind(end.salt.as_ref().map(|salt| &salt[..])).bind(&end.hash[..])
    }};
}

/// Binds what an operator does to the routine that appends it.
macro_rules! bind_operator_append {
    ($query:expr, $moved:expr, $written:expr, $at:expr) => {{
        let Moved { name, before, before_hash, head, end, .. } = $moved;
        let row = &$written.row;
        let (at, limit) = ($at, row.exception.and_then(|exception| exception.limit));
        let query = $query
            .bind(name.0)
            .bind(name.1)
            .bind(before.seq)
            .bind(&before_hash[..])
            .bind(head.zone_version)
            .bind(row.txn)
            .bind(row.kind.as_str())
            .bind(row.remaining)
            .bind(row.limit)
            .bind(at(head.last_us)?)
            .bind(row.ends_us.map(at).transpose()?);
        bind_head!(query, $moved, at)
            .bind(limit.map(|limit| limit.rate))
            .bind(limit.map(|limit| limit.window_us))
            .bind(limit.and_then(|limit| limit.burst))
            .bind(limit.map(|limit| limit.gcd))
            .bind(row.exception.map(|exception| exception.ban_exempt))
            .bind(row.note)
            .bind(row.actor)
            .bind(row.login)
            .bind(&end.hash[..])
    }};
}

/// The reads of zones, by the statements that stand beside the caller.
macro_rules! zone_reads {
    ($store:ident, $row:ty) => {
        impl $store {
            pub async fn zones(&self) -> Result<Vec<Zone>> {
                let rows = sqlx::query(include_str!("zones.sql"));
                let rows = rows.fetch_all(&mut *self.lease().await?).await.map_err(error)?;
                rows.iter().map(zone).collect()
            }

            pub async fn zone(&self, name: &str) -> Result<Option<Zone>> {
                let rows = sqlx::query(include_str!("zone.sql")).bind(name);
                let rows = rows.fetch_all(&mut *self.lease().await?).await.map_err(error)?;
                rows.first().map(zone).transpose()
            }

            pub async fn zone_versions(&self, zone_id: i32) -> Result<Vec<ZoneVersion>> {
                let rows = sqlx::query(include_str!("zone_versions.sql")).bind(zone_id);
                let rows = rows.fetch_all(&mut *self.lease().await?).await.map_err(error)?;
                crate::store::rows_of("zone_version", &rows, |row| zone_version!(row))
            }
        }

        fn zone(row: &$row) -> Result<Zone> {
            crate::store::row_of("zone_master", row, |row| zone!(row))
        }

        fn found(row: &$row) -> Result<Found> {
            let ban_after: Option<i32> = get!(row, "ban_after");
            Ok(Found {
                id: get!(row, "id"),
                version: get!(row, "version"),
                blocked_rows: choice!(row, "blocked_rows"),
                bans: ban_after.is_some(),
                on_outage: choice!(row, "on_outage"),
                policy: policy(row).ok(),
            })
        }

        fn policy(row: &$row) -> Result<Policy> {
            policy!(row)
        }
    };
}

/// Keeps the version that a zone is at now, with its calendar, unless it is kept already. The statements tell who is
/// logged in, which the table writes down by itself, tell the last version that is kept, and add one and its calendar.
macro_rules! keep_version {
    ($tx:ident, $zone:ident, $by:ident, $login:expr, $last:expr, $add:expr, $add_calendar:expr) => {{
        let kept = sqlx::query($last).bind($zone.id).fetch_all(&mut *$tx).await.map_err(error)?;
        let (kept, before) = match kept.first() {
            Some(row) => {
                let hash: &[u8] = get!(row, "row_hash");
                (get!(row, "version"), hash_of(hash)?)
            }
            None => (0, chain::zone($zone.id, &$zone.name)),
        };
        if kept < $zone.version {
            let login: Option<String> =
                sqlx::query_scalar($login).fetch_one(&mut *$tx).await.map_err(error)?;
            let version = chain::Version {
                version: $zone.version,
                policy: &$zone.policy,
                description: &$zone.description,
                changed_us: $zone.updated_at.timestamp_micros(),
                changed_by: $by,
                login: login.as_deref(),
            };
            let hash = version.hash(&before);
            let add = sqlx::query($add).bind($by).bind(&hash[..]).bind($zone.id);
            add.execute(&mut *$tx).await.map_err(error)?;
            let spans = $zone.policy.spans();
            if !spans.is_empty() {
                let add = sqlx::query($add_calendar).bind($zone.id).bind($zone.version).bind(spans_of(spans));
                add.execute(&mut *$tx).await.map_err(error)?;
            }
        }
    }};
}

/// The action by which upkeep records anew a ban or an override, from a row of `upkeep/in_force.sql`.
macro_rules! renewal {
    ($row:ident, $zone:ident, $now:ident) => {{
        let for_us = time_if($row, "ends_at")?.map(|at: DateTime<Utc>| micros_between($now, at));
        let exempt: Option<bool> = get!($row, "ban_exempt");
        let what = match (exempt, for_us) {
            (None, Some(for_us)) => What::Ban(for_us),
            (exempt, for_us) => {
                let ban_exempt = exempt.unwrap_or_default();
                What::Override(Some(Override { limit: limit!($row), ban_exempt, for_us }))
            }
        };
        let (key, at) = (text($row, "bucket_key")?, time($row, "created_at")?);
        let renewed = Renewed { key, actor: get!($row, "actor"), note: get!($row, "note"), at };
        Ok(renewed.action($zone, what))
    }};
}

/// The columns of `zone_charges`.
macro_rules! spending {
    ($row:ident) => {
        Ok(Spending {
            zone: get!($row, "zone"),
            key: text($row, "bucket_key")?,
            kind: choice!($row, "kind"),
            spent: counted!($row, "spent"),
            holds: get!($row, "holds"),
        })
    };
}

/// The columns of `check_velocity`.
macro_rules! velocity {
    ($row:ident) => {
        Ok(Velocity {
            blocked: get!($row, "blocked"),
            id: get!($row, "id"),
            zone_id: get!($row, "zone_id"),
            key: text($row, "bucket_key")?,
            rate: get!($row, "rate"),
            window_seconds: get!($row, "window_seconds"),
        })
    };
}

/// The limit of an override.
macro_rules! limit {
    ($row:ident) => {{
        let columns: [Option<i64>; 4] =
            [get!($row, "rate"), get!($row, "window_us"), get!($row, "burst"), get!($row, "rate_gcd")];
        match columns {
            [Some(rate), Some(window_us), burst, Some(gcd)] => {
                Some(Limit::stored(rate, window_us, burst, gcd).map_err(crate::error::Error::stored)?)
            }
            [None, None, None, None] => None,
            _ => return Err(crate::store::columns::torn(&["rate", "window_us", "burst", "rate_gcd"])),
        }
    }};
}

/// A bucket with an override, from a row of `zone_override` joined with its ledger row.
macro_rules! overridden {
    ($row:ident) => {
        Ok(Overridden {
            key: text($row, "bucket_key")?,
            limit: limit!($row),
            ban_exempt: get!($row, "ban_exempt"),
            ends_at: time_if($row, "ends_at")?,
            note: get!($row, "note"),
            set_by: get!($row, "actor"),
            login: get!($row, "login"),
            set_at: time($row, "created_at")?,
        })
    };
}

/// A zone from a row of `zone_master`.
macro_rules! zone {
    ($row:ident) => {
        Ok(Zone {
            id: get!($row, "id"),
            name: get!($row, "name"),
            description: get!($row, "description"),
            policy: policy($row)?,
            version: counted!($row, "version"),
            created_at: time($row, "created_at")?,
            updated_at: time($row, "updated_at")?,
        })
    };
}

/// A version from a row of `zone_version`.
macro_rules! zone_version {
    ($row:ident) => {
        Ok(ZoneVersion {
            version: counted!($row, "version"),
            description: get!($row, "description"),
            policy: policy!($row)?,
            changed_at: time($row, "changed_at")?,
            changed_by: get!($row, "changed_by"),
            login: get!($row, "login"),
        })
    };
}

/// An entry from a row of `zone_txn` joined with its zone's name.
macro_rules! entry {
    ($row:ident) => {{
        Ok(Entry {
            id: get!($row, "id"),
            decided_at: time($row, "created_at")?,
            zone: get!($row, "zone"),
            key: text($row, "bucket_key")?,
            seq: counted!($row, "seq"),
            txn_id: get!($row, "txn_id"),
            kind: choice!($row, "kind"),
            checks: counted!($row, "checks"),
            blocked: get!($row, "blocked"),
            reason: choice!($row, "reason"),
            cost: counted!($row, "cost"),
            spent: counted!($row, "spent"),
            spent_total: counted!($row, "spent_total"),
            remaining: counted!($row, "remaining"),
            retry_after_us: counted!($row, "retry_after_us"),
            delay_us: counted!($row, "delay_us"),
            level: counted!($row, "level"),
            critical: get!($row, "critical"),
            band: band!($row),
            member: text_if($row, "member")?,
            target_at: time_if($row, "target_at")?,
            ends_at: time_if($row, "ends_at")?,
            note: get!($row, "note"),
            actor: get!($row, "actor"),
            login: get!($row, "login"),
            zone_version: counted!($row, "zone_version"),
        })
    }};
}

/// A row of `zone_txn` as a report reads it.
macro_rules! line {
    ($row:ident) => {{
        Ok(Line {
            id: get!($row, "id"),
            txn_id: get!($row, "txn_id"),
            decided_at: time($row, "created_at")?,
            key: text($row, "bucket_key")?,
            kind: choice!($row, "kind"),
            checks: counted!($row, "checks"),
            blocked: get!($row, "blocked"),
            reason: choice!($row, "reason"),
            cost: counted!($row, "cost"),
            spent: counted!($row, "spent"),
            remaining: counted!($row, "remaining"),
            limit: counted!($row, "zone_limit"),
            ends_at: time_if($row, "ends_at")?,
            note: get!($row, "note"),
            actor: get!($row, "actor"),
            login: get!($row, "login"),
        })
    }};
}
