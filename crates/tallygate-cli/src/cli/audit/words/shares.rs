//! Quotas in sentences: leases, queues, predictions.

use tallygate::audit::explain::{ExplainedRow, Leased, OtherLease, Queued};
use tallygate::ledger::Kind;
use tallygate::{Policy, Reason};

use super::{Words, policy, span};
use crate::cli::duration;
use crate::cli::output::{many, plain};

impl Words<'_> {
    /// The settlements that the cost was predicted from.
    pub(super) fn predicted(&self, row: &ExplainedRow) -> String {
        let Some(shape) = row.row.member.as_deref().map(plain) else { return String::new() };
        match &row.predicted {
            Some(taught) => {
                let age = row.row.decided_at.signed_duration_since(taught.learned_at).num_microseconds();
                format!(
                    " That was predicted from {} of {}, the last of them {} before.",
                    many(taught.samples, "settlement"),
                    if taught.shared {
                        "shapes that were not kept apart".to_owned()
                    } else {
                        format!("the shape {shape}")
                    },
                    span(age.unwrap_or_default().max(0))
                )
            }
            None => {
                format!(" Of the shape {shape} nothing was known, so that was the cost that the caller gave.")
            }
        }
    }

    /// The clients among whom the capacity was shared.
    pub(super) fn shared(&self, row: &ExplainedRow, leased: &Leased) -> String {
        let told = &row.row;
        let sum = |of: fn(&OtherLease) -> i64| leased.others.iter().map(of).sum::<i64>();
        let [had, wanted] = [sum(|lease| lease.has), sum(|lease| lease.wants)];
        let others = many(leased.others.len(), "other client");
        let by = policy(row).and_then(Policy::sharing).map(|sharing| format!(" ({})", sharing.share));
        format!(
            "{} asked for {}, with a weight of {} in band {}. {others} had {had} of {} and wanted {wanted}. Its share{} came to {}.",
            told.member.as_deref().map(plain).unwrap_or_default(),
            told.cost,
            told.checks,
            told.band.unwrap_or_default(),
            row.limit,
            by.unwrap_or_default(),
            leased.share
        )
    }

    /// The lease that was granted.
    pub(super) fn granted(&self, row: &ExplainedRow) -> String {
        let told = &row.row;
        let Some(ends_at) = told.ends_at else {
            let client = told.member.as_deref().map(plain).unwrap_or_default();
            return format!("{client} gave its lease back; {} were left.", told.remaining);
        };
        let until = format!("It was granted {} until {}", told.spent, self.clock.show_end(ends_at));
        let refresh = told.retry_after_us.map(duration::show).unwrap_or_default();
        let why = match (&row.ban, told.reason) {
            (Some(ban), Reason::Banned) => format!(", since the resource was banned: {}", self.set(ban)),
            (None, Reason::Banned) => ", since the resource was banned".to_owned(),
            _ if row.leased.as_ref().is_some_and(|leased| told.spent < leased.share) => {
                ", since others had the rest and had not asked again yet".to_owned()
            }
            _ => String::new(),
        };
        format!("{until}{why}; {} were left. It was to ask again after {refresh}.", told.remaining)
    }

    /// The load of the queue.
    pub(super) fn waited(&self, row: &ExplainedRow, queued: &Queued) -> String {
        let told = &row.row;
        let Queued { waiting, away, .. } = *queued;
        let band = told.band.unwrap_or_default();
        let backlog = policy(row).and_then(Policy::queueing).map_or(0, |queueing| queueing.backlog);
        let about = format!("It was about an item of {} in band {band}.", many(told.cost, "unit"));
        match told.kind {
            // The offered item comes in before the others go.
            Kind::Evict => about,
            _ => format!(
                "{about} Of the backlog of {backlog}, {waiting} waited and {away} were taken or given back for later."
            ),
        }
    }

    /// The fate of the item.
    pub(super) fn worked(&self, row: &ExplainedRow) -> String {
        let told = &row.row;
        let end = told.ends_at.map(|at| self.clock.show_end(at)).unwrap_or_default();
        let left = format!("{} of the backlog were left.", told.remaining);
        let by = told.member.as_deref().map(|by| format!(" by {}", plain(by))).unwrap_or_default();
        match (told.kind, told.reason) {
            (Kind::Offer, Reason::WithinLimit) => {
                let deadline = told.ends_at.map(|_| format!(", until {end} at most")).unwrap_or_default();
                let backlog = policy(row).and_then(Policy::queueing).map(|queueing| queueing.backlog);
                let all = row.queued.as_ref().map(|Queued { waiting, away, .. }| waiting + away + told.cost);
                let made = if all > backlog { " Less important items had to make room for it." } else { "" };
                format!("It was offered, and was to wait{deadline}; {left}{made}")
            }
            (Kind::Offer, Reason::ExceedsLimit) => {
                "It was offered, and is dearer than all that can wait or be taken at once: it never will wait."
                    .to_owned()
            }
            (Kind::Offer, Reason::Banned) => {
                let ban = row.ban.as_ref().map(|ban| format!(": {}", self.set(ban))).unwrap_or_default();
                format!("It was offered, and refused, since the queue was banned{ban}.")
            }
            (Kind::Offer, _) => {
                let wait = told.retry_after_us.map(duration::show_wait).unwrap_or_default();
                format!(
                    "It was offered, and there was no room for it; {left} There could be room after {wait} at the earliest."
                )
            }
            (Kind::Take, _) => format!(
                "It was next, and was taken{by} until {}: take {}. The pace left {} of {} to be taken.",
                end, told.checks, told.remaining, row.limit
            ),
            (Kind::Extend, _) => format!("The worker that had taken it keeps it until {}; {left}", end),
            (Kind::Done, _) => format!("It was worked off; {left}"),
            (Kind::Requeue, _) if told.member.is_some() => {
                format!("It was dead after take {}, and is tried again{by}; {left}", told.checks)
            }
            (Kind::Requeue, _) if told.ends_at.is_none() => {
                format!("It was given back after take {}, which was the last: it is dead. {left}", told.checks)
            }
            (Kind::Requeue, _) => {
                format!("It was given back, to be taken again from {} on; {left}", end)
            }
            _ => format!(
                "It had to make room for what transaction {} offered; {left}",
                told.member.as_deref().map(plain).unwrap_or_default()
            ),
        }
    }
}
