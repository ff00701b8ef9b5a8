//! The parts of a route's description that follow from the types of its handler.

use axum::extract::{Request, State};
use axum::response::Response;
use axum::{Extension, Json};
use schemars::JsonSchema;
use serde_json::{Map, Value, json};
use tallygate::Check;
use uuid::Uuid;

use super::{Operation, Written, problem};
use crate::api::body::Asked;
use crate::api::check::{Answer, Told};
use crate::api::head::role::Role;
use crate::api::head::{By, Idempotency, Named, Queried, There};
use crate::api::json::Envoys;
use crate::api::lines::{self, Answers, Line, Lines};
use crate::app::App;
use crate::caller::Caller;
use crate::problem::Problem;

const JSON: &str = "application/json";
const TEXT: &str = "text/plain";

/// The part of a route's description that follows from a part of its handler's signature.
pub(crate) trait Part {
    fn tell(operation: &mut Operation<'_>);
}

/// A handler whose parts `A` and whose answer say what it does.
pub(crate) trait Handles<A> {
    fn tell(operation: &mut Operation<'_>);
}

macro_rules! handles {
    ($($part:ident)*) => {
        impl<F, Answer, $($part: Part),*> Handles<($($part,)*)> for F
        where
            F: AsyncFn($($part),*) -> Answer,
            Answer: Part,
        {
            fn tell(operation: &mut Operation<'_>) {
                $($part::tell(operation);)*
                Answer::tell(operation);
            }
        }
    };
}

handles!();
handles!(A);
handles!(A B);
handles!(A B C);
handles!(A B C D);
handles!(A B C D E);

impl Part for State<App> {
    fn tell(_: &mut Operation<'_>) {}
}

impl Part for Caller {
    fn tell(operation: &mut Operation<'_>) {
        operation.takes(&[]);
    }
}

impl<R: Role> Part for By<R> {
    fn tell(operation: &mut Operation<'_>) {
        operation.takes(&[R::RIGHT.as_str()]);
    }
}

impl<R: Role, P: JsonSchema> Part for There<R, P> {
    fn tell(operation: &mut Operation<'_>) {
        By::<R>::tell(operation);
        Named::<P>::tell(operation);
    }
}

impl<T: JsonSchema> Part for Named<T> {
    fn tell(operation: &mut Operation<'_>) {
        operation.parameters::<T>("path");
        operation.fails(&[400]);
    }
}

impl<T: JsonSchema> Part for Queried<T> {
    fn tell(operation: &mut Operation<'_>) {
        operation.parameters::<T>("query");
        operation.fails(&[400]);
    }
}

impl Part for Idempotency {
    fn tell(operation: &mut Operation<'_>) {
        operation.parameters.push(json!({
            "name": Self::HEADER,
            "in": "header",
            "required": false,
            "description": "The transaction: sent again under the same UUID, it is answered as it was and charged once.",
            "schema": operation.schemas.read.subschema_for::<Uuid>(),
        }));
    }
}

impl<T: JsonSchema> Part for Asked<T> {
    fn tell(operation: &mut Operation<'_>) {
        operation.body::<T>(JSON);
    }
}

/// As Envoy's protocol has it.
impl Part for Request {
    fn tell(operation: &mut Operation<'_>) {
        operation.body::<Map<String, Value>>(JSON);
    }
}

impl Part for Lines {
    fn tell(operation: &mut Operation<'_>) {
        operation.body::<Check>(lines::KIND);
    }
}

impl<T: Part> Part for Result<T, Problem> {
    fn tell(operation: &mut Operation<'_>) {
        operation.fails(&[500, 503]);
        T::tell(operation);
    }
}

/// With the transaction, for the log.
impl<T: Part> Part for (Extension<Uuid>, T) {
    fn tell(operation: &mut Operation<'_>) {
        T::tell(operation);
    }
}

impl<T: JsonSchema> Part for Json<T> {
    fn tell(operation: &mut Operation<'_>) {
        operation.answers::<T>(200, "It is done.", JSON);
    }
}

impl<T: JsonSchema> Part for Told<T> {
    fn tell(operation: &mut Operation<'_>) {
        operation.answers::<Answer<T>>(200, "It is decided.", JSON);
        operation.answers::<Answer<T>>(429, "It is blocked, and ?status was asked for.", JSON);
    }
}

impl Part for Answers {
    fn tell(operation: &mut Operation<'_>) {
        operation.answers::<Line>(200, "An answer for each line, in their order.", lines::KIND);
    }
}

impl Part for Envoys {
    fn tell(operation: &mut Operation<'_>) {
        for (status, description) in [(200, "It may pass."), (429, "It is over a limit.")] {
            operation.answers::<Map<String, Value>>(status, description, JSON);
        }
        // The refusals of its service are told in its own way.
        for status in [400, 500, 503] {
            let mut answer = problem(status);
            answer["content"][JSON] = json!({ "schema": { "type": "object" } });
            operation.responses.insert(status.to_string(), answer);
        }
    }
}

impl Part for Written {
    fn tell(operation: &mut Operation<'_>) {
        operation.answers::<Map<String, Value>>(200, "It is this.", JSON);
    }
}

impl Part for Response {
    fn tell(operation: &mut Operation<'_>) {
        operation.answers::<String>(200, "Text.", TEXT);
    }
}

impl Part for &'static str {
    fn tell(operation: &mut Operation<'_>) {
        Response::tell(operation);
    }
}
