//! Settings of a server, each with its default.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use tallygate::Shield;
use tallygate::policy::{ZoneSetting, zone_file};
use tallygate_doorman::Template;
use tallygate_envoy::Mapping;

use crate::Failure;
use crate::tls::Secure;
use crate::token::Tokens;

/// Settings of a [`Server`](crate::Server), as a file of TOML has them.
///
/// ```
/// let config = tallygate_server::Config::read("listen = 'unix:/run/tallygate.sock'")?;
/// assert_eq!(config.limits.body_bytes, 65_536);
/// # Ok::<(), tallygate_server::Failure>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// An address with a port, or `unix:PATH` of a socket.
    pub listen: String,
    /// An address for `/metrics` and health alone; None: `/metrics` is at `listen`.
    pub admin: Option<String>,
    /// The file of tokens. Without one nobody but this machine is answered.
    pub tokens: Option<PathBuf>,
    /// A file of zones, which is applied when the server starts and when it reads its files again.
    pub zones: Option<PathBuf>,
    /// A file for what passes while the database does not answer, in zones with `on-outage = "open"`; one for each server.
    pub journal: Option<PathBuf>,
    /// A file for each check that is decided locally, in zones with `local`; servers may share it.
    pub local_journal: Option<PathBuf>,
    /// A limit of each key that this server keeps by itself, in front of all others; None: there is none.
    pub shield: Option<Shield>,
    /// The database in which decisions are kept.
    pub database: Databases,
    /// Envoy's rate limit service; None: it is not offered.
    pub envoy: Option<Envoy>,
    /// Doorman's capacity service; None: it is not offered.
    pub doorman: Option<Doorman>,
    /// TLS; None: it is not spoken.
    pub tls: Option<Tls>,
    /// The bounds of what one caller can take of the server.
    pub limits: Limits,
    /// The way in which it ends.
    pub stopping: Stopping,
}

/// The database, by a URL for each role; a role without one uses that of `app`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Databases {
    /// Checks, and whatever gives back or settles.
    pub app: String,
    /// Reads the ledger.
    pub auditor: Option<String>,
    /// Sets zones, bans and overrides.
    pub operator: Option<String>,
    /// Connections of each of them, at most.
    pub connections: u32,
    /// Seconds after which a call gives up, unless its caller names a time.
    pub deadline_s: u64,
}

/// Envoy's rate limit service.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Envoy {
    /// Where gRPC is spoken: an address with a port, or `unix:PATH` of a socket.
    #[serde(default = "Envoy::address")]
    pub listen: String,
    /// The file that says which descriptors are which zones.
    pub mapping: PathBuf,
}

impl Envoy {
    fn address() -> String {
        "127.0.0.1:8081".to_owned()
    }

    pub(crate) fn mapping(&self) -> Result<Mapping, Failure> {
        let read = |text: String| Mapping::read(&text).map_err(|error| Failure::new(error.to_string()));
        text_of(&self.mapping).and_then(|text| {
            read(text).map_err(|error| Failure::new(format!("{}: {error}", self.mapping.display())))
        })
    }
}

/// Doorman's capacity service.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Doorman {
    /// Where gRPC is spoken: an address with a port, or `unix:PATH` of a socket.
    #[serde(default = "Doorman::address")]
    pub listen: String,
    /// The address that clients are told to ask at; None: the one that they asked.
    pub address: Option<String>,
    /// Which resources are of which zone, besides those that are called as one.
    #[serde(default, rename = "template")]
    pub templates: Vec<Template>,
}

impl Doorman {
    fn address() -> String {
        "127.0.0.1:8082".to_owned()
    }
}

/// TLS by files of PEM, at every address but a socket's. A client that comes by it is known by tokens.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// The server's certificate, and after it those up to one that clients know.
    pub certificate: PathBuf,
    /// The key of that certificate.
    pub key: PathBuf,
    /// The authorities that vouch for clients: their certificates. None: nobody is asked for a certificate.
    pub clients: Option<PathBuf>,
}

