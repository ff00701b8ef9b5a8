//! The engine's hands in a caller's transaction, whose snapshot may be older than the buckets that it holds.

use std::collections::HashMap;

use async_trait::async_trait;
use sqlx::Executor;
use uuid::Uuid;

use super::session::Session;
use super::{error, is_killed};
use crate::decide::{Shape, Standing};
use crate::engine::{self, Appended, Asked, Charged, Fate, Held, Name, Question, Wanted, Writing};
use crate::entry::LedgerRow;
use crate::error::Result;

/// The number of times that it is killed while it goes back.
const KILLS: usize = 8;

/// A session that holds its buckets one by one, in their order, and answers with the rows that the snapshot hides, too.
///
/// These are the last of a bucket, for rows are committed in their order.
pub(super) struct Joined<'c> {
    session: Session<'c>,
    /// By bucket, in order: the rows that are hidden, and what the transaction has added behind them.
    hidden: HashMap<(i32, String), Vec<LedgerRow>>,
}

impl<'c> Joined<'c> {
    pub fn new(session: Session<'c>) -> Self {
        Self { session, hidden: HashMap::new() }
    }

    fn hidden_of(&self, (zone_id, key): Name<'_>) -> &[LedgerRow] {
        self.hidden.get(&(zone_id, key.to_owned())).map_or(&[], Vec::as_slice)
    }

    /// One bucket, by one transaction that may have been there before.
    async fn hold_one(&mut self, wanted: &Wanted<'_>, n: usize, txn: Option<(usize, Uuid)>) -> Result<Held> {
        let (names, moves) = (&wanted.names[n..=n], &wanted.moves[n..=n]);
        let txns: Vec<_> = txn.iter().map(|(_, txn)| (0, *txn)).collect();
        // A bucket that is only looked at is not held.
        self.session.lock = wanted.moves[n];
        let held =
            engine::Session::hold(&mut self.session, &Wanted { names, moves, txns: &txns, ..*wanted }).await;
        self.session.lock = true;
        let mut held = held?;
        let mut hidden = std::mem::take(&mut held.hidden);
        hidden.reverse();
        for (place, _) in &mut held.past {
            *place = txn.map_or(0, |(place, _)| place);
        }
        if let Some((place, txn)) = txn {
            let shown = held.past.len();
            for row in hidden.iter().filter(|row| row.txn_id == txn) {
                if !held.past[..shown].iter().any(|(_, past)| past.seq == row.seq) {
                    held.past.push((place, row.clone()));
                }
            }
            held.past.sort_by_key(|(_, row)| row.seq);
        }
        let (zone_id, key) = wanted.names[n];
        self.hidden.insert((zone_id, key.to_owned()), hidden);
        Ok(held)
    }
}

