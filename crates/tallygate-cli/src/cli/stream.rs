//! `tallygate check --stdin`: a line in, a decision out, in constant memory.

use std::io::{self, IsTerminal, Write, stdin, stdout};
use std::thread::JoinHandle;

use futures_util::{StreamExt, stream};
use indicatif::ProgressBar;
use serde::Serialize;
use tallygate::{Check, Config, Decision, Limiter};
use tokio::sync::mpsc;

use super::exit::Exit;
use super::lines::{self, LINE_BYTES_MAX, Line};
use super::progress::progress;
use super::{Failure, Result, open_with};

/// The most connections to the database; more lines than that may wait for their turn.
const CONNECTIONS_MAX: u32 = 64;

/// The error that stands in the place of a decision.
#[derive(Serialize)]
struct Refusal {
    line: u64,
    error: String,
}

type Numbered = (u64, io::Result<Line>);

pub async fn run(url: &str, config: Config, concurrency: u16) -> Result {
    let connections = u32::from(concurrency).min(CONNECTIONS_MAX);
    let limiter = open_with(url, Config { connections, ..config }).await?;
    let counter = counter();
    let (mut refused, mut told) = (false, Ok(()));
    let (lines, reading) = read(concurrency);
    let lines = stream::unfold(lines, |mut lines| async { lines.recv().await.map(|line| (line, lines)) });
    let mut answers =
        lines.map(|line| answer(&limiter, line)).buffered(usize::from(concurrency)).boxed_local();
    while told.is_ok()
        && let Some(answer) = answers.next().await
    {
        let line = match answer {
            Ok(decision) => serde_json::to_string(&decision)?,
            Err(refusal) => {
                refused = true;
                serde_json::to_string(&refusal)?
            }
        };
        // Stdout keeps lines, not blocks, so a caller who waits for an answer before the next question gets it.
        told = writeln!(stdout(), "{line}");
        counter.inc(1);
    }
    drop(answers);
    limiter.flush().await?;
    told?;
    // The thread has ended, but perhaps not at the end of the input.
    reading.join().map_err(|_| Failure::new("not all lines were read: the thread that read them died"))?;
    counter.finish_and_clear();
    Ok(if refused { Exit::Error } else { Exit::Good }.into())
}

/// Reads stdin on a thread of its own: while it waits for input, decisions go on.
fn read(ahead: u16) -> (mpsc::Receiver<Numbered>, JoinHandle<()>) {
    let (sender, receiver) = mpsc::channel(usize::from(ahead));
    let reading = std::thread::spawn(move || {
        let mut reader = stdin().lock();
        for number in 1.. {
            let line = match lines::next(&mut reader) {
                Ok(Some(Line::Whole(line))) if line.trim_ascii().is_empty() => continue,
                Ok(Some(line)) => Ok(line),
                Ok(None) => return,
                Err(error) => Err(error),
            };
            let last = line.is_err();
            if sender.blocking_send((number, line)).is_err() || last {
                return;
            }
        }
    });
    (receiver, reading)
}

async fn answer(limiter: &Limiter, (number, line): Numbered) -> Result<Decision, Refusal> {
    let refusal = |error| Refusal { line: number, error };
    let check = parse(line).map_err(refusal)?;
    limiter.check(check).await.map_err(|error| refusal(error.to_string()))
}

fn parse(line: io::Result<Line>) -> Result<Check, String> {
    let line = match line {
        Ok(Line::Whole(line)) => line,
        Ok(Line::TooLong) => return Err(format!("the line is longer than {LINE_BYTES_MAX} bytes")),
        Err(error) => return Err(format!("the input ended here: {error}")),
    };
    let text = std::str::from_utf8(&line)
        .map_err(|error| format!("the line is not UTF-8 from byte {} on", error.valid_up_to() + 1))?;
    if !text.trim_start().starts_with('{') {
        // An array would do for the parser, its fields in order.
        return Err(r#"the line is not a JSON object like {"zone":"login","key":"42"}"#.to_owned());
    }
    serde_json::from_str(text).map_err(|error| {
        // The line of the JSON is always its first; the line that counts is the stream's.
        error.to_string().replace(" at line 1 column ", " at column ")
    })
}

/// The progress, shown only where it is in nobody's way: decisions go elsewhere, and a person watches stderr.
fn counter() -> ProgressBar {
    if stdout().is_terminal() {
        return ProgressBar::hidden();
    }
    progress(None, "{spinner} {human_pos} decided  {per_sec}  {elapsed}")
}
