//! The OpenAPI document, made of the routes: what one takes and answers is told by the types of its handler.

mod parts;

use std::sync::LazyLock;

use axum::Router;
use axum::handler::Handler;
use axum::http::header::CONTENT_TYPE;
use axum::middleware::from_fn;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, on};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use self::parts::Handles;
use super::head::{Idempotency, unnamed};
use crate::app::App;
use crate::problem::{Document, MEANINGS};

/// A method, as axum and as the document calls it.
pub(crate) type Verb = (MethodFilter, &'static str);

pub(crate) const GET: Verb = (MethodFilter::GET, "get");
pub(crate) const POST: Verb = (MethodFilter::POST, "post");
pub(crate) const PUT: Verb = (MethodFilter::PUT, "put");
pub(crate) const DELETE: Verb = (MethodFilter::DELETE, "delete");

/// Routes, and what is said of them.
pub(crate) struct Routes {
    router: Router<App>,
    paths: Map<String, Value>,
    schemas: Schemas,
}

/// A body that is read may leave out what has a default, and one that is written never does: so one type has
/// two schemas.
struct Schemas {
    read: SchemaGenerator,
    written: SchemaGenerator,
}

/// The description of a route.
pub(crate) struct Operation<'a> {
    schemas: &'a mut Schemas,
    said: Map<String, Value>,
    parameters: Vec<Value>,
    responses: Map<String, Value>,
}

/// The document as text.
pub(crate) struct Written(&'static str);

/// Made once, and served to everybody, since it tells nothing of this server.
pub(crate) async fn openapi() -> Written {
    static DOCUMENT: LazyLock<String> = LazyLock::new(|| super::all().document().to_string());
    Written(&DOCUMENT)
}

impl IntoResponse for Written {
    fn into_response(self) -> Response {
        ([(CONTENT_TYPE, "application/json")], self.0).into_response()
    }
}

impl Routes {
    pub fn new() -> Self {
        let settings = SchemaSettings::draft2020_12()
            .with(|settings| settings.definitions_path = "/components/schemas".into());
        let read = settings.clone().for_deserialize().into_generator();
        let mut written = settings.for_serialize().into_generator();
        written.subschema_for::<Document<'_>>();
        Self { router: Router::new(), paths: Map::new(), schemas: Schemas { read, written } }
    }

    /// A route: what it does in a few words, and the problems that its types do not tell. A POST is done once by its
    /// `Idempotency-Key`, or refused with one.
    pub fn route<H, T, A>(
        mut self,
        (filter, method): Verb,
        path: &'static str,
        handler: H,
        problems: &[u16],
        summary: &str,
    ) -> Self
    where
        H: Handler<T, App> + Handles<A>,
        T: 'static,
    {
        let mut operation = Operation {
            schemas: &mut self.schemas,
            said: Map::new(),
            parameters: Vec::new(),
            responses: Map::new(),
        };
        H::tell(&mut operation);
        operation.fails(problems);
        let is_named = operation.parameters.iter().any(|known| known["name"] == Idempotency::HEADER);
        let told = operation.told(summary);
        let operations = self.paths.entry(path).or_insert_with(|| json!({}));
        operations[method] = told;
        let handler = on(filter, handler);
        let refuses = method == POST.1 && !is_named;
        let handler = if refuses { handler.layer(from_fn(unnamed)) } else { handler };
        self.router = self.router.route(path, handler);
        self
    }

    pub fn router(self) -> Router<App> {
        self.router
    }

    fn document(self) -> Value {
        let Schemas { mut read, mut written } = self.schemas;
        let mut schemas = read.take_definitions(true);
        schemas.extend(written.take_definitions(true));
        let problems = MEANINGS.into_iter().map(|(status, ..)| (status.to_string(), problem(status)));
        let problems: Map<_, _> = problems.collect();
        let mut document = json!({
            "openapi": "3.1.0",
            "info": {
                "title": "tallygate",
                "version": env!("CARGO_PKG_VERSION"),
                "description": "Checks that are decided exactly and recorded, zones, and the ledger. A blocked check is an answer with the \
                    status 200, unless ?status asks for 429. What is not done is answered by a problem document (RFC 9457) with a stable code.",
            },
            "paths": self.paths,
            "components": {
                "schemas": schemas,
                "responses": problems,
                "securitySchemes": {
                    "token": {
                        "type": "http",
                        "scheme": "bearer",
                        "description": "A token whose roles have the one that is named, and whose zones the one that is asked for. Without \
                            tokens the server answers this machine, which may check and read, or the users of its socket, who may do all.",
                    },
                },
            },
        });
        shorten(&mut document);
        document
    }
}

impl Operation<'_> {
    fn parameters<T: JsonSchema>(&mut self, place: &str) {
        let schema = T::json_schema(&mut self.schemas.read);
        let Some(Value::Object(properties)) = schema.get("properties") else { return };
        let required = schema.get("required").and_then(Value::as_array);
        for (name, schema) in properties {
            let mut schema = schema.clone();
            // A value that is left out of a query is no null in it.
            if let Some([kind, _]) = schema["type"].as_array().map(Vec::as_slice) {
                schema["type"] = kind.clone();
            }
            let required = required.is_some_and(|required| required.contains(&json!(name)));
            self.parameters
                .push(json!({ "name": name, "in": place, "required": required, "schema": schema }));
        }
    }

    fn body<T: JsonSchema>(&mut self, kind: &str) {
        let schema = self.schemas.read.subschema_for::<T>();
        self.said.insert(
            "requestBody".to_owned(),
            json!({ "required": true, "content": { kind: { "schema": schema } } }),
        );
        self.fails(&[400, 408, 413, 415]);
    }

    fn answers<T: JsonSchema>(&mut self, status: u16, description: &str, kind: &str) {
        let schema = self.schemas.written.subschema_for::<T>();
        let content = json!({ kind: { "schema": schema } });
        let answer = json!({ "description": description, "content": content });
        self.responses.insert(status.to_string(), answer);
    }

    fn takes(&mut self, roles: &[&str]) {
        self.said.insert("security".to_owned(), json!([{ "token": roles }]));
        self.fails(&[401, 403]);
    }

    fn fails(&mut self, statuses: &[u16]) {
        for status in statuses.iter().map(u16::to_string) {
            let answer = json!({ "$ref": format!("#/components/responses/{status}") });
            self.responses.insert(status, answer);
        }
    }

    fn told(self, summary: &str) -> Value {
        let mut said = self.said;
        said.insert("summary".to_owned(), summary.into());
        said.insert("responses".to_owned(), self.responses.into());
        if !self.parameters.is_empty() {
            said.insert("parameters".to_owned(), self.parameters.into());
        }
        // Nobody is to be known where no handler asks who it is.
        said.entry("security").or_insert_with(|| json!([]));
        said.into()
    }
}

