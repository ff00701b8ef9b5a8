//! The ledger's word about a run, beside what the callers were told.

use std::collections::HashMap;

use chrono::{DateTime, TimeDelta, Utc};
use serde::Serialize;
use tallygate::ledger::{Entry, History};
use tallygate::{Limiter, Policy};

use super::load::Load;
use super::told::{Bucket, Digest, Told};
use crate::cli::Result;
use crate::cli::most::Most;
use crate::cli::progress::progress;

/// Rows that are read from the database at a time: as many as it gives.
const PAGE: u32 = 10_000;

/// The findings.
#[derive(Debug, Serialize)]
pub struct Ledger {
    /// Rows of this run.
    pub rows: u64,
    /// Is every answer a row with the same content, without a gap in any bucket's rows?
    pub agrees: bool,
    /// Did no bucket spend more than its limit in any window?
    pub exact: bool,
    /// The most that one bucket spent in any window.
    pub most_in_any_window: i64,
    /// The place where it went wrong first.
    #[serde(skip)]
    pub fault: Option<String>,
}

/// Pages through the zone's rows since `start`, newest first, in memory that grows with the number of buckets
/// and not of rows.
pub async fn read(
    limiter: &Limiter,
    load: &Load,
    policy: &Policy,
    start: DateTime<Utc>,
    told: &Told,
) -> Result<Ledger> {
    let mut proof = Proof::new(&load.run, policy);
    let mut history = History::default().zone(load.zone).since(start).limit(PAGE);
    let bar = progress(None, "  reading the ledger  {human_pos} rows");
    loop {
        let page = limiter.auditor().history(&history).await?;
        for row in &page.rows {
            proof.add(row);
        }
        bar.set_position(proof.rows);
        match page.next {
            Some(next) => history.before = Some(next),
            None => break,
        }
    }
    bar.finish_and_clear();
    Ok(proof.end(&told.buckets))
}

/// The run's rows, read from the newest to the oldest.
struct Proof<'a> {
    run: &'a str,
    limit: i64,
    window: TimeDelta,
    rows: u64,
    seen: HashMap<u32, Seen>,
    fault: Option<String>,
}

/// The rows of one bucket.
#[derive(Default)]
struct Seen {
    rows: u64,
    last_seq: i64,
    /// The number of the row that was read last, which is the oldest so far.
    seq: i64,
    /// The total that the row before it must have.
    total_before: i64,
    digest: Digest,
    most: Most,
}

impl<'a> Proof<'a> {
    fn new(run: &'a str, policy: &Policy) -> Self {
        let window = TimeDelta::microseconds(policy.window_us());
        Self { run, limit: policy.limit(), window, rows: 0, seen: HashMap::new(), fault: None }
    }

    /// Reads the next older row of the zone.
    fn add(&mut self, row: &Entry) {
        let number = row.key.strip_prefix(self.run).and_then(|rest| rest.strip_prefix(':')?.parse().ok());
        let Some(number) = number else { return };
        self.rows += 1;
        let seen = self.seen.entry(number).or_default();
        if seen.rows == 0 {
            seen.last_seq = row.seq;
        } else if row.seq != seen.seq - 1 || row.spent_total != seen.total_before {
            let (seq, total) = (seen.seq, seen.total_before);
            self.fault.get_or_insert_with(|| {
                format!(
                    "before row {seq} of bucket {:?} stands row {} with a total of {}, not {total}",
                    row.key, row.seq, row.spent_total
                )
            });
        }
        seen.rows += 1;
        seen.seq = row.seq;
        seen.total_before = row.spent_total - row.spent;
        seen.digest.add_row(row);
        seen.most.add(row, self.window);
    }

    fn end(mut self, told: &HashMap<u32, Bucket>) -> Ledger {
        let none = (Seen::default(), Bucket::default());
        let untold = self.seen.keys().filter(|number| !told.contains_key(number));
        let mut numbers = told.keys().chain(untold);
        let fault = numbers.find_map(|number| {
            let (seen, told) =
                (self.seen.get(number).unwrap_or(&none.0), told.get(number).unwrap_or(&none.1));
            let reason = disagreement(seen, told)?;
            Some(format!("bucket {:?} {reason}", format!("{}:{number}", self.run)))
        });
        let fault = self.fault.take().or(fault);
        let most = self.seen.values().map(|seen| seen.most.found()).max().unwrap_or_default();
        let (agrees, exact) = (fault.is_none(), most <= self.limit);
        let fault = fault.or_else(|| {
            (!exact).then(|| {
                format!("a bucket spent {most} in one window, more than its limit of {}", self.limit)
            })
        });
        Ledger { rows: self.rows, agrees, exact, most_in_any_window: most, fault }
    }
}