#[async_trait]
impl engine::Session for Joined<'_> {
    async fn hold(&mut self, wanted: &Wanted<'_>) -> Result<Held> {
        let mut all = Held::default();
        for n in 0..wanted.names.len() {
            let mut txns = wanted.txns.iter().enumerate().filter(|(_, (place, _))| *place == n);
            let first = txns.next().map(|(place, (_, txn))| (place, *txn));
            let mut held = self.hold_one(wanted, n, first).await?;
            for (place, (_, txn)) in txns {
                held.past.extend(self.hold_one(wanted, n, Some((place, *txn))).await?.past);
            }
            // The last reading of the clock is after all locks.
            all.now_us = held.now_us;
            all.heads.append(&mut held.heads);
            all.past.append(&mut held.past);
            all.holds.extend(held.holds.drain().map(|(_, holds)| (n, holds)));
            all.answers.extend(held.answers.drain(..).map(|(_, question, answer)| (n, question, answer)));
            for (zone_id, versions) in held.versions {
                let known = all.versions.entry(zone_id).or_insert_with(|| versions.clone());
                if known.len() < versions.len() {
                    *known = versions;
                }
            }
        }
        Ok(all)
    }

    async fn answer(&mut self, questions: &[Asked<'_>]) -> Result<Vec<Option<i64>>> {
        let shown = self.session.answer(questions).await?;
        let with_hidden =
            |(asked, shown): (&Asked<'_>, _)| with_hidden(self.hidden_of(asked.name), asked.question, shown);
        Ok(questions.iter().zip(shown).map(with_hidden).collect())
    }

    async fn charges(&mut self, windows: &[(Name<'_>, i64)], limit: usize) -> Result<Vec<Vec<Charged>>> {
        self.session.charges(windows, limit).await
    }

    async fn leases(&mut self, name: Name<'_>) -> Result<Vec<Standing>> {
        self.session.leases(name).await
    }

    async fn shapes(&mut self, name: Name<'_>) -> Result<Vec<Shape>> {
        self.session.shapes(name).await
    }

    async fn login(&mut self) -> Result<Option<String>> {
        self.session.login().await
    }

    /// Rows that were refused, and those of a statement that was killed, are taken back: a caller may commit what is
    /// left.
    async fn append(&mut self, writing: &Writing<'_>) -> Result<Appended> {
        let appended = self.session.append(writing).await;
        let is_whole = |appended: &Appended| appended.fates.iter().all(|fate| *fate == Fate::Appended);
        if !appended.as_ref().is_ok_and(is_whole) {
            // There is none where nothing was begun, or all was ended. This statement may be killed, too.
            let back = "rollback to savepoint tallygate_append; release savepoint tallygate_append";
            for _ in 0..KILLS {
                let done = self.session.connection.execute(back).await.map_err(error);
                if !done.is_err_and(|error| is_killed(&error)) {
                    break;
                }
            }
        }
        appended
    }
}

/// The answer of all rows of a bucket, of which the last are hidden, by that of those which the snapshot shows.
fn with_hidden(hidden: &[LedgerRow], question: Question, shown: Option<i64>) -> Option<i64> {
    let Some(first) = hidden.first() else { return shown };
    match question {
        Question::TotalBefore(us) => match hidden.iter().find(|row| row.at_us >= us) {
            // A row that is shown may be the first from then on, too.
            Some(row) if row.seq == first.seq => Some(before(row).min(shown.unwrap_or(i64::MAX))),
            Some(row) => Some(before(row)),
            None => shown,
        },
        Question::Reached(search) if before(first) < search.total => {
            let row = hidden.iter().find(|row| row.spent_total >= search.total);
            row.map(|row| row.at_us).or(shown)
        }
        Question::StrikesBefore(us) => {
            hidden.iter().rfind(|row| row.at_us < us).map(|row| row.strikes).or(shown)
        }
        Question::Reached(_) | Question::BlockedSince(_) | Question::WasOpen => shown,
    }
}

/// The total before a row.
fn before(row: &LedgerRow) -> i64 {
    row.spent_total - row.spent
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::Reason;
    use crate::engine::Search;
    use crate::entry::Kind;

    /// A row of one unit, at so many seconds.
    fn row(seq: i64, at_s: i64) -> LedgerRow {
        LedgerRow {
            id: seq,
            txn_id: Uuid::nil(),
            zone_version: 1,
            seq,
            kind: Kind::Check,
            checks: 1,
            blocked: false,
            reason: Reason::WithinLimit,
            critical: false,
            band: None,
            cost: 1,
            spent: 1,
            spent_total: seq,
            remaining: 0,
            zone_limit: 9,
            retry_after_us: None,
            delay_us: None,
            level: None,
            strikes: 10 * seq,
            target_us: None,
            at_us: at_s,
            prev_us: None,
            ends_us: None,
            member: None,
            note: None,
            actor: None,
            login: None,
            salt: None,
            row_hash: [0; 32],
        }
    }

    /// Rows 1 to 8, at 1 to 8. However many are hidden, and however many of the last are the transaction's own and shown: the
    /// answers are those of all.
    #[test]
    fn answers_are_those_of_all_rows() {
        let all: Vec<_> = (1..=8).map(|n| row(n, n)).collect();
        for hides in 0..8 {
            for own in 0..=8 - hides {
                let shown: Vec<_> = all[..8 - own - hides].iter().chain(&all[8 - own..]).collect();
                let hidden = if hides == 0 { &[] } else { &all[8 - own - hides..] };
                for us in 1..=8 {
                    let total = shown.iter().find(|row| row.at_us >= us).map(|row| before(row));
                    assert_eq!(with_hidden(hidden, Question::TotalBefore(us), total), Some(us - 1));
                    let strikes = shown.iter().rfind(|row| row.at_us < us).map_or(0, |row| row.strikes);
                    let strikes = with_hidden(hidden, Question::StrikesBefore(us), Some(strikes));
                    assert_eq!(strikes, Some(10 * (us - 1)));
                    let reached = shown.iter().find(|row| row.spent_total >= us).map(|row| row.at_us);
                    let search = Search { total: us, after_us: 0, until_us: 8 };
                    assert_eq!(with_hidden(hidden, Question::Reached(search), reached), Some(us));
                }
            }
        }
    }
}
