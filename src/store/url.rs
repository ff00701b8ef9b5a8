//! Where a database is, as a person writes it. The password stays inside.

use std::fmt;

use crate::error::{Error, Result};

/// The kinds of databases that speak at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    Postgres,
    MySql,
    Sqlite,
}

impl Engine {
    /// The error for an engine that was not compiled in.
    #[cfg(not(all(feature = "postgres", feature = "mysql", feature = "sqlite")))]
    pub fn missing(self) -> Error {
        let feature = match self {
            Self::Postgres => "postgres",
            Self::MySql => "mysql",
            Self::Sqlite => "sqlite",
        };
        Error::invalid(format!("this build has no {feature}; build tallygate with the feature {feature}"))
    }
}

/// The kind of server, of an address, that is worked with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// The first server that answers.
    Any,
    /// One that takes writes.
    Primary,
    /// One that only reads.
    Replica,
}

/// A database URL. Shows itself without its password.
#[derive(Clone)]
pub(crate) struct Address {
    engine: Engine,
    url: String,
}

impl Address {
    pub fn parse(url: &str) -> Result<Self> {
        let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
        let engine = match scheme {
            "postgres" | "postgresql" => Engine::Postgres,
            "mysql" | "mariadb" => Engine::MySql,
            "sqlite" => Engine::Sqlite,
            _ => {
                // The text before the first colon may itself be a secret, so it is not repeated unless it
                // looks like a scheme.
                let shown = if !scheme.is_empty() && scheme.chars().all(|c| c.is_ascii_alphanumeric()) {
                    format!("database scheme {scheme:?} is not known")
                } else {
                    "the database URL has no scheme".to_owned()
                };
                return Err(Error::invalid(format!(
                    "{shown}; use postgres://, mysql://, mariadb:// or sqlite:FILE"
                )));
            }
        };
        Ok(Self { engine, url: url.to_owned() })
    }

    pub fn engine(&self) -> Engine {
        self.engine
    }

    /// Its servers, each with an address of its own: `postgres://user:password@one:5432,two:5432/name?target=primary`. Of one
    /// server nothing is wanted but that it answers, of several one that takes writes, unless the address says what.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub(super) fn hosts(&self) -> Result<(Target, Vec<Self>)> {
        let Some((scheme, rest)) = self.url.split_once("://") else {
            return Ok((Target::Any, vec![self.clone()]));
        };
        let (place, query) = rest.split_once('?').map_or((rest, None), |(place, query)| (place, Some(query)));
        let (authority, path) = place.split_at(place.find('/').unwrap_or(place.len()));
        let (account, hosts) = authority.rfind('@').map_or(("", authority), |at| authority.split_at(at + 1));
        let hosts: Vec<_> = hosts.split(',').collect();
        let several = hosts.len() > 1;
        if several && hosts.iter().any(|host| host.is_empty() || host.starts_with(':')) {
            return Err(Error::invalid(
                "the database URL has a comma without a host beside it; it looks like \
                 postgres://user:password@one:5432,two:5432/name",
            ));
        }
        let mut target = if several { Target::Primary } else { Target::Any };
        let mut others = Vec::new();
        for parameter in query.into_iter().flat_map(|query| query.split('&')) {
            match parameter.split_once('=').unwrap_or((parameter, "")) {
                ("target", "any") => target = Target::Any,
                ("target", "primary") => target = Target::Primary,
                ("target", "replica") => target = Target::Replica,
                ("target", other) => {
                    return Err(Error::invalid(format!(
                        "the database URL has target={other:?}; it is primary, replica or any"
                    )));
                }
                ("target_session_attrs", _) => {
                    return Err(Error::invalid(
                        "the database URL has target_session_attrs, which is not read here; use target=primary, \
                         target=replica or target=any",
                    ));
                }
                (name @ ("host" | "hostaddr" | "port"), _) if several => {
                    return Err(Error::invalid(format!(
                        "the database URL has several hosts, and the parameter {name} names one more; put all of them \
                         before the name of the database"
                    )));
                }
                _ => others.push(parameter),
            }
        }
        let query = if others.is_empty() { String::new() } else { format!("?{}", others.join("&")) };
        let url = |host: &str| format!("{scheme}://{account}{host}{path}{query}");
        Ok((target, hosts.into_iter().map(|host| Self { engine: self.engine, url: url(host) }).collect()))
    }

    /// The URL as it was given, password included: for the driver only.
    pub fn secret(&self) -> &str {
        &self.url
    }
}