/// The bounds of what one caller can take of the server.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Connections at once; more of them wait to be accepted.
    pub connections: usize,
    /// Connections of one address, or of one network of IPv6 (/64), at once; more of them are closed.
    pub connections_per_peer: usize,
    /// Bytes of the head of a request: its path and its header fields.
    pub head_bytes: usize,
    /// Seconds in which the head must have come, and before it a handshake of TLS; also how long a connection rests between
    /// two requests.
    pub head_s: u64,
    /// Bytes of a body, and of a line where a body is lines.
    pub body_bytes: usize,
    /// Seconds in which a body must have come, or the next line of it.
    pub body_s: u64,
    /// Seconds in which a caller must take a piece of its answer.
    pub write_s: u64,
    /// Seconds for which a caller may wait for a decision, if it names a time (`deadline_us`).
    pub deadline_s: u64,
    /// Lines of one body that are decided at once.
    pub lines_at_once: usize,
}

/// The way in which it ends when it is told to.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Stopping {
    /// Seconds for which `/readyz` says no before the server stops to accept: as long as a load balancer needs to see it.
    pub notice_s: u64,
    /// Seconds for the requests that were accepted; what is not answered then is cut off.
    pub drain_s: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:7411".to_owned(),
            admin: None,
            tokens: None,
            zones: None,
            journal: None,
            local_journal: None,
            shield: None,
            database: Databases::default(),
            envoy: None,
            doorman: None,
            tls: None,
            limits: Limits::default(),
            stopping: Stopping::default(),
        }
    }
}

impl Default for Databases {
    fn default() -> Self {
        Self {
            app: "sqlite:tallygate.db".to_owned(),
            auditor: None,
            operator: None,
            connections: 16,
            deadline_s: 5,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 4_096,
            connections_per_peer: 1_024,
            head_bytes: 16_384,
            head_s: 10,
            body_bytes: 65_536,
            body_s: 10,
            write_s: 10,
            deadline_s: 60,
            lines_at_once: 32,
        }
    }
}

impl Default for Stopping {
    fn default() -> Self {
        Self { notice_s: 1, drain_s: 30 }
    }
}

impl Config {
    /// A file with every setting and its default.
    pub const DEFAULTS: &str = include_str!("defaults.toml");

