//! The caller, and what he may do.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::problem::Problem;

/// The rights of a caller, as the roles of the same names in the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Right {
    /// To check, reserve, settle, cancel, refund and release.
    App,
    /// To read the ledger and the zones.
    Auditor,
    /// To set zones, bans and overrides.
    Operator,
    /// To read `/metrics`, as every caller may. It is no role of the database.
    Metrics,
}

/// A right that there is not.
#[derive(Debug)]
pub struct UnknownRight(String);

impl Right {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::App => "app",
            Self::Auditor => "auditor",
            Self::Operator => "operator",
            Self::Metrics => "metrics",
        }
    }
}

impl FromStr for Right {
    type Err = UnknownRight;

    fn from_str(name: &str) -> Result<Self, UnknownRight> {
        [Self::App, Self::Auditor, Self::Operator, Self::Metrics]
            .into_iter()
            .find(|right| right.as_str() == name)
            .ok_or_else(|| UnknownRight(name.to_owned()))
    }
}

impl fmt::Display for UnknownRight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown role {:?}; there are app, auditor, operator, metrics", self.0)
    }
}

impl std::error::Error for UnknownRight {}

/// The caller.
#[derive(Clone, Debug)]
pub(crate) struct Caller(Arc<Known>);

#[derive(Debug)]
struct Known {
    name: String,
    rights: Vec<Right>,
    zones: Vec<String>,
    /// The most important that it may claim.
    band: u8,
}

impl Caller {
    pub fn new(name: impl Into<String>, rights: &[Right], zones: Vec<String>) -> Self {
        Self::up_to(0, name, rights, zones)
    }

    /// One that may claim no band that is more important than this.
    pub fn up_to(band: u8, name: impl Into<String>, rights: &[Right], zones: Vec<String>) -> Self {
        Self(Arc::new(Known { name: name.into(), rights: rights.to_vec(), zones, band }))
    }

    /// The name of its token, which is who did it in the history of a zone.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Somebody who asks by its token, as the ledger names him: nobody goes by the name of another token's.
    pub fn of(&self, somebody: Option<String>) -> Result<String, Problem> {
        match somebody.as_deref() {
            None => Ok(self.name().to_owned()),
            Some("") => Err(Problem::invalid("the name of who asks is empty; leave it out, or say one")),
            Some(somebody) => Ok(format!("{}/{somebody}", self.name())),
        }
    }

    pub fn rights(&self) -> &[Right] {
        &self.0.rights
    }

    pub fn zones(&self) -> &[String] {
        &self.0.zones
    }

    /// The most important band that it may claim.
    pub fn band(&self) -> u8 {
        self.0.band
    }

    /// May the things that it asks be so important?
    pub fn may_claim(&self, band: u8) -> Result<(), Problem> {
        let own = self.band();
        if band >= own {
            return Ok(());
        }
        Err(Problem::forbidden(format!(
            "the token {:?} may claim bands from {own} on, which are less important than {band}; claim one of those, or ask for \
             a token whose band is {band}",
            self.name()
        )))
    }

    /// May it do in this zone what it may do at all?
    pub fn within(&self, zone: &str) -> Result<(), Problem> {
        if self.sees(zone) {
            return Ok(());
        }
        Err(Problem::forbidden(format!(
            "the token {:?} is not for the zone {zone:?}; ask for one whose zones name it",
            self.name()
        )))
    }

    /// Whether it may do this, wherever that is.
    pub fn must(&self, right: Right) -> Result<(), Problem> {
        if self.0.rights.contains(&right) {
            return Ok(());
        }
        let (name, role) = (self.name(), right.as_str());
        Err(Problem::forbidden(format!("{name:?} may not do this; it takes a token of the role {role}")))
    }

    pub fn sees(&self, zone: &str) -> bool {
        self.0.zones.iter().any(|glob| matches(glob, zone))
    }

    pub fn sees_all(&self) -> bool {
        self.0.zones.iter().any(|glob| glob == "*")
    }
}

/// True when a pattern in which `*` stands for any characters is the whole text.
fn matches(glob: &str, text: &str) -> bool {
    let Some((first, rest)) = glob.split_once('*') else { return glob == text };
    let (Some(mut text), Some((middle, last))) =
        (text.strip_prefix(first), Some(rest.rsplit_once('*').unwrap_or(("", rest))))
    else {
        return false;
    };
    for part in middle.split('*') {
        match text.find(part) {
            Some(at) => text = &text[at + part.len()..],
            None => return false,
        }
    }
    text.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_characters() {
        for (glob, yes, no) in [
            ("*", &["", "login", "a*b"][..], &[][..]),
            ("login", &["login"], &["login2", "xlogin", ""]),
            ("login*", &["login", "login-by-address"], &["logi", "a-login"]),
            ("*-by-*", &["login-by-address", "-by-"], &["login", "-by"]),
            ("a*a", &["aa", "aba", "aaa"], &["a", "ab"]),
            ("a*b*c", &["abc", "aXbXc", "abbc"], &["ac", "acb"]),
            ("ab*ba", &["abba"], &["aba"]),
            ("*-by", &["login-by", "-by"], &["login-by-address"]),
            ("**", &["", "x"], &[]),
            ("é*", &["élan"], &["elan"]),
        ] {
            assert!(yes.iter().all(|text| matches(glob, text)), "{glob}: {yes:?}");
            assert!(!no.iter().any(|text| matches(glob, text)), "{glob}: {no:?}");
        }
    }
}
