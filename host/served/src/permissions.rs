//! The policy of a queue: how `AddPermission` and `RemovePermission` change it, and which policies
//! can be set. Pure. A policy has no effect: the server refuses no client.

use super::fault::{Fault, FaultKind};
use super::input::Permission;
use serde_json::{Value, json};

/// The attribute that holds the policy.
pub(crate) const POLICY: &str = "Policy";
/// The version that AWS writes into a policy that begins with a permission.
const VERSION: &str = "2008-10-17";
/// SQS's limits (the API reference of AddPermission).
const MOST_ACTIONS: usize = 7;
const MOST_STATEMENTS: usize = 20;
const LONGEST_LABEL: usize = 80;
/// The actions that can be permitted to others (the API reference of AddPermission).
const SHARED: [&str; 9] = [
    "*",
    "SendMessage",
    "ReceiveMessage",
    "DeleteMessage",
    "ChangeMessageVisibility",
    "GetQueueAttributes",
    "GetQueueUrl",
    "ListDeadLetterSourceQueues",
    "PurgeQueue",
];
/// The actions that only the owner of a queue may use.
const OWN: [&str; 11] = [
    "AddPermission",
    "CancelMessageMoveTask",
    "CreateQueue",
    "DeleteQueue",
    "ListMessageMoveTasks",
    "ListQueueTags",
    "RemovePermission",
    "SetQueueAttributes",
    "StartMessageMoveTask",
    "TagQueue",
    "UntagQueue",
];

/// A permission to add.
#[derive(Debug)]
pub(crate) struct NewPermission {
    label: String,
    /// The ARNs of the accounts that get it.
    principals: Vec<String>,
    /// The actions as policies write them: `SQS:SendMessage`.
    actions: Vec<String>,
}

impl NewPermission {
    /// Reads the permission of a request.
    pub(crate) fn of(asked: Permission) -> Result<Self, Fault> {
        let label = label(asked.label)?;
        let accounts = some(asked.accounts, "AWSAccountIds")?;
        let actions = some(asked.actions, "Actions")?;
        if actions.len() > MOST_ACTIONS {
            let why = format!(
                "{} Actions were found, maximum allowed is {MOST_ACTIONS}.",
                actions.len()
            );
            return Err(Fault::new(FaultKind::OverLimit, why));
        }
        let actions: Result<_, Fault> = actions.iter().map(|name| action(name)).collect();
        Ok(Self {
            label,
            principals: accounts
                .iter()
                .map(|account: &String| format!("arn:aws:iam::{account}:root"))
                .collect(),
            actions: actions?,
        })
    }

    /// Returns the policy of the queue with this ARN, with the permission added.
    pub(crate) fn to(&self, policy: Option<&str>, arn: &str) -> Result<String, Fault> {
        let mut policy = policy.and_then(read).unwrap_or_else(|| {
            json!({
                "Version": VERSION,
                "Id": format!("{arn}/SQSDefaultPolicy"),
                "Statement": [],
            })
        });
        let mut statements = statements(&policy);
        if statements.iter().any(|known| known["Sid"] == *self.label) {
            return Err(Fault::value(&self.label, "Label", "Already exists."));
        }
        if statements.len() >= MOST_STATEMENTS {
            let why = format!("A policy has at most {MOST_STATEMENTS} statements.");
            return Err(Fault::new(FaultKind::OverLimit, why));
        }
        statements.push(json!({
            "Sid": self.label,
            "Effect": "Allow",
            "Principal": {"AWS": one_or_all(&self.principals)},
            "Action": one_or_all(&self.actions),
            "Resource": arn,
        }));
        policy["Statement"] = statements.into();
        Ok(policy.to_string())
    }
}

/// Returns a policy without the statement of this label; `None` if that was its last.
pub(crate) fn without(policy: Option<&str>, label: &str) -> Result<Option<String>, Fault> {
    let mut policy = policy.and_then(read).unwrap_or_default();
    let mut statements = statements(&policy);
    let before = statements.len();
    statements.retain(|known| known["Sid"] != *label);
    if statements.len() == before {
        return Err(Fault::value(label, "Label", "can't find label."));
    }
    if statements.is_empty() {
        return Ok(None);
    }
    policy["Statement"] = statements.into();
    Ok(Some(policy.to_string()))
}

/// Validates the label of a permission.
pub(crate) fn label(given: Option<String>) -> Result<String, Fault> {
    let label = given
        .filter(|label| !label.is_empty())
        .ok_or_else(|| Fault::missing("Label"))?;
    if label.len() <= LONGEST_LABEL
        && label
            .chars()
            .all(|c: char| c.is_ascii_alphanumeric() || "-_".contains(c))
    {
        return Ok(label);
    }
    let reason =
        "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length";
    Err(Fault::value(&label, "Label", reason))
}

/// Whether a text can be a queue's policy: a JSON object with statements.
pub(crate) fn is_policy(text: &str) -> bool {
    read(text).is_some_and(|policy| match &policy["Statement"] {
        Value::Object(_) => true,
        Value::Array(all) => !all.is_empty() && all.iter().all(Value::is_object),
        _ => false,
    })
}

fn read(text: &str) -> Option<Value> {
    let policy: Option<Value> = serde_json::from_str(text).ok();
    policy.filter(Value::is_object)
}

