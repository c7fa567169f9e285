//! Several AWS accounts on one MiniStack that checks credentials, trust policies and the end of
//! sessions as AWS does. Knows no test.

use crate::served::BOTO3;
use crate::servers::MiniStack;
use crate::toolchains::python;
use std::process::Command;
use std::time::Duration;

/// Makes the parts of accounts. The first argument says which.
const SCRIPT: &str = r#"
import boto3, io, json, sys, zipfile
endpoint, what, account, region, *rest = sys.argv[1:]
def client(service):
    return boto3.client(service, endpoint_url=endpoint, region_name=region,
        aws_access_key_id=account, aws_secret_access_key="test")
def document(*statements):
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)})
def trust(effect, external_id=None):
    statement = {"Effect": effect, "Action": "sts:AssumeRole",
        "Principal": {"AWS": "arn:aws:iam::000000000000:root"}}
    if external_id:
        statement["Condition"] = {"StringEquals": {"sts:ExternalId": external_id}}
    return document(statement)
if what == "role":
    client("iam").create_role(RoleName="worker", AssumeRolePolicyDocument=trust(*rest))
    every = document({"Effect": "Allow", "Action": "*", "Resource": "*"})
    client("iam").put_role_policy(RoleName="worker", PolicyName="all", PolicyDocument=every)
elif what == "trust":
    client("iam").update_assume_role_policy(RoleName="worker", PolicyDocument=trust(*rest))
elif what == "deny":
    denied = document({"Effect": "Deny", "Action": rest[0], "Resource": "*"})
    client("iam").put_role_policy(RoleName="worker", PolicyName="denied", PolicyDocument=denied)
elif what == "queue":
    for name in [rest[0], rest[0] + "-dead"]:
        client("sqs").create_queue(QueueName=name)
elif what == "tagged":
    name, tags = rest[0], dict(tag.split("=") for tag in rest[1:])
    sqs = client("sqs")
    dead = sqs.create_queue(QueueName=name + "-dead")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])
    policy = {"deadLetterTargetArn": arn["Attributes"]["QueueArn"], "maxReceiveCount": 5}
    sqs.create_queue(QueueName=name, tags=tags, Attributes={"RedrivePolicy": json.dumps(policy)})
elif what == "untag":
    sqs = client("sqs")
    sqs.untag_queue(QueueUrl=sqs.get_queue_url(QueueName=rest[0])["QueueUrl"], TagKeys=rest[1:])
elif what == "delete":
    sqs = client("sqs")
    sqs.delete_queue(QueueUrl=sqs.get_queue_url(QueueName=rest[0])["QueueUrl"])
elif what == "function":
    code = io.BytesIO()
    with zipfile.ZipFile(code, "w") as archive:
        archive.writestr("index.py", "def handler(event, context):\n    return {}\n")
    client("lambda").create_function(FunctionName=rest[0], Runtime="python3.12",
        Role="arn:aws:iam::%s:role/worker" % account, Handler="index.handler",
        Code={"ZipFile": code.getvalue()})
"#;

/// A server with several accounts. The account of the process itself is `000000000000`.
#[derive(Debug)]
pub struct AwsAccounts {
    server: MiniStack,
}

/// An account in one region.
#[derive(Debug, Clone, Copy)]
pub struct AccountPlace {
    /// The twelve digits.
    pub id: &'static str,
    /// The region.
    pub region: &'static str,
}

/// Who may assume a role.
#[derive(Debug, Clone, Copy)]
pub enum RoleTrust {
    /// The process.
    Process,
    /// The process, with this external id.
    ExternalId(&'static str),
    /// No one.
    Denied,
}

impl RoleTrust {
    /// Returns the arguments for the script.
    fn words(self) -> Vec<&'static str> {
        match self {
            Self::Process => vec!["Allow"],
            Self::ExternalId(id) => vec!["Allow", id],
            Self::Denied => vec!["Deny"],
        }
    }
}

impl AccountPlace {
    /// The ARN of its role.
    pub fn role(&self) -> String {
        format!("arn:aws:iam::{}:role/worker", self.id)
    }
}

impl AwsAccounts {
    /// Starts a server on which the sessions of roles end after this time.
    pub fn start(session: Duration) -> Self {
        Self {
            server: MiniStack::with_accounts(session),
        }
    }

    /// Its address.
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// Makes the role of an account.
    pub fn add_role(&self, place: AccountPlace, trust: RoleTrust) {
        self.run("role", place, &trust.words());
    }

    /// Changes who may assume the role of an account.
    pub fn change_trust(&self, place: AccountPlace, trust: RoleTrust) {
        self.run("trust", place, &trust.words());
    }

    /// Takes the permission for an action from the role of an account.
    pub fn deny(&self, place: AccountPlace, action: &str) {
        self.run("deny", place, &[action]);
    }

    /// Makes a queue and its dead-letter queue, NAME-dead.
    pub fn add_queue(&self, place: AccountPlace, name: &str) {
        self.run("queue", place, &[name]);
    }

    /// Makes a queue with these tags whose redrive policy names its dead-letter queue, NAME-dead.
    pub fn add_tagged_queue(&self, place: AccountPlace, name: &str, tags: &[&str]) {
        self.run("tagged", place, &[&[name], tags].concat());
    }

    /// Removes a tag of a queue.
    pub fn untag_queue(&self, place: AccountPlace, name: &str, tag: &str) {
        self.run("untag", place, &[name, tag]);
    }

    /// Deletes a queue.
    pub fn delete_queue(&self, place: AccountPlace, name: &str) {
        self.run("delete", place, &[name]);
    }

    /// Makes a function that answers with nothing.
    pub fn add_function(&self, place: AccountPlace, name: &str) {
        self.run("function", place, &[name]);
    }

    fn run(&self, what: &str, place: AccountPlace, rest: &[&str]) {
        let ran = Command::new(python(&BOTO3))
            .args(["-c", SCRIPT, &self.url(), what, place.id, place.region])
            .args(rest)
            .output()
            .expect("python runs");
        let stderr = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{what} {rest:?}: {stderr}");
    }
}
