//! Forms in the shapes of the JSON protocol, and answers in XML.

use super::super::fault::{Fault, FaultKind};
use super::*;
use serde_json::json;

fn form(pairs: &[(&str, &str)]) -> Vec<u8> {
    let mut form = form_urlencoded::Serializer::new(String::new());
    form.extend_pairs(pairs);
    form.finish().into_bytes()
}

#[test]
fn form_is_converted_to_the_shapes_of_the_json_protocol() {
    let form = form(&[
        ("Action", "SendMessageBatch"),
        ("Version", "2012-11-05"),
        ("QueueUrl", "http://h/1/q"),
        // Tenth before second: order is that of the numbers.
        ("SendMessageBatchRequestEntry.10.Id", "last"),
        ("SendMessageBatchRequestEntry.2.Id", "first"),
        ("SendMessageBatchRequestEntry.2.MessageBody", "a+b & c="),
        (
            "SendMessageBatchRequestEntry.2.MessageAttribute.1.Name",
            "kind",
        ),
        (
            "SendMessageBatchRequestEntry.2.MessageAttribute.1.Value.DataType",
            "String",
        ),
        (
            "SendMessageBatchRequestEntry.2.MessageAttribute.1.Value.StringValue",
            "x",
        ),
    ]);
    let (action, value) = read(&[&form]);
    assert_eq!(action.as_deref(), Some("SendMessageBatch"));
    assert_eq!(
        value,
        json!({
            "QueueUrl": "http://h/1/q",
            "Entries": [
                {"Id": "first", "MessageBody": "a+b & c=", "MessageAttributes":
                    {"kind": {"DataType": "String", "StringValue": "x"}}},
                {"Id": "last"},
            ],
        })
    );
}

#[test]
fn numbered_lists_and_maps_become_arrays_and_objects() {
    let (_, value) = read(&[&form(&[
        ("AttributeName.1", "All"),
        ("Attribute.1.Name", "DelaySeconds"),
        ("Attribute.1.Value", "5"),
        ("Tag.1.Key", "team"),
        ("Tag.1.Value", "a"),
        ("TagKey.2", "two"),
        ("TagKey.1", "one"),
        ("SendMessageBatchRequestEntry", ""),
        ("MessageAttributeNames", ""),
        ("MessageAttributes", ""),
    ])]);
    assert_eq!(
        value,
        json!({
            "AttributeNames": ["All"],
            "Attributes": {"DelaySeconds": "5"},
            "Tags": {"team": "a"},
            "TagKeys": ["one", "two"],
            "Entries": [],
            "MessageAttributeNames": [],
            "MessageAttributes": {},
        })
    );
}

#[test]
fn lists_of_one_need_no_number() {
    let (_, value) = read(&[&form(&[
        ("AttributeName", "All"),
        ("AttributeName.1", "QueueArn"),
        ("Attribute.Name", "VisibilityTimeout"),
        ("Attribute.Value", "33"),
        ("TagKey", "one"),
        ("Tag.Key", "team"),
        ("Tag.Value", "a"),
        ("MessageAttributeName", "All"),
        ("DeleteMessageBatchRequestEntry.Id", "a"),
        ("DeleteMessageBatchRequestEntry.ReceiptHandle", "1.1"),
        ("MessageAttribute.Name", "kind"),
        ("MessageAttribute.Value.DataType", "String"),
        ("MessageAttribute.Value.StringValue", "x"),
    ])]);
    assert_eq!(
        value,
        json!({
            "AttributeNames": ["All", "QueueArn"],
            "Attributes": {"VisibilityTimeout": "33"},
            "TagKeys": ["one"],
            "Tags": {"team": "a"},
            "MessageAttributeNames": ["All"],
            "Entries": [{"Id": "a", "ReceiptHandle": "1.1"}],
            "MessageAttributes": {"kind": {"DataType": "String", "StringValue": "x"}},
        })
    );
}

#[test]
fn deeply_nested_name_is_survived() {
    let deep = format!("{}=x&QueueName=q", "a.".repeat(1_000_000));
    let (_, value) = read(&[deep.as_bytes()]);
    assert_eq!(value, json!({"QueueName": "q"}));
    assert_eq!(read(&[b""]), (None, json!({})));
}

#[test]
fn responses_are_flat_lists_in_xml() {
    let result = json!({"Messages": [{
        "Body": "<a>\r\n&\"é",
        "Attributes": {"SenderId": "1"},
        "MessageAttributes": {"kind": {"DataType": "String", "StringValue": "x"}},
    }]});
    let xml = answer("ReceiveMessage", &result, "r").to_string();
    for part in [
        "<ReceiveMessageResult><Message>",
        "<Body>&lt;a&gt;&#xD;\n&amp;&quot;é</Body>",
        "<Attribute><Name>SenderId</Name><Value>1</Value></Attribute>",
        "<MessageAttribute><Name>kind</Name><Value><DataType>String</DataType>",
        "</Message></ReceiveMessageResult><ResponseMetadata><RequestId>r</RequestId>",
    ] {
        assert!(xml.contains(part), "{part} is not in {xml}");
    }
    let failed = json!({"Failed": [{"Id": "a", "SenderFault": true}]});
    let xml = answer("DeleteMessageBatch", &failed, "r").to_string();
    assert!(xml.contains(
        "<BatchResultErrorEntry><Id>a</Id><SenderFault>true</SenderFault></BatchResultErrorEntry>"
    ));
    let xml = answer("ReceiveMessage", &json!({}), "r").to_string();
    assert!(
        xml.contains("<ReceiveMessageResult></ReceiveMessageResult>"),
        "{xml}"
    );
    let xml = answer("DeleteMessage", &Value::Null, "r").to_string();
    assert!(!xml.contains("DeleteMessageResult"), "{xml}");
}

#[test]
fn error_response_escapes_its_input() {
    let fault = Fault::new(FaultKind::MissingParameter, "no <q>\u{1}");
    let xml = refusal(&fault, "r").to_string();
    assert!(xml.contains("<Code>MissingParameter</Code>"), "{xml}");
    assert!(
        xml.contains("<Message>no &lt;q&gt;\u{fffd}</Message>"),
        "{xml}"
    );
    let xml = refusal(&Fault::no_queue(), "r").to_string();
    let words = "<Message>The specified queue does not exist for this wsdl version.</Message>";
    assert!(xml.contains(words), "{xml}");
}
