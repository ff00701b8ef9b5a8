//! The chain of hashes: what makes a change of the ledger show.
//!
//! Each row of a bucket is hashed together with the hash of the row before it, the first one with a hash of the bucket's
//! name; each version of a zone with that of the version before it, the first one with the zone's name. SHA-256
//! (FIPS 180-4). The bytes are specified in `docs/chain.md`; the routines of each database write the same.
//!
//! A key, a member, a note and an author's name enter by a hash of their own under the bucket's random salt. So they can
//! be erased, salt and all, and the chain still closes: in their place stands that hash, as `erased:` and 64 hexadecimal
//! digits. Without the salt nobody can find out by guessing what it was.

mod removal;

use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::check::ERASED;
use crate::decide::Exception;
use crate::decision::Reason;
use crate::entry::Kind;
use crate::zone::Policy;

pub use removal::{Removal, removals};

/// A hash: 32 bytes.
pub type Hash = [u8; 32];

/// The random bytes that a bucket's texts are hashed with, 16 of them. None once they are erased.
pub type Salt = [u8; 16];

/// The place that the chain of a bucket has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// The bucket's salt; None once it is erased.
    pub salt: Option<Salt>,
    /// The hash of its last row; before the first, that of its name.
    pub hash: Hash,
}

impl End {
    /// The chain of a new bucket.
    pub fn new(zone_id: i32, key: &str) -> Self {
        let salt = Some(Uuid::new_v4().into_bytes());
        Self { salt, hash: bucket(salt.as_ref(), zone_id, key) }
    }

    /// Reads the form in which SQLite has it: 64 hexadecimal digits of the hash, and 32 of the salt.
    pub fn from_hex(digits: &str) -> Option<Self> {
        let (hash, salt) = digits.split_at_checked(64)?;
        let salt = if salt.is_empty() { None } else { Some(unhex(salt)?) };
        Some(Self { salt, hash: unhex(hash)? })
    }

    /// Appends a row, and tells its hash.
    pub fn append(&mut self, row: &Row<'_>) -> Hash {
        self.hash = row.hash(&self.hash, self.salt.as_ref());
        self.hash
    }
}

/// A row of the ledger as it is hashed. Times are microseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub struct Row<'r> {
    /// The transaction.
    pub txn: Uuid,
    /// Position in the bucket.
    pub seq: i64,
    /// The version of the zone that decided.
    pub zone_version: i32,
    /// The number of checks that the row stands for.
    pub checks: i32,
    /// May the transaction not pass?
    pub blocked: bool,
    /// Could the check take from the reserve?
    pub critical: bool,
    /// The importance of a lease or of an item of a queue.
    pub band: Option<u8>,
    /// The cost that was asked for.
    pub cost: i64,
    /// The cost that was spent.
    pub spent: i64,
    /// The bucket's spending in all.
    pub spent_total: i64,
    /// The units that could still be spent.
    pub remaining: i64,
    /// The most that could have been spent.
    pub limit: i64,
    /// The wait that was promised.
    pub retry_after_us: Option<i64>,
    /// The time until the caller's turn.
    pub delay_us: Option<i64>,
    /// The level after the row.
    pub level: Option<i64>,
    /// Blocked checks that counted for bans.
    pub strikes: i64,
    /// The time of the charge that the row ends.
    pub target_us: Option<i64>,
    /// The time when it was decided.
    pub decided_us: i64,
    /// The time when what the row began ends by itself.
    pub ends_us: Option<i64>,
    /// The kind of thing that the row records.
    pub kind: Kind,
    /// The reason.
    pub reason: Reason,
    /// The member that the check was about.
    pub member: Option<&'r str>,
    /// Why, as people wrote it.
    pub note: Option<&'r str>,
    /// The person who did it, as was said.
    pub actor: Option<&'r str>,
    /// The name by which the session was logged in that did it.
    pub login: Option<&'r str>,
    /// The limit that the row sets.
    pub exception: Option<Exception>,
}

