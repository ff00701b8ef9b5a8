//! The things that every request finds: the limits, the tokens, and whether the server is about to end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::header::{AUTHORIZATION, HOST};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Version};
use futures_util::future::join_all;
use tallygate::Limiter;
use tallygate::audit::Auditor;
use tallygate::policy::Operator;
use tallygate_envoy::RateLimits;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::caller::{Caller, Right};
use crate::config::Limits;
use crate::listen::Peer;
use crate::measured::Measured;
use crate::problem::Problem;
use crate::token::{Proof, Tokens};

/// The time for which connections to the database are waited for at the end.
const CLOSING: Duration = Duration::from_secs(5);

#[derive(Clone)]
pub(crate) struct App(Arc<Inner>);

struct Inner {
    app: Limiter,
    auditor: Limiter,
    operator: Limiter,
    limits: Limits,
    /// None: who is on this machine needs none.
    tokens: Option<RwLock<Arc<Tokens>>>,
    envoy: Option<RateLimits>,
    leaves: AtomicBool,
    /// True when nothing more is accepted.
    over: watch::Sender<bool>,
    measured: Measured,
}

/// Connections with the rights of each role; the same, where a role has none of its own.
pub(crate) struct Limiters {
    pub app: Limiter,
    pub auditor: Limiter,
    pub operator: Limiter,
}

impl App {
    pub fn new(
        Limiters { app, auditor, operator }: Limiters,
        limits: &Limits,
        tokens: Option<Tokens>,
        envoy: Option<RateLimits>,
        measured: Measured,
    ) -> Self {
        let tokens = tokens.map(|tokens| RwLock::new(Arc::new(tokens)));
        let (limits, leaves, over) = (limits.clone(), AtomicBool::new(false), watch::Sender::new(false));
        Self(Arc::new(Inner { app, auditor, operator, limits, tokens, envoy, leaves, over, measured }))
    }

    pub fn limiter(&self) -> &Limiter {
        &self.0.app
    }

    pub fn auditor(&self) -> Auditor {
        self.0.auditor.auditor()
    }

    pub fn operator(&self) -> Operator {
        self.0.operator.operator()
    }

    /// The zones, read with the rights of an auditor.
    pub fn zones(&self) -> Operator {
        self.0.auditor.operator()
    }

    /// The service for Envoy, where it is offered.
    pub fn envoy(&self) -> Option<&RateLimits> {
        self.0.envoy.as_ref()
    }

    pub fn limits(&self) -> &Limits {
        &self.0.limits
    }

    /// The counts.
    pub fn measured(&self) -> &Measured {
        &self.0.measured
    }

    pub fn set_tokens(&self, tokens: Tokens) {
        if let Some(known) = &self.0.tokens {
            *known.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(tokens);
        }
    }

    /// From now on it is not ready: who sends traffic here is to send it elsewhere.
    pub fn leave(&self) {
        self.0.leaves.store(true, Ordering::Release);
    }

    pub fn leaves(&self) -> bool {
        self.0.leaves.load(Ordering::Acquire)
    }

    /// From now on nothing more is accepted.
    pub fn end(&self) {
        self.0.over.send_replace(true);
    }

    /// Waits until nothing more is accepted.
    pub fn over(&self) -> impl Future<Output = ()> + use<> {
        let mut over = self.0.over.subscribe();
        async move { drop(over.wait_for(|is_over| *is_over).await) }
    }

    /// Writes what is known from memory only, and closes the connections. One that is not given back, since whoever asked has
    /// left in the middle, is waited for only so long.
    pub async fn close(&self) -> tallygate::Result<()> {
        let flushed = self.0.app.flush().await;
        let closed = [&self.0.app, &self.0.auditor, &self.0.operator].map(|limiter| limiter.clone().close());
        if timeout(CLOSING, join_all(closed)).await.is_err() {
            tracing::warn!("connections to the database were in use when the server ended");
        }
        flushed
    }

    /// Finds out who asks.
    pub fn identify(&self, head: &Parts) -> Result<Caller, Problem> {
        let mut presented = head.headers.get_all(AUTHORIZATION).iter();
        match (presented.next(), presented.next()) {
            (Some(_), Some(_)) => {
                Err(Problem::unknown_caller("there are two Authorization headers; send one"))
            }
            (Some(value), None) => {
                let secret = value.to_str().ok().and_then(|value| {
                    let (scheme, secret) = value.split_once(' ')?;
                    scheme.eq_ignore_ascii_case("bearer").then_some(secret)
                });
                let secret = secret.ok_or_else(|| {
                    Problem::unknown_caller("the Authorization header is not of the form \"Bearer TOKEN\"")
                })?;
                self.known(&Proof::secret(secret)).ok_or_else(|| {
                    Problem::unknown_caller("nobody has this token; make one with: tallygate token add")
                })
            }
            (None, _) => match head.extensions.get::<Proof>() {
                Some(certificate) => self.known(certificate).ok_or_else(|| {
                    Problem::unknown_caller(
                        "nobody has this certificate; name it with: tallygate token add --certificate",
                    )
                }),
                None => self.neighbour(head),
            },
        }
    }

    fn known(&self, proof: &Proof) -> Option<Caller> {
        self.tokens()?.find(proof).cloned()
    }

    /// The caller that needs no token: a user of the socket, and this machine, where there are no tokens at
    /// all.
    fn neighbour(&self, head: &Parts) -> Result<Caller, Problem> {
        let everywhere = || vec!["*".to_owned()];
        match head.extensions.get::<Peer>() {
            Some(Peer::User(user)) => {
                let rights = [Right::App, Right::Auditor, Right::Operator];
                Ok(Caller::new(format!("uid:{user}"), &rights, everywhere()))
            }
            Some(Peer::Address(address)) if address.is_loopback() && self.0.tokens.is_none() => {
                // A page in a browser here can give its own name this address, and ask with it: by HTTP/1, since without TLS
                // browsers speak nothing else.
                if head.version < Version::HTTP_2 && !is_of_this_machine(head) {
                    return Err(Problem::forbidden(
                        "the Host is not this machine; ask at localhost, or use tokens: tallygate token add",
                    ));
                }
                Ok(Caller::new("localhost", &[Right::App, Right::Auditor], everywhere()))
            }
            _ => Err(Problem::unknown_caller("send a token: \"Authorization: Bearer TOKEN\"")),
        }
    }

    fn tokens(&self) -> Option<Arc<Tokens>> {
        let tokens = self.0.tokens.as_ref()?;
        Some(Arc::clone(&tokens.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// The value of a field that is there once: of two nobody knows which one another program on the way took.
pub(crate) fn single(headers: &HeaderMap, name: HeaderName) -> Option<&HeaderValue> {
    let mut values = headers.get_all(name).iter();
    values.next().filter(|_| values.next().is_none())
}

/// True when a browser that sent this asked for this machine by a name that only this machine has.
fn is_of_this_machine(head: &Parts) -> bool {
    let host = head.uri.authority().map(|authority| authority.as_str());
    let host = host.or_else(|| single(&head.headers, HOST)?.to_str().ok());
    let authority: Option<axum::http::uri::Authority> = host.and_then(|host| host.parse().ok());
    authority.is_some_and(|authority| {
        let host = authority.host();
        let address = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
        host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
    })
}

impl FromRequestParts<App> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(head: &mut Parts, app: &App) -> Result<Self, Problem> {
        app.identify(head)
    }
}
