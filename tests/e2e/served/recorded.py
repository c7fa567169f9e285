"""Answers of SQS that were recorded on AWS, or that its API reference states, asked of the server at
$ENDPOINT through boto3 and by hand. Prints one line for each group, and `all is well` at the end."""

import base64
import json
import os
import socket
import urllib.error
import urllib.parse
import urllib.request

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

ENDPOINT = os.environ["ENDPOINT"]
once = Config(retries={"total_max_attempts": 1})
sqs = boto3.client("sqs", endpoint_url=ENDPOINT, config=once)
is_json = sqs.meta.service_model.metadata["protocol"] == "json"
parts = []
numbered = iter(range(1_000))


def part(words):
    def add(check):
        parts.append((words, check))
        return check

    return add


def same(found, wanted):
    assert found == wanted, f"found {found!r}, wanted {wanted!r}"


def make(suffix="", **attributes):
    name = f"r{next(numbered)}{suffix}"
    return sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]


def fifo(**attributes):
    return make(".fifo", FifoQueue="true", **attributes)


def shown(url, *names):
    found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=list(names or ["All"]))
    return found.get("Attributes", {})


def arn(url):
    return shown(url, "QueueArn")["QueueArn"]


def put(url, **attributes):
    sqs.set_queue_attributes(QueueUrl=url, Attributes=attributes)


def take(url, most=10, **words):
    found = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=most, **words)
    return found.get("Messages", [])


def bodies(messages):
    return [message["Body"] for message in messages]


def hide(url, message, seconds):
    handle = message["ReceiptHandle"]
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=seconds)


def error(call, **words):
    """The code, the text and the status of a call that is refused."""
    try:
        call(**words)
    except ClientError as refused:
        found = refused.response["Error"]
        status = refused.response["ResponseMetadata"]["HTTPStatusCode"]
        return found["Code"], found["Message"], status
    return "none", "", 200


SIGNATURE = "AWS4-HMAC-SHA256 Credential=a/20260101/us-east-1/sqs/aws4_request, Signature=x"


def query(path="/", method="POST", signed=True, headers=(), **fields):
    """The status and the text of a request of the Query protocol."""
    form = urllib.parse.urlencode({"Version": "2012-11-05", **fields})
    url = ENDPOINT + path + ("?" + form if method == "GET" and fields else "")
    data = form.encode() if method == "POST" else None
    request = urllib.request.Request(url, data=data, method=method)
    if signed:
        request.add_header("Authorization", SIGNATURE)
    for name, value in headers:
        request.add_header(name, value)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def path_of(url):
    return urllib.parse.urlsplit(url).path


@part("kinds of queues")
def _():
    made = sqs.create_queue(
        QueueName="any-case.fifo",
        Attributes={"FifoQueue": "True", "ContentBasedDeduplication": "True"},
    )
    found = shown(made["QueueUrl"], "FifoQueue", "ContentBasedDeduplication")
    same(found, {"FifoQueue": "true", "ContentBasedDeduplication": "true"})

    def refused(name, **attributes):
        return error(sqs.create_queue, QueueName=name, Attributes=attributes)

    unknown = "Unknown Attribute FifoQueue."
    only = "You can specify the {} only when FifoQueue is set to true."
    same(refused("s", FifoQueue="false"), ("InvalidAttributeName", unknown, 400))
    found = refused("s", ContentBasedDeduplication="false")
    same(found[:2], ("InvalidAttributeName", "Unknown Attribute ContentBasedDeduplication."))
    for name, value in [("DeduplicationScope", "queue"), ("FifoThroughputLimit", "perQueue")]:
        found = refused("s", **{name: value})
        same(found, ("InvalidAttributeName", only.format(name), 400))
    same(refused("no-suffix", FifoQueue="true")[0], "InvalidParameterValue")
    same(refused("no-flag.fifo")[0], "InvalidParameterValue")
    same(refused("a/b")[0], "InvalidParameterValue")
    by_group = {"FifoQueue": "true", "FifoThroughputLimit": "perMessageGroupId"}
    assert refused("fast.fifo", **by_group)[0].startswith("InvalidAttribute")
    assert refused("fast.fifo", DeduplicationScope="messageGroup", **by_group)[0] == "none"
    url = make()
    for value in ["true", "false"]:
        found = error(sqs.set_queue_attributes, QueueUrl=url, Attributes={"FifoQueue": value})
        same(found, ("InvalidAttributeName", unknown, 400))
    url = fifo()
    put(url, FifoQueue="true")
    found = error(sqs.set_queue_attributes, QueueUrl=url, Attributes={"FifoQueue": "false"})
    why = "Invalid value for the parameter FifoQueue. Reason: Modifying queue type is not supported."
    same(found, ("InvalidAttributeValue", why, 400))


