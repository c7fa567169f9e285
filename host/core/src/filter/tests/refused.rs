//! Patterns that are refused, and with which errors.

use super::super::Filter;

/// Where each error is and what it is about.
fn errors(pattern: &str) -> Vec<(String, String)> {
    let errors = Filter::read(pattern).expect_err(pattern);
    let errors = errors.into_iter();
    errors.map(|error| (error.at, error.found)).collect()
}

#[test]
fn wrong_patterns_are_refused_with_their_place() {
    for (pattern, at, found) in [
        (
            "{",
            "",
            "not JSON: the text ends too early at line 1 column 2",
        ),
        ("[]", "", "`[]`"),
        ("{}", "", "`{}`"),
        (r#"{"kind":["a"]}"#, "", "`kind` is not a part of a message"),
        (r#"{"body":"a"}"#, "/body", "`\"a\"`"),
        (r#"{"body":[]}"#, "/body", "`[]`"),
        (r#"{"body":{}}"#, "/body", "`{}`"),
        (r#"{"body":{"a":[["b"]]}}"#, "/body/a/0", "`[\"b\"]`"),
        (
            r#"{"body":{"a/b":[{"prefx":"x"}]}}"#,
            "/body/a~1b/0",
            "`prefx` is not an operator",
        ),
        (r#"{"body":{"a":[{"prefix":1}]}}"#, "/body/a/0", "`1`"),
        (
            r#"{"body":{"a":[{"exists":"yes"}]}}"#,
            "/body/a/0",
            "`\"yes\"`",
        ),
        (
            r#"{"body":{"a":[{"numeric":["~",1]}]}}"#,
            "/body/a/0",
            "`\"~\"`",
        ),
        (
            r#"{"body":{"a":[{"numeric":[">"]}]}}"#,
            "/body/a/0",
            "`[\">\"]`",
        ),
        (
            r#"{"body":{"a":[{"wildcard":"a**"}]}}"#,
            "/body/a/0",
            "`\"a**\"`",
        ),
        (
            r#"{"body":{"a":[{"wildcard":"a\\n"}]}}"#,
            "/body/a/0",
            "`\"a\\\\n\"`",
        ),
        (
            r#"{"body":{"a":[{"cidr":"10.0.0.0/33"}]}}"#,
            "/body/a/0",
            "`\"10.0.0.0/33\"`",
        ),
        (
            r#"{"body":{"a":[{"anything-but":[]}]}}"#,
            "/body/a/0",
            "`[]`",
        ),
        (
            r#"{"body":{"a":[{"anything-but":{"numeric":["=",1]}}]}}"#,
            "/body/a/0",
            "`numeric` is not an operator",
        ),
        (r#"{"body":{"$or":{}}}"#, "/body/$or", "`{}`"),
        (
            r#"{"body":{"a":[{"prefix":"a","suffix":"b"}]}}"#,
            "/body/a/0",
            "`{\"prefix\":\"a\",\"suffix\":\"b\"}`",
        ),
    ] {
        assert_eq!(
            errors(pattern),
            [(at.to_owned(), found.to_owned())],
            "{pattern}"
        );
    }
}

#[test]
fn all_errors_are_found_with_the_names_that_may_have_been_meant() {
    let many = Filter::read(r#"{"bodi":["a"],"body":{"a":[{"sufix":"x"},[]]}}"#);
    let many = many.expect_err("three errors");
    let unknown: Vec<_> = many
        .iter()
        .filter_map(|error| error.unknown.clone())
        .collect();
    assert_eq!(many.len(), 3, "{many:?}");
    assert_eq!(unknown.len(), 2, "{many:?}");
}

#[test]
fn patterns_that_aws_refuses_or_that_it_would_read_otherwise_are_refused() {
    for body in [
        r#"{"f":[{"anything-but":{"prefix":""}}]}"#,
        r#"{"f":[{"anything-but":{"prefix":["a",""]}}]}"#,
        r#"{"f":[{"anything-but":{"suffix":""}}]}"#,
        r#"{"f":[{"anything-but":{"prefix":{"equals-ignore-case":"a"}}}]}"#,
        r#"{"f":[{"anything-but":["a",1]}]}"#,
        r#"{"f":[{"anything-but":[null]}]}"#,
        r#"{"f":[{"anything-but":true}]}"#,
        r#"{"f":[{"anything-but":{"wildcard":1}}]}"#,
        r#"{"n":[{"numeric":[">",100,"<",10]}]}"#,
        r#"{"n":[{"numeric":[">=",5,"<=",5]}]}"#,
        r#"{"n":[{"numeric":[">=",5,"<=",5.0]}]}"#,
        r#"{"n":[{"numeric":["=",1,"=",2]}]}"#,
        r#"{"n":[{"numeric":["<",10,">",0]}]}"#,
        r#"{"n":[{"numeric":[">",0,">=",5]}]}"#,
        r#"{"n":[{"numeric":[">",0,"<",5,"<",6]}]}"#,
        r#"{"n":[{"numeric":["=",1e99999999999999999999999999999999999999999]}]}"#,
        r#"{"n":[1e-99999999999999999999999999999999999999999]}"#,
        r#"{"n":[{"numeric":[]}]}"#,
        r#"{"n":[{"numeric":["=","1"]}]}"#,
        r#"{"i":[{"cidr":"10.0.0.1/32"}]}"#,
        r#"{"i":[{"cidr":"::1/128"}]}"#,
        r#"{"i":[{"cidr":"10.0.0.0/-1"}]}"#,
        r#"{"i":[{"cidr":"host/8"}]}"#,
        r#"{"s":[{"equals-ignore-case":"😀"}]}"#,
        r#"{"$or":[{"a":[1]}]}"#,
        r#"{"$or":[{"a":[1]},7]}"#,
        r#"{"$or":[{"prefix":["a"]},{"b":["b"]}]}"#,
        r#"{"$or":[{"a":{"exists":["a"]}},{"b":["b"]}]}"#,
        r#"{"a":[1],"$or":[{"a":[2]},{"b":[1]}]}"#,
        r#"{"$or":[{"a":[2]},{"b":[1]}],"a":[1]}"#,
        r#"{"a":{"b":[1]},"$or":[{"a.b":[2]},{"c":[1]}]}"#,
        r#"{"a":[1],"a":[2]}"#,
        r#"{"a":{"b":[1]},"a.b":[1]}"#,
        r#"{"$or":[{"a":[1]},{"b":[1]}],"$or":[{"a":[2]},{"c":[1]}]}"#,
    ] {
        let pattern = format!(r#"{{"body":{body}}}"#);
        let errors = Filter::read(&pattern).expect_err(&pattern);
        assert_eq!(errors.len(), 1, "{pattern}: {errors:?}");
    }
    for pattern in [
        r#"{"body":["a"],"body.x":["b"]}"#,
        r#"{"$or":[{"body":["a"]},{"messageId":["b"]}],"body":{"x":[1]}}"#,
    ] {
        assert_eq!(errors(pattern)[0].0, "/body", "{pattern}");
    }
    let (many, few) = (pattern_of(129), pattern_of(128));
    assert!(Filter::read(&many).is_err() && Filter::read(&few).is_ok());
    let either = |name: usize| format!(r#""{name}":{{"$or":[{{"a":[1]}},{{"b":[1]}}]}}"#);
    let nine: Vec<_> = (0..9).map(either).collect();
    let ten: Vec<_> = (0..10).map(either).collect();
    let of = |fields: Vec<String>| Filter::read(&format!(r#"{{"body":{{{}}}}}"#, fields.join(",")));
    assert!(of(nine).is_ok() && of(ten).is_err());
}

/// A pattern of so many fields.
fn pattern_of(fields: usize) -> String {
    let fields: Vec<_> = (0..fields).map(|name| format!(r#""{name}":[1]"#)).collect();
    format!(r#"{{"body":{{{}}}}}"#, fields.join(","))
}
