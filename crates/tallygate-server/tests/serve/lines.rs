//! Checks as lines.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;
use tallygate_server::{Right, Tokens};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use crate::client::{Serving, read};

/// HTTP/1.0, whose answers end with the connection and come without frames.
const HEAD: &str = "POST /v1/checks HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n";

async fn send(serving: &Serving, body: &str) -> (u16, Vec<Value>) {
    let answer = serving.send(format!("{HEAD}Content-Length: {}\r\n\r\n{body}", body.len())).await;
    (answer.status, answer.body.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

#[tokio::test]
async fn each_line_gets_its_answer_in_its_place() {
    let serving = Serving::start("").await;
    let (status, answers) = send(
        &serving,
        "{\"zone\":\"login\",\"key\":\"a\"}\n\n  \r\n{\"zone\":\"nowhere\",\"key\":\"a\"}\nnonsense\n{\"zone\":\"login\",\"key\":\"b\"}",
    )
    .await;
    assert_eq!((status, answers.len()), (200, 4));
    assert_eq!((&answers[0]["key"], &answers[3]["key"]), (&"a".into(), &"b".into()));
    assert_eq!((&answers[1]["line"], &answers[1]["code"]), (&4.into(), &"unknown_zone".into()));
    assert_eq!((&answers[2]["line"], &answers[2]["code"]), (&5.into(), &"invalid".into()));

    // Many, of buckets that take turns: in order, and exact.
    let body: String =
        (0..3_000).map(|n| format!("{{\"zone\":\"login\",\"key\":\"k{}\"}}\n", n % 500)).collect();
    let (_, answers) = send(&serving, &body).await;
    let keys: Vec<_> = answers.iter().map(|answer| answer["key"].as_str().unwrap().to_owned()).collect();
    assert_eq!(keys, (0..3_000).map(|n| format!("k{}", n % 500)).collect::<Vec<_>>());
    assert_eq!(answers.iter().filter(|answer| answer["allowed"] == true).count(), 1_500);
}

/// A body that goes on.
struct Open {
    answers: Lines<BufReader<OwnedReadHalf>>,
    writing: OwnedWriteHalf,
}

impl Open {
    async fn begin(serving: &Serving, token: &str) -> Self {
        let (reading, mut writing) = TcpStream::connect(serving.at).await.unwrap().into_split();
        let head = format!(
            "POST /v1/checks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n{token}Transfer-Encoding: chunked\r\n\r\n"
        );
        writing.write_all(head.as_bytes()).await.unwrap();
        Self { answers: BufReader::new(reading).lines(), writing }
    }

    async fn ask(&mut self) -> Value {
        let line = "{\"zone\":\"login\",\"key\":\"a\"}\n";
        self.writing.write_all(format!("{:x}\r\n{line}\r\n", line.len()).as_bytes()).await.unwrap();
        self.answer().await
    }

    async fn answer(&mut self) -> Value {
        loop {
            let line = timeout(Duration::from_secs(120), self.answers.next_line()).await;
            match line.expect("it is answered").unwrap().unwrap() {
                line if line.starts_with('{') => return serde_json::from_str(&line).unwrap(),
                _ => {}
            }
        }
    }
}

#[tokio::test]
async fn a_line_is_answered_before_the_next_one_comes() {
    let serving = Serving::start("").await;
    let mut open = Open::begin(&serving, "").await;
    for n in 1..=4 {
        let answer = open.ask().await;
        assert_eq!((&answer["seq"], &answer["allowed"]), (&n.into(), &(n < 4).into()));
    }
}

#[tokio::test]
async fn a_token_that_was_taken_away_asks_no_more_by_what_it_has_open() {
    let (serving, tokens) =
        Serving::start_with(&[("web", &[Right::App], "*"), ("other", &[Right::App], "*")]).await;
    let mut open = Open::begin(&serving, &format!("Authorization: Bearer {}\r\n", tokens[0])).await;
    assert_eq!(open.ask().await["allowed"], true);
    let file = serving.file("tokens.toml");
    let rest = Tokens::remove(&std::fs::read_to_string(&file).unwrap(), "web").unwrap();
    std::fs::write(&file, rest).unwrap();
    serving.reload.files().await.unwrap();
    assert_eq!(open.ask().await["code"], "unknown_caller");
}

#[tokio::test]
async fn a_server_that_ends_waits_for_no_further_line() {
    let serving = Serving::start("limits = { body_s = 3600 }\nstopping = { drain_s = 3600 }").await;
    let mut open = Open::begin(&serving, "").await;
    assert_eq!(open.ask().await["allowed"], true);
    let (_folder, served) = serving.stop();
    let last = open.answer().await;
    assert_eq!((&last["line"], &last["code"]), (&2.into(), &"leaving".into()));
    timeout(Duration::from_secs(120), served).await.expect("it ends").unwrap().unwrap();
}

#[tokio::test]
async fn lines_that_are_sent_again_under_their_key_are_charged_once() {
    let serving = Serving::start("").await;
    let own = Uuid::now_v7();
    let body = format!(
        "{{\"zone\":\"login\",\"key\":\"a\"}}\n\n{{\"zone\":\"login\",\"key\":\"a\"}}\n{{\"zone\":\"login\",\"key\":\"b\",\"txn\":\"{own}\"}}"
    );
    let ask = async |key: Uuid| {
        let head = format!("{HEAD}Idempotency-Key: {key}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        let answer = serving.send(head).await;
        answer.body.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>()
    };
    let key = Uuid::new_v4();
    let (first, again, other) = (ask(key).await, ask(key).await, ask(Uuid::new_v4()).await);
    let told = |answers: &[Value], field: &str| {
        answers.iter().map(|answer| answer[field].clone()).collect::<Vec<_>>()
    };
    assert_eq!(told(&first, "replayed"), [false, false, false]);
    assert_eq!(told(&again, "replayed"), [true, true, true]);
    assert_eq!(told(&first, "txn_id"), told(&again, "txn_id"));
    assert_eq!(
        told(&other, "replayed"),
        [false, false, true],
        "a line that names its transaction is that one"
    );
    let seqs: BTreeSet<_> = told(&first[..2], "seq").iter().map(|seq| seq.as_i64().unwrap()).collect();
    assert_eq!(seqs, BTreeSet::from([1, 2]), "two lines of one bucket are two checks");
}

#[tokio::test]
async fn a_line_without_end_ends_the_reading_and_keeps_what_was_decided() {
    let serving = Serving::start("limits = { body_bytes = 1024, body_s = 1 }").await;
    let good = "{\"zone\":\"login\",\"key\":\"a\"}\n";
    let (_, answers) = send(&serving, &format!("{good}{}\n{good}", "x".repeat(2_000))).await;
    assert_eq!(answers.len(), 2);
    assert_eq!((&answers[0]["allowed"], &answers[1]["line"]), (&true.into(), &2.into()));
    let (_, answers) = send(&serving, &format!("{good}{}", "x".repeat(5_000))).await;
    assert!(answers[1]["error"].as_str().unwrap().contains("longer than 1024 bytes"), "{}", answers[1]);
    // More than the limit in all is no reason, only in one line.
    assert_eq!(send(&serving, &good.repeat(100)).await.1.len(), 100);
    // It stops in the middle of a line, or is never heard of again.
    let mut stream = TcpStream::connect(serving.at).await.unwrap();
    stream.write_all(format!("{HEAD}Content-Length: 1000\r\n\r\n{good}{{\"zone\"").as_bytes()).await.unwrap();
    let answer = read(&mut stream).await;
    let last = answer.body.lines().last().unwrap();
    assert!(last.contains("\"line\":2") && last.contains("did not come in time"), "{last}");
    // Nor is a line waited for that comes letter by letter.
    let stream = TcpStream::connect(serving.at).await.unwrap();
    let (mut reading, mut writing) = stream.into_split();
    let trickle = tokio::spawn(async move {
        writing.write_all(format!("{HEAD}Content-Length: 1000\r\n\r\n").as_bytes()).await.unwrap();
        while writing.write_all(b" ").await.is_ok() {
            sleep(Duration::from_millis(50)).await;
        }
    });
    let mut told = String::new();
    timeout(Duration::from_secs(20), reading.read_to_string(&mut told)).await.expect("it is let go").ok();
    assert!(told.contains("\"line\":1") && told.contains("did not come in time"), "{told}");
    trickle.abort();
}

#[tokio::test]
async fn lines_take_the_right_to_check_and_the_right_type() {
    let (serving, tokens) =
        Serving::start_with(&[("a", &[Right::Auditor], "*"), ("b", &[Right::App], "pay*")]).await;
    let ask = async |token: &str, kind: &str| {
        let body = "{\"zone\":\"login\",\"key\":\"a\"}";
        serving
            .send(format!(
                "POST /v1/checks HTTP/1.0\r\nAuthorization: Bearer {token}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            ))
            .await
    };
    assert_eq!(ask(&tokens[0], "application/x-ndjson").await.status, 403);
    assert_eq!(ask(&tokens[1], "application/json").await.status, 415);
    let other = ask(&tokens[1], "application/x-ndjson").await;
    assert_eq!((other.status, &other.json()["code"]), (200, &"forbidden".into()));
}