@part("encryption")
def _():
    def encryption(url):
        names = ("SqsManagedSseEnabled", "KmsMasterKeyId", "KmsDataKeyReusePeriodSeconds")
        found = shown(url)
        return [found.get(name) for name in names]

    same(encryption(make()), ["true", None, None])
    same(encryption(fifo()), ["true", None, None])
    url = make(SqsManagedSseEnabled="False")
    same(encryption(url), ["false", None, None])
    put(url, KmsMasterKeyId="key", KmsDataKeyReusePeriodSeconds="6000")
    same(encryption(url), ["false", "key", "6000"])
    put(url, KmsMasterKeyId="", KmsDataKeyReusePeriodSeconds="300")
    same(encryption(url), ["false", None, None])
    both = {"KmsMasterKeyId": "key", "SqsManagedSseEnabled": "true"}
    why = "You can use one type of server-side encryption (SSE) at one time. You can either enable KMS SSE or SQS SSE."
    found = error(sqs.set_queue_attributes, QueueUrl=url, Attributes=both)
    same(found, ("InvalidAttributeName", why, 400))


@part("policies and permissions")
def _():
    url = make()
    for bad in ["{not json", "[]", "1"]:
        found = error(sqs.set_queue_attributes, QueueUrl=url, Attributes={"Policy": bad})
        same(found, ("InvalidAttributeValue", "Invalid value for the parameter Policy.", 400))
    put(url, Policy="")
    add = {"QueueUrl": url, "AWSAccountIds": ["1", "2"], "Actions": ["ReceiveMessage"]}
    sqs.add_permission(Label="one", **add)
    policy = json.loads(shown(url, "Policy")["Policy"])
    same(policy["Version"], "2008-10-17")
    same(policy["Id"], arn(url) + "/SQSDefaultPolicy")
    [statement] = policy["Statement"]
    same(statement["Sid"], "one")
    same(statement["Principal"], {"AWS": [f"arn:aws:iam::{n}:root" for n in "12"]})
    same((statement["Effect"], statement["Action"]), ("Allow", "SQS:ReceiveMessage"))
    same(statement["Resource"], arn(url))
    why = "Value one for parameter Label is invalid. Reason: Already exists."
    same(error(sqs.add_permission, Label="one", **add), ("InvalidParameterValue", why, 400))
    sqs.add_permission(Label="two", **{**add, "AWSAccountIds": ["1"]})
    sqs.remove_permission(QueueUrl=url, Label="one")
    [statement] = json.loads(shown(url, "Policy")["Policy"])["Statement"]
    same((statement["Sid"], statement["Principal"]), ("two", {"AWS": "arn:aws:iam::1:root"}))
    sqs.remove_permission(QueueUrl=url, Label="two")
    same(shown(url, "Policy"), {})
    why = "Value two for parameter Label is invalid. Reason: can't find label."
    found = error(sqs.remove_permission, QueueUrl=url, Label="two")
    same(found, ("InvalidParameterValue", why, 400))


