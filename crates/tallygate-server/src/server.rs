//! A server from its settings to its end.

use std::path::PathBuf;
use std::time::Duration;

use tallygate::{Journal, Limiter};
use tokio::time::sleep;

use crate::app::{App, Limiters};
use crate::config::{Config, zones_of};
use crate::listen::{Listener, serve};
use crate::token::Tokens;
use crate::{Failure, api, measured};

/// What a journal holds at most: some 500,000 checks.
const JOURNAL_BYTES: u64 = 100 << 20;

/// A server that is connected and listens, and answers as soon as it [runs](Self::run).
pub struct Server {
    app: App,
    listener: Listener,
    config: Config,
}

/// Reads the files of a running server again.
#[derive(Clone)]
pub struct Reload {
    app: App,
    tokens: Option<PathBuf>,
    zones: Option<PathBuf>,
}

impl Server {
    /// Connects to the database, applies the file of zones, and listens.
    ///
    /// # Errors
    /// A file that cannot be read; a database that does not answer or was not migrated; an address that is taken, or that
    /// others reach while there are no tokens.
    pub async fn bind(config: Config) -> Result<Self, Failure> {
        config.validate()?;
        let tokens = config.tokens.as_deref().map(Tokens::read_file).transpose()?;
        let listener = Listener::bind(&config.listen).await?;
        if tokens.is_none() && !listener.is_local() {
            return Err(Failure::new(format!(
                "others reach {:?}, and without tokens anybody could ask; make one with: tallygate token add, or listen at \
                 127.0.0.1",
                config.listen
            )));
        }
        let limiters = connect(&config).await?;
        let app = App::new(limiters, config.limits.clone(), tokens, measured::recorder()?);
        let server = Self { app, listener, config };
        server.reload().zones().await?;
        Ok(server)
    }

    /// Where it listens: `http://127.0.0.1:7411`, `unix:/run/tallygate.sock`.
    pub fn address(&self) -> String {
        self.listener.address()
    }

    /// True where whoever is on this machine may ask, since there are no tokens.
    pub fn is_open(&self) -> bool {
        self.config.tokens.is_none()
    }

    /// A handle to read the files again while it runs.
    pub fn reload(&self) -> Reload {
        let Config { tokens, zones, .. } = self.config.clone();
        Reload { app: self.app.clone(), tokens, zones }
    }

    /// Answers until `stop` is over. Then `/readyz` says no for a while, nothing more is accepted, what was accepted is
    /// answered, what is known from memory only is written, and the connections are closed.
    ///
    /// # Errors
    /// Not every request was answered in the time for that, or not everything could be written.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<(), Failure> {
        let Self { app, listener, config } = self;
        let told = async {
            stop.await;
            app.leave();
            sleep(Duration::from_secs(config.stopping.notice_s)).await;
        };
        let drain = Duration::from_secs(config.stopping.drain_s);
        let served = serve(listener, api::routes(app.clone()), &config.limits, told, drain).await;
        let closed = app.close().await;
        served?;
        Ok(closed?)
    }
}

impl Reload {
    /// Reads the tokens and the zones again. A file that is not good changes nothing.
    ///
    /// # Errors
    /// A file that cannot be read or is not good; a database that does not answer.
    pub async fn files(&self) -> Result<(), Failure> {
        let tokens = self.tokens.as_deref().map(Tokens::read_file).transpose()?;
        self.zones().await?;
        if let Some(tokens) = tokens {
            self.app.set_tokens(tokens);
        }
        Ok(())
    }

    async fn zones(&self) -> Result<(), Failure> {
        let Some(path) = &self.zones else { return Ok(()) };
        self.app.operator().set_zones(zones_of(path)?, "tallygate serve").await?;
        Ok(())
    }
}

async fn connect(config: &Config) -> Result<Limiters, Failure> {
    let settings =
        tallygate::Config { connections: config.database.connections, ..tallygate::Config::default() };
    let mut app = Limiter::connect_with(&config.database.app, settings).await?;
    let other = async |url: &Option<String>| match url {
        Some(url) => Limiter::connect_with(url, settings).await,
        None => Ok(app.clone()),
    };
    let (auditor, operator) =
        (other(&config.database.auditor).await?, other(&config.database.operator).await?);
    if let Some(journal) = &config.journal {
        app = app.with_journal(Journal::open(journal, JOURNAL_BYTES)?);
    }
    Ok(Limiters { app, auditor, operator })
}