/// Returns the statements of a policy. A single one need not be in a list.
fn statements(policy: &Value) -> Vec<Value> {
    match &policy["Statement"] {
        Value::Array(all) => all.clone(),
        one @ Value::Object(_) => vec![one.clone()],
        _ => Vec::new(),
    }
}

/// Returns one text as it is, several as a list.
fn one_or_all(texts: &[String]) -> Value {
    match texts {
        [one] => one.as_str().into(),
        all => all.into(),
    }
}

fn action(name: &str) -> Result<String, Fault> {
    let written = format!("SQS:{name}");
    if has(&SHARED, name) {
        return Ok(written);
    }
    let reason = if has(&OWN, name) {
        "Only the queue owner is allowed to invoke this action."
    } else {
        "Please refer to the appropriate WSDL for a list of valid actions."
    };
    Err(Fault::value(written, "ActionName", reason))
}

fn has(actions: &[&str], name: &str) -> bool {
    actions.iter().any(|known| known.eq_ignore_ascii_case(name))
}

/// Returns a list of a request, which must not be empty.
fn some(list: Option<Vec<String>>, parameter: &str) -> Result<Vec<String>, Fault> {
    list.filter(|list| !list.is_empty())
        .ok_or_else(|| Fault::missing(parameter))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARN: &str = "arn:aws:sqs:us-east-1:000000000000:q";

    fn texts(texts: &[&str]) -> Option<Vec<String>> {
        Some(texts.iter().map(|text| (*text).to_owned()).collect())
    }

    fn added(label: &str, accounts: &[&str], actions: &[&str]) -> Result<NewPermission, Fault> {
        NewPermission::of(Permission {
            label: Some(label.to_owned()),
            accounts: texts(accounts),
            actions: texts(actions),
            ..Permission::default()
        })
    }

    #[test]
    fn permissions_are_statements_of_the_policy() {
        let one = added("one", &["111111111111", "2"], &["ReceiveMessage"]).unwrap();
        let policy = one.to(None, ARN).unwrap();
        let wanted = json!({
            "Version": "2008-10-17",
            "Id": format!("{ARN}/SQSDefaultPolicy"),
            "Statement": [{
                "Sid": "one",
                "Effect": "Allow",
                "Principal": {"AWS": ["arn:aws:iam::111111111111:root", "arn:aws:iam::2:root"]},
                "Action": "SQS:ReceiveMessage",
                "Resource": ARN,
            }],
        });
        assert_eq!(read(&policy), Some(wanted));
        let again = one.to(Some(&policy), ARN).unwrap_err();
        let wanted = "Value one for parameter Label is invalid. Reason: Already exists.";
        assert_eq!(again.message, wanted);
        let two = added("two", &["1"], &["*", "sendmessage"]).unwrap();
        let both = two.to(Some(&policy), ARN).unwrap();
        let statement = &read(&both).unwrap()["Statement"][1];
        assert_eq!(statement["Principal"]["AWS"], "arn:aws:iam::1:root");
        assert_eq!(statement["Action"], json!(["SQS:*", "SQS:sendmessage"]));
        let second = without(Some(&both), "one").unwrap().expect("one is left");
        assert_eq!(
            statements(&read(&second).unwrap()),
            std::slice::from_ref(statement)
        );
        assert_eq!(without(Some(&second), "two"), Ok(None));
        let unknown = without(None, "two").unwrap_err();
        let wanted = "Value two for parameter Label is invalid. Reason: can't find label.";
        assert_eq!(unknown.message, wanted);
    }

    #[test]
    fn permission_is_added_to_a_policy_that_was_set() {
        let set = r#"{"Version":"2012-10-17","Statement":{"Sid":"s","Effect":"Deny"}}"#;
        let policy = added("one", &["1"], &["*"]).unwrap().to(Some(set), ARN);
        let both = read(&policy.unwrap()).unwrap();
        assert_eq!(both["Version"], "2012-10-17");
        assert_eq!(statements(&both).len(), 2);
    }

    #[test]
    fn incomplete_or_unknown_permissions_are_refused() {
        for (label, accounts, actions, kind) in [
            ("", &["1"][..], &["*"][..], FaultKind::MissingParameter),
            ("one", &[], &["*"], FaultKind::MissingParameter),
            ("one", &["1"], &[], FaultKind::MissingParameter),
            ("a b", &["1"], &["*"], FaultKind::InvalidParameterValue),
            ("one", &["1"], &["Fly"], FaultKind::InvalidParameterValue),
            (
                "one",
                &["1"],
                &["TagQueue"],
                FaultKind::InvalidParameterValue,
            ),
            ("one", &["1"], &["*"; 8], FaultKind::OverLimit),
        ] {
            let refused = added(label, accounts, actions).unwrap_err();
            assert_eq!(refused.kind, kind, "{label} {accounts:?} {actions:?}");
        }
    }

    #[test]
    fn policy_is_an_object_with_statements() {
        let good = r#"{"Statement":[{"Effect":"Allow"}]}"#;
        assert!(is_policy(good));
        for bad in [
            "",
            "{not json",
            "1",
            "[]",
            "{}",
            r#"{"Statement":[]}"#,
            r#"{"Statement":"x"}"#,
        ] {
            assert!(!is_policy(bad), "{bad}");
        }
    }
}
