//! A request on its way: asked about, let through or answered, and settled.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode, response};
use tallygate::policy::{Algorithm, Mode};
use tallygate::uuid::Uuid;
use tallygate::{Check, Decision, ErrorKind, Policy, Reason};
use tower_service::Service;

use crate::answer::{Decided, OnBlocked, as_grpc, failed, refusal, refused};
use crate::body::Body;
use crate::due::{Bucket, Due, End};
use crate::fields::{Shown, keyed_hash, retry_after_s};
use crate::layer::Set;
use crate::limit::{After, Limit, Nobody};
use crate::who::{Subject, Who};

/// Says to a service that a request was blocked and passes all the same.
const REDUCED: &str = "tallygate-reduced";

/// The longest key that a bucket has.
const KEY_BYTES: usize = 255;

/// A service whose requests are limited; see [`RateLimit`](crate::RateLimit).
#[derive(Clone)]
pub struct RateLimited<S> {
    pub(crate) inner: S,
    pub(crate) set: Arc<Set>,
}

impl<S: std::fmt::Debug> std::fmt::Debug for RateLimited<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RateLimited").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl<S, B, R> Service<Request<B>> for RateLimited<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    B: Send + 'static,
    R: Send,
{
    type Response = Response<Body<R>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The one that was ready is called, and its clone is kept.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let set = Arc::clone(&self.set);
        Box::pin(async move {
            let (mut parts, body) = request.into_parts();
            let passed = match Set::ask(&set, &mut parts).await {
                Ok(passed) => passed,
                Err(response) => {
                    let response = if is_grpc(&parts) { as_grpc(*response) } else { *response };
                    return Ok(response.map(Body::own));
                }
            };
            let response = inner.call(Request::from_parts(parts, body)).await?;
            let Some(passed) = passed else { return Ok(response.map(|body| Body::of_service(body, None))) };
            let (mut parts, body) = response.into_parts();
            let due = set.settle(passed, &mut parts).await;
            Ok(Response::from_parts(parts, Body::of_service(body, Some(due))))
        })
    }
}

/// A value to go on with, or the answer that ends it.
type Asking<T> = Result<T, Box<Response<Bytes>>>;

/// A request that was decided.
struct Passed {
    asked: Vec<Asked>,
    decided: Decided,
    due: Due,
}

/// The facts of a check that are to be known afterwards.
struct Asked {
    policy: Policy,
    cost: i64,
    is_reserved: bool,
    /// The client named the transaction, and may have done so before.
    is_named: bool,
}

impl Set {
    /// None where no limit is about it; the answer where it does not pass.
    async fn ask(set: &Arc<Self>, parts: &mut Parts) -> Asking<Option<Passed>> {
        let outer = parts.extensions.get::<Decided>().cloned();
        // Nobody but a layer like this one says so.
        if !outer.as_ref().is_some_and(Decided::is_blocked) {
            parts.headers.remove(REDUCED);
        }
        let is_target = match &set.on_blocked {
            OnBlocked::Redirect(target) => target.path.as_deref() == Some(path(parts)),
            _ => false,
        };
        if is_target || set.unless.as_ref().is_some_and(|unless| unless(parts)) {
            return Ok(None);
        }
        let txn = set.txn(&parts.headers)?;
        let (mut asked, mut checks) = (Vec::new(), Vec::new());
        for limit in &set.limits {
            let cost = limit.cost.as_ref().map_or(1, |cost| cost(parts));
            if let Some(check) = set.check(limit, parts).await? {
                let check = check.cost(cost);
                // A fault in what a client sends is not the operator's.
                check.validate().map_err(|error| failed(StatusCode::BAD_REQUEST, &error))?;
                // Remembered by the limiter.
                let (_, policy) = set.limiter.policy(&limit.zone).await.map_err(|error| undecided(&error))?;
                let is_reserved = limit.reserved_for.is_some();
                asked.push(Asked { policy, cost, is_reserved, is_named: txn.is_some() });
                checks.push(match txn {
                    Some(txn) => check.txn(txn),
                    None => check,
                });
            }
        }
        if checks.is_empty() {
            return Ok(None);
        }
        // A task of its own: whoever leaves while it is decided leaves nothing behind.
        let deciding = tokio::spawn(Arc::clone(set).decide(asked, checks));
        let Ok(passed) = deciding.await else {
            return Err(Box::new(refused(StatusCode::INTERNAL_SERVER_ERROR, "Nothing can be decided", None)));
        };
        let mut passed = passed?;
        let told = Decided::joined(outer.as_ref(), &passed.decided);
        if passed.decided.is_blocked() {
            if let Some(mut response) = refusal(&set.on_blocked, &passed.decided, passed.retry_after_s()) {
                if !response.status().is_redirection() {
                    set.tell(&passed, response.headers_mut());
                }
                response.extensions_mut().insert(told);
                return Err(Box::new(response));
            }
            parts.headers.insert(REDUCED, HeaderValue::from_static("1"));
        }
        set.wait(&mut passed).await?;
        parts.extensions.insert(told);
        Ok(Some(passed))
    }

