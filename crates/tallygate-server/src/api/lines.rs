//! Checks as lines: one object a line in, one decision a line out, in the order of the lines, while they come.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use axum::extract::{FromRequest, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use futures_util::stream::{Stream, StreamExt, iter, unfold};
use schemars::JsonSchema;
use serde::Serialize;
use sha2::{Digest, Sha256};
use tallygate::{Check, Decision};
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use super::body::{Object, expect, too_large, too_slow};
use super::check::{Answer, named};
use super::head::{By, Idempotency, role};
use crate::app::App;
use crate::caller::Right;
use crate::problem::Problem;

pub(crate) const KIND: &str = "application/x-ndjson";

/// The answer to a line.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Line {
    Decided(Answer<Decision>),
    Not(NotDecided),
}

/// The line that stands in the place of a decision.
#[derive(Serialize, JsonSchema)]
pub(crate) struct NotDecided {
    /// Of the body, from 1.
    line: u64,
    /// As in a problem document.
    code: &'static str,
    error: String,
}

/// The answers to a body of lines.
pub(crate) struct Answers(Body);

/// Answers begin before the body has ended. Memory holds the lines that are under way and no more; whoever reads slowly is
/// read slowly. Each line is asked by whoever the caller is then: its token may have been taken away. A line that names no
/// transaction has one of its own where the body has one.
pub(crate) async fn checks(
    State(app): State<App>,
    _: By<role::App>,
    Idempotency(body): Idempotency,
    mut lines: Lines,
) -> Result<Answers, Problem> {
    let at_once = app.limits().lines_at_once;
    // A client that asks whether it may send is told so by the reading of its first line; an answer would tell that it
    // need not.
    let head = Arc::clone(&lines.head);
    let first = lines.numbered().await;
    let answers = iter(first).chain(lines.stream()).map(move |(number, line)| {
        let (app, head) = (app.clone(), Arc::clone(&head));
        async move { Ok::<_, Infallible>(answer(number, line, body, &app, &head).await) }
    });
    Ok(Answers(Body::from_stream(answers.buffered(at_once))))
}

async fn answer(
    line: u64,
    text: Result<Bytes, Problem>,
    body: Option<Uuid>,
    app: &App,
    head: &Parts,
) -> Bytes {
    let decided = async {
        let Object(check): Object<Check> =
            serde_json::from_slice(&text?).map_err(|error| Problem::invalid(error.to_string()))?;
        let caller = app.identify(head)?;
        caller.must(Right::App)?;
        let txn = check.txn_id().or_else(|| Some(of_line(body?, line)));
        Ok::<_, Problem>(app.limiter().check(named(app, &caller, check, txn)?).await?)
    };
    let answer = match decided.await {
        Ok(decided) => Line::Decided(Answer { allowed: decided.is_allowed(), decided }),
        Err(problem) => {
            Line::Not(NotDecided { line, code: problem.code(), error: problem.detail().to_owned() })
        }
    };
    let mut written = serde_json::to_vec(&answer).unwrap_or_default();
    written.push(b'\n');
    written.into()
}

/// The transaction of a line, by that of its body.
fn of_line(body: Uuid, line: u64) -> Uuid {
    let hash = Sha256::new().chain_update(body).chain_update(line.to_be_bytes()).finalize();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash[..16]);
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

/// The lines of a body, each with its number. Blank ones are passed over; after one that cannot be read there are no more.
pub(crate) struct Lines {
    head: Arc<Parts>,
    body: BodyDataStream,
    /// The bytes that came and were not told yet.
    rest: BytesMut,
    /// The number of its bytes that are known to hold no end of a line.
    searched: usize,
    number: u64,
    most: usize,
    patience: Duration,
    /// The end of the server, which reads no more then.
    over: Pin<Box<dyn Future<Output = ()> + Send>>,
    ended: bool,
}

impl FromRequest<App> for Lines {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        expect(request.headers(), KIND)?;
        let limits = app.limits();
        let (head, body) = request.into_parts();
        Ok(Self {
            head: Arc::new(head),
            body: body.into_data_stream(),
            rest: BytesMut::new(),
            searched: 0,
            number: 0,
            most: limits.body_bytes,
            patience: Duration::from_secs(limits.body_s),
            over: Box::pin(app.over()),
            ended: false,
        })
    }
}

impl IntoResponse for Answers {
    fn into_response(self) -> Response {
        ([(CONTENT_TYPE, KIND)], self.0).into_response()
    }
}

impl Lines {
    fn stream(self) -> impl Stream<Item = (u64, Result<Bytes, Problem>)> {
        unfold(self, |mut lines| async move { Some((lines.numbered().await?, lines)) })
    }

    async fn numbered(&mut self) -> Option<(u64, Result<Bytes, Problem>)> {
        let line = self.next().await?;
        Some((self.number, line))
    }

    async fn next(&mut self) -> Option<Result<Bytes, Problem>> {
        let mut until = Instant::now() + self.patience;
        loop {
            if let Some(end) = self.rest[self.searched..].iter().position(|byte| *byte == b'\n') {
                let line = self.rest.split_to(self.searched + end + 1).freeze();
                self.searched = 0;
                if line.len() > self.most {
                    return self.fail(too_large(self.most));
                }
                self.number += 1;
                if line.trim_ascii().is_empty() {
                    until = Instant::now() + self.patience;
                    continue;
                }
                return Some(Ok(line));
            }
            self.searched = self.rest.len();
            if self.ended {
                return self.last();
            }
            if self.searched > self.most {
                return self.fail(too_large(self.most));
            }
            let read = tokio::select! {
                biased;
                () = &mut self.over => return self.fail(Problem::leaving()),
                read = timeout_at(until, self.body.next()) => read,
            };
            match read {
                Ok(Some(Ok(more))) => self.rest.extend_from_slice(&more),
                Ok(None) => self.ended = true,
                Ok(Some(Err(_))) => return self.fail(Problem::invalid("the body broke off")),
                Err(_) => return self.fail(too_slow()),
            }
        }
    }

    /// Of what comes after it nothing is known to be whole.
    fn fail(&mut self, problem: Problem) -> Option<Result<Bytes, Problem>> {
        self.ended = true;
        self.rest.clear();
        self.searched = 0;
        self.number += 1;
        Some(Err(problem))
    }

    /// A last line need not have an end.
    fn last(&mut self) -> Option<Result<Bytes, Problem>> {
        self.searched = 0;
        let line = std::mem::take(&mut self.rest).freeze();
        self.number += 1;
        (!line.trim_ascii().is_empty()).then_some(Ok(line))
    }
}
