//! A login that spends an attempt before it looks at the password.
//!
//! The order matters: whoever checks the password first and counts afterwards lets a burst of guesses
//! through, since they all pass the count before the first of them is recorded.
//!
//! Run it with: cargo run --example login

use std::time::Duration;

use tallygate::{Check, Limiter, Policy};

#[derive(Debug, PartialEq)]
enum Login {
    Welcome,
    WrongPassword,
    /// Not even looked at. For `Retry-After`, in whole seconds.
    TooManyAttempts(u64),
}

async fn login(limiter: &Limiter, address: &str, user: &str, password: &str) -> tallygate::Result<Login> {
    // Two buckets, one transaction: an address that tries many users is stopped, and so is a user whom many
    // addresses try. Both pass, or none is spent from: with `check_many`, which decides each by itself, an address
    // that is blocked would go on spending Alice's attempts, and lock her out for as long as it likes.
    let combined = limiter
        .check_all(vec![
            Check::new("login by address", address),
            Check::new("login by user", format!("user:{user}")),
        ])
        .await?;
    if combined.blocked {
        let wait = combined.retry_after().unwrap_or(Duration::MAX);
        return Ok(Login::TooManyAttempts(wait.as_secs().saturating_add(1)));
    }
    Ok(if password_is_right(user, password) { Login::Welcome } else { Login::WrongPassword })
}

fn password_is_right(user: &str, password: &str) -> bool {
    [("alice", "correct horse"), ("carol", "battery staple")].contains(&(user, password))
}

#[tokio::main]
async fn main() -> tallygate::Result<()> {
    let limiter = Limiter::connect("sqlite::memory:").await?;
    let minute = Duration::from_secs(60);
    let note = Some("attempts");
    limiter
        .operator()
        .set_zone("login by address", &Policy::sliding_log(20, minute)?, note, "example")
        .await?;
    limiter.operator().set_zone("login by user", &Policy::sliding_log(5, minute)?, note, "example").await?;

    assert_eq!(login(&limiter, "192.0.2.1", "alice", "correct horse").await?, Login::Welcome);

    // 10 guesses at once: 4 are looked at, since Alice spent one attempt herself.
    let guesses = (0..10).map(|n| {
        let limiter = limiter.clone();
        tokio::spawn(async move { login(&limiter, "203.0.113.66", "alice", &format!("guess {n}")).await })
    });
    let mut looked_at = 0;
    for guess in guesses.collect::<Vec<_>>() {
        match guess.await.expect("no guess panics")? {
            Login::WrongPassword => looked_at += 1,
            Login::TooManyAttempts(seconds) => assert!((1..=60).contains(&seconds)),
            Login::Welcome => unreachable!("nobody guesses that"),
        }
    }
    assert_eq!(looked_at, 4);

    // Another user is not held up.
    assert_eq!(login(&limiter, "192.0.2.7", "bob", "hunter2").await?, Login::WrongPassword);

    // An address that is blocked spends nobody's attempts: Carol logs in while it hammers at her account.
    for n in 0..16 {
        login(&limiter, "203.0.113.66", &format!("user {n}"), "guess").await?;
    }
    for _ in 0..10 {
        let guess = login(&limiter, "203.0.113.66", "carol", "guess").await?;
        assert!(matches!(guess, Login::TooManyAttempts(_)));
    }
    assert_eq!(login(&limiter, "198.51.100.3", "carol", "battery staple").await?, Login::Welcome);
    println!("4 of 10 guesses were looked at; the others were told when to come back, and locked nobody out");
    Ok(())
}