impl Row<'_> {
    /// The row's hash, given that of the row before it.
    pub fn hash(&self, before: &Hash, salt: Option<&Salt>) -> Hash {
        let mut sha256 = Sha256::new();
        sha256.update(before);
        self.put(salt, &mut |bytes| sha256.update(bytes));
        sha256.finalize().into()
    }

    /// The bytes that are hashed behind the hash of the row before it: some 200, and no text that people wrote but by
    /// its hash.
    pub fn bytes(&self, salt: Option<&Salt>) -> Vec<u8> {
        let mut all = Vec::with_capacity(256);
        self.put(salt, &mut |bytes| all.extend_from_slice(bytes));
        all
    }

    fn put(&self, salt: Option<&Salt>, put: &mut impl FnMut(&[u8])) {
        let mut bytes = Bytes(put);
        bytes.put(self.txn.as_bytes());
        bytes.number(self.seq);
        bytes.put(&self.zone_version.to_be_bytes());
        bytes.put(&self.checks.to_be_bytes());
        bytes.put(&[self.blocked.into(), self.critical.into()]);
        bytes.number(self.cost);
        bytes.number(self.spent);
        bytes.number(self.spent_total);
        bytes.number(self.remaining);
        bytes.number(self.limit);
        bytes.number_if(self.retry_after_us);
        bytes.number_if(self.delay_us);
        bytes.number_if(self.level);
        bytes.number(self.strikes);
        bytes.number_if(self.target_us);
        bytes.number(self.decided_us);
        bytes.number_if(self.ends_us);
        bytes.put(self.kind.as_str().as_bytes());
        bytes.put(b"|");
        bytes.put(self.reason.as_str().as_bytes());
        for text in [self.member, self.note, self.actor, self.login] {
            bytes.part(text, |bytes, text| bytes.put(&self::text(salt, text)));
        }
        bytes.part(self.exception, |bytes, exception| {
            let limit = exception.limit;
            bytes.number_if(limit.map(|limit| limit.rate));
            bytes.number_if(limit.map(|limit| limit.window_us));
            bytes.number_if(limit.and_then(|limit| limit.burst));
            bytes.number_if(limit.map(|limit| limit.gcd));
            bytes.put(&[exception.ban_exempt.into()]);
        });
        if let Some(band) = self.band {
            bytes.put(&[band]);
        }
    }
}

/// The hash that a bucket's ledger begins with.
pub fn bucket(salt: Option<&Salt>, zone_id: i32, key: &str) -> Hash {
    erased(salt, key)
        .unwrap_or_else(|| sha256(&[salt.map_or(&[], |salt| salt), &zone_id.to_be_bytes(), key.as_bytes()]))
}

/// The hash that the head of a bucket has which was moved to another database: over that of its last row and the other's name.
pub(crate) fn moved(last: &Hash, to: &str) -> Hash {
    sha256(&[last, to.as_bytes()])
}

/// The hash by which a text enters the hash of its row.
pub fn text(salt: Option<&Salt>, text: &str) -> Hash {
    erased(salt, text).unwrap_or_else(|| sha256(&[salt.map_or(&[], |salt| salt), text.as_bytes()]))
}

/// The text that stands in the place of an erased one.
pub fn tombstone(hash: &Hash) -> String {
    format!("{ERASED}{}", hex(hash))
}

/// Does it stand in the place of a text that is erased?
pub fn is_erased(text: &str) -> bool {
    erased(None, text).is_some()
}

/// An erased text is stood for by its hash.
fn erased(salt: Option<&Salt>, text: &str) -> Option<Hash> {
    if salt.is_some() {
        return None;
    }
    unhex(text.strip_prefix(ERASED)?)
}

/// The hash that the versions of a zone begin with.
pub fn zone(zone_id: i32, name: &str) -> Hash {
    sha256(&[format!("{zone_id}|{name}").as_bytes()])
}

/// A version of a zone as it is hashed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Version<'v> {
    /// Its number.
    pub version: i32,
    /// Its policy.
    pub policy: &'v Policy,
    /// The purpose of the zone.
    pub description: &'v str,
    /// When it came into force, in microseconds since 1970.
    pub changed_us: i64,
    /// The person who made it, as was said.
    pub changed_by: &'v str,
    /// The name by which the session was logged in that made it.
    pub login: Option<&'v str>,
}

impl Version<'_> {
    /// The version's hash, given that of the version before it.
    pub fn hash(&self, before: &Hash) -> Hash {
        let (policy, ban, calendar) = (self.policy, self.policy.ban(), self.policy.by_calendar());
        let mut line = format!("{}|{}|{}", hex(before), self.version, policy.algorithm().as_str());
        let mut add = |value: Option<String>| {
            line.push('|');
            line.push_str(value.as_deref().unwrap_or_default());
        };
        add(Some(policy.rate().to_string()));
        add(Some(policy.window_us().to_string()));
        add(policy.burst().map(|burst| burst.to_string()));
        add(Some(policy.gcd().to_string()));
        add(policy.slots().map(|slots| slots.to_string()));
        add(calendar.map(|calendar| calendar.unit.as_str().to_owned()));
        add(calendar.map(|calendar| calendar.time_zone.to_string()));
        add(policy.soft_rate().map(|rate| rate.to_string()));
        add(Some(policy.reserve().to_string()));
        add(Some(policy.mode().as_str().to_owned()));
        add(Some(i32::from(policy.count_blocked()).to_string()));
        add(ban.map(|ban| ban.after.to_string()));
        add(ban.map(|ban| ban.within_us.to_string()));
        add(ban.map(|ban| ban.for_us.to_string()));
        add(ban.map(|ban| ban.factor.to_string()));
        add(ban.map(|ban| ban.longest_us.to_string()));
        add(ban.map(|ban| ban.from.as_str().to_owned()));
        add(Some(policy.on_outage().as_str().to_owned()));
        add(Some(policy.running_buckets().as_str().to_owned()));
        add(Some(policy.durability().as_str().to_owned()));
        add(Some(policy.blocked_rows().as_str().to_owned()));
        add(Some(self.changed_us.to_string()));
        add(Some(hex(&sha256(&[self.description.as_bytes()]))));
        add(Some(hex(&sha256(&[self.changed_by.as_bytes()]))));
        add(self.login.map(|login| hex(&sha256(&[login.as_bytes()]))));
        add(calendar.map(|calendar| hex(&sha256(&[calendar.time_zone.clock().as_bytes()]))));
        if let Some(sharing) = policy.sharing() {
            add(Some(sharing.share.as_str().to_owned()));
            add(Some(sharing.refresh_us.to_string()));
            add(sharing.safe_capacity.map(|units| units.to_string()));
            add(sharing.guaranteed.map(|units| units.to_string()));
        }
        if let Some(queueing) = policy.queueing() {
            add(Some(queueing.backlog.to_string()));
            add(Some(queueing.max_takes.to_string()));
        }
        if let Some(local_us) = policy.local_us() {
            add(Some(format!("local {local_us}")));
        }
        sha256(&[line.as_bytes()])
    }
}

