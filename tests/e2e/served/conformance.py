"""Behaviours of SQS that an application relies on, each named in plain words and asked of the server
at $ENDPOINT through boto3. Prints one line for each, and `N of N behaviours` at the end; fails if one
does not hold. The sources are the pages of the SQS developer guide and API reference."""

import hashlib
import json
import os
import threading
import time

import boto3
from botocore.exceptions import ClientError

sqs = boto3.client("sqs", endpoint_url=os.environ["ENDPOINT"])
behaviours = []


def behaviour(words):
    def add(check):
        behaviours.append((words, check))
        return check

    return add


def fails(code, call, **words):
    try:
        call(**words)
    except ClientError as error:
        found = error.response["Error"]["Code"]
        assert found == code, (found, code)
        return
    raise AssertionError(f"{code} was wanted")


numbered = iter(range(1_000))


def make(suffix="", **attributes):
    name = f"c{next(numbered)}{suffix}"
    return sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]


def fifo(**attributes):
    return make(".fifo", FifoQueue="true", ContentBasedDeduplication="true", **attributes)


def send(url, body, group=None, **words):
    if group:
        words["MessageGroupId"] = group
    return sqs.send_message(QueueUrl=url, MessageBody=body, **words)


def take(url, most=10, **words):
    answer = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=most, **words)
    return answer.get("Messages", [])


def wait_for(url, **words):
    """What a long poll brings; it ends when there is something."""
    found = []
    while not found:
        found = take(url, WaitTimeSeconds=20, **words)
    return found


def bodies(messages):
    return [message["Body"] for message in messages]


def delete(url, message):
    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])


def hide(url, message, seconds):
    handle = message["ReceiptHandle"]
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=seconds)


def count(url, name=""):
    name = f"ApproximateNumberOfMessages{name}"
    found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=[name])
    return int(found["Attributes"][name])


@behaviour("creating a queue again with the same attributes answers its URL, with others fails")
def _():
    first = sqs.create_queue(QueueName="same", Attributes={"VisibilityTimeout": "7"})
    again = sqs.create_queue(QueueName="same", Attributes={"VisibilityTimeout": "7"})
    assert first["QueueUrl"] == again["QueueUrl"]
    other = {"QueueName": "same", "Attributes": {"VisibilityTimeout": "8"}}
    fails("QueueAlreadyExists", sqs.create_queue, **other)


@behaviour("a queue that does not exist has a specific error")
def _():
    fails("AWS.SimpleQueueService.NonExistentQueue", sqs.get_queue_url, QueueName="none")


@behaviour("queues are listed by prefix, in pages")
def _():
    for number in range(3):
        sqs.create_queue(QueueName=f"listed-{number}")
    page = sqs.list_queues(QueueNamePrefix="listed-", MaxResults=2)
    assert len(page["QueueUrls"]) == 2
    token = page["NextToken"]
    page = sqs.list_queues(QueueNamePrefix="listed-", MaxResults=2, NextToken=token)
    assert len(page["QueueUrls"]) == 1 and "NextToken" not in page


@behaviour("a message comes as it was sent, with its id and the digest of its body")
def _():
    url, body = make(), "€ <&> \"'\r\n\t𝄞"
    sent = send(url, body)
    [message] = take(url)
    assert message["Body"] == body and message["MessageId"] == sent["MessageId"]
    digest = hashlib.md5(body.encode()).hexdigest()
    assert message["MD5OfBody"] == sent["MD5OfMessageBody"] == digest


