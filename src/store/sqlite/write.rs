//! What a call writes: rows of the ledger, and what of a bucket is not in them.

use std::collections::HashMap;

use sqlx::SqliteConnection;
use uuid::Uuid;

use super::bucket::{Bucket, Mark, Turn};
use super::list::{List, Value};
use super::load::Name;
use super::statement::rows;
use crate::chain::{End, Row};
use crate::decide::{Head, Hold};
use crate::decision::Reason;
use crate::error::Result;
use crate::store::{Action, Request, What};

/// Rows of every table, each in its order.
pub(super) struct Writing<'w> {
    /// Where the chain of each bucket has come to.
    ends: HashMap<Name<'w>, End>,
    ledger: List,
    /// Has a row of the ledger more to say than most?
    more: bool,
    removed: List,
    heads: List,
    ended: List,
    holds: List,
    overrides: List,
}

impl<'w> Writing<'w> {
    pub fn new(buckets: &[Bucket<'w>]) -> Self {
        let ends = buckets.iter().map(|bucket| ((bucket.zone_id, bucket.key), bucket.end)).collect();
        let (ledger, removed, heads, ended, holds, overrides) = Default::default();
        Self { ends, ledger, more: false, removed, heads, ended, holds, overrides }
    }

    /// A check, and the ban that it brought about. With `checks`, so many of them that nobody decided.
    pub fn check(&mut self, request: &'w Request, checks: Option<i32>, turn: &Turn) {
        let outcome = &turn.outcome;
        let bucket = (request.zone_id, request.key.as_str());
        let row = Row {
            kind: match (checks, request.ttl_us) {
                (Some(_), _) => "coalesced",
                (None, Some(_)) => "reserve",
                (None, None) => "check",
            },
            seq: turn.seq(),
            checks: checks.unwrap_or(1),
            blocked: outcome.blocked,
            reason: outcome.reason.as_str(),
            critical: request.critical,
            cost: request.cost,
            spent: outcome.spent,
            remaining: outcome.remaining,
            retry_after_us: outcome.retry_after_us,
            delay_us: outcome.delay_us,
            ends_us: outcome.ends_us,
            member: request.member.as_deref(),
            ..plain(request.txn, &outcome.head, outcome.limit)
        };
        self.row(bucket, turn.before_us(), &row);
        if let Some(until_us) = outcome.banned_until_us {
            let ban = Row {
                kind: "ban",
                ends_us: Some(until_us),
                ..plain(request.txn, &outcome.head, outcome.limit)
            };
            self.row(bucket, Some(outcome.decided_us), &ban);
        }
        if let Some(hold) = &outcome.hold {
            self.hold(bucket, hold);
        }
    }

    /// What happened besides checks.
    pub fn mark(&mut self, action: &'w Action, mark: &Mark) {
        let Mark { happened, before_us, limit, remaining } = mark;
        let bucket = (action.zone_id, action.key.as_str());
        let is_override = matches!(action.what, What::Override(Some(_)));
        let exception = happened.head.exception.filter(|_| is_override);
        let reason =
            if matches!(action.what, What::Unchecked(_)) { Reason::Unchecked } else { Reason::Recorded };
        let row = Row {
            kind: action.what.kind().as_str(),
            reason: reason.as_str(),
            cost: happened.cost,
            spent: happened.spent,
            remaining: *remaining,
            target_us: happened.target_us,
            ends_us: happened.ends_us,
            note: action.note.as_deref(),
            actor: action.actor.as_deref(),
            exception,
            ..plain(action.txn, &happened.head, *limit)
        };
        self.row(bucket, *before_us, &row);
        if let Some(hold) = &happened.hold {
            self.hold(bucket, hold);
        }
        if let Some(exception) = exception {
            let limit = exception.limit;
            self.overrides.push([
                bucket.0.into(),
                bucket.1.into(),
                exception.seq.into(),
                limit.map(|limit| limit.rate).into(),
                limit.map(|limit| limit.window_us).into(),
                limit.and_then(|limit| limit.burst).into(),
                limit.map(|limit| limit.gcd).into(),
                exception.ban_exempt.into(),
                exception.until_us.into(),
            ]);
        }
    }

    /// What became of a bucket besides its rows.
    pub fn bucket(&mut self, bucket: &Bucket<'_>) {
        if let Some(head) = bucket.head_to_add() {
            self.removed.push([
                bucket.zone_id.into(),
                bucket.key.into(),
                head.seq.into(),
                head.last_us.into(),
                head.spent_total.into(),
                head.level.into(),
                head.zone_version.into(),
                head.strikes.into(),
                bucket.end.salt.as_ref().map(|salt| Value::Bytes(salt)).into(),
                Value::Bytes(&bucket.end.hash),
            ]);
        }
        let Some((head, holding)) = bucket.changed_head() else { return };
        self.heads.push([
            bucket.zone_id.into(),
            bucket.key.into(),
            head.banned_until_us.into(),
            head.bans.into(),
            head.ban_strikes.into(),
            head.carried.map(|carried| carried.amount).into(),
            head.carried.map(|carried| carried.at_us).into(),
            head.carried.map(|carried| carried.total).into(),
            head.carried.map(|carried| carried.seq).into(),
            head.exception.map(|exception| exception.seq).into(),
            holding.into(),
        ]);
    }

    /// What has ended in a bucket and is of no more use to it.
    pub fn drop_ended(&mut self, bucket: &Bucket<'_>) {
        self.ended.push([bucket.zone_id.into(), bucket.key.into(), bucket.now_us().into()]);
    }

    pub async fn write(self, connection: &mut SqliteConnection) -> Result<()> {
        let Self { ledger, more, removed, heads, ended, holds, overrides, .. } = self;
        let append = if more { include_str!("append_more.sql") } else { include_str!("append.sql") };
        for (sql, list) in [
            (include_str!("heads_add.sql"), removed),
            (append, ledger),
            (include_str!("heads_set.sql"), heads),
            (include_str!("holds_end.sql"), ended),
            (include_str!("holds_add.sql"), holds),
            (include_str!("override_add.sql"), overrides),
        ] {
            rows(connection, sql, list).await?;
        }
        Ok(())
    }

    fn row(&mut self, (zone_id, key): Name<'w>, before_us: Option<i64>, row: &Row<'_>) {
        // Every bucket of the call was loaded.
        let end = self.ends.entry((zone_id, key)).or_insert_with(|| End::new(zone_id, key));
        let hash = end.append(row);
        let salt = end.salt.filter(|_| row.seq == 1);
        let most = [
            (&row.txn).into(),
            zone_id.into(),
            row.zone_version.into(),
            key.into(),
            row.seq.into(),
            row.kind.into(),
            row.checks.into(),
            row.blocked.into(),
            row.reason.into(),
            row.cost.into(),
            row.spent.into(),
            row.spent_total.into(),
            row.remaining.into(),
            row.limit.into(),
            row.retry_after_us.into(),
            row.level.into(),
            row.decided_us.into(),
            before_us.into(),
            Value::Bytes(&hash),
            salt.as_ref().map(|salt| Value::Bytes(salt)).into(),
        ];
        // Each further column comes dear, even where it says nothing.
        let times = [row.delay_us, row.target_us, row.ends_us];
        let texts = [row.member, row.note, row.actor];
        let plain = row.strikes == 0 && !row.critical;
        if plain && times.iter().all(Option::is_none) && texts.iter().all(Option::is_none) {
            return self.ledger.push(most);
        }
        self.more = true;
        let more = [row.strikes.into(), row.critical.into()];
        let (times, texts) = (times.map(Value::from), texts.map(Value::from));
        self.ledger.push_all(most.into_iter().chain(more).chain(times).chain(texts));
    }

    fn hold(&mut self, (zone_id, key): Name<'_>, hold: &Hold) {
        self.holds.push([
            zone_id.into(),
            key.into(),
            hold.seq.into(),
            hold.charged_us.into(),
            hold.amount.into(),
            hold.ends_us.into(),
            Value::from(hold.member.as_deref()),
        ]);
    }
}

/// A row that says what the head does, and else nothing.
fn plain(txn: Uuid, head: &Head, limit: i64) -> Row<'static> {
    Row {
        txn,
        seq: head.seq,
        zone_version: head.zone_version,
        checks: 1,
        blocked: false,
        critical: false,
        cost: 0,
        spent: 0,
        spent_total: head.spent_total,
        remaining: 0,
        limit,
        retry_after_us: None,
        delay_us: None,
        level: head.level,
        strikes: head.strikes,
        target_us: None,
        decided_us: head.last_us,
        ends_us: None,
        kind: "",
        reason: Reason::Recorded.as_str(),
        member: None,
        note: None,
        actor: None,
        login: None,
        exception: None,
    }
}
