//! Where a database is, as a person writes it. The password stays inside.

use std::fmt;

use crate::error::{Error, Result};

/// Which database speaks at an address.
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
                // What stands before the first colon may itself be a secret, so it is not repeated
                // unless it looks like a scheme.
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

    #[test]
    fn an_unknown_scheme_is_named_but_a_secret_is_not() {
        assert!(Address::parse("oracle://x").unwrap_err().to_string().contains("\"oracle\""));
        assert!(!Address::parse("s3cret@host:1").unwrap_err().to_string().contains("s3cret"));
    }
}