/// The answer of this status that is a problem document.
fn problem(status: u16) -> Value {
    let (codes, meaning) = MEANINGS
        .into_iter()
        .find_map(|(known, codes, meaning)| (known == status).then_some((codes, meaning)))
        .unwrap_or_default();
    let schema = json!({
        "allOf": [{ "$ref": "#/components/schemas/Problem" }],
        "properties": { "status": { "const": status }, "code": { "enum": codes } },
    });
    json!({ "description": meaning, "content": { "application/problem+json": { "schema": schema } } })
}

/// Of what is written for those who read Rust, what others need: the first paragraph, without its links.
fn shorten(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            // That nothing stands for nothing need not be said; and where it does not, it is no default.
            if fields.get("default").is_some_and(Value::is_null) {
                fields.remove("default");
            }
            if let Some(Value::String(text)) = fields.get_mut("description") {
                let paragraph = text.split("\n\n").next().unwrap_or_default().replace('\n', " ");
                let mut parts = paragraph.split("](");
                let mut plain = parts.next().unwrap_or_default().to_owned();
                for part in parts {
                    plain.push_str(part.split_once(')').map_or("", |(_, rest)| rest));
                }
                *text = plain.replace("[`", "`").replace("`]", "`").replace("None", "null");
            }
            fields.values_mut().for_each(shorten);
        }
        Value::Array(values) => values.iter_mut().for_each(shorten),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_schema() {
        let Schemas { mut read, mut written } = super::super::all().schemas;
        let (read, written) = (read.take_definitions(true), written.take_definitions(true));
        let shared: Vec<_> = read.keys().filter(|name| written.contains_key(*name)).collect();
        assert!(shared.contains(&&"Mode".to_owned()), "{shared:?}");
        for name in shared {
            assert_eq!(
                read[name], written[name],
                "{name} is read in one way and written in another: name them apart"
            );
        }
    }
}
