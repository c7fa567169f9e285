//! Decisions against a plain model of AWS's engine: a message is a list of names with values and, of
//! each, the elements of arrays that hold it; the fields of a pattern are looked at in the order of
//! their names, and those that are chosen must not be in different elements of one array.

use super::super::pattern::{Combination, Reader};
use super::super::rule::Scalar;
use super::matches;
use crate::json::Json;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Of each array, which element.
type Elements = BTreeMap<usize, usize>;

struct Entry {
    name: String,
    value: u64,
    elements: Elements,
}

/// Lists the values of a message.
#[derive(Default)]
struct Flat {
    entries: Vec<Entry>,
    arrays: usize,
}

impl Flat {
    fn add(&mut self, name: &str, value: &Value, elements: &Elements) {
        match value {
            Value::Object(members) => {
                for (member, value) in members {
                    self.add(&format!("{name}.{member}"), value, elements);
                }
            }
            Value::Array(list) => {
                let array = self.arrays;
                self.arrays += 1;
                for (index, value) in list.iter().enumerate() {
                    let mut within = elements.clone();
                    if value.is_object() || value.is_array() {
                        within.insert(array, index);
                    }
                    self.add(name, value, &within);
                }
            }
            value => self.entries.push(Entry {
                name: name.to_owned(),
                value: value.as_u64().expect("a number"),
                elements: elements.clone(),
            }),
        }
    }

    fn matches(&self, combination: &Combination, at: usize, chosen: &Elements) -> bool {
        let Some(field) = combination.0.get(at) else {
            return true;
        };
        let together = |entry: &Entry| {
            let mut own = entry.elements.iter();
            own.all(|(array, index)| chosen.get(array).is_none_or(|chosen| chosen == index))
        };
        let all = self.entries.iter();
        let possible: Vec<_> = all
            .filter(|entry| entry.name == field.name && together(entry))
            .collect();
        let is_absent = field.may_be_absent() && possible.is_empty();
        if is_absent && self.matches(combination, at + 1, chosen) {
            return true;
        }
        possible.into_iter().any(|entry| {
            let mut chosen = chosen.clone();
            chosen.extend(&entry.elements);
            field.matches(Scalar::Number(&entry.value.to_string()))
                && self.matches(combination, at + 1, &chosen)
        })
    }
}

fn model(pattern: &str, body: &Value) -> bool {
    let pattern = format!("{{\"body\":{pattern}}}");
    let mut reader = Reader::default();
    let combinations = reader.pattern(&Json::read(&pattern).expect("JSON"));
    assert_eq!(reader.errors, [], "{pattern}");
    let mut flat = Flat::default();
    flat.add("body", body, &Elements::new());
    let mut all = combinations.iter();
    all.any(|combination| flat.matches(combination, 0, &Elements::new()))
}

fn any_body() -> impl Strategy<Value = Value> {
    let leaf = (0..3_u64).prop_map(Value::from);
    let inner = leaf.prop_recursive(5, 40, 4, |inner| {
        prop_oneof![
            prop::collection::btree_map("[xyz]", inner.clone(), 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
            prop::collection::vec(inner, 0..4).prop_map(Value::from),
        ]
    });
    prop::collection::btree_map("[xyz]", inner, 1..4)
        .prop_map(|members| Value::Object(members.into_iter().collect()))
}

fn any_rules() -> impl Strategy<Value = Value> {
    prop::sample::select(vec![
        json!([0]),
        json!([1, 2]),
        json!([{"anything-but": 0}]),
        json!([{"exists": true}]),
        json!([{"exists": false}]),
        json!([{"exists": false}, 1]),
    ])
}

fn any_fields() -> impl Strategy<Value = String> {
    let names = "[xyz](\\.[xyz]){0,2}";
    prop::collection::btree_map(names, any_rules(), 1..5).prop_map(|fields| {
        let fields = fields.into_iter();
        Value::Object(fields.collect()).to_string()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn fields_match_together_as_in_the_engine(body in any_body(), pattern in any_fields()) {
        let wanted = model(&pattern, &body);
        prop_assert_eq!(matches(&pattern, &body.to_string()), wanted, "{}", body);
    }

    #[test]
    fn alternatives_match_as_in_the_engine(
        body in any_body(),
        one in any_fields(),
        other in any_fields(),
        more in "[w](\\.[xyz])",
        rules in any_rules(),
    ) {
        let pattern = format!("{{\"$or\":[{one},{other}],\"{more}\":{rules}}}");
        let wanted = model(&pattern, &body);
        prop_assert_eq!(matches(&pattern, &body.to_string()), wanted, "{}", body);
    }
}
