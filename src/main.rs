//! dev
use tallygate::*;
#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::args().nth(1).unwrap_or_default();
    let m = Migrator::new(&url)?;
    println!("{:?}", m.apply().await?.iter().map(|m| m.name.clone()).collect::<Vec<_>>());
    let l = Limiter::connect(&url).await?;
    let p = Policy::sliding_log(3, std::time::Duration::from_secs(10))?;
    println!("{:?}", l.set_zone("login", &p, None, "me").await?);
    for _ in 0..5 {
        println!("{:?}", l.check(Check::new("login", "a")).await?);
    }
    println!(
        "{:?}",
        l.check_many(vec![
            Check::new("login", "b"),
            Check::new("login", "a\"x"),
            Check::new("login", "b").cost(3)
        ])
        .await?
    );
    println!("{:?}", l.peek("login", "b").await?);
    println!("{:?}", l.history(&History { limit: 3, ..History::default() }).await?);
    Ok(())
}
