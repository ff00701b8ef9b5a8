//! Tokens and certificates of callers, of which a server keeps hashes only.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tallygate::capacity::parse_band;
use toml::Spanned;

use crate::Failure;
use crate::caller::{Caller, Right};
use crate::config::{fault, text_of};
use crate::tls::certificates;

/// The beginning of a token, so that people and scanners of secrets know it.
const PREFIX: &str = "tg_";

/// A file of tokens: who may ask.
#[derive(Debug, Default)]
pub struct Tokens(Vec<(Proof, Caller)>);

/// By which a caller is known, as a hash. A certificate is no token, whatever its hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    Secret(Hash),
    Certificate(Hash),
}

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
    #[serde(default)]
    band: Band,
    sha256: Option<String>,
    certificate: Option<String>,
}

/// The most important band that may be claimed, by its number or its name: 0, if nothing is said.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(try_from = "Named")]
struct Band(u8);

#[derive(Deserialize)]
#[serde(untagged)]
enum Named {
    Number(i64),
    Name(String),
}

impl TryFrom<Named> for Band {
    type Error = tallygate::Error;

    fn try_from(named: Named) -> Result<Self, Self::Error> {
        let text = match named {
            Named::Number(number) => number.to_string(),
            Named::Name(name) => name,
        };
        parse_band(&text).map(Self)
    }
}

/// A caller that may ask, as a list shows it: there is nothing in it to ask with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TokenEntry {
    /// Under which is recorded what it sets.
    pub name: String,
    /// The rights that it has.
    pub roles: Vec<Right>,
    /// In which zones: names, in which `*` stands for any characters.
    pub zones: Vec<String>,
    /// The most important band that it may claim: 0 is any.
    pub band: u8,
    /// The proof by which its caller is known: `token` or `certificate`.
    pub by: &'static str,
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
    /// A file that cannot be read, with its line; a name or a hash that is there twice, a hash that is none, a token without roles or
    /// zones.
    pub fn read(text: &str) -> Result<Self, Failure> {
        let file: File = toml::from_str(text).map_err(|error| {
            Failure::new(format!("the file of tokens cannot be read: {}", fault(text, &error)))
        })?;
        let mut tokens: Vec<(Proof, Caller)> = Vec::new();
        for Entry { name, roles, zones, band, sha256, certificate } in file.token {
            validate(&name, &roles, &zones)?;
            let proof = match (sha256, certificate) {
                (Some(hash), None) => {
                    unhex(&hash).map(Proof::Secret).ok_or("sha256 is not 64 hexadecimal digits")
                }
                // With colons, as openssl prints it.
                (None, Some(hash)) => unhex(&hash.replace(':', ""))
                    .map(Proof::Certificate)
                    .ok_or("certificate is not the 64 hexadecimal digits of its SHA-256"),
                _ => Err("it takes either sha256 or certificate"),
            };
            let proof = proof.map_err(|wrong| Failure::new(format!("token {name:?}: {wrong}")))?;
            if tokens.iter().any(|(other, caller)| caller.name() == name || *other == proof) {
                return Err(Failure::new(format!("token {name:?} is there twice; remove one")));
            }
            tokens.push((proof, Caller::up_to(band.0, name, &roles, zones)));
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
        let mut random = [0; 32];
        getrandom::fill(&mut random)
            .map_err(|error| Failure::new(format!("the operating system gave no random bytes: {error}")))?;
        let secret = format!("{PREFIX}{}", hex(&random));
        let entry = entry(name, rights, zones, Proof::secret(&secret))?;
        Ok(NewToken { secret, entry })
    }

    /// The entry of a caller who shows a certificate: the first one of this file of PEM.
    ///
    /// # Errors
    /// A name that is not good, no roles, no zones; no certificate in the file.
    pub fn admit(
        name: &str,
        rights: &[Right],
        zones: &[String],
        certificate: &Path,
    ) -> Result<String, Failure> {
        entry(name, rights, zones, Proof::certificate(&certificates(certificate)?[0]))
    }

    /// An entry whose caller may claim no band that is more important than this, of one that may claim any.
    #[must_use]
    pub fn up_to(band: u8, entry: &str) -> String {
        format!("{entry}band = {band}\n")
    }

    /// The callers that may ask, in the order of the file.
    pub fn entries(&self) -> impl Iterator<Item = TokenEntry> {
        self.0.iter().map(|(proof, caller)| TokenEntry {
            name: caller.name().to_owned(),
            roles: caller.rights().to_vec(),
            zones: caller.zones().to_vec(),
            band: caller.band(),
            by: match proof {
                Proof::Secret(_) => "token",
                Proof::Certificate(_) => "certificate",
            },
        })
    }

    /// The text of a file without the lines of one entry; the others stay as they are, and so do comments outside of it.
    ///
    /// # Errors
    /// Those of [`read`](Self::read); a name that is not there; an entry that shares a line with another one.
    pub fn remove(text: &str, name: &str) -> Result<String, Failure> {
        type Fields = BTreeMap<String, Spanned<toml::Value>>;
        let tokens = Self::read(text)?;
        let at = tokens.0.iter().position(|(_, caller)| caller.name() == name).ok_or_else(|| {
            Failure::new(format!("there is no token {name:?}; list them with: tallygate token list"))
        })?;
        let shared =
            || Failure::new(format!("token {name:?} shares its lines with another; remove it by hand"));
        let places: BTreeMap<String, Vec<Spanned<Fields>>> = toml::from_str(text).map_err(|_| shared())?;
        let place = places.get("token").and_then(|places| places.get(at)).ok_or_else(shared)?;
        let end = place.get_ref().values().map(|field| field.span().end).fold(place.span().end, usize::max);
        let before = text[..place.span().start].rfind('\n').map_or("", |end| &text[..=end]);
        let after = text[end..].split_once('\n').map_or("", |(_, after)| after);
        // With the line between it and the next.
        let rest = match before.strip_suffix("\n\n") {
            Some(before) => format!("{before}\n{after}"),
            None => format!("{before}{}", after.strip_prefix('\n').unwrap_or(after)),
        };
        let others = tokens.entries().filter(|entry| entry.name != name);
        match Self::read(&rest) {
            Ok(left) if left.entries().eq(others) => Ok(rest),
            _ => Err(shared()),
        }
    }

    /// The caller who is known by it. Each hash is compared, whole, so that the time says nothing of any.
    pub(crate) fn find(&self, shown: &Proof) -> Option<&Caller> {
        self.0.iter().fold(None, |found, (proof, caller)| if proof.is(shown) { Some(caller) } else { found })
    }
}