/// Bytes as two hexadecimal digits each.
pub fn hex(bytes: &[u8]) -> String {
    let digit = |half: u8| char::from(b"0123456789abcdef"[usize::from(half)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// Bytes from two hexadecimal digits each.
pub fn unhex<const N: usize>(digits: &str) -> Option<[u8; N]> {
    let digits = digits.as_bytes();
    let mut bytes = [0; N];
    if digits.len() != 2 * N {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |digit: u8| char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

/// The hash of parts that follow each other.
pub fn sha256(parts: &[&[u8]]) -> Hash {
    let mut sha256 = Sha256::new();
    parts.iter().for_each(|part| sha256.update(part));
    sha256.finalize().into()
}

/// Bytes on their way into a hash.
struct Bytes<'p, P>(&'p mut P);

impl<P: FnMut(&[u8])> Bytes<'_, P> {
    fn put(&mut self, bytes: &[u8]) {
        (self.0)(bytes);
    }

    fn number(&mut self, number: i64) {
        self.put(&number.to_be_bytes());
    }

    /// A missing number is the least one.
    fn number_if(&mut self, number: Option<i64>) {
        self.number(number.unwrap_or(i64::MIN));
    }

    /// A one and the bytes, or a zero.
    fn part<T>(&mut self, part: Option<T>, put: impl FnOnce(&mut Self, T)) {
        self.put(&[part.is_some().into()]);
        if let Some(part) = part {
            put(self, part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of docs/chain.md, which was reckoned by another program.
    #[test]
    fn the_example_of_the_document_has_its_hash() {
        let salt = std::array::from_fn(|n| n as u8);
        let start = bucket(Some(&salt), 1, "user:42");
        assert_eq!(hex(&start), "8c62aeabfa6ea3310317e766009a299b506fdd5e031e83018125c7a5929c2311");
        let row = Row {
            txn: Uuid::from_u128(1),
            seq: 1,
            zone_version: 1,
            checks: 1,
            blocked: false,
            critical: false,
            band: None,
            cost: 1,
            spent: 1,
            spent_total: 1,
            remaining: 4,
            limit: 5,
            retry_after_us: None,
            delay_us: None,
            level: None,
            strikes: 0,
            target_us: None,
            decided_us: 1_767_225_600_000_000,
            ends_us: None,
            kind: Kind::Check,
            reason: Reason::WithinLimit,
            member: None,
            note: None,
            actor: None,
            login: None,
            exception: None,
        };
        let hash = row.hash(&start, Some(&salt));
        assert_eq!(hex(&hash), "6493fd264890d6761de8302d698bd42ee2c33e96467a084f3cc4101850b2f66e");
    }

    #[test]
    fn what_is_erased_keeps_its_hash() {
        let salt = [7; 16];
        let start = bucket(Some(&salt), 3, "203.0.113.7");
        assert_eq!(bucket(None, 3, &tombstone(&start)), start);
        let member = text(Some(&salt), "card:9f3c");
        assert_eq!(text(None, &tombstone(&member)), member);
        assert_ne!(text(Some(&salt), &tombstone(&member)), member, "a text that only looks erased");
        assert_ne!(text(None, "erased:no hash"), member);
    }

    #[test]
    fn hexadecimals_go_there_and_back() {
        assert_eq!(unhex::<3>(&hex(&[0, 171, 255])), Some([0, 171, 255]));
        assert_eq!(unhex::<3>("00abF"), None);
        assert_eq!(unhex::<3>("00abfg"), None);
    }
}
