//! The OpenAPI document, made from the table of endpoints. `host/docs/openapi.json` is this document,
//! and a test holds it to the table.

use super::{Answer, ENDPOINTS, Endpoint, Verb};
use crate::admin::access::Role;
use crate::admin::problem;
use crate::admin::schema::Components;
use serde_json::{Map, Value, json};

/// The document.
pub(in crate::admin) fn document() -> Value {
    let mut components = Components::new();
    let mut paths: Map<String, Value> = Map::new();
    for endpoint in ENDPOINTS {
        let method = match endpoint.verb {
            Verb::Get => "get",
            Verb::Post => "post",
        };
        let path = paths.entry(endpoint.path).or_insert_with(|| json!({}));
        path[method] = operation(endpoint, &mut components);
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

fn operation(endpoint: &Endpoint, components: &mut Components) -> Value {
    let problem = json!({
        "description": "What is wrong.",
        "content": {
            "application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}},
        },
    });
    let content = match endpoint.response {
        Answer::Json(schema) => json!({"application/json": {"schema": schema(components)}}),
        Answer::Document => json!({"application/json": {"schema": {"type": "object"}}}),
        Answer::Events => json!({"text/event-stream": {"schema": {"type": "string"}}}),
    };
    let role = match endpoint.role {
        Role::Read => "read",
        Role::Operate => "operate",
    };
    let mut operation = json!({
        "operationId": id(endpoint),
        "summary": endpoint.summary,
        "x-role": role,
        "responses": {
            "200": {"description": "As asked.", "content": content},
            "default": problem,
        },
    });
    let parameters = parameters(endpoint);
    if !parameters.is_empty() {
        operation["parameters"] = Value::Array(parameters);
    }
    if let Some(schema) = endpoint.request {
        operation["requestBody"] = json!({
            "required": false,
            "content": {"application/json": {"schema": schema(components)}},
        });
    }
    operation
}

/// A name that tells an endpoint from all others: `post_queues_queue_pause`.
fn id(endpoint: &Endpoint) -> String {
    let path = endpoint.path.trim_start_matches("/api/v1/");
    let words = path.replace(['/', '.'], "_").replace(['{', '}'], "");
    match endpoint.verb {
        Verb::Get => format!("get_{words}"),
        Verb::Post => format!("post_{words}"),
    }
}

fn parameters(endpoint: &Endpoint) -> Vec<Value> {
    let of_path = endpoint.path.split('/').filter_map(|part| {
        let name = part.strip_prefix('{')?.strip_suffix('}')?;
        Some(json!({
            "name": name,
            "in": "path",
            "required": true,
            "schema": {"type": "string"},
        }))
    });
    let of_query = endpoint.query.iter().map(|parameter| {
        json!({
            "name": parameter.name,
            "in": "query",
            "required": parameter.is_required,
            "description": parameter.help,
            "schema": parameter.schema(),
        })
    });
    of_path.chain(of_query).collect()
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
        let ids: BTreeSet<String> = ENDPOINTS.iter().map(id).collect();
        assert_eq!(ids.len(), ENDPOINTS.len());
        for endpoint in ENDPOINTS {
            assert!(endpoint.summary.ends_with('.'), "{}", endpoint.summary);
            assert!(endpoint.path.starts_with("/api/v1/"), "{}", endpoint.path);
        }
    }

    #[test]
    fn what_acts_is_a_post_and_needs_the_role_operate() {
        for endpoint in ENDPOINTS {
            let acts = endpoint.verb == Verb::Post;
            assert_eq!(acts, endpoint.role == Role::Operate, "{}", endpoint.path);
        }
    }
}