/// The difference between the rows of a bucket and what was told about it. A call without an answer may have
/// left a row.
fn disagreement(seen: &Seen, told: &Bucket) -> Option<String> {
    let (rows, answered) = (seen.rows, told.answered);
    if rows < answered || rows > answered + told.errors {
        return Some(format!("has {rows} rows for {answered} answers"));
    }
    if rows > 0 && (seen.seq, seen.total_before) != (1, 0) {
        return Some(format!("begins with row {}", seen.seq));
    }
    if seen.last_seq < told.last_seq {
        return Some(format!(
            "ends with row {}, before row {} that was answered",
            seen.last_seq, told.last_seq
        ));
    }
    (rows == answered && seen.digest != told.digest)
        .then(|| "has rows that differ from what was answered".to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tallygate::Reason;
    use tallygate::ledger::Kind;
    use uuid::Uuid;

    use super::*;

    const LIMIT: i64 = 3;

    /// A bucket's ledger, oldest row first: a charge of 1 every 20 s, so that at most 3 are in a minute.
    fn rows() -> Vec<Entry> {
        let row = |seq: i64| Entry {
            id: seq,
            decided_at: DateTime::from_timestamp(20 * seq, 0).unwrap(),
            zone: "bench".to_owned(),
            key: "run:7".to_owned(),
            seq,
            txn_id: Uuid::from_u128(seq as u128),
            kind: Kind::Check,
            checks: 1,
            blocked: false,
            reason: Reason::WithinLimit,
            critical: false,
            band: None,
            member: None,
            cost: 1,
            spent: 1,
            spent_total: seq,
            remaining: 0,
            retry_after_us: None,
            delay_us: None,
            level: None,
            target_at: None,
            ends_at: None,
            note: None,
            actor: None,
            login: None,
            zone_version: 1,
        };
        (1..=5).map(row).collect()
    }

    /// The answers that callers had about these rows.
    fn told(rows: &[Entry], errors: u64) -> HashMap<u32, Bucket> {
        let mut bucket = Bucket { answered: rows.len() as u64, errors, ..Bucket::default() };
        bucket.last_seq = rows.iter().map(|row| row.seq).max().unwrap_or_default();
        rows.iter().for_each(|row| bucket.digest.add_row(row));
        HashMap::from([(7, bucket)])
    }

    fn prove(rows: &[Entry], told: &HashMap<u32, Bucket>) -> Ledger {
        let policy = Policy::sliding_log(LIMIT, Duration::from_secs(60)).unwrap();
        let mut proof = Proof::new("run", &policy);
        rows.iter().rev().for_each(|row| proof.add(row));
        proof.end(told)
    }

    #[test]
    fn a_ledger_of_what_was_told_agrees_and_rows_of_others_do_not_count() {
        let mut rows = rows();
        let told = told(&rows, 0);
        rows.push(Entry { key: "other:7".to_owned(), ..rows[0].clone() });
        let ledger = prove(&rows, &told);
        assert_eq!((ledger.rows, ledger.agrees, ledger.exact), (5, true, true), "{ledger:?}");
        assert_eq!((ledger.most_in_any_window, ledger.fault), (LIMIT, None));
    }

    #[test]
    fn a_row_that_is_missing_doubled_or_other_than_was_told_is_found() {
        type Harm = fn(&mut Vec<Entry>);
        let harms: [(Harm, &str); 8] = [
            (|rows| drop(rows.remove(2)), "before row 4"),
            (|rows| drop(rows.remove(0)), "4 rows for 5 answers"),
            (|rows| drop(rows.pop()), "4 rows for 5 answers"),
            (|rows| rows.clear(), "0 rows for 5 answers"),
            (|rows| rows.insert(1, rows[1].clone()), "before row 2"),
            (|rows| rows[1].txn_id = Uuid::nil(), "differ from what was answered"),
            (|rows| rows[2].seq = 9, "before row 4"),
            (|rows| rows[1].spent_total = 9, "a total of 9, not 2"),
        ];
        for (harm, because) in harms {
            let mut rows = rows();
            let told = told(&rows, 0);
            harm(&mut rows);
            let ledger = prove(&rows, &told);
            assert!(!ledger.agrees, "{because}");
            assert!(ledger.fault.as_ref().is_some_and(|fault| fault.contains(because)), "{ledger:?}");
        }
        assert!(!prove(&rows(), &HashMap::new()).agrees, "rows that nobody was told of");
    }

    #[test]
    fn a_call_without_an_answer_may_have_left_a_row_or_none() {
        let rows = rows();
        assert!(prove(&rows, &told(&rows, 2)).agrees);
        assert!(prove(&rows, &told(&rows[..4], 1)).agrees);
        assert!(!prove(&rows, &told(&rows[..3], 1)).agrees);
        assert!(!prove(&rows[..4], &told(&rows, 1)).agrees);
        let mut answered = rows[..4].to_vec();
        answered[3].seq = 6;
        let ledger = prove(&rows, &told(&answered, 2));
        assert!(ledger.fault.is_some_and(|fault| fault.contains("before row 6 that was answered")));
    }

    #[test]
    fn a_charge_above_the_limit_of_a_window_is_found_to_the_microsecond() {
        let mut rows = rows();
        rows[3].decided_at -= TimeDelta::microseconds(1);
        let ledger = prove(&rows, &told(&rows, 0));
        assert_eq!((ledger.agrees, ledger.exact, ledger.most_in_any_window), (true, false, LIMIT + 1));
        assert!(ledger.fault.unwrap().contains("more than its limit of 3"));
    }
}
