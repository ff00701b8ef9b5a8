//! The configuration of envoyproxy/ratelimit, as zones and a mapping.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tallygate::policy::{Algorithm, Mode};

use crate::ConfigError;
use crate::mapping::{Node, Pattern, Rule, Values};

/// The longest name of a zone, in characters.
const NAME_CHARS: usize = 100;

/// The mapping and the zones of a configuration of envoyproxy/ratelimit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// The domain.
    pub domain: String,
    /// The mapping, for [`Mapping::read`](crate::Mapping::read).
    pub mapping: String,
    /// The zones, for `tallygate apply`.
    pub zones: String,
    /// The settings that have no equal, in whole sentences.
    pub notes: Vec<String>,
}

/// Imports one file of envoyproxy/ratelimit's YAML: a domain and its descriptors.
///
/// Each limit becomes a zone with the same fixed windows, named by its place. A request that is limited there is
/// limited here, and no other is; where that cannot be, [`Imported::notes`] tells it.
///
/// ```
/// let imported = tallygate_envoy::import(
///     "domain: shop
/// descriptors:
///   - key: path
///     value: /login
///     rate_limit: { unit: minute, requests_per_unit: 5 }
/// ",
/// )?;
/// assert!(imported.mapping.contains(r#"entries = ["path=/login"]"#));
/// assert!(imported.zones.contains("rate = 5"));
/// # Ok::<(), tallygate_envoy::ConfigError>(())
/// ```
///
/// # Errors
/// A file that is no such one, with its place: bad YAML, a name that is unknown or there twice, a descriptor that is there twice or has
/// no key or a wildcard in it, a limit without a known unit or with one though it is unlimited.
pub fn import(yaml: &str) -> Result<Imported, ConfigError> {
    let root: Root = serde_saphyr::from_str(yaml)
        .map_err(|error| ConfigError::new(format!("no configuration of envoyproxy/ratelimit: {error}")))?;
    if root.domain.is_empty() {
        return Err(ConfigError::new("the domain is empty; name that of the rate limit filter"));
    }
    let mut import =
        Import { domain: &root.domain, node: Node::default(), zones: BTreeMap::new(), notes: Vec::new() };
    import.level(&root.descriptors, &mut Vec::new())?;
    let Import { mut node, zones, notes, .. } = import;
    if zones.is_empty() {
        return Err(ConfigError::new(format!(
            "domain {:?} has no limit that could be imported",
            root.domain
        )));
    }
    keep_apart(&mut node);
    let written = |error: toml::ser::Error| ConfigError::new(error.to_string());
    Ok(Imported {
        mapping: toml::to_string(&node.file(&root.domain)).map_err(written)?,
        domain: root.domain,
        zones: toml::to_string(&Zones { zone: zones }).map_err(written)?,
        notes,
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Root {
    domain: String,
    #[serde(default)]
    descriptors: Vec<Descriptor>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Descriptor {
    #[serde(default)]
    key: String,
    #[serde(default)]
    value: String,
    rate_limit: Option<RateLimit>,
    #[serde(default)]
    descriptors: Vec<Descriptor>,
    #[serde(default)]
    shadow_mode: bool,
    #[serde(default)]
    quota_mode: bool,
    #[serde(default)]
    detailed_metric: bool,
    #[serde(default)]
    value_to_metric: bool,
    #[serde(default)]
    share_threshold: bool,
    metadata: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RateLimit {
    #[serde(default)]
    name: String,
    #[serde(default)]
    unit: String,
    #[serde(default)]
    requests_per_unit: u32,
    #[serde(default)]
    unlimited: bool,
    #[serde(default)]
    replaces: Vec<Replaced>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Replaced {
    name: String,
}

#[derive(Serialize)]
struct Zones {
    zone: BTreeMap<String, Zone>,
}

#[derive(Serialize)]
struct Zone {
    rate: u32,
    per: &'static str,
    algorithm: Algorithm,
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<Mode>,
    description: String,
}

struct Import<'f> {
    domain: &'f str,
    node: Node,
    zones: BTreeMap<String, Zone>,
    notes: Vec<String>,
}

impl<'f> Import<'f> {
    fn level(
        &mut self,
        descriptors: &'f [Descriptor],
        path: &mut Vec<Pattern<'f>>,
    ) -> Result<(), ConfigError> {
        let mut seen = BTreeSet::new();
        for descriptor in descriptors {
            let Descriptor { key, value, .. } = descriptor;
            let value = (!value.is_empty()).then_some(value.as_str());
            if key.is_empty() {
                return Err(ConfigError::new(format!(
                    "a descriptor of {} has no key; give it one",
                    self.place(path)
                )));
            }
            path.push(Pattern { key, value });
            let place = self.place(path);
            if !seen.insert((key, value)) {
                return Err(ConfigError::new(format!("{place} is there twice; leave one of them out")));
            }
            self.descriptor(descriptor, path, &place)?;
            path.pop();
        }
        Ok(())
    }

    fn descriptor(
        &mut self,
        descriptor: &'f Descriptor,
        path: &mut Vec<Pattern<'f>>,
        place: &str,
    ) -> Result<(), ConfigError> {
        let Descriptor { key, value, rate_limit, descriptors, shadow_mode, .. } = descriptor;
        let limit = rate_limit.as_ref().map(|limit| limit.read(place)).transpose()?;
        if key.contains('*') {
            return Err(ConfigError::new(format!(
                "{place} has a wildcard in its key, and would limit nothing here; write the key whole, without a value for any value"
            )));
        }
        let is_wildcard = value.contains('*');
        if descriptor.share_threshold && !is_wildcard {
            return Err(ConfigError::new(format!(
                "{place} shares its threshold and has no wildcard in its value; leave share_threshold out"
            )));
        }
        if is_wildcard || key.contains('=') {
            let what = if is_wildcard { "a wildcard in its value" } else { "a key with the sign =" };
            self.notes.push(format!(
                "{place} has {what}, which a mapping cannot say: it and what is below it are left out, so that the key alone \
                 limits such values, or nothing."
            ));
            // Its faults are told all the same.
            let mut beside = Import {
                domain: self.domain,
                node: Node::default(),
                zones: BTreeMap::new(),
                notes: Vec::new(),
            };
            return beside.level(descriptors, path);
        }
        if descriptor.quota_mode {
            self.notes.push(format!(
                "{place} is in quota mode; here it is a limit as any other, and blocks by itself."
            ));
        }
        if descriptor.detailed_metric || descriptor.value_to_metric || descriptor.metadata.is_some() {
            self.notes.push(format!("{place} has settings of metrics or metadata, which are left out."));
        }
        if let (Some(said), Some(limit)) = (rate_limit, limit) {
            self.limit(said, limit, *shadow_mode, path, place);
        } else {
            // A place without a limit is one where exact values end.
            self.node.at(path);
        }
        self.level(descriptors, path)
    }

    fn limit(&mut self, said: &RateLimit, limit: Said, is_shadow: bool, path: &[Pattern<'_>], place: &str) {
        for Replaced { name } in &said.replaces {
            self.notes.push(format!("{place} replaces the limit {name:?}; here both hold."));
        }
        let rule = match limit {
            Said::Unlimited => Rule::Unlimited,
            Said::Per(per) => {
                if let Some(calendar) =
                    [("30d", "month"), ("365d", "year")].iter().find(|(days, _)| *days == per)
                {
                    self.notes.push(format!(
                        "{place} is per {}, which there and here is {per} since 1970 and follows no calendar.",
                        calendar.1
                    ));
                }
                let zone = name(place);
                let description = match said.name.as_str() {
                    "" => place.to_owned(),
                    name => format!("{name}: {place}"),
                };
                let policy = Zone {
                    rate: said.requests_per_unit,
                    per,
                    algorithm: Algorithm::FixedWindow,
                    mode: is_shadow.then_some(Mode::Shadow),
                    description: description.chars().filter(|c| !c.is_control()).take(1000).collect(),
                };
                self.zones.insert(zone.clone(), policy);
                Rule::Zone(zone)
            }
        };
        self.node.at(path).rule = Some(rule);
    }

    /// A place by its domain and its entries; no two have one name.
    fn place(&self, path: &[Pattern<'_>]) -> String {
        let escape = |text: &str| {
            let mut escaped = String::new();
            for c in text.chars() {
                match c {
                    '%' | ':' | '~' => escaped += &format!("%{:02X}", u32::from(c)),
                    c => escaped.push(c),
                }
            }
            escaped
        };
        let words = path.iter().map(|Pattern { key, value }| match value {
            Some(value) => format!("{}~{}", escape(key), escape(value)),
            None => escape(key),
        });
        std::iter::once(escape(self.domain)).chain(words).collect::<Vec<_>>().join(":")
    }
}

/// A limit that is as it may be.
enum Said {
    Unlimited,
    /// The window, as it is typed.
    Per(&'static str),
}

impl RateLimit {
    fn read(&self, place: &str) -> Result<Said, ConfigError> {
        let wrong = |what: &str| Err(ConfigError::new(format!("{place}: {what}")));
        if !self.name.is_empty() && self.replaces.iter().any(|replaced| replaced.name == self.name) {
            return wrong("the limit replaces itself; leave that out");
        }
        let per = match self.unit.to_lowercase().as_str() {
            "" if self.unlimited => return Ok(Said::Unlimited),
            _ if self.unlimited => return wrong("it is unlimited and has a unit; leave one of the two out"),
            "second" => "1s",
            "minute" => "60s",
            "hour" => "1h",
            "day" => "24h",
            "week" => "7d",
            "month" => "30d",
            "year" => "365d",
            unit => {
                return wrong(&format!(
                    "unit {unit:?} is none; use second, minute, hour, day, week, month or year"
                ));
            }
        };
        Ok(Said::Per(per))
    }
}

/// The name of a zone: the place, as far as a name can say it.
fn name(place: &str) -> String {
    let is_fit = place.chars().count() <= NAME_CHARS
        && !place.chars().any(char::is_control)
        && !place.starts_with(' ')
        && !place.ends_with(' ');
    if is_fit {
        return place.to_owned();
    }
    let hash = Sha256::digest(place.as_bytes());
    let hash = hash.iter().take(16).fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
    let begin: String = place.chars().filter(|c| !c.is_control()).take(60).collect();
    format!("{}~{hash}", begin.trim())
}

/// There, a value that is named keeps a descriptor from the key alone, also where it leads to no limit. Here it goes on to that:
/// so what it would find there is told to be unlimited.
fn keep_apart(node: &mut Node) {
    for Values { exact, any } in node.keys.values_mut() {
        for named in exact.values_mut() {
            let mut paths = Vec::new();
            if let Some(any) = any {
                any.each(&mut Vec::new(), &mut |path, _| {
                    paths.push(path.iter().map(|pattern| pattern.key.to_owned()).collect::<Vec<_>>());
                });
            }
            for path in &paths {
                let path: Vec<_> = path.iter().map(|key| Pattern { key, value: None }).collect();
                named.at(&path).rule.get_or_insert(Rule::Unlimited);
            }
            keep_apart(named);
        }
        if let Some(any) = any {
            keep_apart(any);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Mapping;
    use crate::proto::rate_limit_descriptor::Entry;

    /// Keys and values by number.
    type Path = Vec<(u8, Option<u8>)>;

    /// The limit that envoyproxy/ratelimit finds: at each entry the exact value, else the key alone, and
    /// never back.
    fn theirs(there: &[Path], limits: &[Path], asked: &[(u8, u8)]) -> Option<String> {
        let mut path = Path::new();
        for (key, value) in asked {
            let steps = [Some(*value), None].map(|value| [&path[..], &[(*key, value)]].concat());
            path = steps.into_iter().find(|path| there.iter().any(|other| other.starts_with(path)))?;
        }
        let word =
            |(key, value): &(u8, Option<u8>)| value.map_or(format!("k{key}"), |v| format!("k{key}~v{v}"));
        let words = std::iter::once("shop".to_owned()).chain(path.iter().map(word));
        limits.contains(&path).then(|| words.collect::<Vec<_>>().join(":"))
    }

    fn ours(mapping: &Mapping, asked: &[(u8, u8)]) -> Option<String> {
        let entry = |(key, value): &(u8, u8)| Entry { key: format!("k{key}"), value: format!("v{value}") };
        let entries: Vec<_> = asked.iter().map(entry).collect();
        match mapping.find("shop", &entries.iter().collect::<Vec<_>>())? {
            (Rule::Zone(zone), _) => Some(zone.clone()),
            (Rule::Unlimited, _) => None,
        }
    }

    /// The limits below a path, as YAML.
    fn below(at: &Path, there: &[Path], limits: &[Path]) -> String {
        let longer = there.iter().filter(|path| path.len() > at.len() && path.starts_with(at));
        let next: BTreeSet<_> = longer.map(|path| path[at.len()]).collect();
        let descriptors = next.into_iter().map(|(key, value)| {
            let path = [&at[..], &[(key, value)]].concat();
            let value = value.map(|value| format!(", value: v{value}")).unwrap_or_default();
            let limit = limits.contains(&path).then_some(", rate_limit: { unit: day, requests_per_unit: 1 }");
            let (limit, below) = (limit.unwrap_or_default(), below(&path, there, limits));
            format!("{{ key: k{key}{value}{limit}, descriptors: [{below}] }}")
        });
        descriptors.collect::<Vec<_>>().join(", ")
    }

    proptest! {
        #![proptest_config(crate::tests::cases())]

        #[test]
        fn what_is_imported_finds_what_the_original_finds(
            paths in prop::collection::btree_map(
                prop::collection::vec((0_u8..2, prop::option::of(0_u8..2)), 1..4), any::<bool>(), 1..9,
            ),
            asked in prop::collection::vec(prop::collection::vec((0_u8..2, 0_u8..3), 1..4), 1..9),
        ) {
            let there: Vec<_> = paths.keys().cloned().collect();
            let limits: Vec<_> = paths.into_iter().filter_map(|(path, is)| is.then_some(path)).collect();
            let yaml = format!("domain: shop\ndescriptors: [{}]", below(&Path::new(), &there, &limits));
            match import(&yaml) {
                Err(error) => prop_assert!(limits.is_empty(), "{yaml}: {error}"),
                Ok(imported) => {
                    prop_assert!(imported.notes.is_empty());
                    let mapping = Mapping::read(&imported.mapping).unwrap();
                    for asked in asked {
                        let (found, expected) = (ours(&mapping, &asked), theirs(&there, &limits, &asked));
                        prop_assert_eq!(found, expected, "{:?} {} {}", asked, yaml, imported.mapping);
                    }
                }
            }
        }
    }
}
