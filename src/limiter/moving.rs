//! Buckets that go from one database to another.

use serde::Serialize;

use super::{Limiter, Owner, until};
use crate::check::validate_key;
use crate::error::{Error, Result};
use crate::store::Moving;
use crate::zone::validate_name;

/// Characters of a database's name, as callers know it.
const NAME_CHARACTERS: usize = 64;

/// What is told of a list of databases.
const APART: &str =
    "a bucket goes from one database to another, and this is a list of several; connect to each by itself";

/// A bucket that was moved, see [`Owner::move_bucket`](crate::schema::Owner::move_bucket).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Moved {
    /// The zone.
    pub zone: String,
    /// The key.
    pub key: String,
    /// Where it was.
    pub from: String,
    /// Where it is now.
    pub to: String,
    /// How many rows of the ledger this call copied: 0 when an earlier one had copied all.
    pub rows: u64,
}

impl Limiter {
    /// Leaves a bucket of which there is nothing here to another database, and tells whether it is left to that one: false
    /// when it is here. In a bucket that is left nothing happens here any more; every call about it is refused, and says
    /// where it is. The same again tells the same.
    ///
    /// One transaction, which holds the bucket's lock; of a bucket in use it waits for nothing. `to` is the name by which
    /// callers know the other database, 1 to 64 characters.
    ///
    /// # Errors
    /// Unknown zone. Refused: it was left or moved to yet another database. Transient: see [`check`](Self::check).
    pub async fn leave_bucket(&self, zone: &str, key: &str, to: &str) -> Result<bool> {
        validate_name(zone)?;
        validate_key(key)?;
        validate_database(to)?;
        let inner = self.shards.only(APART)?;
        inner
            .within(async {
                let bucket = (inner.zone(zone).await?.id, key.to_owned());
                let mut tries = inner.tries(until(inner.config.deadline));
                loop {
                    match inner.store.leave(&bucket, to).await {
                        Err(error) if tries.again(&error).await => {}
                        result => return result,
                    }
                }
            })
            .await
    }
}

impl Owner {
    /// Moves a bucket with all its rows from this database to another one, of any kind; its chain goes on there. `from` and
    /// `to` are the names by which callers know the two, 1 to 64 characters.
    ///
    /// For the owner of the tables of both. Rows are copied while checks go on; the bucket's lock (on SQLite the file's) is
    /// held for the last of them. From then on every call about the bucket is refused here and answered there, and never
    /// by both. Its rows stay here, as a chain that is closed. A call that was cut off, anywhere, leaves nothing undone that
    /// the same call does not do when it is made again; until then it may be that neither database decides.
    ///
    /// # Errors
    /// Invalid, and nothing is done: there is no such bucket; the other database has no such zone, of the same number and
    /// with the same versions; it has decided in this bucket itself. Refused: the bucket was moved to a third one.
    /// Transient: a lock could not be had, or somebody else moves the bucket; move it again.
    pub async fn move_bucket(&self, to: &Self, zone: &str, key: &str, names: (&str, &str)) -> Result<Moved> {
        let (from_name, to_name) = names;
        validate_name(zone)?;
        validate_key(key)?;
        validate_database(from_name)?;
        validate_database(to_name)?;
        if from_name == to_name {
            return Err(Error::invalid(format!(
                "a bucket cannot be moved from {from_name:?} to itself; name another database"
            )));
        }
        let (here, there) = (self.shards.only(APART)?, to.shards.only(APART)?);
        let zone_id = here.zone(zone).await?.id;
        let moving = Moving { zone_id, zone, key, from: from_name, to: to_name };
        let mut tries = here.tries(until(here.config.deadline));
        loop {
            match here.store.move_bucket(&there.store, &moving).await {
                Err(error) if tries.again(&error).await => {}
                Err(error) => return Err(error),
                Ok(rows) => {
                    let [zone, key, from, to] = [zone, key, from_name, to_name].map(str::to_owned);
                    return Ok(Moved { zone, key, from, to, rows });
                }
            }
        }
    }
}

fn validate_database(name: &str) -> Result<()> {
    let characters = name.chars().count();
    if (1..=NAME_CHARACTERS).contains(&characters) && !name.chars().any(char::is_control) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "no database can be called {name:?}; use 1 to {NAME_CHARACTERS} characters, none of them a control character"
    )))
}
