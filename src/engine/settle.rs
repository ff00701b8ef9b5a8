//! Asks the ledger for what the core wants to know, until it knows enough.

use super::bucket::Bucket;
use super::{Asked, Question, Session};
use crate::error::{Error, Result};

/// Does the work again and again until nothing is lacking. The lacking facts, of all buckets together, are asked for at
/// once.
pub(super) async fn settle<'b>(
    session: &mut dyn Session,
    buckets: &mut [Bucket<'b>],
    mut work: impl FnMut(&mut [Bucket<'b>]) -> Result<()>,
) -> Result<()> {
    buckets.iter().try_for_each(Bucket::look_ahead)?;
    ask(session, buckets).await?;
    loop {
        work(buckets)?;
        if !ask(session, buckets).await? {
            return Ok(());
        }
    }
}

/// False when there was nothing to ask.
async fn ask(session: &mut dyn Session, buckets: &mut [Bucket<'_>]) -> Result<bool> {
    let mut asked = Vec::new();
    for (place, bucket) in buckets.iter_mut().enumerate() {
        let questions = bucket.known.questions().into_iter();
        asked.extend(questions.map(|question| Asked { bucket: place, name: bucket.name, question }));
    }
    if asked.is_empty() {
        return Ok(false);
    }
    let answers = session.answer(&asked).await?;
    if answers.len() != asked.len() {
        return Err(Error::database(format!("{} questions got {} answers", asked.len(), answers.len())));
    }
    for (Asked { bucket, name, question }, answer) in asked.into_iter().zip(answers) {
        let answer = answer.ok_or_else(|| {
            Error::database(format!(
                "the ledger of a bucket in zone {} lacks rows of its window; it was changed from outside",
                name.0
            ))
        })?;
        buckets[bucket].known.put(question, answer);
    }
    buckets.iter_mut().for_each(Bucket::go_on);
    Ok(true)
}

/// Asks one bucket what is answered by yes or no.
pub(super) async fn is_so(
    session: &mut dyn Session,
    bucket: usize,
    name: super::Name<'_>,
    question: Question,
) -> Result<bool> {
    Ok(session.answer(&[Asked { bucket, name, question }]).await?.first() == Some(&Some(1)))
}