@behaviour("attributes of type String, Number and Binary survive, with their digest")
def _():
    url = make()
    values = {
        "s": {"DataType": "String", "StringValue": "é"},
        "n": {"DataType": "Number", "StringValue": "-1.5"},
        "b": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
    }
    sent = send(url, "x", MessageAttributes=values)
    [message] = take(url, MessageAttributeNames=["All"])
    assert message["MessageAttributes"] == values
    assert message["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]


@behaviour("attributes come only if they are asked for")
def _():
    url = make()
    send(url, "x", MessageAttributes={"s": {"DataType": "String", "StringValue": "v"}})
    [message] = take(url)
    assert "MessageAttributes" not in message and "Attributes" not in message


@behaviour("the queue tells when a message was sent, first received, and how often received")
def _():
    url = make()
    send(url, "x")
    [message] = take(url, AttributeNames=["All"])
    system = message["Attributes"]
    assert system["ApproximateReceiveCount"] == "1"
    now = time.time() * 1000
    for name in ["SentTimestamp", "ApproximateFirstReceiveTimestamp"]:
        assert abs(int(system[name]) - now) < 3_600_000, system


@behaviour("a received message is invisible until its visibility timeout ends, then comes again")
def _():
    url = make(VisibilityTimeout="1")
    send(url, "x")
    [first] = take(url, VisibilityTimeout=600)
    assert take(url) == []
    hide(url, first, 1)
    [again] = wait_for(url, AttributeNames=["All"])
    assert again["Attributes"]["ApproximateReceiveCount"] == "2"


@behaviour("a visibility of 0 makes a message visible at once, and its next receive counts")
def _():
    url = make()
    send(url, "x")
    [first] = take(url)
    hide(url, first, 0)
    [again] = take(url, AttributeNames=["ApproximateReceiveCount"])
    assert again["Attributes"]["ApproximateReceiveCount"] == "2"
    assert again["ReceiptHandle"] != first["ReceiptHandle"]


@behaviour("a visibility timeout can be extended")
def _():
    url = make()
    send(url, "x")
    [message] = take(url, VisibilityTimeout=1)
    hide(url, message, 600)
    assert take(url, WaitTimeSeconds=2) == []
    delete(url, message)
    assert count(url, "NotVisible") == 0


@behaviour("more than 12 hours of visibility is an error and not clipped")
def _():
    url = make()
    send(url, "x")
    [message] = take(url)
    late = {"QueueUrl": url, "ReceiptHandle": message["ReceiptHandle"]}
    fails("InvalidParameterValue", sqs.change_message_visibility, VisibilityTimeout=43201, **late)


@behaviour("a deleted message is gone, and deleting it again succeeds")
def _():
    url = make()
    send(url, "x")
    [message] = take(url, VisibilityTimeout=0)
    delete(url, message)
    delete(url, message)
    assert take(url) == []


@behaviour("on a standard queue an old receipt handle succeeds and deletes nothing")
def _():
    url = make()
    send(url, "x")
    [old] = take(url, VisibilityTimeout=0)
    [new] = take(url)
    delete(url, old)
    assert count(url, "NotVisible") == 1
    delete(url, new)
    assert count(url, "NotVisible") == 0


@behaviour("a message with a delay comes when the delay is over")
def _():
    url = make()
    send(url, "later", DelaySeconds=1)
    assert take(url) == [] or count(url, "Delayed") == 0
    assert bodies(wait_for(url)) == ["later"]


@behaviour("a queue delays what does not say otherwise")
def _():
    url = make(DelaySeconds="900")
    send(url, "queue's")
    send(url, "own", DelaySeconds=0)
    assert bodies(take(url)) == ["own"]
    assert count(url, "Delayed") == 1


@behaviour("a delay of more than 15 minutes is refused")
def _():
    words = {"QueueUrl": make(), "MessageBody": "x", "DelaySeconds": 901}
    fails("InvalidParameterValue", sqs.send_message, **words)


@behaviour("a long poll is answered as soon as a message comes")
def _():
    url, found = make(), []
    waiting = threading.Thread(target=lambda: found.extend(take(url, WaitTimeSeconds=20)))
    waiting.start()
    send(url, "wake")
    waiting.join()
    assert bodies(found) == ["wake"]


@behaviour("a receive of an empty queue answers without messages")
def _():
    url = make()
    assert "Messages" not in sqs.receive_message(QueueUrl=url, WaitTimeSeconds=1)


@behaviour("a receive asks for 1 to 10 messages and waits 20 seconds at most")
def _():
    url = make()
    for words in [{"MaxNumberOfMessages": 0}, {"MaxNumberOfMessages": 11}, {"WaitTimeSeconds": 21}]:
        fails("InvalidParameterValue", sqs.receive_message, QueueUrl=url, **words)
    for number in range(12):
        send(url, str(number))
    assert len(take(url)) == 10 and len(sqs.receive_message(QueueUrl=url)["Messages"]) == 1


@behaviour("entries of a batch succeed and fail each by itself")
def _():
    url = make()
    entries = [
        {"Id": "good", "MessageBody": "x"},
        {"Id": "late", "MessageBody": "x", "DelaySeconds": 901},
    ]
    answer = sqs.send_message_batch(QueueUrl=url, Entries=entries)
    assert [one["Id"] for one in answer["Successful"]] == ["good"]
    assert [(one["Id"], one["SenderFault"]) for one in answer["Failed"]] == [("late", True)]
    [message] = take(url)
    deletes = [
        {"Id": "a", "ReceiptHandle": message["ReceiptHandle"]},
        {"Id": "b", "ReceiptHandle": "x"},
    ]
    answer = sqs.delete_message_batch(QueueUrl=url, Entries=deletes)
    assert [one["Id"] for one in answer["Successful"]] == ["a"]
    assert [one["Id"] for one in answer["Failed"]] == ["b"]


@behaviour("a batch that is empty, too long, too large or has an id twice is refused whole")
def _():
    url = make()
    entry = {"Id": "a", "MessageBody": "x"}
    for code, entries in [
        ("EmptyBatchRequest", []),
        ("TooManyEntriesInBatchRequest", [{**entry, "Id": str(n)} for n in range(11)]),
        ("BatchEntryIdsNotDistinct", [entry, entry]),
        ("InvalidBatchEntryId", [{**entry, "Id": "a b"}]),
        ("BatchRequestTooLong", [{"Id": str(n), "MessageBody": "x" * 600_000} for n in range(2)]),
    ]:
        words = {"QueueUrl": url, "Entries": entries}
        fails("AWS.SimpleQueueService." + code, sqs.send_message_batch, **words)
    assert count(url) == 0


@behaviour("a message of 1 MiB is taken, a larger one refused")
def _():
    url = make()
    send(url, "x" * 1_048_576)
    assert len(take(url)[0]["Body"]) == 1_048_576
    words = {"QueueUrl": url, "MessageBody": "x" * 1_048_577}
    fails("InvalidParameterValue", sqs.send_message, **words)


@behaviour("characters that XML does not know are refused")
def _():
    fails("InvalidMessageContents", sqs.send_message, QueueUrl=make(), MessageBody="\uffff")


@behaviour("a receipt handle that is none is refused")
def _():
    fails("ReceiptHandleIsInvalid", sqs.delete_message, QueueUrl=make(), ReceiptHandle="x")


@behaviour("what waits, is in flight and is delayed is counted")
def _():
    url = make()
    for _ in range(3):
        send(url, "x")
    send(url, "x", DelaySeconds=900)
    take(url, most=1)
    assert (count(url), count(url, "NotVisible"), count(url, "Delayed")) == (2, 1, 1)


@behaviour("a purge empties a queue, and a second one within a minute is refused")
def _():
    url = make()
    send(url, "x")
    sqs.purge_queue(QueueUrl=url)
    assert count(url) == 0
    fails("AWS.SimpleQueueService.PurgeQueueInProgress", sqs.purge_queue, QueueUrl=url)


def dying(suffix="", **attributes):
    dead = make(suffix, **attributes)
    wanted = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])
    policy = {"deadLetterTargetArn": wanted["Attributes"]["QueueArn"], "maxReceiveCount": 2}
    return make(suffix, RedrivePolicy=json.dumps(policy), **attributes), dead


