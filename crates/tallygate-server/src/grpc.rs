//! Envoy's rate limit service and Kuadrant's, over gRPC.

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::Response;
use tallygate_envoy::RateLimits;
use tonic::Status;
use tonic::service::Routes;

use crate::app::App;
use crate::caller::{Caller, Right};
use crate::measured::measure;
use crate::problem::Problem;

/// The services, and their health, which is told to everybody.
pub(crate) fn routes(app: App, limits: RateLimits, health: Routes) -> Router {
    let asked = Routes::new(limits.clone().into_service()).add_service(limits.into_kuadrant_service());
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

async fn admit(State(app): State<App>, request: Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    match app.identify(&head) {
        Err(problem) => Status::unauthenticated(problem.detail()).into_http(),
        Ok(caller) => match may(&caller) {
            Err(problem) => Status::permission_denied(problem.detail()).into_http(),
            Ok(()) => next.run(Request::from_parts(head, body)).await,
        },
    }
}
