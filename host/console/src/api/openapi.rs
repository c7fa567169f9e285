//! The OpenAPI document, generated from the table of endpoints. `host/docs/openapi.json` is this
//! document; a test compares them.

use super::{Answer, ENDPOINTS, Endpoint, IDEMPOTENCY_KEY, LONGEST_KEY};
use crate::access::Role;
use crate::problem;
use dispatcher_operate::schema::Components;
use dispatcher_operate::verbs::{OperationDeclaration, VERBS, Verb};
use serde_json::{Map, Value, json};

/// Returns the OpenAPI document.
pub(crate) fn document() -> Value {
    let mut components = Components::new();
    let mut paths: Map<String, Value> = Map::new();
    for endpoint in ENDPOINTS {
        let path = paths.entry(endpoint.path).or_insert_with(|| json!({}));
        path["get"] = reading(endpoint, &mut components);
    }
    for verb in VERBS {
        let path = paths.entry(verb.declared.path).or_insert_with(|| json!({}));
        path["post"] = acting(verb, &mut components);
    }
    components.insert("Problem", problem::schema());
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "dispatcher admin API",
            "version": "1",
            "description": "What a running dispatcher shows and does; see host/docs/admin-api.md. \
                Every number is exact in JavaScript: whole numbers above 2^53 - 1 are shown as that.",
            "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"},
        },
        "security": [{"token": []}, {"basic": []}, {}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "basic": {
                    "type": "http",
                    "scheme": "basic",
                    "description": "Any user name, with the token as the password.",
                },
            },
        },
    })
}

/// Describes an endpoint that only reads.
fn reading(endpoint: &Endpoint, components: &mut Components) -> Value {
    let content = match endpoint.response {
        Answer::Json(schema) => json!({"application/json": {"schema": schema(components)}}),
        Answer::Document => json!({"application/json": {"schema": {"type": "object"}}}),
        Answer::Events => json!({"text/event-stream": {"schema": {"type": "string"}}}),
    };
    let of_query = endpoint.query.iter().map(|parameter| {
        json!({
            "name": parameter.name,
            "in": "query",
            "required": parameter.is_required,
            "description": parameter.help,
            "schema": parameter.schema(),
        })
    });
    let parameters = of_path(endpoint.path).chain(of_query).collect();
    let name = id("get", endpoint.path);
    operation((name, endpoint.summary, Role::Read), parameters, content)
}

/// Describes an endpoint that acts.
fn acting(verb: &Verb, components: &mut Components) -> Value {
    let OperationDeclaration {
        path,
        summary,
        is_for_producers,
        ..
    } = verb.declared;
    let role = if is_for_producers {
        Role::Send
    } else {
        Role::Operate
    };
    let key = is_for_producers.then(|| {
        json!({
            "name": IDEMPOTENCY_KEY,
            "in": "header",
            "required": false,
            "description": "Makes the request safe to repeat where the queue deduplicates: each \
             message without a deduplication id gets one from the key and its number.",
            "schema": {"type": "string", "minLength": 1, "maxLength": LONGEST_KEY},
        })
    });
    let parameters = of_path(path).chain(key).collect();
    let content = json!({"application/json": {"schema": (verb.answer)(components)}});
    let mut operation = operation((id("post", path), summary, role), parameters, content);
    let is_required = (verb.fields)().iter().any(|field| field.is_required);
    operation["requestBody"] = json!({
        "required": is_required,
        "content": {"application/json": {"schema": (verb.request)(components)}},
    });
    operation
}

fn operation(
    (name, summary, role): (String, &str, Role),
    parameters: Vec<Value>,
    content: Value,
) -> Value {
    let mut operation = json!({
        "operationId": name,
        "summary": summary,
        "x-role": role.name(),
        "responses": {
            "200": {"description": "Success.", "content": content},
            "default": {
                "description": "What is wrong.",
                "content": {
                    "application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}},
                },
            },
        },
    });
    if !parameters.is_empty() {
        operation["parameters"] = Value::Array(parameters);
    }
    operation
}

/// Returns a unique name for an endpoint, such as `post_queues_queue_pause`.
fn id(method: &str, path: &str) -> String {
    let path = path.trim_start_matches("/api/v1/");
    let words = path.replace(['/', '.'], "_").replace(['{', '}'], "");
    format!("{method}_{words}")
}

/// Returns the parameters of a path.
fn of_path(path: &str) -> impl Iterator<Item = Value> {
    path.split('/').filter_map(|part| {
        let name = part.strip_prefix('{')?.strip_suffix('}')?;
        Some(json!({
            "name": name,
            "in": "path",
            "required": true,
            "schema": {"type": "string"},
        }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_file_is_the_document_of_the_table() {
        let mut made = serde_json::to_string_pretty(&document()).expect("it is JSON");
        made.push('\n');
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/openapi.json");
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(path, &made).expect("the file is written");
        }
        let file = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            file == made,
            "host/docs/openapi.json is not what the table of endpoints says: write it again with \
             `UPDATE=1 cargo test the_file_is`"
        );
    }

    #[test]
    fn every_endpoint_has_a_name_of_its_own_and_a_summary() {
        let reads = ENDPOINTS.iter().map(|one| ("get", one.path, one.summary));
        let acts = VERBS.iter().map(|verb| {
            let OperationDeclaration { path, summary, .. } = verb.declared;
            ("post", path, summary)
        });
        let mut ids = BTreeSet::new();
        for (method, path, summary) in reads.chain(acts) {
            assert!(ids.insert(id(method, path)), "{path}");
            assert!(summary.ends_with('.'), "{summary}");
            assert!(path.starts_with("/api/v1/"), "{path}");
        }
    }

    #[test]
    fn messages_are_sent_by_producers_and_all_else_is_done_by_operators() {
        let of_producers = VERBS.iter().filter(|verb| verb.declared.is_for_producers);
        let paths: Vec<&str> = of_producers.map(|verb| verb.declared.path).collect();
        assert_eq!(paths, ["/api/v1/queues/{queue}/messages"]);
    }
}
