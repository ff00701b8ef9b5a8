//! The choice of the database, of several, that decides a key: the one whose weight for it is the highest.
//!
//! Rendezvous hashing, by Thaler and Ravishankar, *Using name-based mappings to increase hit rates*, IEEE/ACM Transactions on
//! Networking 6(1), 1998. Every process that has the same names finds the same database, without asking anybody; a database
//! that is added takes its share of the keys from all others, and no other key moves. The bytes are told in
//! `docs/sharding.md`.

use std::cmp::Reverse;
use std::error::Error as _;
use std::fmt;

use crate::chain::sha256;
use crate::error::{Error, Result};

/// The longest name of a database, in bytes.
const NAME_MAX: usize = 63;

/// The source of the error of a bucket that was moved to another database: its name.
#[derive(Debug)]
struct Elsewhere(String);

impl fmt::Display for Elsewhere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} has the bucket", self.0)
    }
}

impl std::error::Error for Elsewhere {}

/// The error of a bucket that was moved to another database.
pub(crate) fn elsewhere(to: &str) -> Error {
    told_elsewhere(&format!("the bucket was moved to {to}; ask there"))
}

/// The error of a bucket that another database is to begin.
#[cfg(feature = "sqlite")]
pub(crate) fn belongs(to: &str) -> Error {
    told_elsewhere(&format!("the bucket belongs to {to}; ask there"))
}

/// The error of a bucket that another database has, as a routine tells it: see `zone_error`.
pub(crate) fn told_elsewhere(message: &str) -> Error {
    let place = message.split_once(" to ").map_or(message, |(_, place)| place);
    let place = place.strip_suffix("; ask there").unwrap_or(place);
    Error::refused(message).caused_by(Elsewhere(place.to_owned()))
}

/// The database that has the bucket; then nothing happened here.
pub(crate) fn moved_to(error: &Error) -> Option<&str> {
    let source = error.source().and_then(|source| source.downcast_ref::<Elsewhere>());
    source.map(|Elsewhere(to)| to.as_str())
}

/// The stage of a database in a list, while databases are added or taken out: see `docs/sharding.md`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It decides its keys.
    #[default]
    Settled,
    /// It decides what was moved to it, and nothing new.
    Known,
    /// It decides what others have left to it.
    Joining,
    /// It decides what it has not yet left to others.
    Leaving,
}

/// A database of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shard {
    pub name: String,
    pub stage: Stage,
}

impl Shard {
    /// From `NAME`, or `NAME/STAGE`.
    pub fn parse(text: &str) -> Result<Self> {
        let (name, stage) = text.split_once('/').unwrap_or((text, "settled"));
        validate_shard(name)?;
        let stage = match stage {
            "settled" => Stage::Settled,
            "known" => Stage::Known,
            "joining" => Stage::Joining,
            "leaving" => Stage::Leaving,
            _ => {
                return Err(Error::invalid(format!(
                    "{stage:?} is no stage of database {name}; one that is added is known, then joining, and one that is \
                     taken out is leaving"
                )));
            }
        };
        Ok(Self { name: name.to_owned(), stage })
    }

    /// Did it decide keys before the change?
    fn was(&self) -> bool {
        matches!(self.stage, Stage::Settled | Stage::Leaving)
    }

    /// Does it decide keys after the change?
    fn will(&self) -> bool {
        matches!(self.stage, Stage::Settled | Stage::Joining)
    }
}

/// Where in the list the databases of a key are: the one that had it before the list changes, and the one that has it then. None
/// where there is no such. All limits of a key meet there, whatever their zones.
pub(crate) fn owners<'s>(shards: impl IntoIterator<Item = &'s Shard>, key: &str) -> Option<(usize, usize)> {
    let (mut was, mut will) = (None, None);
    for (place, shard) in shards.into_iter().enumerate() {
        // Of equals the name that comes first.
        let weighed = Some((weight(&shard.name, key), Reverse(&*shard.name), place));
        was = if shard.was() { weighed.max(was) } else { was };
        will = if shard.will() { weighed.max(will) } else { will };
    }
    Some((was?.2, will?.2))
}

