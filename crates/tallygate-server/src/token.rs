//! Tokens of callers, of which a server keeps hashes only.

use std::fmt::Write;
use std::path::Path;

use serde::Deserialize;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::Failure;
use crate::caller::{Caller, Right};
use crate::config::text_of;

/// What a token begins with, so that people and scanners of secrets know it.
const PREFIX: &str = "tg_";

/// A file of tokens: who may ask.
#[derive(Debug, Default)]
pub struct Tokens(Vec<(Hash, Caller)>);

type Hash = [u8; 32];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    token: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    roles: Vec<Right>,
    zones: Vec<String>,
    sha256: String,
}

/// A token that was made: what its caller gets, once, and what the file gets.
#[derive(Debug)]
pub struct NewToken {
    /// To be told to the caller, and to nobody else: `tg_` and 64 hexadecimal digits.
    pub secret: String,
    /// To be added to the file.
    pub entry: String,
}

impl Tokens {
    /// Reads a file of tokens.
    ///
    /// # Errors
    /// What cannot be read, with its line; a name that is there twice, a hash that is none, a token without roles or zones.
    pub fn read(text: &str) -> Result<Self, Failure> {
        let file: File = toml::from_str(text).map_err(|error| {
            // With the line there would be what stands in it.
            Failure::new(format!("the file of tokens cannot be read: {}", error.message()))
        })?;
        let mut tokens: Vec<(Hash, Caller)> = Vec::new();
        for Entry { name, roles, zones, sha256 } in file.token {
            validate(&name, &roles, &zones)?;
            let hash = unhex(&sha256).ok_or_else(|| {
                Failure::new(format!("token {name:?}: sha256 is not 64 hexadecimal digits"))
            })?;
            if tokens.iter().any(|(other, caller)| caller.name() == name || *other == hash) {
                return Err(Failure::new(format!("token {name:?} is there twice; remove one")));
            }
            tokens.push((hash, Caller::new(name, &roles, zones)));
        }
        Ok(Self(tokens))
    }

    /// Reads a file.
    ///
    /// # Errors
    /// Those of [`read`](Self::read), with the file's name.
    pub fn read_file(path: &Path) -> Result<Self, Failure> {
        Self::read(&text_of(path)?).map_err(|error| Failure::new(format!("{}: {error}", path.display())))
    }

    /// Makes a token.
    ///
    /// ```
    /// use tallygate_server::{NewToken, Right, Tokens};
    /// let made: NewToken = Tokens::make("web", &[Right::App], &["login*".to_owned()])?;
    /// assert!(made.secret.starts_with("tg_") && !made.entry.contains(&made.secret));
    /// Tokens::read(&made.entry)?;
    /// # Ok::<(), tallygate_server::Failure>(())
    /// ```
    ///
    /// # Errors
    /// A name that is not good, no roles, no zones; no random bytes to be had.
    pub fn make(name: &str, rights: &[Right], zones: &[String]) -> Result<NewToken, Failure> {
        validate(name, rights, zones)?;
        let mut random = [0; 32];
        getrandom::fill(&mut random)
            .map_err(|error| Failure::new(format!("the operating system gave no random bytes: {error}")))?;
        let secret = format!("{PREFIX}{}", hex(&random));
        let rights: Vec<_> = rights.iter().map(|right| right.as_str()).collect();
        let entry = format!(
            "[[token]]\nname = {}\nroles = {}\nzones = {}\nsha256 = \"{}\"\n",
            toml::Value::from(name),
            toml::Value::from(rights),
            toml::Value::from(zones.to_vec()),
            hex(&hash(&secret)),
        );
        Ok(NewToken { secret, entry })
    }

    /// Whose token it is. Each hash is compared, whole, so that the time says nothing of any.
    pub(crate) fn find(&self, secret: &str) -> Option<&Caller> {
        let asked = hash(secret);
        self.0
            .iter()
            .fold(None, |found, (hash, caller)| if hash.ct_eq(&asked).into() { Some(caller) } else { found })
    }
}

fn validate(name: &str, rights: &[Right], zones: &[String]) -> Result<(), Failure> {
    let is_plain =
        |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    if name.is_empty() || name.len() > 64 || !is_plain(name) {
        return Err(Failure::new(format!(
            "the name {name:?} of a token is not good; use 1 to 64 letters, digits, '-', '_' and '.'"
        )));
    }
    if rights.is_empty() {
        return Err(Failure::new(format!("token {name:?} has no role; there are app, auditor, operator")));
    }
    if zones.is_empty() {
        return Err(Failure::new(format!("token {name:?} is for no zone; \"*\" is for all of them")));
    }
    Ok(())
}

/// 256 random bits need no slow hash: nobody guesses them.
fn hash(secret: &str) -> Hash {
    Sha256::digest(secret).into()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").ok();
        text
    })
}

fn unhex(text: &str) -> Option<Hash> {
    let digits = text.bytes().map(|digit| char::from(digit).to_digit(16)).collect::<Option<Vec<_>>>()?;
    let bytes: Vec<u8> = digits.chunks_exact(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect();
    if digits.len() == 64 { bytes.try_into().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_known_by_its_secret_and_nothing_else() {
        let made: Vec<_> = ["a", "b"]
            .map(|name| Tokens::make(name, &[Right::App], &["*".to_owned()]).unwrap())
            .into_iter()
            .collect();
        let tokens = Tokens::read(&format!("{}\n{}", made[0].entry, made[1].entry)).unwrap();
        assert_eq!(tokens.find(&made[0].secret).unwrap().name(), "a");
        assert_eq!(tokens.find(&made[1].secret).unwrap().name(), "b");
        for wrong in [
            "",
            "tg_",
            &made[0].secret[..66],
            &made[0].secret.to_uppercase(),
            &format!("{} ", made[0].secret),
        ] {
            assert!(tokens.find(wrong).is_none(), "{wrong:?}");
        }
    }

    #[test]
    fn a_file_that_is_not_good_is_refused_and_tells_no_secret() {
        let made = Tokens::make("a", &[Right::App], &["*".to_owned()]).unwrap();
        let entry = &made.entry;
        for (text, told) in [
            (format!("{entry}{entry}"), "twice"),
            (entry.replace("app", "root"), "unknown variant"),
            (entry.replace("[\"*\"]", "[]"), "no zone"),
            (entry.replace("\"a\"", "\"a b\""), "letters, digits"),
            (entry.replace("sha256 = \"", "sha256 = \"0"), "64 hexadecimal digits"),
            (format!("{entry}secret = \"{}\"", made.secret), "unknown field"),
            (format!("{entry}{}", made.secret), ""),
        ] {
            let error = Tokens::read(&text).unwrap_err().to_string();
            assert!(error.contains(told) && !error.contains(&made.secret), "{error}");
        }
        assert!(Tokens::make("", &[Right::App], &["*".to_owned()]).is_err());
        assert!(Tokens::make("a", &[], &["*".to_owned()]).is_err());
    }
}