@part("words of errors")
def _():
    url, ordered = make(), fifo(ContentBasedDeduplication="true")
    for seconds in [-1, 21]:
        why = f"Value {seconds} for parameter WaitTimeSeconds is invalid. Reason: Must be >= 0 and <= 20, if provided."
        same(error(sqs.receive_message, QueueUrl=url, WaitTimeSeconds=seconds)[1], why)
    why = "Value 2 for parameter DelaySeconds is invalid. Reason: The request include parameter that is not valid for this queue type."
    late = {"QueueUrl": ordered, "MessageBody": "m", "MessageGroupId": "g", "DelaySeconds": 2}
    same(error(sqs.send_message, **late), ("InvalidParameterValue", why, 400))
    empty = {"a": {"DataType": "String", "StringValue": ""}}
    found = error(sqs.send_message, QueueUrl=url, MessageBody="m", MessageAttributes=empty)
    same(found[1], "Message (user) attribute 'a' must contain a non-empty value of type 'String'.")
    short = make(MaximumMessageSize="1024")
    same(
        error(sqs.send_message, QueueUrl=short, MessageBody="a" * 1025)[1],
        "One or more parameters are invalid. Reason: Message must be shorter than 1024 bytes.",
    )
    entries = [{"Id": "a", "MessageBody": "a" * 1025}, {"Id": "b", "MessageBody": "b"}]
    found = sqs.send_message_batch(QueueUrl=short, Entries=entries)
    same([one["Id"] for one in found["Successful"]], ["b"])
    why = "One or more parameters cannot be validated. Reason: Message must be shorter than 1024 bytes."
    same([one["Message"] for one in found["Failed"]], [why])
    for call, name in [
        (sqs.send_message_batch, "SendMessageBatch"),
        (sqs.delete_message_batch, "DeleteMessageBatch"),
        (sqs.change_message_visibility_batch, "ChangeMessageVisibilityBatch"),
    ]:
        why = f"There should be at least one {name}RequestEntry in the request."
        same(error(call, QueueUrl=url, Entries=[])[1], why)
    where = "" if is_json else " for this wsdl version"
    found = error(sqs.get_queue_attributes, QueueUrl=url + "-none")
    why = f"The specified queue does not exist{where}."
    same(found, ("AWS.SimpleQueueService.NonExistentQueue", why, 400))


@part("what a queue is called by")
def _():
    url = make()
    name = url.rsplit("/", 1)[1]
    if not is_json:
        # An SDK of the Query protocol sends to the URL.
        status, text = query(Action="SendMessage", QueueUrl=name, MessageBody="m")
        same((status, "<MD5OfMessageBody>" in text), (200, True))
    else:
        sqs.send_message(QueueUrl=name, MessageBody="m")
    same(bodies(take(url)), ["m"])
    host, port = urllib.parse.urlsplit(ENDPOINT).netloc.split(":")
    with socket.create_connection((host, int(port))) as raw:
        form = f"Action=GetQueueUrl&QueueName={name}".encode()
        raw.sendall(
            b"POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            b"Content-Type: application/x-www-form-urlencoded\r\n"
            b"Content-Length: %d\r\n\r\n%s" % (len(form), form)
        )
        answer = raw.makefile().read()
    assert f"<QueueUrl>http://localhost:{port}/000000000000/{name}</QueueUrl>" in answer, answer


@part("batches to FIFO queues")
def _():
    good = {"Id": "a", "MessageBody": "a", "MessageGroupId": "g", "MessageDeduplicationId": "1"}
    no_id = "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly"
    no_group = "The request must contain the parameter MessageGroupId."
    for missing, why in [("MessageDeduplicationId", no_id), ("MessageGroupId", no_group)]:
        url = fifo()
        bad = {**good, "Id": "b", "MessageDeduplicationId": "2"}
        del bad[missing]
        found = error(sqs.send_message_batch, QueueUrl=url, Entries=[good, bad])
        same(found, ("InvalidParameterValue", why, 400))
        same(take(url), [])


