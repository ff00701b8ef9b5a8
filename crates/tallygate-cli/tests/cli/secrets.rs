//! Passwords in URLs are in no output, whatever goes wrong, traces included.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use super::program::Program;

const SECRET: &str = "s3cret";

#[test]
fn the_password_of_a_url_is_never_shown() {
    let program = Program::new().env("RUST_LOG", "trace");
    let bad = [
        "postgres://alice:s3cret@127.0.0.1:1/app",
        "mysql://alice:s3cret@127.0.0.1:1/app",
        "mariadb://alice:s3cret@127.0.0.1:1/app",
        "postgres://127.0.0.1:1/app?user=alice&password=s3cret",
        "postgres://alice:s3cret@127.0.0.1:notaport/app",
        "postgres://alice:s3cret@[/app",
        "postgres:/alice:s3cret@127.0.0.1:1/app",
        "mysql:alice:s3cret@127.0.0.1:1/app",
        "postgres://alice:s3cret",
        "oracle://alice:s3cret@127.0.0.1/app",
        "alice:s3cret@127.0.0.1/app",
        "s3cret@127.0.0.1",
    ];
    for url in bad {
        for command in [&["check", "login", "42"][..], &["migrate", "--check"], &["demo"], &["bench"]] {
            let ran = program.run(&[&["--database", url], command].concat());
            assert!([2, 3].contains(&ran.code), "{url} {command:?}");
            assert!(ran.err.contains("error: "), "{url} {command:?}");
            assert!(!ran.err.contains(SECRET) && !ran.out.contains(SECRET), "{url} {command:?} {ran:?}");
        }
        let ran = Program::new().env("TALLYGATE_DATABASE_URL", url).run(&["zone", "list"]);
        assert_eq!(ran.err.lines().count(), 1);
        assert!(!ran.err.contains(SECRET), "{}", ran.err);
    }
}

#[test]
fn a_url_in_the_wrong_place_is_not_repeated() {
    let url = "postgres://alice:s3cret@db/app";
    for args in [
        &[url][..],
        &["check", "login", "42", url],
        &["--databse", url, "zone", "list"],
        &[&format!("--databse={url}"), "zone", "list"],
        &["check", "login", "42", "--txn", url],
        &["completions", url],
        &["grant", "app", url],
        &["grant", url, "app"],
        &["grant", "app", url, "--database", "postgres://127.0.0.1:1/app"],
    ] {
        let ran = Program::new().run(args);
        ran.assert_refused("");
        assert!(!ran.err.contains(SECRET), "{}", ran.err);
    }
}

#[test]
fn a_wrong_password_is_one_error_line_without_it() {
    for (scheme, server) in [("postgres", postgres as fn(TcpStream)), ("mysql", mysql)] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || listener.incoming().flatten().for_each(server));
        let url = format!("{scheme}://alice:s3cret@{address}/app");
        for command in [&["check", "login", "42"][..], &["migrate"], &["zone", "list"]] {
            let ran = Program::new().run(&[&["--database", &url], command].concat());
            ran.assert_refused("no entry for alice");
            assert!(!ran.err.contains(SECRET), "{}", ran.err);
        }
    }
}

/// The part of a PostgreSQL server that asks for a password and refuses it.
fn postgres(mut client: TcpStream) {
    const TLS_REQUEST: [u8; 4] = 80_877_103_u32.to_be_bytes();
    let message = |mut client: &TcpStream| {
        let mut length = [0; 4];
        client.read_exact(&mut length).ok()?;
        let mut body = vec![0; u32::from_be_bytes(length) as usize - 4];
        client.read_exact(&mut body).ok().map(|()| body)
    };
    while message(&client).is_some_and(|body| body == TLS_REQUEST) {
        client.write_all(b"N").unwrap();
    }
    client.write_all(b"R\0\0\0\x08\0\0\0\x03").unwrap();
    client.read_exact(&mut [0; 1]).unwrap();
    let password = message(&client).unwrap();
    assert_eq!(password, b"s3cret\0");
    let fields = b"SFATAL\0VFATAL\0C28P01\0Mno entry for alice\0\0";
    client.write_all(b"E").unwrap();
    client.write_all(&(fields.len() as u32 + 4).to_be_bytes()).unwrap();
    client.write_all(fields).unwrap();
}

/// The part of a MySQL server that refuses everybody.
fn mysql(mut client: TcpStream) {
    let body = b"\xff\x15\x04#28000no entry for alice";
    client.write_all(&[body.len() as u8, 0, 0, 0]).unwrap();
    client.write_all(body).unwrap();
    client.read_to_end(&mut Vec::new()).ok();
}
