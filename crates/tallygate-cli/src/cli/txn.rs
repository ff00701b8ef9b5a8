//! The id of a transaction on the command line.

use uuid::Uuid;

pub fn parse(text: &str) -> Result<Uuid, String> {
    let wrong = || "the id of a transaction is a UUID, as 0198f6a0-5c3e-7000-8000-3f2b9c1d4e5f; tallygate history lists them";
    text.parse().map_err(|_| wrong().to_owned())
}
