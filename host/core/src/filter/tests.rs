//! AWS's documented examples of patterns, and what is wrong with others.

use super::*;
use crate::message::{Attribute, samples};

/// Whether a pattern of the body matches a body.
fn matches(pattern: &str, body: &str) -> bool {
    let filter = read(&format!("{{\"body\":{pattern}}}"));
    let mut message = samples::message("m");
    message.body = body.to_owned();
    accepts(&[filter], &message)
}

fn read(pattern: &str) -> Filter {
    Filter::read(pattern).unwrap_or_else(|errors| panic!("{pattern}: {errors:?}"))
}

/// A pattern of the body, what matches it and what does not.
fn check(pattern: &str, does: &[&str], does_not: &[&str]) {
    for body in does {
        assert!(matches(pattern, body), "{pattern} matches {body}");
    }
    for body in does_not {
        assert!(!matches(pattern, body), "{pattern} does not match {body}");
    }
}

#[test]
fn values_are_compared_exactly() {
    // Lambda's own example for SQS.
    check(
        r#"{"RequestCode":["BBBB"]}"#,
        &[r#"{"RecordNumber":1,"TimeStamp":"yyyy-mm-ddThh:mm:ss","RequestCode":"BBBB"}"#],
        &[
            r#"{"RequestCode":"AAAA"}"#,
            "{}",
            "not JSON",
            r#"{"requestcode":"BBBB"}"#,
        ],
    );
    check(
        r#"{"Name":["Alice"]}"#,
        &[r#"{"Name":"Alice"}"#],
        &[r#"{"Name":"alice"}"#],
    );
    check(
        r#"{"LastName":[""]}"#,
        &[r#"{"LastName":""}"#],
        &[r#"{"LastName":null}"#, "{}"],
    );
    check(
        r#"{"UserID":[null]}"#,
        &[r#"{"UserID":null}"#],
        &[r#"{"UserID":""}"#, "{}"],
    );
    check(
        r#"{"ok":[true]}"#,
        &[r#"{"ok":true}"#],
        &[r#"{"ok":false}"#, r#"{"ok":"true"}"#],
    );
    check(
        r#"{"Price":[100]}"#,
        &[r#"{"Price":100}"#, r#"{"Price":100.0}"#, r#"{"Price":1e2}"#],
        &[r#"{"Price":"100"}"#, r#"{"Price":100.5}"#],
    );
    let (one, other) = ("9007199254740993", "9007199254740992");
    assert!(!matches(
        &format!("{{\"n\":[{one}]}}"),
        &format!("{{\"n\":{other}}}")
    ));
}

#[test]
fn fields_must_all_match_and_values_of_a_list_any() {
    check(
        r#"{"Location":["New York"],"Day":["Monday"]}"#,
        &[r#"{"Location":"New York","Day":"Monday"}"#],
        &[
            r#"{"Location":"New York","Day":"Tuesday"}"#,
            r#"{"Location":"New York"}"#,
        ],
    );
    check(
        r#"{"PaymentType":["Credit","Debit"]}"#,
        &[r#"{"PaymentType":"Credit"}"#, r#"{"PaymentType":"Debit"}"#],
        &[r#"{"PaymentType":"Cash"}"#],
    );
    check(
        r#"{"$or":[{"Location":["New York"]},{"Day":["Monday"]}]}"#,
        &[r#"{"Location":"New York"}"#, r#"{"Day":"Monday"}"#],
        &[r#"{"Location":"Paris","Day":"Tuesday"}"#],
    );
    check(
        r#"{"detail":{"$or":[{"c-count":[{"numeric":[">",0,"<=",5]}]},{"d-count":[{"numeric":["<",10]}]},{"x-limit":[{"numeric":["=",301.8]}]}]}}"#,
        &[
            r#"{"detail":{"c-count":3}}"#,
            r#"{"detail":{"d-count":9}}"#,
            r#"{"detail":{"x-limit":301.8}}"#,
        ],
        &[r#"{"detail":{"c-count":6,"d-count":10,"x-limit":302}}"#],
    );
}

#[test]
fn beginnings_and_ends_of_texts_are_compared() {
    check(
        r#"{"time":[{"prefix":"2017-10-02"}]}"#,
        &[r#"{"time":"2017-10-02T18:43:48Z"}"#],
        &[r#"{"time":"2017-10-03T18:43:48Z"}"#, r#"{"time":20171002}"#],
    );
    check(
        r#"{"service":[{"prefix":{"equals-ignore-case":"EventB"}}]}"#,
        &[
            r#"{"service":"EventBridge"}"#,
            r#"{"service":"eventbridge"}"#,
        ],
        &[r#"{"service":"bridge"}"#],
    );
    check(
        r#"{"FileName":[{"suffix":".png"}]}"#,
        &[r#"{"FileName":"a.png"}"#],
        &[r#"{"FileName":"a.PNG"}"#],
    );
    check(
        r#"{"FileName":[{"suffix":{"equals-ignore-case":".png"}}]}"#,
        &[r#"{"FileName":"a.PNG"}"#],
        &[r#"{"FileName":"a.jpg"}"#],
    );
    check(
        r#"{"Name":[{"equals-ignore-case":"alice"}]}"#,
        &[r#"{"Name":"ALICE"}"#],
        &[r#"{"Name":"alices"}"#],
    );
}

#[test]
fn anything_but_needs_a_value_that_is_another() {
    check(
        r#"{"state":[{"anything-but":"initializing"}]}"#,
        &[r#"{"state":"running"}"#, r#"{"state":1}"#],
        &[r#"{"state":"initializing"}"#, "{}"],
    );
    check(
        r#"{"x-limit":[{"anything-but":[100,200,300]}]}"#,
        &[r#"{"x-limit":101}"#],
        &[r#"{"x-limit":200}"#],
    );
    check(
        r#"{"Region":[{"anything-but":{"prefix":"us-"}}]}"#,
        &[r#"{"Region":"eu-west-1"}"#],
        &[r#"{"Region":"us-east-1"}"#],
    );
    check(
        r#"{"FileName":[{"anything-but":{"suffix":[".txt",".rtf"]}}]}"#,
        &[r#"{"FileName":"a.doc"}"#],
        &[r#"{"FileName":"a.rtf"}"#],
    );
    check(
        r#"{"state":[{"anything-but":{"equals-ignore-case":["initializing","stopped"]}}]}"#,
        &[r#"{"state":"running"}"#],
        &[r#"{"state":"STOPPED"}"#],
    );
    check(
        r#"{"FilePath":[{"anything-but":{"wildcard":"*/lib/*"}}]}"#,
        &[r#"{"FilePath":"/usr/bin/a"}"#],
        &[r#"{"FilePath":"/usr/lib/a"}"#],
    );
}

#[test]
fn numbers_are_compared_with_bounds() {
    check(
        r#"{"Price":[{"numeric":[">",10,"<=",20]}]}"#,
        &[r#"{"Price":10.5}"#, r#"{"Price":20}"#],
        &[
            r#"{"Price":10}"#,
            r#"{"Price":20.01}"#,
            r#"{"Price":"15"}"#,
            "{}",
        ],
    );
    check(
        r#"{"n":[{"numeric":["=",0.3]}]}"#,
        &[r#"{"n":3e-1}"#],
        &[r#"{"n":0.30001}"#],
    );
    check(
        r#"{"n":[{"numeric":[">=",-1]}]}"#,
        &[r#"{"n":-1}"#],
        &[r#"{"n":-2}"#],
    );
}

#[test]
fn presence_is_that_of_a_value() {
    check(
        r#"{"ProductName":[{"exists":true}]}"#,
        &[r#"{"ProductName":"x"}"#, r#"{"ProductName":null}"#],
        // Exists matching works on leaves only.
        &["{}", r#"{"ProductName":{"a":1}}"#],
    );
    check(
        r#"{"detail":{"count":[{"exists":false}]}}"#,
        &[r#"{"detail":{}}"#, "{}", "plain text"],
        &[r#"{"detail":{"count":0}}"#],
    );
}

#[test]
fn wildcards_stand_for_any_characters() {
    check(
        r#"{"EventBusArn":[{"wildcard":"arn:aws:events:us-east-1:*:event-bus/*"}]}"#,
        &[r#"{"EventBusArn":"arn:aws:events:us-east-1:123456789012:event-bus/a"}"#],
        &[r#"{"EventBusArn":"arn:aws:events:us-east-2:123456789012:event-bus/a"}"#],
    );
    check(
        r#"{"FileName":[{"wildcard":"dir/*.png"}]}"#,
        &[
            r#"{"FileName":"dir/a.png"}"#,
            r#"{"FileName":"dir/b/a.png"}"#,
        ],
        &[r#"{"FileName":"dir/png"}"#, r#"{"FileName":"a.png"}"#],
    );
    check(
        r#"{"path":[{"wildcard":"a\\*b\\\\c*"}]}"#,
        &[r#"{"path":"a*b\\c"}"#, r#"{"path":"a*b\\cd"}"#],
        &[r#"{"path":"axb\\c"}"#],
    );
    // What ends the text is not what was found before.
    check(
        r#"{"p":[{"wildcard":"a*a"}]}"#,
        &[r#"{"p":"aa"}"#],
        &[r#"{"p":"a"}"#],
    );
}

#[test]
fn addresses_are_within_networks() {
    check(
        r#"{"sourceIPAddress":[{"cidr":"10.0.0.0/24"}]}"#,
        &[r#"{"sourceIPAddress":"10.0.0.255"}"#],
        &[
            r#"{"sourceIPAddress":"10.0.1.0"}"#,
            r#"{"sourceIPAddress":"::1"}"#,
        ],
    );
    check(
        r#"{"ip":[{"cidr":"::/0"}]}"#,
        &[r#"{"ip":"fe80::1"}"#],
        &[r#"{"ip":"10.0.0.1"}"#],
    );
}

#[test]
fn arrays_match_where_one_of_their_elements_does() {
    check(
        r#"{"resources":["b","c"]}"#,
        &[r#"{"resources":["a","b"]}"#],
        &[r#"{"resources":["a"]}"#, r#"{"resources":[]}"#],
    );
    // All of one element, not some of each.
    check(
        r#"{"items":{"kind":["book"],"price":[{"numeric":["<",10]}]}}"#,
        &[r#"{"items":[{"kind":"pen","price":1},{"kind":"book","price":9}]}"#],
        &[r#"{"items":[{"kind":"pen","price":1},{"kind":"book","price":90}]}"#],
    );
}

#[test]
fn plain_bodies_are_compared_as_text() {
    check(
        r#"["hello",{"prefix":"good "}]"#,
        &["hello", "good day"],
        &["hi", r#"{"hello":1}"#],
    );
    check(r#"["12345"]"#, &["12345"], &["123456"]);
    // A pattern of a field drops what is no JSON, and the other way round.
    check(r#"{"hello":["x"]}"#, &[], &["hello", "x"]);
}

#[test]
fn metadata_is_compared_with_lambdas_names() {
    let mut message = samples::message("m-1");
    message.receive_count = 2;
    message.group = Some("tenant-7".into());
    message.attributes = vec![Attribute::text("kind", "order")];
    message.system_attributes = vec![("SenderId".into(), "AIDA".into())];
    let accepted = |pattern: &str| accepts(&[read(pattern)], &message);
    for does in [
        r#"{"messageAttributes":{"kind":{"stringValue":["order"],"dataType":["String"]}}}"#,
        r#"{"attributes":{"MessageGroupId":[{"prefix":"tenant-"}],"SenderId":["AIDA"]}}"#,
        r#"{"attributes":{"ApproximateReceiveCount":["2"]}}"#,
        r#"{"messageId":["m-1"],"eventSourceARN":[{"suffix":":test"}]}"#,
        r#"{"messageAttributes":{"trial":[{"exists":false}]}}"#,
    ] {
        assert!(accepted(does), "{does}");
    }
    assert!(!accepted(
        r#"{"messageAttributes":{"kind":{"stringValue":["return"]}}}"#
    ));
}

#[test]
fn one_of_several_filters_is_enough_and_none_accept_everything() {
    let message = samples::message("m");
    let (does, does_not) = (read(r#"{"body":["hello"]}"#), read(r#"{"body":["hi"]}"#));
    assert!(accepts(&[], &message));
    assert!(accepts(&[does_not.clone(), does], &message));
    assert!(!accepts(&[does_not], &message));
}

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
            "no JSON: EOF while parsing an object at line 1 column 1",
        ),
        ("[]", "", "`[]`"),
        ("{}", "", "`{}`"),
        (r#"{"kind":["a"]}"#, "", "`kind` is no part of a message"),
        (r#"{"body":"a"}"#, "/body", "`\"a\"`"),
        (r#"{"body":[]}"#, "/body", "`[]`"),
        (r#"{"body":{}}"#, "/body", "`{}`"),
        (r#"{"body":{"a":[["b"]]}}"#, "/body/a/0", "`[\"b\"]`"),
        (
            r#"{"body":{"a/b":[{"prefx":"x"}]}}"#,
            "/body/a~1b/0",
            "`prefx` is no operator",
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
            "`numeric` is no operator",
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
