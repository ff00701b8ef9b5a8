//! The list of clients/conformance: the library is what it is made of, and HTTP says the same.

#[path = "../../../../clients/conformance/steps.rs"]
mod steps;

use tallygate::Limiter;

use crate::client::Serving;

#[tokio::test]
async fn the_library_answers_what_the_list_says() {
    let limiter = steps::limiter().await;
    let left_out = steps::run(&limiter, str::to_owned, async |step| {
        step.assert_said(step.ask(&limiter).await);
        Ok(())
    });
    assert_eq!(left_out.await, []);
}

#[tokio::test]
async fn http_answers_what_the_list_says() {
    let serving = Serving::start("").await;
    std::fs::write(serving.file("zones.toml"), steps::list().zones).unwrap();
    serving.reload.files().await.unwrap();
    let database = format!("sqlite:{}", serving.file("tallygate.db").display());
    let limiter = Limiter::connect(&database).await.unwrap();
    let left_out = steps::run(&limiter, str::to_owned, async |step| {
        let told = serving.post(&format!("/v1/{}", step.call), step.body.clone().into()).await;
        step.assert_said(match told.status {
            200 => {
                let told = told.json();
                Ok(told.get("recorded").map_or(&told, |recorded| &recorded[0]).clone())
            }
            _ => Err(told.problem().1),
        });
        Ok(())
    });
    assert_eq!(left_out.await, []);
}