@behaviour("what was received too often goes to the dead-letter queue, which is told the source")
def _():
    url, dead = dying(VisibilityTimeout="0")
    send(url, "poison", MessageAttributes={"k": {"DataType": "String", "StringValue": "v"}})
    assert len(take(url)) == 1 and len(take(url)) == 1 and take(url) == []
    [letter] = take(dead, AttributeNames=["All"], MessageAttributeNames=["All"])
    assert letter["Body"] == "poison" and set(letter["MessageAttributes"]) == {"k"}
    assert "DeadLetterQueueSourceArn" in letter["Attributes"]


@behaviour("a queue keeps its tags")
def _():
    url = make()
    sqs.tag_queue(QueueUrl=url, Tags={"a": "1", "b": "2"})
    sqs.untag_queue(QueueUrl=url, TagKeys=["a"])
    assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"b": "2"}


@behaviour("FIFO: one receive brings several messages of a group, in order")
def _():
    url = fifo()
    for number in range(12):
        send(url, str(number), "g")
    assert bodies(take(url)) == [str(number) for number in range(10)]


@behaviour("FIFO: nothing more of a group comes until all that was received is deleted")
def _():
    url = fifo()
    for body in ["1", "2", "3"]:
        send(url, body, "g")
    first, second = take(url, most=2)
    assert take(url) == []
    delete(url, first)
    assert take(url) == []
    delete(url, second)
    assert bodies(take(url)) == ["3"]


