//! Buckets of which upkeep dropped rows, in order, a page at a time.

use std::collections::VecDeque;

use crate::error::Result;
use crate::store::{Range, StoredHead};

/// Buckets that are read at a time.
pub(super) const PAGE: u32 = 1_000;

pub(super) struct Dropped {
    rest: Option<Range>,
    page: VecDeque<StoredHead>,
}

impl Dropped {
    pub fn of(range: Range) -> Self {
        Self { rest: Some(range), page: VecDeque::new() }
    }

    /// The next bucket, unless it comes behind this key. `read` reads the first [`PAGE`] of a range.
    pub async fn next_up_to(
        &mut self,
        key: Option<&str>,
        read: impl AsyncFnOnce(&Range) -> Result<Vec<StoredHead>>,
    ) -> Result<Option<StoredHead>> {
        if let (true, Some(rest)) = (self.page.is_empty(), &self.rest) {
            self.page = read(rest).await?.into();
            let last = self.page.back().filter(|_| self.page.len() >= PAGE as usize);
            self.rest = last.map(|last| rest.behind(&last.key));
        }
        Ok(self.page.pop_front_if(|dropped| key.is_none_or(|key| dropped.key.as_str() <= key)))
    }
}
