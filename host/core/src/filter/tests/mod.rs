//! AWS's documented examples of patterns, and what is wrong with others.

mod engine;
mod refused;

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
        &[
            r#"{"detail":{}}"#,
            "{}",
            r#"{"detail":{"count":{"of":1}}}"#,
            r#"{"detail":{"count":[]}}"#,
        ],
        &[
            r#"{"detail":{"count":0}}"#,
            r#"{"detail":{"count":null}}"#,
            r#"{"detail":[{"count":0},{}]}"#,
            "plain text",
            "not {json",
            r#"{"detail":{}"#,
            "",
            "12",
        ],
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

#[test]
fn names_are_joined_with_dots_on_both_sides() {
    check(
        r#"{"order.kind":["book"]}"#,
        &[
            r#"{"order":{"kind":"book"}}"#,
            r#"{"order.kind":"book"}"#,
            r#"{"order":[{"kind":"pen"},{"kind":"book"}]}"#,
        ],
        &[r#"{"order":{"kind":"pen"}}"#, r#"{"orderkind":"book"}"#],
    );
    check(
        r#"{"a":{"b.c":{"d":[1]}}}"#,
        &[
            r#"{"a":{"b":{"c":{"d":1}}}}"#,
            r#"{"a.b.c.d":1}"#,
            r#"{"a.b":[{"c":[{"d":1}]}]}"#,
        ],
        &[r#"{"a":{"b":{"c.e":1}}}"#],
    );
    check(
        r#"{"a.b":[{"exists":false}]}"#,
        &["{}", r#"{"a":1}"#, r#"{"a.b":{}}"#],
        &[r#"{"a.b":1}"#, r#"{"a":{"b":1}}"#],
    );
    check(
        r#"{"":{"":[1]}}"#,
        &[r#"{"":{"":1}}"#, r#"{".":1}"#],
        &[r#"{"":1}"#],
    );
    let mut message = samples::message("m");
    message.body = r#"{"kind":"a"}"#.to_owned();
    message.attributes = vec![Attribute::text("a.b", "x")];
    for pattern in [
        r#"{"body.kind":["a"]}"#,
        r#"{"messageAttributes":{"a":{"b":{"stringValue":["x"]}}}}"#,
        r#"{"messageAttributes.a.b.stringValue":["x"]}"#,
    ] {
        assert!(accepts(&[read(pattern)], &message), "{pattern}");
    }
}

#[test]
fn any_json_is_read_beside_any_other() {
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let wide = format!("[{}0]", "{\"x\":[1]},".repeat(10_000));
    for other in [
        r#""\ud83d""#,
        "1e400",
        "-1e-400",
        "1e99999999999999999999999999999999999999999",
        "123456789012345678901234567890",
        &deep,
        &wide,
        r#"{"kind":1,"kind":2}"#,
    ] {
        for body in [
            format!(r#"{{"kind":"order","x":{other}}}"#),
            format!(r#"{{"x":{other},"kind":["pen","order"]}}"#),
            format!(r#"{{"\ud83d":{other},"kind":"order"}}"#),
            format!(r#"[{{"kind":"order"}},{other}]"#),
        ] {
            let is_met = matches(r#"{"kind":["order"]}"#, &body);
            assert!(is_met, "{body:.80}");
            assert!(
                matches(r#"{"kind":[{"anything-but":"pen"}]}"#, &body),
                "{body:.80}"
            );
            assert!(!matches(r#"{"kind":["book"]}"#, &body), "{body:.80}");
            assert!(
                matches(r#"{"none":[{"exists":false}]}"#, &body),
                "{body:.80}"
            );
        }
    }
    check(
        r#"{"a":[1]}"#,
        &[r#"{"a":1,"a":2}"#, r#"{"a":2,"a":1}"#],
        &[r#"{"a":2,"a":3}"#],
    );
    // AWS's engine compares in UTF-8, in which Java writes half a pair as a question mark.
    check(
        r#"{"a":["\ud83d"]}"#,
        &[r#"{"a":"\ud83d"}"#, r#"{"a":"?"}"#],
        &[r#"{"a":"\ud83d\ude00"}"#],
    );
}

#[test]
fn unbalanced_and_deep_bodies_do_not_exhaust_the_stack() {
    let open = "[".repeat(1_000_000);
    let objects = "{\"kind\":".repeat(200_000);
    for body in [open, objects] {
        assert!(!matches(r#"{"kind":[{"exists":false}]}"#, &body));
    }
    let nested = format!("{}1{}", "{\"a\":[".repeat(100_000), "]}".repeat(100_000));
    assert!(!matches(r#"{"a":[1]}"#, &nested));
    let path = ["a"; 3].join(".");
    assert!(matches(
        &format!(r#"{{"{path}":[1]}}"#),
        r#"{"a":{"a":{"a":1}}}"#
    ));
}

#[test]
fn a_text_pattern_looks_at_plain_bodies_and_a_field_pattern_at_objects_and_arrays() {
    check(
        r#"["hello"]"#,
        &["hello"],
        &[r#"["hello"]"#, r#"{"hello":1}"#, r#"["hello""#],
    );
    check(
        r#"[{"exists":true}]"#,
        &["hello", "", "12", "[1"],
        &["{}", r#"["hello"]"#, " [1]"],
    );
    check(
        r#"[{"exists":false}]"#,
        &[],
        &["hello", r#"{"a":1}"#, "[]", "{}"],
    );
    check(r#"[{"anything-but":"a"}]"#, &["b"], &["a", r#"["b"]"#]);
    check(
        r#"{"$or":[{"kind":["order"]},{"test":[{"exists":false}]}]}"#,
        &["{}", r#"{"kind":"order","test":1}"#, "[]"],
        &["not {json", r#"{"kind":"pen","test":1}"#],
    );
    // A body that is one value of JSON is that value and a text.
    check("[12]", &["12", "12.0", " 12"], &["\"12\"", "12x"]);
    check(r#"["12"]"#, &["12", "\"12\""], &["12.0"]);
}

#[test]
fn numbers_are_compared_by_value_at_any_length() {
    let (one, other) = (
        "123456789012345678901234567890",
        "123456789012345678901234567891",
    );
    let body = |number: &str| format!(r#"{{"n":{number}}}"#);
    for (rule, does, does_not) in [
        (format!("[{one}]"), body(one), body(other)),
        (
            format!(r#"[{{"anything-but":{one}}}]"#),
            body(other),
            body(one),
        ),
        (
            format!(r#"[{{"anything-but":[{one},1]}}]"#),
            body(other),
            body("1.0"),
        ),
        (
            format!(r#"[{{"numeric":["=",{one}]}}]"#),
            body(one),
            body(other),
        ),
        (
            format!(r#"[{{"numeric":[">",{one}]}}]"#),
            body(other),
            body(one),
        ),
        (
            format!(r#"[{{"numeric":[">",{one},"<=",{other}]}}]"#),
            body(other),
            body(one),
        ),
        (
            "[9007199254740993]".to_owned(),
            body("9007199254740993.0"),
            body("9007199254740992"),
        ),
        (
            r#"[{"numeric":["=",0]}]"#.to_owned(),
            body("-0"),
            body("-1e-400"),
        ),
        ("[-0.0]".to_owned(), body("0e400"), body("1e-400")),
        ("[1e400]".to_owned(), body("10e399"), body("1e401")),
        (
            r#"[{"numeric":["<",1e400]}]"#.to_owned(),
            body("1e399"),
            body("1e400"),
        ),
    ] {
        let pattern = format!(r#"{{"n":{rule}}}"#);
        check(&pattern, &[&does], &[&does_not]);
    }
}

#[test]
fn an_absent_field_is_in_no_element_of_an_array() {
    check(
        r#"{"items":{"a":[{"exists":false}]}}"#,
        &[
            r#"{"items":[{"b":1},{}]}"#,
            r#"{"items":[]}"#,
            r#"{"items":1}"#,
        ],
        &[
            r#"{"items":[{"a":1},{"b":1}]}"#,
            r#"{"items":[{"b":1},{"a":[1]}]}"#,
            r#"{"items":[[{"a":1}],{"b":1}]}"#,
        ],
    );
    // A field before it in the order of names chooses the element.
    check(
        r#"{"items":{"a":[1],"b":[{"exists":false}]}}"#,
        &[r#"{"items":[{"a":1},{"b":1}]}"#],
        &[r#"{"items":[{"a":1,"b":1},{}]}"#, r#"{"items":[{"b":1}]}"#],
    );
    check(
        r#"{"items":{"a":[{"exists":false}],"b":[1]}}"#,
        &[r#"{"items":[{"b":1}]}"#],
        &[r#"{"items":[{"b":1},{"a":1}]}"#],
    );
}

#[test]
fn fields_of_one_array_are_of_one_element_and_those_of_two_are_free() {
    check(
        r#"{"a":{"x":[1],"y":[1]},"b":{"x":[1],"y":[1]}}"#,
        &[r#"{"a":[{"x":1},{"x":1,"y":1}],"b":[{"y":1},{"y":1,"x":1}]}"#],
        &[r#"{"a":[{"x":1,"y":1}],"b":[{"y":1},{"x":1}]}"#],
    );
    // Plain values of an array are not bound to each other or to anything else.
    check(
        r#"{"a":[1],"b":[2]}"#,
        &[r#"{"a":[0,1],"b":[2,0]}"#, r#"[{"a":1,"b":2}]"#],
        &[r#"[{"a":1},{"b":2}]"#],
    );
    check(
        r#"{"a":{"x":[1]},"a.y":[2]}"#,
        &[r#"{"a":[[{"x":1,"y":2}]]}"#],
        &[r#"{"a":[[{"x":1}],[{"y":2}]]}"#],
    );
    let many = "{\"x\":1},".repeat(50_000);
    assert!(matches(
        r#"{"a":{"x":[1],"y":[1]}}"#,
        &format!(r#"{{"a":[{many}{{"y":1,"x":1}}]}}"#)
    ));
    assert!(!matches(
        r#"{"a":{"x":[1],"y":[1]}}"#,
        &format!(r#"{{"a":[{many}{{"y":1}}]}}"#)
    ));
}

#[test]
fn case_is_folded_letter_by_letter_as_java_does() {
    check(
        r#"{"s":[{"equals-ignore-case":"straße"}]}"#,
        &[
            r#"{"s":"STRAßE"}"#,
            r#"{"s":"STRASSE"}"#,
            r#"{"s":"straSSe"}"#,
        ],
        &[r#"{"s":"strasse"}"#, r#"{"s":"straẞe"}"#],
    );
    // The micro sign's upper form is the Greek letter; the Kelvin sign's lower form is k.
    check(
        r#"{"s":[{"equals-ignore-case":"µ"}]}"#,
        &[r#"{"s":"µ"}"#, r#"{"s":"Μ"}"#],
        &[r#"{"s":"μ"}"#],
    );
    check(
        r#"{"s":[{"equals-ignore-case":"\u212a"}]}"#,
        &[r#"{"s":"k"}"#, r#"{"s":"\u212a"}"#],
        &[r#"{"s":"K"}"#],
    );
    check(
        r#"{"s":[{"equals-ignore-case":"k"}]}"#,
        &[r#"{"s":"k"}"#, r#"{"s":"K"}"#],
        &[r#"{"s":"\u212a"}"#],
    );
    check(
        r#"{"s":[{"anything-but":{"equals-ignore-case":"İß"}}]}"#,
        &[r#"{"s":"iß"}"#],
        &[r#"{"s":"İSS"}"#, r#"{"s":"i\u0307ß"}"#],
    );
    check(
        r#"{"s":[{"prefix":{"equals-ignore-case":"ßa"}},{"suffix":{"equals-ignore-case":"aß"}}]}"#,
        &[r#"{"s":"ssaSS"}"#, r#"{"s":"SSA"}"#, r#"{"s":"xAß"}"#],
        &[r#"{"s":"ssa"}"#, r#"{"s":"ass"}"#],
    );
}

#[test]
fn addresses_are_compared_as_numbers() {
    check(
        r#"{"ip":[{"cidr":"010.0.0.0/024"}]}"#,
        &[
            r#"{"ip":"10.0.0.7"}"#,
            r#"{"ip":"010.000.0.07"}"#,
            r#"{"ip":"::ffff:a00:7"}"#,
        ],
        &[
            r#"{"ip":"10.0.1.7"}"#,
            r#"{"ip":"10.0.0.256"}"#,
            r#"{"ip":"10.0.0.0007.1"}"#,
            r#"{"ip":"0000000010.0.0.7"}"#,
            r#"{"ip":"10.0.0"}"#,
            r#"{"ip":10}"#,
        ],
    );
    check(
        r#"{"ip":[{"cidr":"2001:db8::/32"}]}"#,
        &[r#"{"ip":"2001:0DB8:0:0::1"}"#, r#"{"ip":"02001:00db8::1"}"#],
        &[r#"{"ip":"2001:db9::1"}"#, r#"{"ip":"10.0.0.1"}"#],
    );
    check(
        r#"{"ip":["10.0.0.1","::1"]}"#,
        &[
            r#"{"ip":"10.0.0.1"}"#,
            r#"{"ip":"10.0.0.01"}"#,
            r#"{"ip":"0:0::01"}"#,
        ],
        &[r#"{"ip":"10.0.0.2"}"#],
    );
    check(
        r#"{"ip":["256.0.0.1"]}"#,
        &[r#"{"ip":"256.0.0.1"}"#],
        &[r#"{"ip":"0256.0.0.1"}"#],
    );
}

#[test]
fn a_message_is_kept_where_too_much_would_have_to_be_tried() {
    // Half of the fields in each element, in all ways: any of them could be the right one.
    let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
    let fields: Vec<_> = names
        .iter()
        .map(|name| format!(r#""{name}":[1]"#))
        .collect();
    let elements = (0..1_u32 << names.len()).filter(|bits| bits.count_ones() == 5);
    let elements = elements.map(|bits| {
        let chosen = names
            .iter()
            .enumerate()
            .filter(|(at, _)| bits >> at & 1 == 1);
        let members: Vec<_> = chosen.map(|(_, name)| format!(r#""{name}":1"#)).collect();
        format!("{{{}}}", members.join(","))
    });
    let body = format!("[{}]", elements.collect::<Vec<_>>().join(","));
    assert!(matches(&format!("{{{}}}", fields.join(",")), &body));
}