@behaviour("FIFO: what is visible ahead of the first message in flight comes again, in order")
def _():
    url = fifo()
    for body in ["1", "2", "3"]:
        send(url, body, "g")
    first, second = take(url, most=2)
    hide(url, second, 0)
    assert take(url) == [], "the first is still in flight"
    hide(url, first, 0)
    assert bodies(take(url)) == ["1", "2", "3"]


@behaviour("FIFO: a group does not wait for another")
def _():
    url = fifo()
    for body, group in [("1", "g"), ("2", "g"), ("3", "h")]:
        send(url, body, group)
    assert bodies(take(url, most=1)) == ["1"]
    assert bodies(take(url)) == ["3"]


@behaviour("FIFO: a receive fills up with other groups, each in order")
def _():
    url = fifo()
    for body, group in [("1", "g"), ("2", "h"), ("3", "g"), ("4", "h")]:
        send(url, body, group)
    found = take(url, AttributeNames=["MessageGroupId"])
    groups = {}
    for message in found:
        group = message["Attributes"]["MessageGroupId"]
        groups.setdefault(group, []).append(message["Body"])
    assert groups == {"g": ["1", "3"], "h": ["2", "4"]}


@behaviour("FIFO: a deduplication id, or a body, is taken once")
def _():
    url = fifo()
    one = send(url, "x", "g")
    assert send(url, "x", "g")["SequenceNumber"] == one["SequenceNumber"]
    send(url, "y", "g", MessageDeduplicationId="id")
    send(url, "z", "g", MessageDeduplicationId="id")
    assert bodies(take(url)) == ["x", "y"]


@behaviour("FIFO: a sequence number grows, a group is required, a delay of one message refused")
def _():
    url = fifo()
    numbers = [int(send(url, body, "g")["SequenceNumber"]) for body in "abc"]
    assert numbers == sorted(set(numbers))
    words = {"QueueUrl": url, "MessageBody": "x"}
    fails("MissingParameter", sqs.send_message, **words)
    late = {**words, "MessageGroupId": "g", "DelaySeconds": 5}
    fails("InvalidParameterValue", sqs.send_message, **late)


@behaviour("FIFO: the same receive attempt brings the same messages with the same handles")
def _():
    url = fifo()
    for body in ["1", "2"]:
        send(url, body, "g")
    first = take(url, ReceiveRequestAttemptId="a")
    assert bodies(first) == ["1", "2"]
    again = take(url, ReceiveRequestAttemptId="a")
    handles = [[one["ReceiptHandle"] for one in found] for found in [first, again]]
    assert handles[0] == handles[1]


@behaviour("FIFO: a delete after the visibility timeout fails")
def _():
    url = fifo()
    send(url, "x", "g")
    [message] = take(url, VisibilityTimeout=0)
    late = {"QueueUrl": url, "ReceiptHandle": message["ReceiptHandle"]}
    fails("InvalidParameterValue", sqs.delete_message, **late)


@behaviour("FIFO: a dead letter goes on in its group's order, and its followers come forward")
def _():
    url, dead = dying(".fifo", FifoQueue="true", ContentBasedDeduplication="true")
    send(url, "poison", "g")
    send(url, "next", "g")
    for _ in range(2):
        [message] = take(url, most=1)
        assert message["Body"] == "poison"
        hide(url, message, 0)
    assert bodies(take(url)) == ["next"]
    assert bodies(take(dead)) == ["poison"]


@behaviour("a standard queue takes groups, and keeps no order by them")
def _():
    url = make()
    if "MessageGroupId" not in str(sqs.meta.service_model.operation_model("SendMessage").input_shape.members):
        return
    for body in ["1", "2"]:
        send(url, body, "tenant")
    assert bodies(take(url, most=1)) == ["1"]
    assert bodies(take(url)) == ["2"], "a group locks nothing here"


failed = []
for words, check in behaviours:
    try:
        check()
        print("holds:", words)
    except Exception as error:
        failed.append(words)
        print(f"FAILS: {words}: {type(error).__name__}: {error}")
print(f"{len(behaviours) - len(failed)} of {len(behaviours)} behaviours")
if failed:
    raise SystemExit(1)
print("all is well")