@part("visibility of standard queues")
def _():
    url = make()
    sqs.send_message(QueueUrl=url, MessageBody="m")
    [first] = take(url, VisibilityTimeout=0)
    hide(url, first, 60)
    same(take(url), [])
    hide(url, first, 0)
    [second] = take(url)
    entry = {"Id": "a", "ReceiptHandle": first["ReceiptHandle"], "VisibilityTimeout": 0}
    answer = sqs.change_message_visibility_batch(QueueUrl=url, Entries=[entry])
    same([one["Id"] for one in answer["Successful"]], ["a"])
    # Ours: the older receipt is accepted, and the newer delivery keeps its time.
    same(take(url), [])
    hide(url, second, 0)
    [third] = take(url, AttributeNames=["ApproximateReceiveCount"])
    same(third["Attributes"], {"ApproximateReceiveCount": "3"})
    sqs.delete_message(QueueUrl=url, ReceiptHandle=second["ReceiptHandle"])
    hide(url, third, 0)
    same(bodies(take(url)), ["m"])


@part("groups of FIFO queues")
def _():
    for back, wanted in [
        ([0], ["1"]),
        ([1, 2], []),
        ([0, 1], ["1", "2"]),
        ([1, 0], ["1", "2"]),
        ([0, 2], ["1"]),
        ([2, 1, 0], ["1", "2", "3", "4"]),
    ]:
        url = fifo(ContentBasedDeduplication="true")
        for body in "1234":
            sqs.send_message(QueueUrl=url, MessageBody=body, MessageGroupId="g")
        taken = take(url, most=3)
        for at in back:
            hide(url, taken[at], 0)
        same((back, bodies(take(url))), (back, wanted))
    url = fifo(ContentBasedDeduplication="true")
    for body, group in [("1", "g"), ("2", "g"), ("x", "h")]:
        sqs.send_message(QueueUrl=url, MessageBody=body, MessageGroupId=group)
    first, _ = take(url, most=2)
    hide(url, first, 0)
    same(bodies(take(url)), ["x", "1"])


@part("a purge")
def _():
    url = fifo()
    send = {"QueueUrl": url, "MessageGroupId": "g", "MessageDeduplicationId": "1"}
    sqs.send_message(MessageBody="before", **send)
    sqs.purge_queue(QueueUrl=url)
    sqs.send_message(MessageBody="after", **send)
    same(bodies(take(url)), ["after"])
    sqs.delete_queue(QueueUrl=url)
    name = url.rsplit("/", 1)[1]
    sqs.create_queue(QueueName=name, Attributes={"FifoQueue": "true"})
    sqs.purge_queue(QueueUrl=url)


@part("dead letters")
def _():
    dead = make(VisibilityTimeout="0")
    policy = json.dumps({"deadLetterTargetArn": arn(dead), "maxReceiveCount": 1})
    url = make(VisibilityTimeout="0", RedrivePolicy=policy)
    sqs.send_message(QueueUrl=url, MessageBody="m")
    same(len(take(url)) + len(take(url)), 1)
    for count in ["2", "3"]:
        [letter] = take(dead, AttributeNames=["All"])
        same(letter["Attributes"]["ApproximateReceiveCount"], count)
    own = json.dumps({"deadLetterTargetArn": arn(dead), "maxReceiveCount": 5})
    put(dead, RedrivePolicy=own)
    same(json.loads(shown(dead)["RedrivePolicy"])["deadLetterTargetArn"], arn(dead))
    for bad, why in [
        ("x", "Redrive policy is not a valid JSON map."),
        ("{}", "Redrive policy does not contain mandatory attribute: deadLetterTargetArn."),
    ]:
        found = error(sqs.set_queue_attributes, QueueUrl=url, Attributes={"RedrivePolicy": bad})
        same(found[1], f"Value {bad} for parameter RedrivePolicy is invalid. Reason: {why}")


