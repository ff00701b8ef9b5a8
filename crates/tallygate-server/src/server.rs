//! A server from its settings to its end.

use std::path::PathBuf;
use std::time::Duration;

use tallygate::{Journal, Limiter, LocalJournal};
use tallygate_doorman::Doorman;
use tallygate_envoy::RateLimits;
use tokio::time::sleep;
use tonic::service::Routes;

use crate::app::{App, Limiters};
use crate::config::{Config, Databases, Envoy, zones_of};
use crate::listen::{Listener, Speaks, serve};
use crate::measured::Measured;
use crate::tls::Secure;
use crate::token::Tokens;
use crate::{Failure, api, grpc};

/// The most that a journal holds: some 500,000 checks.
const JOURNAL_BYTES: u64 = 100 << 20;

/// Between two looks whether the database answers.
const PAUSE: Duration = Duration::from_secs(1);

/// A server that is connected and listens, and answers as soon as it [runs](Self::run).
pub struct Server {
    app: App,
    listener: Listener,
    admin: Option<Listener>,
    envoy: Option<Grpc<RateLimits>>,
    doorman: Option<Grpc<Doorman>>,
    secure: Option<Secure>,
    config: Config,
}

/// A service, and where it is asked.
struct Grpc<S> {
    listener: Listener,
    service: S,
}

/// Reads the files of a running server again.
#[derive(Clone)]
pub struct Reload {
    app: App,
    tokens: Option<PathBuf>,
    zones: Option<PathBuf>,
    secure: Option<Secure>,
}

impl Server {
    /// Connects to the database, for which it waits as long as it does not answer; applies the file of zones, and listens.
    ///
    /// # Errors
    /// A file that cannot be read; a database that was not migrated or refuses; an address that is taken, or that
    /// others reach while there are no tokens.
    pub async fn bind(config: Config) -> Result<Self, Failure> {
        config.validate()?;
        let tokens = config.tokens.as_deref().map(Tokens::read_file).transpose()?;
        let mapping = config.envoy.as_ref().map(Envoy::mapping).transpose()?;
        let secure = config.secure()?;
        let limiters = patiently(&config).await?;
        let listen = async |at: &str| listen(at, config.tokens.is_some(), secure.as_ref()).await;
        let listener = listen(&config.listen).await?;
        let admin = match &config.admin {
            Some(at) => Some(listen(at).await?),
            None => None,
        };
        let role =
            |name, url: &Option<String>, limiter: &Limiter| url.as_ref().map(|_| (name, limiter.clone()));
        let others = [
            role("auditor", &config.database.auditor, &limiters.auditor),
            role("operator", &config.database.operator, &limiters.operator),
        ];
        let measured = Measured::begin(limiters.app.clone(), others.into_iter().flatten())?;
        let limits = mapping.map(|mapping| RateLimits::new(limiters.app.clone(), mapping));
        let app = App::new(limiters, &config.limits, tokens, limits.clone(), measured);
        Reload::of(&app, &config, secure.as_ref()).zones().await?;
        let envoy = match (&config.envoy, limits) {
            (Some(envoy), Some(limits)) => {
                // The zones are there now, if they ever are.
                limits.ready().await.map_err(|error| Failure::new(error.to_string()))?;
                Some(Grpc { listener: listen(&envoy.listen).await?, service: limits })
            }
            _ => None,
        };
        let doorman = match &config.doorman {
            Some(doorman) => {
                let service = Doorman::new(app.limiter().clone(), doorman.templates.clone());
                let service = doorman.address.iter().fold(service, |service, address| service.at(address));
                Some(Grpc { listener: listen(&doorman.listen).await?, service })
            }
            None => None,
        };
        Ok(Self { app, listener, admin, envoy, doorman, secure, config })
    }

    /// The address where Envoy asks; None where that is not offered.
    pub fn envoy_address(&self) -> Option<String> {
        self.envoy.as_ref().map(|envoy| envoy.listener.address())
    }

    /// The address where clients of Doorman ask; None where that is not offered.
    pub fn doorman_address(&self) -> Option<String> {
        self.doorman.as_ref().map(|doorman| doorman.listener.address())
    }

    /// Where `/metrics` is, if it has an address of its own.
    pub fn admin_address(&self) -> Option<String> {
        self.admin.as_ref().map(Listener::address)
    }

    /// Where it listens: `http://127.0.0.1:7411`, with `https` under TLS, `unix:/run/tallygate.sock`.
    pub fn address(&self) -> String {
        self.listener.address()
    }

    /// True where whoever is on this machine may ask, since there are no tokens.
    pub fn is_open(&self) -> bool {
        self.config.tokens.is_none()
    }

    /// A handle to read the files again while it runs.
    pub fn reload(&self) -> Reload {
        Reload::of(&self.app, &self.config, self.secure.as_ref())
    }