impl fmt::Display for Address {
    /// Scheme, host and database; nothing else, since passwords can stand in the user part and in the
    /// parameters.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((scheme, rest)) = self.url.split_once("://") else {
            // A path to a file; a server's URL without the slashes may hold anything.
            return match self.engine {
                Engine::Sqlite => f.write_str(self.url.split('?').next().unwrap_or_default()),
                _ => f.write_str(self.url.split(':').next().unwrap_or_default()),
            };
        };
        let place = rest.rsplit('@').next().unwrap_or_default();
        let place = place.split(['?', '#']).next().unwrap_or_default();
        let (host, path) = place.split_once('/').map_or((place, ""), |(host, path)| (host, path));
        // "user:password" without a host looks like "host:port": show the port only if it is one.
        let host = match host.rsplit_once(':') {
            Some((name, port)) if !port.bytes().all(|b| b.is_ascii_digit()) => name,
            _ => host,
        };
        write!(f, "{scheme}://{host}/{path}")
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_never_shows_its_password() {
        for url in [
            "postgres://alice:s3cret@db:5432/app",
            "postgres://db/app?user=alice&password=s3cret",
            "mysql://alice:s3c@s3cret@db/app",
            "mariadb://alice:p/s3cret@db/app",
            "postgres://alice:s3cret?x@db/app",
            "postgres://alice:s3cret",
            "postgres:/alice:s3cret@db/app",
        ] {
            let address = Address::parse(url).unwrap();
            assert!(!format!("{address} {address:?}").contains("s3cret"), "{address}");
        }
    }

    #[cfg(any(feature = "postgres", feature = "mysql"))]
    #[test]
    fn several_hosts_are_an_address_each() {
        let hosts = |url: &str| {
            let (target, hosts) = Address::parse(url).unwrap().hosts().unwrap();
            (target, hosts.into_iter().map(|host| host.url).collect::<Vec<_>>())
        };
        let one = "postgres://a:p@db:5432/app?sslmode=disable";
        assert_eq!(hosts(one), (Target::Any, vec![one.to_owned()]));
        assert_eq!(hosts("mysql://db?target=replica"), (Target::Replica, vec!["mysql://db".to_owned()]));
        let (target, two) = hosts("postgres://a:p@[::1]:1,b/app?x=1&target=any&y=2");
        assert_eq!(target, Target::Any);
        assert_eq!(two, ["postgres://a:p@[::1]:1/app?x=1&y=2", "postgres://a:p@b/app?x=1&y=2"]);
        assert_eq!(hosts("mariadb://a,b/app").0, Target::Primary);
        assert_eq!(
            Address::parse("mariadb://a:s3cret@b:1,c:2/app").unwrap().to_string(),
            "mariadb://b:1,c:2/app"
        );
    }

    #[cfg(any(feature = "postgres", feature = "mysql"))]
    #[test]
    fn a_list_of_hosts_that_cannot_be_meant_is_refused() {
        for (url, told) in [
            ("postgres://a,,b/app", "a comma without a host"),
            ("postgres://u:s3cret@a,/app", "a comma without a host"),
            ("postgres://a,:5432/app", "a comma without a host"),
            ("postgres://a/app?target=primery", "target=\"primery\""),
            ("postgres://a,b/app?target_session_attrs=read-write", "use target=primary"),
            ("postgres://a,b/app?hostaddr=127.0.0.1", "the parameter hostaddr names one more"),
        ] {
            let error = Address::parse(url).unwrap().hosts().unwrap_err();
            assert!(error.is_invalid() && error.to_string().contains(told), "{error}");
            assert!(!error.to_string().contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn an_unknown_scheme_is_named_but_a_secret_is_not() {
        assert!(Address::parse("oracle://x").unwrap_err().to_string().contains("\"oracle\""));
        assert!(!Address::parse("s3cret@host:1").unwrap_err().to_string().contains("s3cret"));
    }
}
