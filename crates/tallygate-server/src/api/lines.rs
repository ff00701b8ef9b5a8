//! Checks as lines: one object a line in, one decision a line out, in the order of the lines, while they come.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use axum::extract::{Request, State};
use axum::http::header::{CONTENT_TYPE, HeaderValue};
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use futures_util::stream::{Stream, StreamExt, iter, unfold};
use serde::Serialize;
use tallygate::Check;
use tokio::time::timeout;

use super::body::{expect, too_large, too_slow};
use super::check::{Answer, named};
use crate::app::App;
use crate::caller::{Caller, Right};
use crate::problem::Problem;

const KIND: &str = "application/x-ndjson";

/// What stands in the place of a decision.
#[derive(Serialize)]
struct NotDecided<'a> {
    /// Of the body, from 1.
    line: u64,
    code: &'a str,
    error: &'a str,
}

/// Answers begin before the body has ended. Memory holds the lines that are under way and no more; whoever reads slowly is
/// read slowly.
pub(crate) async fn checks(
    State(app): State<App>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    caller.must(Right::App)?;
    expect(request.headers(), KIND)?;
    let limits = app.limits();
    let mut lines = Lines {
        body: request.into_body().into_data_stream(),
        rest: BytesMut::new(),
        searched: 0,
        number: 0,
        most: limits.body_bytes,
        patience: Duration::from_secs(limits.body_s),
        ended: false,
    };
    let at_once = limits.lines_at_once;
    // Whoever asks whether he may send is told so by the reading of his first line; an answer would tell that he need not.
    let first = lines.numbered().await;
    let answers = iter(first).chain(lines.stream()).map(move |(number, line)| {
        let (app, caller) = (app.clone(), caller.clone());
        async move { Ok::<_, Infallible>(answer(number, line, &app, &caller).await) }
    });
    let mut response = Response::new(Body::from_stream(answers.buffered(at_once)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(KIND));
    Ok(response)
}

async fn answer(line: u64, text: Result<Bytes, Problem>, app: &App, caller: &Caller) -> Bytes {
    let decided = async {
        let check: Check =
            serde_json::from_slice(&text?).map_err(|error| Problem::invalid(error.to_string()))?;
        Ok::<_, Problem>(app.limiter().check(named(caller, check, None)?).await?)
    };
    let written = match decided.await {
        Ok(decided) => serde_json::to_vec(&Answer { allowed: decided.is_allowed(), decided }),
        Err(problem) => {
            serde_json::to_vec(&NotDecided { line, code: problem.code(), error: problem.detail() })
        }
    };
    let mut written = written.unwrap_or_default();
    written.push(b'\n');
    written.into()
}

/// The lines of a body, each with its number. Blank ones are passed over; after one that cannot be read there are no more.
struct Lines {
    body: BodyDataStream,
    /// What came and was not told yet.
    rest: BytesMut,
    /// So much of it has no end of a line.
    searched: usize,
    number: u64,
    most: usize,
    patience: Duration,
    ended: bool,
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
        loop {
            if let Some(end) = self.rest[self.searched..].iter().position(|byte| *byte == b'\n') {
                let line = self.rest.split_to(self.searched + end + 1).freeze();
                self.searched = 0;
                if line.len() > self.most {
                    return self.fail(too_large(self.most));
                }
                self.number += 1;
                if line.trim_ascii().is_empty() {
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
            match timeout(self.patience, self.body.next()).await {
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
