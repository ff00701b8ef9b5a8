//! Where a client is, by a file that its maker keeps up to date.

use std::fmt;
use std::future::ready;
use std::net::IpAddr;
use std::path::Path;

use http::request::Parts;
use maxminddb::{PathElement, Reader};

use crate::who::{Answer, Subject, Who, named};
use crate::{ClientAddress, ConfigError};

/// The country of the client's address: a bucket for each, `region:DE`, by the codes of ISO 3166-1.
///
/// The file is of [MaxMind's form](https://maxmind.github.io/MaxMind-DB/), and names countries as theirs of countries and of
/// cities do. It is read once, and kept in memory. Of an address that has no country in it the request says nothing, and
/// [`Limit::nobody`](crate::Limit::nobody) decides. It is where a network is said to be, and not where a person is: whoever
/// wants to be elsewhere is.
///
/// ```no_run
/// use tallygate_tower::{ClientAddress, Limit, Region};
/// let region = Region::of(ClientAddress::behind(["10.0.0.0/8"])?, "/var/lib/GeoIP/GeoLite2-Country.mmdb")?;
/// let limit = Limit::new("sign-ups of a country").by(region);
/// # let _ = limit;
/// # Ok::<(), tallygate_tower::ConfigError>(())
/// ```
pub struct Region {
    client: ClientAddress,
    countries: Reader<Vec<u8>>,
}

impl Region {
    /// Of this address, by this file. Reads all of it.
    ///
    /// # Errors
    /// The file cannot be read, or is none of this form.
    pub fn of(client: ClientAddress, file: impl AsRef<Path>) -> Result<Self, ConfigError> {
        let file = file.as_ref();
        let countries = Reader::open_readfile(file).and_then(|countries| {
            countries.verify()?;
            Ok(countries)
        });
        let countries = countries.map_err(|error| {
            ConfigError::new(format!(
                "{} cannot be read as a file of countries ({error}); get one in MaxMind's form, as GeoLite2-Country.mmdb",
                file.display()
            ))
        })?;
        Ok(Self { client, countries })
    }

    fn code(&self, address: IpAddr) -> Option<&str> {
        let found = self.countries.lookup(address).ok()?;
        found.decode_path(&[PathElement::Key("country"), PathElement::Key("iso_code")]).ok()?
    }
}

impl Who for Region {
    fn who<'p>(&'p self, parts: &'p Parts) -> Answer<'p> {
        let code = self.client.of(parts).and_then(|address| self.code(address));
        Box::pin(ready(code.map_or(Subject::Nobody, |code| named("region", [code.as_bytes()]))))
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region").field("client", &self.client).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use http::Request;

    use super::*;
    use crate::Peer;

    /// Made by `tests/data/regions.py`.
    const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/regions.mmdb");

    fn said(peer: &str, forwarded: &str) -> Subject {
        let region = Region::of(ClientAddress::behind(["10.0.0.0/8"]).unwrap(), FILE).unwrap();
        let request = Request::get("/").header("x-forwarded-for", forwarded);
        let (mut parts, ()) = request.body(()).unwrap().into_parts();
        parts.extensions.insert(Peer((peer.parse::<IpAddr>().unwrap(), 4711).into()));
        match region.who(&parts).as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(said) => said,
            Poll::Pending => panic!("it waits"),
        }
    }

    #[test]
    fn a_client_is_in_the_country_of_its_address() {
        for (address, code) in [
            ("192.0.2.7", Some("DE")),
            ("::ffff:192.0.2.7", Some("DE")),
            ("2001:db8:1::7", Some("DE")),
            ("198.51.100.255", Some("FR")),
            // A continent without a country, a country that is no text, an address that is not in the file.
            ("203.0.113.1", None),
            ("2001:db8:2::1", None),
            ("192.0.3.1", None),
        ] {
            let expected = code.map_or(Subject::Nobody, |code: &str| Subject::Key(format!("region:{code}")));
            assert_eq!(said(address, ""), expected, "{address}");
            assert_eq!(said("10.0.0.1", address), expected, "{address} behind a proxy");
        }
        // It does not choose where it is.
        assert_eq!(said("198.51.100.1", "192.0.2.7"), Subject::Key("region:FR".to_owned()));
    }

    #[test]
    fn what_is_no_file_of_countries_is_one_clear_error() {
        let good = std::fs::read(FILE).unwrap();
        let folder = std::env::temp_dir().join(format!("tallygate-region-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("countries.mmdb");
        let mut cut_short = good[..good.len() / 2].to_vec();
        cut_short.extend_from_slice(&good[good.len() - 300..]);
        // Its tree leads out of the file.
        let mut spoilt = good.clone();
        spoilt[..6].fill(0xfe);
        for bad in [&b""[..], b"<!doctype html>", &good[..100], &cut_short, &spoilt] {
            std::fs::write(&file, bad).unwrap();
            let error = Region::of(ClientAddress::of_peer(), &file).unwrap_err().to_string();
            assert!(
                error.contains("countries.mmdb") && error.contains("get one in MaxMind's form"),
                "{error}"
            );
        }
        std::fs::remove_dir_all(folder).unwrap();
        assert!(Region::of(ClientAddress::of_peer(), "/nowhere.mmdb").is_err());
    }
}
