//! The known part of a bucket's rows, and the questions that the core has asked of them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use super::{Question, Search};
use crate::decide::{Head, Ledger, Need};
use crate::error::Result;

/// The rows of a bucket, as far as they are known. Those that the batch makes itself are made now.
pub(super) struct Known {
    /// The head as it was loaded: that of the rows that were there before the batch.
    loaded: Head,
    now_us: i64,
    totals: Answers,
    reached: Answers,
    strikes: Answers,
    lack: Cell<Lack>,
    /// Nothing but the wait depends on the totals that the core asks for now.
    waits: Cell<bool>,
}

/// The thing that the core said it lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lack {
    Nothing,
    /// Something was not known that nothing depends on but the wait.
    Wait,
    /// It says nothing but what must be known.
    All,
}

/// Answers by what was asked: a time or a total. None where the database is still to be asked.
#[derive(Default)]
struct Answers(RefCell<BTreeMap<i64, Option<i64>>>);

impl Known {
    pub fn new(loaded: Head, now_us: i64) -> Self {
        let (totals, reached, strikes, waits) = Default::default();
        Self { loaded, now_us, totals, reached, strikes, lack: Cell::new(Lack::Nothing), waits }
    }

    /// Runs the core. None, where all is lacking.
    pub fn tell<T>(&self, core: impl FnOnce(&Self) -> Result<T, Need>) -> Result<(Option<T>, Lack)> {
        self.lack.set(Lack::Nothing);
        self.waits.set(false);
        let told = core(self);
        match (told, self.lack.get()) {
            (_, Lack::All) => Ok((None, Lack::All)),
            (Ok(told), lack) => Ok((Some(told), lack)),
            (Err(Need::Failed(error)), _) => Err(error),
            (Err(_), _) => Ok((None, Lack::All)),
        }
    }

    /// The questions that the database is still to be asked.
    pub fn questions(&mut self) -> Vec<Question> {
        let totals = self.totals.lacking().into_iter().map(Question::TotalBefore);
        let strikes = self.strikes.lacking().into_iter().map(Question::StrikesBefore);
        let mut questions: Vec<_> = totals.chain(strikes).collect();
        for total in self.reached.lacking() {
            questions.push(Question::Reached(self.search(total)));
        }
        questions
    }

    /// Takes in an answer of the database.
    pub fn put(&mut self, question: Question, answer: i64) {
        match question {
            Question::TotalBefore(at_us) => self.totals.put(at_us, answer),
            Question::Reached(search) => self.reached.put(search.total, answer),
            Question::StrikesBefore(at_us) => self.strikes.put(at_us, answer),
            // Asked by the engine itself.
            Question::BlockedSince(_) | Question::WasOpen => {}
        }
    }

    /// Where the time lies at which a total was reached, by the totals that are known.
    fn search(&mut self, total: i64) -> Search {
        let (mut after_us, mut until_us) = (self.loaded.last_us.saturating_sub(1 << 62), self.loaded.last_us);
        for (&before_us, answer) in self.totals.0.get_mut().iter() {
            match answer {
                Some(spent) if *spent < total => after_us = after_us.max(before_us.saturating_sub(1)),
                Some(_) => until_us = until_us.min(before_us.saturating_sub(1)),
                None => {}
            }
        }
        Search { total, after_us, until_us }
    }

    fn lacks(&self, lack: Lack) {
        self.lack.set(lack.max(self.lack.get()));
    }

    /// True when a row may be of that time or later.
    fn has_rows_from(&self, at_us: i64) -> bool {
        self.loaded.seq > 0 && at_us <= self.loaded.last_us
    }
}

/// An unknown sum is told so that the core goes on to ask for all that it may want to know: as if everything had
/// been spent in the window, and this very moment.
impl Ledger for Known {
    fn total_before(&self, at_us: i64) -> Result<i64, Need> {
        if !self.has_rows_from(at_us) {
            return Ok(self.loaded.spent_total);
        }
        Ok(self.totals.get(at_us).unwrap_or_else(|| {
            self.lacks(if self.waits.get() { Lack::Wait } else { Lack::All });
            0
        }))
    }

    fn reached(&self, total: i64) -> Result<Option<i64>, Need> {
        if total > self.loaded.spent_total {
            return Ok(Some(self.now_us));
        }
        // A search each, and what else lacks decides which one it is: so they are asked one after the other.
        if self.lack.get() > Lack::Nothing {
            return Ok(Some(self.now_us));
        }
        Ok(self.reached.get(total).or_else(|| {
            self.lacks(Lack::Wait);
            Some(self.now_us)
        }))
    }

    fn strikes_before(&self, at_us: i64) -> Result<i64, Need> {
        if !self.has_rows_from(at_us) {
            return Ok(self.loaded.strikes);
        }
        self.strikes.get(at_us).ok_or(Need::StrikesBefore(at_us))
    }

    fn waits(&self) {
        self.waits.set(true);
    }
}

impl Answers {
    fn get(&self, asked: i64) -> Option<i64> {
        *self.0.borrow_mut().entry(asked).or_default()
    }

    /// The questions that are still to be asked.
    fn lacking(&mut self) -> Vec<i64> {
        let asked = self.0.get_mut().iter();
        asked.filter(|(_, answer)| answer.is_none()).map(|(&asked, _)| asked).collect()
    }

    fn put(&mut self, asked: i64, answer: i64) {
        self.0.get_mut().insert(asked, Some(answer));
    }
}