@part("attributes of messages")
def _():
    url = make(VisibilityTimeout="0")
    names = {"Hello": "There", "Help.Me": "Me", "attr.1øßä": "x"}
    values = {name: {"DataType": "String", "StringValue": text} for name, text in names.items()}
    sqs.send_message(QueueUrl=url, MessageBody="m", MessageAttributes=values)
    for wanted, found in [
        (["All"], sorted(names)),
        (["*"], sorted(names)),
        ([".*"], sorted(names)),
        (["Hel.*"], ["Hello", "Help.Me"]),
        (["Foo", "Help", "AWS.", "..foo"], []),
    ]:
        [message] = take(url, MessageAttributeNames=wanted)
        same((wanted, sorted(message.get("MessageAttributes", {}))), (wanted, found))
    for kind, text in [("Number", "NaN"), ("Number", "inf"), ("Foo", "x"), ("Number", "1x")]:
        bad = {"a": {"DataType": kind, "StringValue": text}}
        found = error(sqs.send_message, QueueUrl=url, MessageBody="m", MessageAttributes=bad)
        same((text, found[0]), (text, "InvalidParameterValue"))

    trace = "Root=1-3152b799-8954dae64eda91bc9a23a7e8;Parent=7fa8c0f79203be72;Sampled=1"

    def add_trace(request, **_):
        request.headers["X-Amzn-Trace-Id"] = trace

    url = make()
    events = sqs.meta.events
    for action in ["SendMessage", "SendMessageBatch"]:
        events.register(f"before-send.sqs.{action}", add_trace)
    sqs.send_message(QueueUrl=url, MessageBody="one")
    sqs.send_message_batch(QueueUrl=url, Entries=[{"Id": "a", "MessageBody": "two"}])
    for message in take(url, AttributeNames=["AWSTraceHeader"]):
        same(message["Attributes"], {"AWSTraceHeader": trace})
    own = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=own"}}
    sqs.send_message(QueueUrl=url, MessageBody="three", MessageSystemAttributes=own)
    [message] = take(url, AttributeNames=["AWSTraceHeader"])
    same(message["Attributes"], {"AWSTraceHeader": "Root=own"})


@part("tasks that move messages")
def _():
    if not hasattr(sqs, "start_message_move_task"):
        return
    dead, target = make(), make()
    policy = json.dumps({"deadLetterTargetArn": arn(dead), "maxReceiveCount": 1})
    make(RedrivePolicy=policy)
    for body in "abc":
        sqs.send_message(QueueUrl=dead, MessageBody=body)
    none = "The resource that you specified for the {} parameter doesn't exist."
    start = {"SourceArn": arn(dead), "MaxNumberOfMessagesPerSecond": 1}
    found = error(sqs.start_message_move_task, DestinationArn=arn(target) + "x", **start)
    same(found, ("ResourceNotFoundException", none.format("DestinationArn"), 404))
    handle = sqs.start_message_move_task(DestinationArn=arn(target), **start)["TaskHandle"]
    why = "There is already a task running. Only one active task is allowed for a source queue arn at a given time."
    found = error(sqs.start_message_move_task, DestinationArn=arn(target), **start)
    same(found, ("InvalidParameterValue", why, 400))
    cancel = sqs.cancel_message_move_task
    found = error(cancel, TaskHandle="foobared")
    same(found, ("InvalidParameterValue", "Value for parameter TaskHandle is invalid.", 400))


    named = json.loads(base64.b64decode(handle))
    same(named["sourceArn"], arn(dead))

    def other(**changed):
        return base64.b64encode(json.dumps({**named, **changed}).encode()).decode()

    found = error(cancel, TaskHandle=other(sourceArn=arn(dead) + "x"))
    same(found, ("ResourceNotFoundException", none.format("SourceArn"), 404))
    for changed in [{"taskId": "other"}, {"sourceArn": arn(target)}]:
        found = error(cancel, TaskHandle=other(**changed))
        same(found, ("ResourceNotFoundException", "Task does not exist.", 404))
    sqs.delete_queue(QueueUrl=target)
    [task] = sqs.list_message_move_tasks(SourceArn=arn(dead))["Results"]
    same(task["Status"], "FAILED")
    same(task["FailureReason"], "AWS.SimpleQueueService.NonExistentQueue")


