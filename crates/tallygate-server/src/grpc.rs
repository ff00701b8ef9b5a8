//! Envoy's rate limit service, Kuadrant's and Doorman's, over gRPC.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::Response;
use tallygate_doorman::{Asker, Doorman};
use tallygate_envoy::RateLimits;
use tonic::Status;
use tonic::service::Routes;

use crate::app::App;
use crate::caller::{Caller, Right};
use crate::measured::measure;
use crate::problem::Problem;

/// Envoy's services, and their health, which is told to everybody.
pub(crate) fn envoy(app: App, limits: RateLimits, health: Routes) -> Router {
    let asked = Routes::new(limits.clone().into_service()).add_service(limits.into_kuadrant_service());
    within(app, asked, health, |caller, _| may(&caller))
}

/// Doorman's service, and its health. A client is known by the name of its token, which may be for some zones.
pub(crate) fn doorman(app: App, doorman: Doorman, health: Routes) -> Router {
    within(app, Routes::new(doorman.into_service()), health, |caller, head| {
        caller.must(Right::App)?;
        let (name, band) = (caller.name().to_owned(), caller.band());
        let asked_at = head.uri.authority().map(ToString::to_string);
        head.extensions.insert(Asker { name, asked_at, band, may: Arc::new(move |zone| caller.sees(zone)) });
        Ok(())
    })
}

type Admits = fn(Caller, &mut Parts) -> Result<(), Problem>;

fn within(app: App, asked: Routes, health: Routes, admits: Admits) -> Router {
    let admit = move |State(app): State<App>, request, next| admit(app, admits, request, next);
    let asked = asked.into_axum_router().layer(from_fn_with_state(app, admit));
    health.into_axum_router().merge(asked.reset_fallback()).layer(from_fn(measure))
}

/// The mapping chooses the zones, so who asks is to be for all of them.
pub(crate) fn may(caller: &Caller) -> Result<(), Problem> {
    caller.must(Right::App)?;
    match caller.sees_all() {
        true => Ok(()),
        false => Err(Problem::forbidden(
            "Envoy asks in any zone of its mapping; it takes a token whose zones are \"*\"",
        )),
    }
}

async fn admit(app: App, admits: Admits, request: Request, next: Next) -> Response {
    let (mut head, body) = request.into_parts();
    match app.identify(&head) {
        Err(problem) => Status::unauthenticated(problem.detail()).into_http(),
        Ok(caller) => match admits(caller, &mut head) {
            Err(problem) => Status::permission_denied(problem.detail()).into_http(),
            Ok(()) => next.run(Request::from_parts(head, body)).await,
        },
    }
}