impl Proof {
    /// 256 random bits need no slow hash: nobody guesses them.
    pub fn secret(secret: &str) -> Self {
        Self::Secret(Sha256::digest(secret).into())
    }

    /// A certificate as DER.
    pub fn certificate(der: &[u8]) -> Self {
        Self::Certificate(Sha256::digest(der).into())
    }

    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Secret(one), Self::Secret(other)) | (Self::Certificate(one), Self::Certificate(other)) => {
                one.ct_eq(other).into()
            }
            _ => false,
        }
    }
}

fn entry(name: &str, rights: &[Right], zones: &[String], proof: Proof) -> Result<String, Failure> {
    validate(name, rights, zones)?;
    let rights: Vec<_> = rights.iter().map(|right| right.as_str()).collect();
    let (field, hash) = match proof {
        Proof::Secret(hash) => ("sha256", hash),
        Proof::Certificate(hash) => ("certificate", hash),
    };
    Ok(format!(
        "[[token]]\nname = {}\nroles = {}\nzones = {}\n{field} = \"{}\"\n",
        toml::Value::from(name),
        toml::Value::from(rights),
        toml::Value::from(zones.to_vec()),
        hex(&hash),
    ))
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
        return Err(Failure::new(format!(
            "token {name:?} has no role; there are app, auditor, operator, metrics"
        )));
    }
    if zones.is_empty() {
        return Err(Failure::new(format!("token {name:?} is for no zone; \"*\" is for all of them")));
    }
    Ok(())
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
        let find = |secret: &str| tokens.find(&Proof::secret(secret)).map(Caller::name);
        assert_eq!(find(&made[0].secret), Some("a"));
        assert_eq!(find(&made[1].secret), Some("b"));
        for wrong in [
            "",
            "tg_",
            &made[0].secret[..66],
            &made[0].secret.to_uppercase(),
            &format!("{} ", made[0].secret),
        ] {
            assert!(find(wrong).is_none(), "{wrong:?}");
        }
    }

    #[test]
    fn a_certificate_is_no_token_and_a_token_no_certificate() {
        let shown = b"DER";
        let entry = entry("a", &[Right::App], &["*".to_owned()], Proof::certificate(shown)).unwrap();
        // As openssl prints it.
        let hash = hex(&Sha256::digest(shown)).to_uppercase();
        let colons: Vec<_> = hash.as_bytes().chunks(2).map(|pair| str::from_utf8(pair).unwrap()).collect();
        let printed = entry.replace(&hash.to_lowercase(), &colons.join(":"));
        assert_ne!(printed, entry);
        for (text, is_certificate) in
            [(&entry, true), (&printed, true), (&entry.replace("certificate", "sha256"), false)]
        {
            let tokens = Tokens::read(text).unwrap();
            assert_eq!(tokens.find(&Proof::certificate(shown)).is_some(), is_certificate, "{text}");
            assert_eq!(tokens.find(&Proof::secret("DER")).is_some(), !is_certificate, "{text}");
            assert!(tokens.find(&Proof::certificate(b"another")).is_none());
        }
    }

    #[test]
    fn what_is_removed_is_the_entry_and_nothing_else() {
        let [a, b, c] =
            ["a", "b", "c"].map(|name| Tokens::make(name, &[Right::App], &["*".to_owned()]).unwrap().entry);
        for (before, name, after) in [
            (format!("{a}\n{b}\n{c}"), "b", format!("{a}\n{c}")),
            (format!("{a}\n{b}\n{c}"), "a", format!("{b}\n{c}")),
            (format!("{a}\n{b}\n{c}"), "c", format!("{a}\n{b}")),
            (a.clone(), "a", String::new()),
            (a.trim_end().to_owned(), "a", String::new()),
            (format!("# ours\n\n# é\n{a}# of b\n{b}# end"), "a", format!("# ours\n\n# é\n# of b\n{b}# end")),
            (format!("# ours\n\n{a}\n{b}"), "a", format!("# ours\n\n{b}")),
            (format!("{a}\n{b}").replace('\n', "\r\n"), "b", format!("{a}\n").replace('\n', "\r\n")),
            (
                format!("{}# last\n\n{b}", a.replace("[\"*\"]", "[ # many\n  \"*\",\n]")),
                "a",
                format!("# last\n\n{b}"),
            ),
        ] {
            assert_eq!(Tokens::remove(&before, name).unwrap(), after, "{before}");
        }
        for text in ["", "token = []", &a] {
            let error = Tokens::remove(text, "d").unwrap_err().to_string();
            assert!(error.contains("there is no token \"d\""), "{error}");
        }
        let inline = |entries: &[&String]| {
            let of =
                |entry: &&String| format!("{{ {} }}", entry.lines().skip(1).collect::<Vec<_>>().join(", "));
            entries.iter().map(of).collect::<Vec<_>>()
        };
        // A line that holds two is not cut; a line each is.
        let error = Tokens::remove(&format!("token = [{}]", inline(&[&a, &b]).join(", ")), "a").unwrap_err();
        assert!(error.to_string().contains("by hand"), "{error}");
        let lines = format!("token = [\n{},\n]\n", inline(&[&a, &b]).join(",\n"));
        let left = Tokens::remove(&lines, "b").unwrap();
        assert_eq!(left, format!("token = [\n{},\n]\n", inline(&[&a])[0]));
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
            (entry.replace("sha256 = \"", "certificate = \"0"), "64 hexadecimal digits"),
            (format!("{entry}certificate = \"0\""), "either sha256 or certificate"),
            (entry.replace("sha256", "# sha256"), "either sha256 or certificate"),
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
