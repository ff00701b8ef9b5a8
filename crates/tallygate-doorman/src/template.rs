//! The map from resources to zones.

use std::fmt;

use serde::Deserialize;

/// The zone of the resources that a pattern fits: what Doorman calls a resource template.
///
/// In the pattern `*` stands for any characters but `/`, and `?` for one of them, as in Doorman's `identifier_glob`.
///
/// ```
/// let template = tallygate_doorman::Template::new("gpu/*", "gpu")?;
/// assert!(template.fits("gpu/h100") && !template.fits("gpu/h100/eu"));
/// # Ok::<(), tallygate_doorman::TemplateError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Fields")]
pub struct Template {
    resource: String,
    zone: String,
}

/// A pattern or a zone that cannot be used: it names the value and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateError(String);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    resource: String,
    zone: String,
}

impl Template {
    /// A pattern and the name of a zone of capacity.
    ///
    /// # Errors
    /// One of them is empty; or the pattern has `[` or `\`, which Doorman knows too.
    pub fn new(resource: impl Into<String>, zone: impl Into<String>) -> Result<Self, TemplateError> {
        let (resource, zone) = (resource.into(), zone.into());
        if resource.is_empty() || zone.is_empty() {
            return Err(TemplateError(format!(
                "the template {resource:?} of zone {zone:?} is not whole; name a resource and a zone"
            )));
        }
        if resource.contains(['[', '\\']) {
            return Err(TemplateError(format!(
                "the resource {resource:?} has a class or an escape; use * and ?, and a template for each case"
            )));
        }
        Ok(Self { resource, zone })
    }

    /// The name of its zone.
    pub fn zone(&self) -> &str {
        &self.zone
    }

    /// True when it is this resource and no pattern.
    pub(crate) fn is(&self, resource: &str) -> bool {
        self.resource == resource
    }

    /// True when the pattern is the whole of it.
    pub fn fits(&self, resource: &str) -> bool {
        let (mut globs, mut texts) = (self.resource.split('/'), resource.split('/'));
        loop {
            match (globs.next(), texts.next()) {
                (None, None) => return true,
                (Some(glob), Some(text)) if matches(glob, text) => {}
                _ => return false,
            }
        }
    }
}

/// Goes back to the last star only: whatever an earlier one could take, that one can.
fn matches(glob: &str, text: &str) -> bool {
    let (mut glob, mut text) = (glob.chars(), text.chars());
    let mut star: Option<(std::str::Chars<'_>, std::str::Chars<'_>)> = None;
    loop {
        let (here, there) = (glob.clone().next(), text.clone().next());
        match (here, there) {
            (Some('*'), _) => {
                glob.next();
                star = Some((glob.clone(), text.clone()));
            }
            (None, None) => return true,
            (Some(one), Some(other)) if one == '?' || one == other => {
                glob.next();
                text.next();
            }
            _ => {
                let Some((after, from)) = &mut star else { return false };
                if from.next().is_none() {
                    return false;
                }
                (glob, text) = (after.clone(), from.clone());
            }
        }
    }
}

impl TryFrom<Fields> for Template {
    type Error = TemplateError;

    fn try_from(Fields { resource, zone }: Fields) -> Result<Self, TemplateError> {
        Self::new(resource, zone)
    }
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TemplateError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stops_at_a_slash() {
        for (glob, yes, no) in [
            ("*", &["", "a", "gpu-1"][..], &["a/b"][..]),
            ("gpu-?", &["gpu-1", "gpu-é"], &["gpu-", "gpu-12", "gpu-/"]),
            ("a*b*c", &["abc", "aXbXc", "abbcc"], &["ac", "ab/c", "abcd"]),
            ("*/x", &["/x", "a/x"], &["x", "a/b/x", "a/xy"]),
            ("**a", &["a", "ba"], &["", "ab"]),
        ] {
            let template = Template::new(glob, "zone").unwrap();
            assert!(yes.iter().all(|text| template.fits(text)), "{glob}: {yes:?}");
            assert!(!no.iter().any(|text| template.fits(text)), "{glob}: {no:?}");
        }
        for (resource, zone, told) in [
            ("", "z", "name a resource and a zone"),
            ("r", "", "name a resource and a zone"),
            ("[ab]", "z", "use * and ?"),
            ("a\\*", "z", "use * and ?"),
        ] {
            let error = Template::new(resource, zone).unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
        }
    }
}