    /// Decides, and has what was taken for a time given back unless the request goes on.
    async fn decide(self: Arc<Self>, asked: Vec<Asked>, mut checks: Vec<Check>) -> Asking<Passed> {
        // One goes with those of other requests.
        let decisions = match (checks.len(), checks.pop()) {
            (1, Some(check)) => self.limiter.check(check).await.map(|decision| vec![decision]),
            (_, last) => {
                checks.extend(last);
                self.limiter.check_all(checks).await.map(|combined| combined.decisions)
            }
        };
        let decisions = decisions.map_err(|error| undecided(&error))?;
        let txn = decisions.first().map_or(Uuid::nil(), |decision| decision.txn_id);
        let due = Due { limiter: self.limiter.clone(), txn, ends: Vec::new(), sent: 0 };
        let mut passed = Passed { asked, decided: Decided::new(decisions), due };
        // A place in a queue; one that the client named is his when he comes again.
        let is_queued = !passed.delay().is_zero();
        passed.due.ends = passed.ends(|asked| match asked.is_reserved {
            _ if !is_queued || asked.is_named => None,
            true => Some(End::Cancel),
            false => Some(End::Refund),
        });
        Ok(passed)
    }

    /// The transaction of a request, where it may name one.
    fn txn(&self, headers: &HeaderMap) -> Asking<Option<Uuid>> {
        let named = headers.get("idempotency-key").filter(|_| self.is_idempotent);
        let Some(named) = named else { return Ok(None) };
        let txn = named.to_str().ok().and_then(|text| Uuid::try_parse(text.trim_matches('"')).ok());
        txn.filter(|txn| !txn.is_nil()).map(Some).ok_or_else(|| {
            Box::new(refused(StatusCode::BAD_REQUEST, "Idempotency-Key is no UUID", Some("invalid")))
        })
    }

    /// The check that is asked of a limit; None where it is not about the request.
    async fn check(&self, limit: &Limit, parts: &Parts) -> Asking<Option<Check>> {
        let Some(key) = self.key(&*limit.who, limit.nobody, parts).await? else { return Ok(None) };
        let mut check = Check::new(&*limit.zone, key);
        if limit.critical.as_ref().is_some_and(|critical| critical(parts)) {
            check = check.critical();
        }
        if let Some(member) = &limit.member {
            match self.key(&**member, limit.nobody, parts).await? {
                Some(member) => check = check.member(member),
                None => return Ok(None),
            }
        }
        if let Some(time) = limit.reserved_for {
            check = check.reserved_for(time);
        }
        Ok(Some(check))
    }

    async fn key(&self, who: &dyn Who, nobody: Nobody, parts: &Parts) -> Asking<Option<String>> {
        let refused = |status, title| Err(Box::new(refused(status, title, Some("invalid"))));
        match (who.who(parts).await, nobody) {
            (Subject::Key(key), _) if key.len() <= KEY_BYTES => Ok(Some(key)),
            (Subject::Key(key), _) => match &self.secret {
                Some(secret) => Ok(Some(hashed(secret, &key))),
                None => refused(StatusCode::BAD_REQUEST, "What names the client is too long"),
            },
            (Subject::Skip, _) | (Subject::Nobody, Nobody::Skip) => Ok(None),
            (Subject::Nobody, Nobody::Share) => Ok(Some("nobody".to_owned())),
            (Subject::Nobody, Nobody::Refuse) => {
                refused(StatusCode::BAD_REQUEST, "The request does not name its client")
            }
            (Subject::Refuse(status), _) => refused(status, "The request is refused"),
        }
    }

    /// Waits for its turn, where it was given one. A client that leaves meanwhile gives it back.
    async fn wait(&self, passed: &mut Passed) -> Asking<()> {
        let delay = passed.delay();
        if delay > self.longest_delay {
            let mut response =
                refused(StatusCode::SERVICE_UNAVAILABLE, "The queue is too long", Some("queue"));
            let seconds = delay.saturating_sub(self.longest_delay).as_secs().saturating_add(1);
            response.headers_mut().insert(http::header::RETRY_AFTER, HeaderValue::from(seconds));
            return Err(Box::new(response));
        }
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        // From here on the service works for it, so that what was reserved is charged, whoever leaves.
        passed.due.ends = passed.ends(|asked| asked.is_reserved.then_some(End::Settle(asked.cost)));
        Ok(())
    }