    /// Answers until `stop` is over. Then `/readyz` says no for a while, nothing more is accepted, what was accepted is
    /// answered, what is known from memory only is written, and the connections are closed.
    ///
    /// # Errors
    /// Not every request was answered in the time for that, or not everything could be written.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<(), Failure> {
        let Self { app, listener, admin, envoy, doorman, config, .. } = self;
        let (health, health_service) = tallygate_envoy::health().await;
        let told = async {
            stop.await;
            app.leave();
            health.set_serving(false).await;
            sleep(Duration::from_secs(config.stopping.notice_s)).await;
            health.end().await;
            app.end();
        };
        let (limits, drain) = (&config.limits, Duration::from_secs(config.stopping.drain_s));
        let routes = api::routes(app.clone(), admin.is_none());
        let http = serve(listener, Speaks::Http1, routes, limits, app.over(), drain);
        let admin = async {
            let Some(listener) = admin else { return Ok(()) };
            serve(listener, Speaks::Http1, api::admin(app.clone()), limits, app.over(), drain).await
        };
        let health = Routes::new(health_service);
        let envoy = async {
            let Some(Grpc { listener, service }) = envoy else { return Ok(()) };
            let router = grpc::envoy(app.clone(), service, health.clone());
            serve(listener, Speaks::Http2, router, limits, app.over(), drain).await
        };
        let doorman = async {
            let Some(Grpc { listener, service }) = doorman else { return Ok(()) };
            let router = grpc::doorman(app.clone(), service, health.clone());
            serve(listener, Speaks::Http2, router, limits, app.over(), drain).await
        };
        let ((), http, admin, envoy, doorman) = tokio::select! {
            ended = async { tokio::join!(told, http, admin, envoy, doorman) } => ended,
            never = app.measured().watch(app.auditor()) => match never {},
        };
        let served = http.and(admin).and(envoy).and(doorman);
        let closed = app.close().await;
        served?;
        Ok(closed?)
    }
}

impl Reload {
    fn of(app: &App, config: &Config, secure: Option<&Secure>) -> Self {
        let Config { tokens, zones, .. } = config.clone();
        Self { app: app.clone(), tokens, zones, secure: secure.cloned() }
    }

    /// Reads the tokens, the zones, the certificates and the key again. A file that is not good changes nothing.
    ///
    /// # Errors
    /// A file that cannot be read or is not good; a database that does not answer.
    pub async fn files(&self) -> Result<(), Failure> {
        let tokens = self.tokens.as_deref().map(Tokens::read_file).transpose()?;
        let shown = self.secure.as_ref().map(Secure::read).transpose()?;
        self.zones().await?;
        if let Some(tokens) = tokens {
            self.app.set_tokens(tokens);
        }
        if let (Some(secure), Some(shown)) = (&self.secure, shown) {
            secure.set(shown);
        }
        Ok(())
    }

    async fn zones(&self) -> Result<(), Failure> {
        let Some(path) = &self.zones else { return Ok(()) };
        self.app.operator().set_zones(zones_of(path)?, "tallygate serve").await?;
        Ok(())
    }
}

/// Listens where the server may: without tokens, where only this machine reaches it.
async fn listen(at: &str, has_tokens: bool, secure: Option<&Secure>) -> Result<Listener, Failure> {
    let listener = Listener::bind(at, secure).await?;
    if has_tokens || listener.is_local() {
        return Ok(listener);
    }
    Err(Failure::new(format!(
        "others reach {at:?}, and without tokens anybody could ask; make one with: tallygate token add, or listen at 127.0.0.1"
    )))
}

/// Nobody is listened to before the database answers: whoever asks whether the server is ready is refused.
async fn patiently(config: &Config) -> Result<Limiters, Failure> {
    let mut told = false;
    loop {
        match connect(config).await {
            Err(failure) if failure.reason().is_some_and(tallygate::Error::is_transient) => {
                if !std::mem::replace(&mut told, true) {
                    tracing::warn!(error = %failure, "waiting for the database");
                }
                sleep(PAUSE).await;
            }
            done => return done,
        }
    }
}

async fn connect(config: &Config) -> Result<Limiters, Failure> {
    let Databases { connections, deadline_s, .. } = config.database;
    let deadline = Duration::from_secs(deadline_s);
    let settings = tallygate::Config { connections, deadline, ..tallygate::Config::default() };
    let checking = tallygate::Config { shield: config.shield, ..settings };
    let mut app = Limiter::connect_with(&config.database.app, checking).await?;
    let other = async |url: &Option<String>| match url {
        Some(url) => Limiter::connect_with(url, settings).await,
        None => Ok(app.clone()),
    };
    let (auditor, operator) =
        (other(&config.database.auditor).await?, other(&config.database.operator).await?);
    if let Some(journal) = &config.journal {
        app = app.with_journal(Journal::open(journal, JOURNAL_BYTES)?);
    }
    if let Some(journal) = &config.local_journal {
        app = app.with_local_journal(LocalJournal::open(journal)?);
    }
    Ok(Limiters { app, auditor, operator })
}