@part("the Query protocol by GET")
def _():
    url = make()
    path = path_of(url)
    get = {"path": path, "method": "GET"}
    status, text = query(Action="SendMessage", MessageBody="foobar", **get)
    same((status, "<MD5OfMessageBody>" in text), (200, True))
    status, text = query(Action="ReceiveMessage", **get)
    same((status, "<Body>foobar</Body>" in text), (200, True))
    status, text = query(Action="GetQueueAttributes", AttributeName="All", **get)
    same((status, "<Name>VisibilityTimeout</Name><Value>30</Value>" in text), (200, True))
    status, text = query(Action="SendMessage", **get)
    same((status, "The request must contain the parameter MessageBody." in text), (400, True))
    status, text = query(**{**get, "path": "/"}, Action="ListQueues")
    same((status, f"<QueueUrl>{url}</QueueUrl>" in text), (200, True))
    status, text = query(Action="GetQueueUrl", QueueName=url.rsplit("/", 1)[1], **get)
    same((status, f"<QueueUrl>{url}</QueueUrl>" in text), (200, True))
    status, text = query(**get, signed=False)
    same((status, "<UnknownOperationException" in text), (404, True))
    # A web page can make a browser send these.
    page = [
        {"signed": False},
        {"headers": [("Origin", "http://example.com")]},
        {"headers": [("Sec-Fetch-Site", "cross-site")]},
        {"headers": [("Host", "example.com")]},
    ]
    for words in page:
        status, text = query(Action="DeleteQueue", **get, **words)
        same((status, "<Code>AccessDenied</Code>" in text), (403, True))
    status, text = query(Action="DeleteQueue", **get)
    same(status, 200)
    status, text = query(Action="GetQueueAttributes", **get)
    same((status, "for this wsdl version." in text), (400, True))


@part("the Query protocol at the URL of a queue, and lists without numbers")
def _():
    url = make(VisibilityTimeout="30")
    path = path_of(url)
    for method in ["POST", "GET"]:
        for action, more in [("ListQueues", {}), ("CreateQueue", {"QueueName": "new"}), ("Fly", {})]:
            status, text = query(path, method, Action=action, **more)
            words = f"<Code>InvalidAction</Code><Message>The action {action} is not valid for this endpoint."
            same((status, words in text), (400, True))
    status, text = query(path, Action="GetQueueAttributes", AttributeName="All")
    same((status, "<Name>VisibilityTimeout</Name>" in text), (200, True))
    fields = {"Attribute.Name": "VisibilityTimeout", "Attribute.Value": "33"}
    status, text = query(path, Action="SetQueueAttributes", **fields)
    same((status, shown(url, "VisibilityTimeout")), (200, {"VisibilityTimeout": "33"}))
    fields = {"SendMessageBatchRequestEntry.Id": "a", "SendMessageBatchRequestEntry.MessageBody": "m"}
    status, text = query(path, Action="SendMessageBatch", **fields)
    same((status, "<Id>a</Id>" in text), (200, True))
    status, text = query(path, Action="ReceiveMessage", AttributeName="All")
    same((status, "<Name>SentTimestamp</Name>" in text), (200, True))
    status, text = query(path, Action="AddPermission", Label="l", AWSAccountId="1", ActionName="*")
    same((status, "SQS:*" in shown(url, "Policy")["Policy"]), (200, True))


failed = []
for words, check in parts:
    try:
        check()
        print("as SQS:", words)
    except Exception as wrong:
        failed.append(words)
        print(f"FAILS: {words}: {type(wrong).__name__}: {wrong}")
if failed:
    raise SystemExit(1)
print("all is well")
