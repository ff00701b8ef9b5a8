//! The map from descriptors to zones.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use tallygate::Check;

use crate::ConfigError;
use crate::key::key;
use crate::proto::rate_limit_descriptor::Entry;

/// The most entries that a limit has.
const ENTRIES_MAX: usize = 32;

/// The map from descriptors of Envoy to zones of tallygate.
///
/// ```
/// use tallygate_envoy::Mapping;
/// let mapping = Mapping::read(
///     r#"
///     transaction = "x-request-id"      # optional: what names the transaction
///
///     [[limit]]
///     domain = "shop"
///     entries = ["path=/login", "remote_address"]
///     zone = "login"
///
///     [[limit]]
///     domain = "shop"
///     entries = ["path=/health", "remote_address"]
///     unlimited = true
///     "#,
/// )?;
/// assert_eq!(mapping.zones().collect::<Vec<_>>(), ["login"]);
/// # Ok::<(), tallygate_envoy::ConfigError>(())
/// ```
///
/// An entry is a key, which fits any value, or `key=value`. A limit is found for a descriptor of its domain whose entries are
/// these, all of them and in this order. Where several limits fit, the one wins that names the value in the first entry in
/// which they differ. The values of the entries that name none make the bucket's key.
#[derive(Clone)]
pub struct Mapping {
    domains: BTreeMap<String, Node>,
    pub(crate) transaction: Option<String>,
}

/// The rule for a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    Zone(String),
    Unlimited,
}

/// The place that the entries of a descriptor lead to.
#[derive(Clone, Default)]
pub(crate) struct Node {
    pub rule: Option<Rule>,
    pub keys: BTreeMap<String, Values>,
}

/// The rules behind an entry of one key.
#[derive(Clone, Default)]
pub(crate) struct Values {
    pub exact: BTreeMap<String, Node>,
    pub any: Option<Box<Node>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct File {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    transaction: Option<String>,
    #[serde(default)]
    limit: Vec<Line>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    domain: String,
    entries: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    zone: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    unlimited: bool,
}

impl Mapping {
    /// Reads a file: TOML, a table `[[limit]]` for each.
    ///
    /// # Errors
    /// A text that cannot be read, with its line; a limit that cannot be, or is there twice, with its place.
    pub fn read(text: &str) -> Result<Self, ConfigError> {
        let file: File = toml::from_str(text).map_err(|error| {
            // The line itself is not repeated: a file of another kind may have been named, with secrets in it.
            let begin = error.span().map_or(0, |span| span.start);
            let line = 1 + text.bytes().take(begin).filter(|byte| *byte == b'\n').count();
            ConfigError::new(format!("line {line}: {}", error.message()))
        })?;
        if file.transaction.as_ref().is_some_and(String::is_empty) {
            return Err(ConfigError::new(
                "transaction is empty; name an entry or a metadata field, like x-request-id",
            ));
        }
        let mut domains: BTreeMap<String, Node> = BTreeMap::new();
        for (number, line) in (1..).zip(file.limit) {
            let Line { domain, entries, .. } = &line;
            let place = format!("limit {number} (domain {domain:?}, entries {entries:?})");
            let wrong = |what: &str| Err(ConfigError::new(format!("{place}: {what}")));
            if domain.is_empty() {
                return wrong("the domain is empty; use the one of Envoy's rate limit filter");
            }
            if !(1..=ENTRIES_MAX).contains(&entries.len()) {
                return wrong(&format!("it has {} entries; name 1 to {ENTRIES_MAX}", entries.len()));
            }
            let path: Vec<_> = entries.iter().map(|entry| Pattern::read(entry)).collect();
            if path.iter().any(|pattern| pattern.key.is_empty()) {
                return wrong("an entry has no key; write it as key, or as key=value");
            }
            if path.iter().any(|pattern| file.transaction.as_deref() == Some(pattern.key)) {
                return wrong(
                    "an entry is the one that names the transaction, which finds no limit; leave it out here",
                );
            }
            let rule = match (&line.zone, line.unlimited) {
                (Some(zone), false) => match Check::new(zone, "all").validate() {
                    Ok(()) => Rule::Zone(zone.clone()),
                    Err(error) => return wrong(&error.to_string()),
                },
                (None, true) => Rule::Unlimited,
                (Some(_), true) => {
                    return wrong("it has a zone and is unlimited; leave one of the two out");
                }
                (None, false) => {
                    return wrong("it has no zone; name one, or say unlimited = true");
                }
            };
            if domains.entry(domain.clone()).or_default().at(&path).rule.replace(rule).is_some() {
                return wrong("it is there twice; leave one of them out");
            }
        }
        Ok(Self { domains, transaction: file.transaction })
    }

