//! What a call writes: rows of the ledger, and what of a bucket is not in them.

use sqlx::SqliteConnection;
use uuid::Uuid;

use super::bucket::{Bucket, Mark, Turn};
use super::list::{List, Value};
use super::load::Name;
use super::statement::rows;
use crate::decide::{Head, Hold};
use crate::decision::Reason;
use crate::error::Result;
use crate::store::{Action, Request, What};

/// Rows of every table, each in its order.
#[derive(Default)]
pub(super) struct Writing {
    ledger: List,
    /// Has a row of the ledger more to say than most?
    more: bool,
    heads: List,
    ended: List,
    holds: List,
    overrides: List,
}

/// A row of the ledger, but for what the head says after it.
#[derive(Clone, Copy)]
struct Row<'r> {
    bucket: Name<'r>,
    txn: Uuid,
    kind: &'static str,
    seq: i64,
    checks: i32,
    blocked: bool,
    reason: Reason,
    critical: bool,
    cost: i64,
    spent: i64,
    remaining: i64,
    limit: i64,
    retry_after_us: Option<i64>,
    delay_us: Option<i64>,
    target_us: Option<i64>,
    before_us: Option<i64>,
    ends_us: Option<i64>,
    member: Option<&'r str>,
    note: Option<&'r str>,
    actor: Option<&'r str>,
}

impl Writing {
    /// A check, and the ban that it brought about. With `checks`, so many of them that nobody decided.
    pub fn check(&mut self, request: &Request, checks: Option<i32>, turn: &Turn) {
        let outcome = &turn.outcome;
        let bucket = (request.zone_id, request.key.as_str());
        let row = Row {
            bucket,
            txn: request.txn,
            kind: match (checks, request.ttl_us) {
                (Some(_), _) => "coalesced",
                (None, Some(_)) => "reserve",
                (None, None) => "check",
            },
            seq: turn.seq(),
            checks: checks.unwrap_or(1),
            blocked: outcome.blocked,
            reason: outcome.reason,
            critical: request.critical,
            cost: request.cost,
            spent: outcome.spent,
            remaining: outcome.remaining,
            limit: outcome.limit,
            retry_after_us: outcome.retry_after_us,
            delay_us: outcome.delay_us,
            target_us: None,
            before_us: turn.before_us(),
            ends_us: outcome.ends_us,
            member: request.member.as_deref(),
            note: None,
            actor: None,
        };
        self.row(&row, &outcome.head);
        if let Some(until_us) = outcome.banned_until_us {
            let ban = Row {
                kind: "ban",
                seq: outcome.head.seq,
                blocked: false,
                reason: Reason::Recorded,
                critical: false,
                cost: 0,
                spent: 0,
                remaining: 0,
                retry_after_us: None,
                delay_us: None,
                before_us: Some(outcome.decided_us),
                ends_us: Some(until_us),
                member: None,
                ..row
            };
            self.row(&ban, &outcome.head);
        }
        if let Some(hold) = &outcome.hold {
            self.hold(bucket, hold);
        }
    }

    /// What happened besides checks.
    pub fn mark(&mut self, action: &Action, mark: &Mark) {
        let Mark { happened, before_us, limit, remaining } = mark;
        let bucket = (action.zone_id, action.key.as_str());
        let row = Row {
            bucket,
            txn: action.txn,
            kind: action.what.kind(),
            seq: happened.head.seq,
            checks: 1,
            blocked: false,
            reason: if matches!(action.what, What::Unchecked(_)) {
                Reason::Unchecked
            } else {
                Reason::Recorded
            },
            critical: false,
            cost: happened.cost,
            spent: happened.spent,
            remaining: *remaining,
            limit: *limit,
            retry_after_us: None,
            delay_us: None,
            target_us: happened.target_us,
            before_us: *before_us,
            ends_us: happened.ends_us,
            member: None,
            note: action.note.as_deref(),
            actor: action.actor.as_deref(),
        };
        self.row(&row, &happened.head);
        if let Some(hold) = &happened.hold {
            self.hold(bucket, hold);
        }
        if let (What::Override(Some(_)), Some(exception)) = (action.what, happened.head.exception) {
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
        let Self { ledger, more, heads, ended, holds, overrides } = self;
        let append = if more { include_str!("append_more.sql") } else { include_str!("append.sql") };
        for (sql, list) in [
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

    fn row(&mut self, row: &Row<'_>, head: &Head) {
        let most = [
            row.txn.into(),
            row.bucket.0.into(),
            head.zone_version.into(),
            row.bucket.1.into(),
            row.seq.into(),
            row.kind.into(),
            row.checks.into(),
            row.blocked.into(),
            row.reason.as_str().into(),
            row.cost.into(),
            row.spent.into(),
            head.spent_total.into(),
            row.remaining.into(),
            row.limit.into(),
            row.retry_after_us.into(),
            head.level.into(),
            head.last_us.into(),
            row.before_us.into(),
        ];
        // Each further column comes dear, even where it says nothing.
        let times = [row.delay_us, row.target_us, row.ends_us];
        let texts = [row.member, row.note, row.actor];
        let plain = head.strikes == 0 && !row.critical;
        if plain && times.iter().all(Option::is_none) && texts.iter().all(Option::is_none) {
            return self.ledger.push(most);
        }
        self.more = true;
        let more = [head.strikes.into(), row.critical.into()];
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