    /// Does what the answer says of the charge, and returns what is due when its body has ended.
    async fn settle(&self, mut passed: Passed, parts: &mut response::Parts) -> Due {
        let after = self.after.as_ref().map_or(After::Keep, |after| after(parts));
        let ends = passed.ends(|asked| match after {
            // Told again, it would be allowed and have cost nothing.
            After::GiveBack if asked.is_named => asked.is_reserved.then_some(End::Settle(asked.cost)),
            After::GiveBack if asked.is_reserved => Some(End::Cancel),
            After::GiveBack => Some(End::Refund),
            _ if !asked.is_reserved => None,
            After::Keep => Some(End::Settle(asked.cost)),
            After::Charge(cost) => Some(End::Settle(cost)),
            After::ChargeBytes => Some(End::SettleBytes),
            After::Leave => None,
        });
        let (with_body, at_once) = ends.into_iter().partition(|(_, end)| end.waits_for_body());
        passed.due.ends = with_body;
        passed.due.now(at_once).await;
        self.tell(&passed, &mut parts.headers);
        let inner = parts.extensions.get::<Decided>();
        let told = Decided::joined(Some(&passed.decided), inner.unwrap_or(&Decided::new(Vec::new())));
        parts.extensions.insert(told);
        passed.due
    }

    fn tell(&self, passed: &Passed, headers: &mut HeaderMap) {
        let policies = passed.asked.iter().map(|asked| &asked.policy);
        let shown = Shown::of(passed.decided.decisions().iter().zip(policies));
        shown.write(self.fields, self.secret.as_deref(), headers);
    }
}

impl Passed {
    /// The ends of what it took: slots by being free again, charges as is said.
    fn ends(&self, of_charge: impl Fn(&Asked) -> Option<End>) -> Vec<(Bucket, End)> {
        let each = self.asked.iter().zip(self.decided.decisions());
        let charged = each.filter(|(asked, decision)| asked.is_charged(decision));
        let ended = charged.filter_map(|(asked, decision)| {
            let is_slot = asked.policy.algorithm() == Algorithm::Concurrency;
            let end = if is_slot { Some(End::Release) } else { of_charge(asked) };
            Some(((decision.zone.clone(), decision.key.clone()), end?))
        });
        ended.collect()
    }

    /// The time that it is to wait for its turn.
    fn delay(&self) -> Duration {
        let each = self.asked.iter().zip(self.decided.decisions());
        let enforced = each.filter(|(asked, _)| asked.policy.mode() == Mode::Enforce);
        let delays = enforced.map(|(_, decision)| match decision.replayed {
            // It was given its turn when it came first.
            true => {
                let since = SystemTime::now().duration_since(decision.decided_at.into()).unwrap_or_default();
                decision.delay().saturating_sub(since)
            }
            false => decision.delay(),
        });
        delays.max().unwrap_or_default()
    }

    fn retry_after_s(&self) -> Option<i64> {
        let each = self.decided.decisions().iter().zip(&self.asked);
        retry_after_s(each.map(|(decision, asked)| (decision, Some(&asked.policy))))
    }
}

impl Asked {
    /// Did this request take something that can be given back? A charge that a client was told again was
    /// taken before.
    fn is_charged(&self, decision: &Decision) -> bool {
        self.cost > 0
            && !(self.is_named && decision.replayed)
            && matches!(decision.reason, Reason::WithinLimit | Reason::Soft)
    }
}

/// The path as the client named it, also within a nested router.
fn path(parts: &Parts) -> &str {
    #[cfg(feature = "axum")]
    if let Some(uri) = parts.extensions.get::<axum::extract::OriginalUri>() {
        return uri.path();
    }
    parts.uri.path()
}

/// Nothing was decided.
fn undecided(error: &tallygate::Error) -> Box<Response<Bytes>> {
    failed(
        match error.kind() {
            ErrorKind::Conflict => StatusCode::CONFLICT,
            ErrorKind::Transient => StatusCode::SERVICE_UNAVAILABLE,
            // The key that a client chose has been looked at before.
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        },
        error,
    )
}

/// The text that stands for a key that is too long: its kind, and its keyed hash.
fn hashed(secret: &[u8], key: &str) -> String {
    let kind: String = key.chars().take_while(|c| *c != ':').take(16).collect();
    let hash = keyed_hash(secret, &[key.as_bytes()]);
    hash.iter().fold(format!("{kind}#"), |text, byte| format!("{text}{byte:02x}"))
}

fn is_grpc(parts: &Parts) -> bool {
    let kind = parts.headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    let rest = kind.strip_prefix(b"application/grpc");
    parts.method == Method::POST
        && rest.is_some_and(|rest| rest.first().is_none_or(|byte| matches!(byte, b'+' | b';')))
}