    /// Reads a text of TOML.
    ///
    /// # Errors
    /// A file that cannot be read, with its line; a setting that there is not; a value out of its range.
    pub fn read(text: &str) -> Result<Self, Failure> {
        let config: Self = toml::from_str(text).map_err(|error| Failure::new(fault(text, &error)))?;
        config.validate()?;
        Ok(config)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// Those of [`read`](Self::read), with the file's name.
    pub fn read_file(path: &Path) -> Result<Self, Failure> {
        Self::read(&text_of(path)?).map_err(|error| Failure::new(format!("{}: {error}", path.display())))
    }

    /// Reads what the settings name: the tokens, the zones, the mapping, certificates and keys.
    ///
    /// # Errors
    /// A value out of its range, a file that cannot be read or is not good.
    pub fn check(&self) -> Result<(), Failure> {
        self.validate()?;
        self.tokens.as_deref().map(Tokens::read_file).transpose()?;
        self.zones.as_deref().map(zones_of).transpose()?;
        self.envoy.as_ref().map(Envoy::mapping).transpose()?;
        self.secure()?;
        Ok(())
    }

    /// TLS, where it is to be spoken. A page in a browser could ask by it as this machine, so that nobody goes without a token.
    pub(crate) fn secure(&self) -> Result<Option<Secure>, Failure> {
        match &self.tls {
            Some(_) if self.tokens.is_none() => {
                Err(Failure::new("[tls] is for callers with tokens; make one with: tallygate token add"))
            }
            files => files.clone().map(Secure::new).transpose(),
        }
    }

    pub(crate) fn validate(&self) -> Result<(), Failure> {
        let Limits {
            connections,
            connections_per_peer,
            head_bytes,
            head_s,
            body_bytes,
            body_s,
            write_s,
            deadline_s,
            lines_at_once,
        } = self.limits;
        let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        for (name, value, range) in [
            ("limits.connections", connections, 1..=1_000_000),
            ("limits.connections_per_peer", connections_per_peer, 1..=1_000_000),
            // The least that hyper can work with.
            ("limits.head_bytes", head_bytes, 8_192..=1 << 20),
            ("limits.head_s", number(head_s), 1..=3_600),
            ("limits.body_bytes", body_bytes, 1_024..=16 << 20),
            ("limits.body_s", number(body_s), 1..=3_600),
            ("limits.write_s", number(write_s), 1..=3_600),
            ("limits.deadline_s", number(deadline_s), 1..=3_600),
            ("database.deadline_s", number(self.database.deadline_s), 1..=3_600),
            ("limits.lines_at_once", lines_at_once, 1..=1_024),
            ("database.connections", number(self.database.connections.into()), 1..=10_000),
            ("stopping.notice_s", number(self.stopping.notice_s), 0..=3_600),
            ("stopping.drain_s", number(self.stopping.drain_s), 1..=3_600),
        ] {
            if !range.contains(&value) {
                let (least, most) = range.into_inner();
                return Err(Failure::new(format!("{name} = {value} is out of range; use {least} to {most}")));
            }
        }
        Ok(())
    }
}

/// The zones of a file.
pub(crate) fn zones_of(path: &Path) -> Result<Vec<ZoneSetting>, Failure> {
    zone_file(&text_of(path)?).map_err(|error| Failure::new(format!("{}: {error}", path.display())))
}

/// The fault of a text of TOML, by its line. The line is not repeated: a password may stand there, or another file's secret.
pub(crate) fn fault(text: &str, error: &toml::de::Error) -> String {
    let begin = error.span().map_or(0, |span| span.start);
    let line = 1 + text.bytes().take(begin).filter(|byte| *byte == b'\n').count();
    let message = match error.message().split_once("string \"") {
        Some((what, rest)) => format!("{what}string{}", rest.rsplit_once('"').map_or("", |(_, rest)| rest)),
        None => error.message().to_owned(),
    };
    format!("line {line}: {message}")
}

/// The text of a file that somebody named.
pub(crate) fn text_of(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path)
        .map_err(|error| Failure::new(format!("{} cannot be read: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_printed_defaults_are_the_defaults() {
        assert_eq!(Config::read(Config::DEFAULTS).unwrap(), Config::default());
        // Those that have none stand there as comments, which say what they would be.
        let settings = Config::DEFAULTS.replace("# tokens =", "tokens =").replace("# zones =", "zones =");
        let settings = settings.replace("# auditor =", "auditor =").replace("# operator =", "operator =");
        let settings =
            settings.replace("# journal =", "journal =").replace("# local_journal", "local_journal");
        let config = Config::read(&settings).unwrap();
        assert!(config.tokens.is_some() && config.zones.is_some());
        assert!(config.journal.is_some() && config.local_journal.is_some());
        assert!(config.database.auditor.is_some() && config.database.operator.is_some());
        assert!(Config::read(&Config::DEFAULTS.replace("# admin =", "admin =")).unwrap().admin.is_some());
        let table = |head: &str| {
            let text =
                Config::DEFAULTS.split_once(&format!("# {head}\n")).unwrap().1.split("\n\n").next().unwrap();
            Config::read(&format!("{head}\n{}", text.replace("# ", ""))).unwrap()
        };
        let (envoy, tls) = (table("[envoy]").envoy.unwrap(), table("[tls]").tls.unwrap());
        assert_eq!(table("[shield]").shield.unwrap().burst.get(), 1_000);
        let doorman = table("[doorman]").doorman.unwrap();
        assert_eq!((doorman.listen, doorman.templates.len()), (Doorman::address(), 1));
        assert_eq!(envoy.listen, Envoy::address());
        assert!(tls.clients.is_some());
        assert_eq!(Config::read("envoy.mapping = 'envoy.toml'").unwrap().envoy, Some(envoy));
    }

    #[test]
    fn what_cannot_be_is_refused_by_its_name() {
        for (text, told) in [
            ("listne = 'x'", "listne"),
            ("limits.body_bytes = 3", "limits.body_bytes = 3 is out of range; use 1024 to 16777216"),
            ("limits.connections = 0", "limits.connections = 0"),
            ("stopping.drain_s = 0", "stopping.drain_s = 0"),
            ("limits = 5", "line 1"),
            ("shield = { per_second = 0, burst = 5 }", "line 1"),
            ("shield = { per_second = 5 }", "burst"),
            (
                "listen = 'x'\ndatabase = 'mysql://app:s3cret@db/app'",
                "line 2: invalid type: string, expected struct",
            ),
            ("root:s3cret:19000:0:99999:7:::", "line 1: "),
            ("doorman.template = [{ resource = '[a]', zone = 'gpu' }]", "\"[a]\" has a class"),
        ] {
            let error = Config::read(text).unwrap_err().to_string();
            assert!(error.contains(told) && !error.contains("s3cret") && !error.contains('\n'), "{error}");
        }
    }
}
