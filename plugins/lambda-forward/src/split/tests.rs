//! Nothing is lost, doubled, reordered or too large.

use super::*;
use proptest::prelude::*;

fn message(id: usize, body: String) -> Message {
    Message {
        id: id.to_string(),
        body,
        source: "local:default".into(),
        ..Message::default()
    }
}

/// The ids and bodies of an event, as any JSON reader finds them.
fn records(payload: &[u8]) -> Vec<(String, String)> {
    let event: serde_json::Value = serde_json::from_slice(payload).expect("JSON");
    let records = event["Records"].as_array().expect("a list");
    let text = |value: &serde_json::Value| value.as_str().expect("a text").to_owned();
    let both = |record: &serde_json::Value| (text(&record["messageId"]), text(&record["body"]));
    records.iter().map(both).collect()
}

fn ids(slips: &[Slip]) -> Vec<String> {
    slips.iter().map(|slip| slip.id.clone()).collect()
}

#[test]
fn event_stays_below_the_limit() {
    let whole = |limit| {
        plan(
            vec![message(0, "\"\n\u{1}ä".into())],
            NoDigest::Absent,
            limit,
            limit,
        )
    };
    let Some(Step::Invoke(part)) = whole(usize::MAX).pop() else {
        panic!("one part");
    };
    let bytes = part.payload.len();
    assert!(matches!(&whole(bytes + 1)[..], [Step::Invoke(_)]));
    let step = whole(bytes);
    assert!(
        matches!(step[..], [Step::Oversized(_, is)] if is == bytes),
        "{step:?}"
    );
}

#[test]
fn empty_batch_makes_no_event() {
    assert!(plan(Vec::new(), NoDigest::Absent, 1000, 1000).is_empty());
}

#[test]
fn single_message_is_not_halved() {
    let Some(Step::Invoke(one)) = plan(
        vec![message(0, String::new())],
        NoDigest::Absent,
        10_000,
        10_000,
    )
    .pop() else {
        panic!("one part");
    };
    assert_eq!(one.spare(usize::MAX), None);
}

#[test]
fn leaving_messages_out_keeps_the_event_of_the_others() {
    let event = |ids: &[usize]| {
        let batch = ids.iter().map(|id| message(*id, format!("body {id}")));
        plan(batch.collect(), NoDigest::Absent, 10_000, 10_000)
            .pop()
            .expect("one part")
    };
    let one = |id: &'static str| move |slip: &Slip| (slip.id == id).then_some(id);
    for (id, rest) in [("0", [1, 2]), ("1", [0, 2]), ("2", [0, 1])] {
        let (left, out) = event(&[0, 1, 2]).leave_out(one(id));
        assert_eq!(left, Some(event(&rest)));
        assert_eq!(ids(&[out[0].0.clone()]), [id]);
        assert_eq!(out.len(), 1);
    }
    assert_eq!(event(&[0, 1]).leave_out(one("7")).0, Some(event(&[0, 1])));
    assert_eq!(event(&[0]).leave_out(one("0")).0, None);
}

proptest! {
    #[test]
    fn batch_is_split_without_loss(bodies in prop::collection::vec(any::<String>(), 0..20), limit in 200_usize..3000, less in 1_usize..3000) {
        let batch = || bodies.iter().cloned().enumerate().map(|(id, body)| message(id, body));
        let mut found = Vec::new();
        let room = limit.min(less);
        let steps = plan(batch().collect(), NoDigest::Absent, room, limit);
        for (at, step) in steps.iter().enumerate() {
            match step {
                Step::Invoke(part) => {
                    let most = if part.slips.len() == 1 { limit } else { room };
                    prop_assert!(part.payload.len() < most);
                    let records = records(&part.payload);
                    let told: Vec<_> = records.iter().map(|(id, _)| id.clone()).collect();
                    prop_assert_eq!(ids(&part.slips), told);
                    // No part could have taken the next one's first message too.
                    if let Some(Step::Invoke(next)) = steps.get(at + 1) {
                        let first = next.ends[0] - HEAD.len();
                        prop_assert!(part.payload.len() + 1 + first >= room);
                    }
                    found.extend(records);
                }
                Step::Oversized(slip, bytes) => {
                    prop_assert!(*bytes >= limit);
                    let body = bodies[slip.id.parse::<usize>().expect("a number")].clone();
                    found.push((slip.id.clone(), body));
                }
            }
        }
        let sent: Vec<_> = batch().map(|message| (message.id, message.body)).collect();
        prop_assert_eq!(found, sent);
    }

    #[test]
    fn halves_contain_the_whole_event(bodies in prop::collection::vec(any::<String>(), 2..9)) {
        let batch = bodies.iter().cloned().enumerate().map(|(id, body)| message(id, body));
        let Some(Step::Invoke(whole)) = plan(batch.collect(), NoDigest::Absent, usize::MAX, usize::MAX).pop() else {
            panic!("one part");
        };
        let payload = whole.spare(whole.payload.len()).expect("several messages");
        prop_assert_eq!(whole.spare(payload.len() - 1), None);
        let all = records(&payload);
        let (first, second) = whole.halves(&payload).expect("several messages");
        prop_assert_eq!(first.slips.len(), bodies.len() / 2);
        let mut both = records(&first.payload);
        both.extend(records(&second.payload));
        prop_assert_eq!(both, all);
        let all = plan(bodies.iter().take(first.slips.len()).cloned().enumerate().map(|(id, body)| message(id, body)).collect(), NoDigest::Absent, usize::MAX, usize::MAX);
        prop_assert_eq!(all, vec![Step::Invoke(first)]);
    }
}