    /// The names of the zones, each once.
    pub fn zones(&self) -> impl Iterator<Item = &str> {
        let mut zones = BTreeSet::new();
        self.domains.values().for_each(|node| node.zones(&mut zones));
        zones.into_iter()
    }

    /// The rule that is found for a descriptor, and the key of its bucket.
    pub(crate) fn find(&self, domain: &str, entries: &[&Entry]) -> Option<(&Rule, String)> {
        let mut free = Vec::new();
        let rule = self.domains.get(domain)?.find(entries, &mut free)?;
        Some((rule, key(&free)))
    }
}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mapping").field("zones", &self.zones().collect::<Vec<_>>()).finish_non_exhaustive()
    }
}

/// An entry as a limit names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pattern<'t> {
    pub key: &'t str,
    pub value: Option<&'t str>,
}

impl<'t> Pattern<'t> {
    fn read(text: &'t str) -> Self {
        match text.split_once('=') {
            Some((key, value)) => Self { key, value: Some(value) },
            None => Self { key: text, value: None },
        }
    }

    #[cfg(feature = "import")]
    fn write(self) -> String {
        let Self { key, value } = self;
        value.map_or_else(|| key.to_owned(), |value| format!("{key}={value}"))
    }
}

impl Node {
    /// The node of a path, made where it is not there.
    pub fn at(&mut self, path: &[Pattern<'_>]) -> &mut Self {
        let Some((first, rest)) = path.split_first() else { return self };
        let values = self.keys.entry(first.key.to_owned()).or_default();
        let next = match first.value {
            Some(value) => values.exact.entry(value.to_owned()).or_default(),
            None => &mut **values.any.get_or_insert_default(),
        };
        next.at(rest)
    }

    /// The rule of a descriptor. A value that is named goes first; where that leads nowhere, the key alone.
    fn find<'e>(&self, entries: &[&'e Entry], free: &mut Vec<(&'e str, &'e str)>) -> Option<&Rule> {
        let Some((first, rest)) = entries.split_first() else { return self.rule.as_ref() };
        let values = self.keys.get(&first.key)?;
        let named = values.exact.get(&first.value).and_then(|node| node.find(rest, free));
        named.or_else(|| {
            let any = values.any.as_ref()?;
            free.push((&first.key, &first.value));
            let found = any.find(rest, free);
            if found.is_none() {
                free.pop();
            }
            found
        })
    }

    fn zones<'n>(&'n self, into: &mut BTreeSet<&'n str>) {
        self.each(&mut Vec::new(), &mut |_, rule| {
            if let Rule::Zone(zone) = rule {
                into.insert(zone);
            }
        });
    }

    /// Calls `told` with each rule and its path.
    pub fn each<'n>(&'n self, path: &mut Vec<Pattern<'n>>, told: &mut impl FnMut(&[Pattern<'n>], &'n Rule)) {
        if let Some(rule) = &self.rule {
            told(path, rule);
        }
        for (key, values) in &self.keys {
            let exact = values.exact.iter().map(|(value, node)| (Some(value.as_str()), node));
            for (value, node) in exact.chain(values.any.iter().map(|node| (None, &**node))) {
                path.push(Pattern { key, value });
                node.each(path, told);
                path.pop();
            }
        }
    }

    /// The limits of a domain as a file.
    #[cfg(feature = "import")]
    pub fn file(&self, domain: &str) -> File {
        let mut limit = Vec::new();
        self.each(&mut Vec::new(), &mut |path, rule| {
            let zone = match rule {
                Rule::Zone(zone) => Some(zone.clone()),
                Rule::Unlimited => None,
            };
            let entries = path.iter().map(|pattern| pattern.write()).collect();
            limit.push(Line { domain: domain.to_owned(), entries, unlimited: zone.is_none(), zone });
        });
        File { transaction: None, limit }
    }
}