/// The names of the databases that decide keys before the list changes and afterwards, with a space between them.
pub(crate) type Among = (String, String);

/// Those of a list.
pub(crate) fn among<'s>(shards: impl Iterator<Item = &'s Shard> + Clone) -> Among {
    let names = |is_in: fn(&Shard) -> bool| {
        let mut names: Vec<&str> =
            shards.clone().filter(|shard| is_in(shard)).map(|shard| &*shard.name).collect();
        names.sort_unstable();
        names.join(" ")
    };
    (names(Shard::was), names(Shard::will))
}

/// The name, of several with a space between them, of the database to which a key belongs.
#[cfg(feature = "sqlite")]
pub(crate) fn home<'n>(names: &'n str, key: &str) -> &'n str {
    names.split(' ').max_by_key(|name| (weight(name, key), Reverse(*name))).unwrap_or(names)
}

/// The first 8 bytes of SHA-256 over the length of the name, the name and the key, as a number.
fn weight(name: &str, key: &str) -> u64 {
    // No name is longer than 63 bytes, so its length is a byte.
    let length = u8::try_from(name.len()).unwrap_or(u8::MAX);
    let [a, b, c, d, e, f, g, h, ..] = sha256(&[&[length], name.as_bytes(), key.as_bytes()]);
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

/// Whether a database may be called so: it is written in files, on command lines and before `=`.
pub(crate) fn validate_shard(name: &str) -> Result<()> {
    let good = (1..=NAME_MAX).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
    match good {
        true => Ok(()),
        false => Err(Error::invalid(format!(
            "{name:?} is no name of a database; use letters, digits, _, - and ., at most {NAME_MAX}"
        ))),
    }
}

/// The databases that a text names, each before its URL, with white space between them; None where it is one URL. In a URL of
/// the list white space is written `%20`.
pub(crate) fn databases(text: &str) -> Result<Option<Vec<(String, String)>>> {
    // In a URL a colon comes first, behind its scheme.
    if text.split_once('=').is_none_or(|(before, _)| before.contains(':')) {
        return Ok(None);
    }
    let named = |(place, part): (usize, &str)| match part.split_once('=') {
        Some((name, url)) if !name.contains(':') => Ok((name.to_owned(), url.to_owned())),
        _ => Err(Error::invalid(format!(
            "database {} of the list has no name; a list is: eu-1=postgres://… eu-2=mysql://…",
            place + 1
        ))),
    };
    text.split_ascii_whitespace().enumerate().map(named).collect::<Result<_>>().map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 5] = ["eu-1", "eu-2", "eu-3", "us-1", "us-2"];

    fn keys() -> impl Iterator<Item = String> {
        (0..20_000).map(|number| format!("user:{number}"))
    }

    fn owner_of<'n>(names: &[&'n str], key: &str) -> &'n str {
        let list: Vec<Shard> = names.iter().map(|name| Shard::parse(name).unwrap()).collect();
        let (was, will) = owners(&list, key).unwrap();
        assert_eq!(was, will);
        names[was]
    }

    #[test]
    fn the_vectors_of_another_implementation_agree() {
        let vectors: serde_json::Value =
            serde_json::from_str(include_str!("../tests/data/sharding.json")).unwrap();
        let mut seen = 0;
        for vector in vectors.as_array().unwrap() {
            let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
            let key = text(&vector["key"]);
            let weights = vector["weights"].as_object().unwrap();
            for (name, expected) in weights {
                assert_eq!(format!("{:016x}", weight(name, &key)), text(expected), "{name} {key}");
                seen += 1;
            }
            let names: Vec<&str> = weights.keys().map(String::as_str).collect();
            assert_eq!(owner_of(&names, &key), text(&vector["owner"]), "{key}");
        }
        assert!(seen > 100, "{seen}");
    }

    #[test]
    fn keys_are_spread_evenly() {
        for count in 1..=NAMES.len() {
            let names = &NAMES[..count];
            for name in names {
                let own = keys().filter(|key| owner_of(names, key) == *name).count();
                let (even, off) = (20_000 / count, 20_000 / count / 20);
                assert!(own.abs_diff(even) <= off, "{name} has {own} of {even}");
            }
        }
    }

    #[test]
    fn one_more_database_takes_its_share_and_moves_nothing_else() {
        for count in 1..NAMES.len() {
            let (before, after) = (&NAMES[..count], &NAMES[..=count]);
            let moved: Vec<String> =
                keys().filter(|key| owner_of(before, key) != owner_of(after, key)).collect();
            assert!(moved.iter().all(|key| owner_of(after, key) == NAMES[count]));
            let share = 20_000 / (count + 1);
            assert!(moved.len().abs_diff(share) <= share / 20, "{} moved instead of {share}", moved.len());
        }
    }

    #[test]
    fn one_less_gives_its_keys_away_and_moves_nothing_else() {
        for gone in NAMES {
            let left: Vec<&str> = NAMES.into_iter().filter(|name| *name != gone).collect();
            for key in keys() {
                let before = owner_of(&NAMES, &key);
                assert!(before == gone || owner_of(&left, &key) == before, "{key}");
            }
        }
    }

    #[test]
    fn the_order_of_the_list_is_irrelevant() {
        let mut names = NAMES;
        for _ in 0..NAMES.len() {
            names.rotate_left(1);
            assert!(keys().take(1_000).all(|key| owner_of(&names, &key) == owner_of(&NAMES, &key)));
        }
        assert_eq!(owners([], "user:1"), None);
    }

    #[test]
    fn a_list_that_changes_knows_where_a_key_was_and_where_it_will_be() {
        let before = ["eu-1", "eu-2", "eu-3"];
        let shards =
            |texts: &[&str]| texts.iter().map(|text| Shard::parse(text).unwrap()).collect::<Vec<_>>();
        for (list, after) in [
            (["eu-1", "eu-2", "eu-3", "us-1/known"], &before[..]),
            (["eu-1", "eu-2", "eu-3", "us-1/joining"], &["eu-1", "eu-2", "eu-3", "us-1"]),
            (["eu-1", "eu-2/leaving", "eu-3", "us-1/known"], &["eu-1", "eu-3"]),
            (["eu-1", "eu-2/leaving", "eu-3", "us-1/joining"], &["eu-1", "eu-3", "us-1"]),
        ] {
            let list = shards(&list);
            assert_eq!(among(list.iter()), (before.join(" "), after.join(" ")));
            for key in keys().take(1_000) {
                let (was, will) = owners(&list, &key).unwrap();
                assert_eq!(list[was].name, owner_of(&before, &key), "{key}");
                assert_eq!(list[will].name, owner_of(after, &key), "{key}");
            }
        }
        assert!(Shard::parse("eu-1/gone").unwrap_err().to_string().contains("no stage of database eu-1"));
        assert_eq!(owners(&shards(&["eu-1/known"]), "user:1"), None);
    }

    #[test]
    fn a_text_names_one_database_or_each_of_several() {
        let list = databases(" eu-1=postgres://a:b@c/d?e=f\n eu-2=sqlite:x.db ").unwrap().unwrap();
        let named = [("eu-1", "postgres://a:b@c/d?e=f"), ("eu-2", "sqlite:x.db")];
        assert_eq!(list, named.map(|(name, url)| (name.to_owned(), url.to_owned())));
        for one in ["postgres://a:b@c/d?e=f", "sqlite:my file.db", "sqlite:a=b", ""] {
            assert_eq!(databases(one).unwrap(), None, "{one}");
        }
        let error = databases("eu-1=sqlite:x postgres://a:secret@c/d").unwrap_err();
        assert!(error.is_invalid() && !error.to_string().contains("secret"), "{error}");
        assert!(databases("eu 1=sqlite:x").unwrap_err().to_string().starts_with("database 1 "));
    }

    #[test]
    fn a_name_is_letters_digits_and_little_else() {
        let long = "a".repeat(NAME_MAX);
        for name in ["a", "eu-1", "A_b.9", &long] {
            validate_shard(name).unwrap();
        }
        for name in ["", "a b", "a=b", "a:b", "é", "a/b", "a\n", &format!("{long}a")] {
            assert!(validate_shard(name).unwrap_err().is_invalid(), "{name:?}");
        }
    }
}
