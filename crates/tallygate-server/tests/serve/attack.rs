//! Requests that no honest client sends: one answer, nothing written, and others are answered meanwhile.

use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::client::{Serving, login, read};

#[tokio::test]
async fn bad_input_gets_one_answer_and_writes_nothing() {
    let serving = Serving::start("").await;
    let post = |headers: &str, body: &[u8]| {
        let head = format!(
            "POST /v1/check HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}Content-Length: {}\r\n\r\n",
            body.len()
        );
        [head.as_bytes(), body].concat()
    };
    const JSON: &str = "Content-Type: application/json\r\n";
    const CHUNKS: &[u8] = b"POST /v1/check HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
    let deep = "[".repeat(50_000);
    for (body, status) in [
        (&b""[..], 400),
        (b"{", 400),
        (b"{}", 400),
        (b"[]", 400),
        (b"null", 400),
        (deep.as_bytes(), 400),
        (b"{\"zone\":\"login\",\"key\":\"\xff\"}", 400),
        (b"{\"zone\":\"login\",\"key\":\"a\",\"key\":\"b\"}", 400),
        (b"{\"zone\":\"login\",\"key\":\"a\",\"limit\":9}", 400),
        // Names that are left out are no names.
        (b"[\"login\",\"a\"]", 400),
        (b"{\"zone\":\"login\",\"key\":\"a\"}{}", 400),
        (b"\xef\xbb\xbf{\"zone\":\"login\",\"key\":\"a\"}", 400),
        (b"{\"zone\":\"login\",\"key\":\"\\ud800\"}", 400),
        (b"{\"zone\":\"lo\\u0000gin\",\"key\":\"a\"}", 400),
        (b"{\"zone\":\"login\",\"key\":\"a\",\"txn\":null,\"txn\":null}", 400),
        (b"{\"zone\":\"login\",\"key\":\"a\",\"cost\":1e400}", 400),
        (b"{\"zone\":\"login\",\"key\":\"a\",\"cost\":1099511627777}", 400),
        (b"{\"zone\":\"login\",\"key\":\"a\",\"ttl_us\":18446744073709551615}", 400),
        (b"{\"zone\":\"login\",\"key\":\"a\",\"ttl_us\":0}", 400),
        (b"{\"zone\":\"login\",\"key\":\"a\",\"deadline_us\":0}", 400),
        (b"{\"zone\":\"login\",\"key\":\"a\",\"deadline_us\":60000001}", 400),
        (b"{\"zone\":\"login\",\"key\":\"a\",\"deadline_us\":18446744073709551615}", 400),
        (b"{\"zone\":\"login\",\"key\":\"a\",\"cost\":1e3}", 400),
        (b"{\"zone\":\"login\",\"key\":\"a\",\"cost\":-1}", 400),
        (b"{\"zone\":\"login\",\"key\":\"a\",\"cost\":99999999999999999999}", 400),
        (b"{\"zone\":\"login\",\"key\":\"\\u0000\"}", 400),
        (b"{\"zone\":\"login\",\"key\":\"\"}", 400),
        (b"{\"zone\":\"login\",\"key\":\"a\",\"txn\":\"00000000-0000-0000-0000-000000000000\"}", 400),
        (b"{\"zone\":\"nowhere\",\"key\":\"a\"}", 500),
    ] {
        let answer = serving.send(post(JSON, body)).await;
        assert_eq!(answer.problem().0, status, "{}: {}", String::from_utf8_lossy(body), answer.body);
    }
    let long = format!("{{\"zone\":\"login\",\"key\":\"{}\"}}", "k".repeat(256));
    assert_eq!(serving.send(post(JSON, long.as_bytes())).await.problem(), (400, "invalid".to_owned()));
    let huge = vec![b' '; 70_000];
    assert_eq!(serving.send(post(JSON, &huge)).await.problem(), (413, "invalid".to_owned()));
    // Said to be huge, and never sent.
    let said = "POST /v1/check HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99999999999\r\n\r\n";
    let mut stream = TcpStream::connect(serving.at).await.unwrap();
    stream.write_all(said.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let status = read(&mut stream).await.status;
    assert!([0, 400, 413].contains(&status), "{status}");
    for headers in ["", "Content-Type: text/plain\r\n", "Content-Type: multipart/form-data\r\n"] {
        assert_eq!(
            serving.send(post(headers, login("a").to_string().as_bytes())).await.problem().0,
            415,
            "{headers}"
        );
    }
    assert_eq!(serving.get("/v1/check").await.problem().0, 405);
    assert_eq!(serving.get("/v2/check").await.problem().0, 404);
    for query in ["colour=red", "status&status", "status=%FF"] {
        let answer = serving.post(&format!("/v1/check?{query}"), login("a")).await;
        assert_eq!(answer.problem(), (400, "invalid".to_owned()), "{query}");
    }
    let long = "k".repeat(256);
    for (path, status) in [
        ("/v1/history?limit=0", 400),
        ("/v1/history?limit=4294967296", 400),
        ("/v1/history?limits=1", 400),
        ("/v1/history?before=x", 400),
        ("/v1/history?before=9223372036854775807-9223372036854775807", 400),
        ("/v1/history?zone=login&zone=address", 400),
        ("/v1/history?zone=%FF", 400),
        ("/v1/history?zone=login%00", 400),
        ("/v1/history?since=yesterday", 400),
        ("/v1/buckets?key=%00", 400),
        ("/v1/buckets?key=", 400),
        ("/v1/buckets?key=+49123", 400),
        ("/v1/buckets?key=%2B49123", 200),
        ("/v1/transactions/42", 400),
        ("/v1/zones/login/buckets/%FF", 400),
        ("/v1/zones/login/buckets/%00", 400),
        (&format!("/v1/zones/login/buckets/{long}"), 400),
        ("/v1/zones//buckets/a", 400),
        // One part of a path stays one, and nothing is resolved.
        ("/v1/zones/login%2Fbuckets%2Fa", 404),
        ("/v1/zones/%2e%2e/buckets/a", 404),
        ("/v1/zones/login/../address", 404),
        ("//v1/zones", 404),
        ("/v1/zones/", 404),
        ("/V1/zones", 404),
        ("*", 404),
    ] {
        let answer = serving.get(path).await;
        assert_eq!(answer.status, status, "{path}: {}", answer.body);
    }
    for checks in [json!([]), json!([login("a"), login("a")]), json!([["login", "a"]]), json!({})] {
        let answer = serving.post("/v1/check-all", json!({ "checks": checks })).await;
        assert_eq!(answer.problem().0, 400, "{checks}");
    }
    let header = async |field: &str| serving.check_with(field, &login("a")).await;
    for field in ["Content-Type: text/plain", "Content-Type: application/json"] {
        assert_eq!(header(field).await.problem().0, 415, "a second {field}");
    }
    for field in ["Host: localhost", "Host: attacker.example"] {
        assert_eq!(header(field).await.problem().0, 403, "a second {field}");
    }
    for field in ["Idempotency-Key: ", "Idempotency-Key: \u{e9}"] {
        assert_eq!(header(field).await.problem().0, 400, "{field}");
    }
    assert_eq!(header("Authorization: Bearer").await.problem().0, 401);
    assert_eq!(header("X: a\r\n b").await.status, 400, "a field over two lines");
    // Nobody's method but the first line's.
    let methods = "X-HTTP-Method-Override: POST\r\nX-Method-Override: POST";
    let get = format!("GET /v1/check HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{methods}\r\n\r\n");
    assert_eq!(serving.send(get).await.problem().0, 405);
    // The target names the host before the field does.
    let whole =
        "GET http://attacker.example/v1/zones HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    assert_eq!(serving.send(whole).await.problem().0, 403);
    let authority = "CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    assert_eq!(serving.send(authority).await.problem().0, 404);

    // These are no requests at all, or heads without an end.
    for bytes in [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        b"GET / HTTP/9.9\r\n\r\n".to_vec(),
        format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "a".repeat(40_000)).into_bytes(),
        format!("GET /livez HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "a".repeat(40_000)).into_bytes(),
        format!("GET /livez HTTP/1.1\r\nHost: localhost\r\n{}\r\n", "X: a\r\n".repeat(2_000)).into_bytes(),
        // Two lengths, by which one request could be read as two.
        b"POST /v1/check HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef"
            .to_vec(),
        b"POST /v1/check HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n".to_vec(),
        b"POST /v1/check HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n".to_vec(),
        [CHUNKS, b"zz\r\n{\r\n0\r\n\r\n"].concat(),
        [CHUNKS, b"fffffffffffffffff\r\n{"].concat(),
        [CHUNKS, b"1;", "x".repeat(100_000).as_bytes()].concat(),
        [CHUNKS, b"1\r\n{\r\n0\r\n", "X: y\r\n".repeat(20_000).as_bytes()].concat(),
    ] {
        let status = serving.send(&bytes).await.status;
        assert!(
            [0, 400, 414, 431, 505].contains(&status),
            "{status} for {}",
            String::from_utf8_lossy(&bytes[..30.min(bytes.len())])
        );
    }
    let rows = serving.get("/v1/history").await.json();
    assert_eq!(rows["rows"], json!([]), "nothing was written");
    assert_eq!(serving.post("/v1/check", login("a")).await.json()["allowed"], true);
}

#[tokio::test]
async fn whoever_is_slow_is_let_go_and_delays_no_other() {
    let serving =
        Serving::start("limits = { connections = 300, connections_per_peer = 200, head_s = 1, body_s = 1 }")
            .await;
    // From an address of their own, as many as it may have and more: half a head each, and then nothing.
    let mut slow = Vec::new();
    for n in 0..250 {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        let mut stream = socket.connect(serving.at).await.unwrap();
        let half = if n % 2 == 0 {
            "POST /v1/check HTTP/1.1\r\nHost: loc"
        } else {
            "POST /v1/check HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 30\r\n\r\n{"
        };
        // Those that were too many are closed.
        stream.write_all(half.as_bytes()).await.ok();
        slow.push(stream);
    }
    for n in 0..20 {
        let answer = timeout(Duration::from_secs(30), serving.post("/v1/check", login(&n.to_string()))).await;
        assert_eq!(answer.expect("others are answered").json()["allowed"], true);
    }
    let (mut told, mut closed) = (0, 0);
    for stream in &mut slow {
        let mut bytes = Vec::new();
        let ended = timeout(Duration::from_secs(30), stream.read_to_end(&mut bytes)).await;
        ended.expect("it is let go").ok();
        let text = String::from_utf8_lossy(&bytes);
        match text.starts_with("HTTP/1.1 408") {
            true => told += 1,
            false => closed += 1,
        }
    }
    // Bodies that do not come are told so; of heads that do not come nobody asked anything.
    assert!(told >= 90 && closed >= 50, "{told} were told, {closed} closed");
    assert_eq!(serving.get("/v1/history").await.json()["rows"].as_array().unwrap().len(), 20);
}

#[tokio::test]
async fn whoever_takes_no_answer_is_let_go_and_asks_no_more() {
    let serving = Serving::start("limits = { connections = 2, write_s = 1 }").await;
    let mut slow = Vec::new();
    for _ in 0..2 {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(2_048).unwrap();
        let mut stream = socket.connect(serving.at).await.unwrap();
        // More answers than there is room for on the way.
        stream
            .write_all(&b"GET /v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(200))
            .await
            .unwrap();
        slow.push(stream);
    }
    // It keeps the one place, so that the other is needed too before anything is read: what is read is no longer slow.
    let mut quick = TcpStream::connect(serving.at).await.unwrap();
    quick.write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let first = timeout(Duration::from_secs(120), quick.read_exact(&mut [0; 12])).await;
    first.expect("the place of a slow one is given back").unwrap();
    let answer = timeout(Duration::from_secs(120), serving.get("/livez")).await;
    assert_eq!(answer.expect("the places of the slow are given back").status, 200);
    for mut stream in slow {
        let mut bytes = Vec::new();
        let ended = timeout(Duration::from_secs(120), stream.read_to_end(&mut bytes)).await;
        ended.expect("it is let go").ok();
        let answers = String::from_utf8_lossy(&bytes).matches("HTTP/1.1 200 OK").count();
        assert!(answers < 200, "{answers} were answered");
    }
}

#[tokio::test]
async fn an_address_with_too_many_connections_gets_no_more_and_another_does() {
    let serving = Serving::start("limits = { connections = 100, connections_per_peer = 10 }").await;
    let mut open = Vec::new();
    for _ in 0..10 {
        let mut stream = TcpStream::connect(serving.at).await.unwrap();
        stream.write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        let mut some = [0; 12];
        stream.read_exact(&mut some).await.unwrap();
        assert_eq!(&some, b"HTTP/1.1 200");
        open.push(stream);
    }
    assert_eq!(serving.get("/livez").await.status, 0, "the eleventh is closed unanswered");
    drop(open);
    // Places are given back.
    for _ in 0..600 {
        if serving.get("/livez").await.status == 200 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("no place was given back");
}
