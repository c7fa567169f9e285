"""Asks the SQS server at $ENDPOINT for every operation, through boto3 as people use it. Runs with
the boto3 of today, which speaks JSON, and with one that speaks the Query protocol; operations that
the older one does not have are left out there."""

import hashlib
import json
import os
import threading
import time

import boto3
from botocore.exceptions import ClientError

sqs = boto3.client("sqs", endpoint_url=os.environ["ENDPOINT"])
protocol = sqs.meta.service_model.metadata["protocol"]
print("protocol:", protocol, "boto3", boto3.__version__)


def fails(code, call, **words):
    try:
        call(**words)
    except ClientError as error:
        found = error.response["Error"]["Code"]
        assert found == code, (found, code, words)
        return error
    raise AssertionError(f"{code} was wanted of {words}")


def make(name, **attributes):
    return sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]


def take(url, **words):
    words = {"MaxNumberOfMessages": 10, "WaitTimeSeconds": 0, **words}
    return sqs.receive_message(QueueUrl=url, **words).get("Messages", [])


def attributes(url, *names):
    found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=list(names) or ["All"])
    return found.get("Attributes", {})


missing = "AWS.SimpleQueueService.NonExistentQueue"


def queues():
    url = make("plain", VisibilityTimeout="60")
    assert url == os.environ["ENDPOINT"] + "/000000000000/plain", url
    assert sqs.get_queue_url(QueueName="plain")["QueueUrl"] == url
    assert make("plain", VisibilityTimeout="60") == url
    fails("QueueAlreadyExists", make, name="plain", VisibilityTimeout="61")
    error = fails(missing, sqs.get_queue_url, QueueName="none")
    assert isinstance(error, sqs.exceptions.QueueDoesNotExist), type(error)
    fails("InvalidParameterValue", make, name="no such name!")
    fails("InvalidAttributeName", make, name="other", Colour="red")
    fails("InvalidAttributeValue", make, name="other", DelaySeconds="901")

    found = attributes(url)
    assert found["QueueArn"] == "arn:aws:sqs:us-east-1:000000000000:plain"
    assert found["VisibilityTimeout"] == "60"
    assert abs(int(found["CreatedTimestamp"]) - time.time()) < 600
    assert attributes(url, "DelaySeconds") == {"DelaySeconds": "0"}
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "30"})
    assert attributes(url)["VisibilityTimeout"] == "30"
    fails("InvalidAttributeName", sqs.get_queue_attributes, QueueUrl=url, AttributeNames=["Colour"])

    sqs.tag_queue(QueueUrl=url, Tags={"team": "a", "cost": "1"})
    sqs.untag_queue(QueueUrl=url, TagKeys=["cost"])
    assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"team": "a"}
    tagged = sqs.create_queue(QueueName="tagged", tags={"made": "with"})["QueueUrl"]
    assert sqs.list_queue_tags(QueueUrl=tagged)["Tags"] == {"made": "with"}
    permission = {"Label": "l", "AWSAccountIds": ["1"], "Actions": ["SendMessage"]}
    sqs.add_permission(QueueUrl=url, **permission)
    sqs.remove_permission(QueueUrl=url, Label="l")

    for number in range(5):
        make(f"page-{number}")
    pages, token = [], {}
    while True:
        page = sqs.list_queues(QueueNamePrefix="page-", MaxResults=2, **token)
        pages.append([url.rsplit("/", 1)[1] for url in page["QueueUrls"]])
        if "NextToken" not in page:
            break
        token = {"NextToken": page["NextToken"]}
    assert [len(page) for page in pages] == [2, 2, 1], pages
    sqs.delete_queue(QueueUrl=tagged)
    fails(missing, sqs.send_message, QueueUrl=tagged, MessageBody="x")


def messages():
    url = make("messages")
    body = "€ <&> \"'\r\n\ttabs and 𝄞"
    values = {
        "text": {"DataType": "String", "StringValue": "é"},
        "number": {"DataType": "Number.int", "StringValue": "-1"},
        "bytes": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
    }
    trace = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1"}}
    sent = sqs.send_message(
        QueueUrl=url, MessageBody=body, MessageAttributes=values, MessageSystemAttributes=trace
    )
    assert sent["MD5OfMessageBody"] == hashlib.md5(body.encode()).hexdigest()
    assert "MD5OfMessageSystemAttributes" in sent
    asked = {"AttributeNames": ["All"], "MessageAttributeNames": ["All"]}
    [message] = take(url, **asked)
    assert message["Body"] == body, message["Body"]
    assert message["MessageId"] == sent["MessageId"]
    assert message["MD5OfBody"] == sent["MD5OfMessageBody"]
    assert message["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
    assert message["MessageAttributes"] == values, message["MessageAttributes"]
    system = message["Attributes"]
    assert system["ApproximateReceiveCount"] == "1" and system["AWSTraceHeader"] == "Root=1"
    assert {"SentTimestamp", "ApproximateFirstReceiveTimestamp", "SenderId"} <= set(system)
    handle = message["ReceiptHandle"]
    assert take(url) == []
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=0)
    [again] = take(url, MessageAttributeNames=["te.*", "bytes", "none"], AttributeNames=["SenderId"])
    assert set(again["MessageAttributes"]) == {"text", "bytes"}, again
    assert set(again["Attributes"]) == {"SenderId"}
    sqs.delete_message(QueueUrl=url, ReceiptHandle=handle)
    counts = attributes(url)
    assert counts["ApproximateNumberOfMessagesNotVisible"] == "1", "an old receipt deletes nothing"
    sqs.delete_message(QueueUrl=url, ReceiptHandle=again["ReceiptHandle"])
    sqs.delete_message(QueueUrl=url, ReceiptHandle=again["ReceiptHandle"])
    fails("ReceiptHandleIsInvalid", sqs.delete_message, QueueUrl=url, ReceiptHandle="x")
    late = {"QueueUrl": url, "ReceiptHandle": again["ReceiptHandle"], "VisibilityTimeout": 1}
    fails("InvalidParameterValue", sqs.change_message_visibility, **late)

    fails("InvalidMessageContents", sqs.send_message, QueueUrl=url, MessageBody="\uffff")
    fails("InvalidParameterValue", sqs.send_message, QueueUrl=url, MessageBody="x" * 1048577)
    words = {"QueueUrl": url, "MessageBody": "x"}
    fails("InvalidParameterValue", sqs.send_message, DelaySeconds=901, **words)
    fails("InvalidParameterValue", sqs.receive_message, QueueUrl=url, WaitTimeSeconds=21)
    fails("InvalidParameterValue", sqs.receive_message, QueueUrl=url, MaxNumberOfMessages=11)
    fails("InvalidAttributeName", sqs.receive_message, QueueUrl=url, AttributeNames=["Colour"])
    sqs.send_message(QueueUrl=url, MessageBody="x" * 1048576)
    [large] = take(url)
    assert len(large["Body"]) == 1048576
    sqs.send_message(QueueUrl=url, MessageBody="later", DelaySeconds=900)
    assert attributes(url)["ApproximateNumberOfMessagesDelayed"] == "1"
    sqs.purge_queue(QueueUrl=url)
    assert attributes(url)["ApproximateNumberOfMessagesDelayed"] == "0"
    fails("AWS.SimpleQueueService.PurgeQueueInProgress", sqs.purge_queue, QueueUrl=url)


def batches():
    url = make("batches")
    entry = {"Id": "a", "MessageBody": "x"}
    code = "AWS.SimpleQueueService."
    for entries, error in [
        ([], "EmptyBatchRequest"),
        ([{**entry, "Id": str(n)} for n in range(11)], "TooManyEntriesInBatchRequest"),
        ([entry, entry], "BatchEntryIdsNotDistinct"),
        ([{**entry, "Id": "a b"}], "InvalidBatchEntryId"),
        ([{"Id": str(n), "MessageBody": "x" * 600_000} for n in range(2)], "BatchRequestTooLong"),
    ]:
        fails(code + error, sqs.send_message_batch, QueueUrl=url, Entries=entries)
    entries = [
        {"Id": "good", "MessageBody": "1"},
        {"Id": "bad", "MessageBody": "\uffff"},
        {"Id": "late", "MessageBody": "2", "DelaySeconds": 901},
        {"Id": "well", "MessageBody": "3"},
    ]
    answer = sqs.send_message_batch(QueueUrl=url, Entries=entries)
    assert [one["Id"] for one in answer["Successful"]] == ["good", "well"]
    failed = {one["Id"]: (one["Code"], one["SenderFault"]) for one in answer["Failed"]}
    wanted = {"bad": ("InvalidMessageContents", True), "late": ("InvalidParameterValue", True)}
    assert failed == wanted, failed
    first, second = take(url)
    changes = [
        {"Id": "a", "ReceiptHandle": first["ReceiptHandle"], "VisibilityTimeout": 0},
        {"Id": "b", "ReceiptHandle": "x", "VisibilityTimeout": 0},
        {"Id": "c", "ReceiptHandle": second["ReceiptHandle"], "VisibilityTimeout": 43201},
    ]
    answer = sqs.change_message_visibility_batch(QueueUrl=url, Entries=changes)
    assert [one["Id"] for one in answer["Successful"]] == ["a"]
    failed = {one["Id"]: one["Code"] for one in answer["Failed"]}
    assert failed == {"b": "ReceiptHandleIsInvalid", "c": "InvalidParameterValue"}, failed
    handle = {"ReceiptHandle": first["ReceiptHandle"], "VisibilityTimeout": 5}
    sqs.change_message_visibility(QueueUrl=url, **handle)
    deletes = [
        {"Id": "a", "ReceiptHandle": first["ReceiptHandle"]},
        {"Id": "b", "ReceiptHandle": "x"},
        {"Id": "c", "ReceiptHandle": second["ReceiptHandle"]},
    ]
    answer = sqs.delete_message_batch(QueueUrl=url, Entries=deletes)
    assert [one["Id"] for one in answer["Successful"]] == ["a", "c"]
    assert [one["Code"] for one in answer["Failed"]] == ["ReceiptHandleIsInvalid"]
    assert attributes(url)["ApproximateNumberOfMessages"] == "0"


def long_poll():
    url = make("polled", ReceiveMessageWaitTimeSeconds="20")
    found = []
    waiting = threading.Thread(
        target=lambda: found.extend(sqs.receive_message(QueueUrl=url)["Messages"])
    )
    waiting.start()
    sqs.send_message(QueueUrl=url, MessageBody="wake")
    waiting.join()
    assert [message["Body"] for message in found] == ["wake"]


def fifo():
    url = make("ordered.fifo", FifoQueue="true", ContentBasedDeduplication="true")
    fails("InvalidParameterValue", make, name="lost.fifo")
    fails("MissingParameter", sqs.send_message, QueueUrl=url, MessageBody="x")

    def send(body, group, **words):
        words = {"MessageBody": body, "MessageGroupId": group, **words}
        return sqs.send_message(QueueUrl=url, **words)

    fails("InvalidParameterValue", send, body="x", group="g", DelaySeconds=5)
    one = send("one", "g")
    assert send("one", "g")["MessageId"] == one["MessageId"]
    assert send("one", "g")["SequenceNumber"] == one["SequenceNumber"]
    two = send("two", "g", MessageDeduplicationId="id")
    assert int(two["SequenceNumber"]) > int(one["SequenceNumber"])
    send("other", "h")
    asked = {"AttributeNames": ["All"], "ReceiveRequestAttemptId": "first"}
    taken = take(url, **asked)
    assert [message["Body"] for message in taken] == ["one", "two", "other"], taken
    assert taken[0]["Attributes"]["MessageGroupId"] == "g"
    assert taken[0]["Attributes"]["SequenceNumber"] == one["SequenceNumber"]
    again = take(url, **asked)
    handles = [message["ReceiptHandle"] for message in taken]
    assert [message["ReceiptHandle"] for message in again] == handles
    send("three", "g")
    assert take(url) == [], "both groups wait for what is in flight"
    sqs.delete_message(QueueUrl=url, ReceiptHandle=handles[0])
    assert take(url) == [], "one of the group is still in flight"
    change = {"QueueUrl": url, "ReceiptHandle": handles[1], "VisibilityTimeout": 0}
    sqs.change_message_visibility(**change)
    [second, _] = take(url, AttributeNames=["MessageDeduplicationId"])
    assert second["Body"] == "two"
    assert second["Attributes"] == {"MessageDeduplicationId": "id"}


def dead_letters():
    grave = make("grave")
    arn = attributes(grave)["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 2})
    url = make("dying", VisibilityTimeout="0", RedrivePolicy=policy)
    assert json.loads(attributes(url)["RedrivePolicy"])["deadLetterTargetArn"] == arn
    sources = sqs.list_dead_letter_source_queues(QueueUrl=grave)
    assert sources["queueUrls"] == [url], sources
    gone = json.dumps({"deadLetterTargetArn": arn + "-none", "maxReceiveCount": 2})
    fails("InvalidParameterValue", make, name="lost", RedrivePolicy=gone)
    sqs.send_message(QueueUrl=url, MessageBody="poison")
    assert len(take(url)) == 1 and len(take(url)) == 1 and take(url) == []
    [dead] = take(grave, AttributeNames=["All"], VisibilityTimeout=0)
    source = attributes(url)["QueueArn"]
    assert dead["Body"] == "poison"
    assert dead["Attributes"]["DeadLetterQueueSourceArn"] == source
    if not hasattr(sqs, "start_message_move_task"):
        print("this boto3 has no move tasks")
        return
    not_dead = attributes(make("plain"))["QueueArn"]
    fails("InvalidParameterValue", sqs.start_message_move_task, SourceArn=not_dead)
    fails("ResourceNotFoundException", sqs.start_message_move_task, SourceArn=arn + "-none")
    handle = sqs.start_message_move_task(SourceArn=arn)["TaskHandle"]
    # A long poll ends when the message is there.
    [back] = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=20)["Messages"]
    assert back["Body"] == "poison"
    while True:
        [task] = sqs.list_message_move_tasks(SourceArn=arn)["Results"]
        if task["Status"] != "RUNNING":
            break
    assert task["Status"] == "COMPLETED", task
    assert task["ApproximateNumberOfMessagesMoved"] == 1
    unsupported = "AWS.SimpleQueueService.UnsupportedOperation"
    fails(unsupported, sqs.cancel_message_move_task, TaskHandle=handle)
    fails("InvalidParameterValue", sqs.cancel_message_move_task, TaskHandle="none")


for part in [queues, messages, batches, long_poll, fifo, dead_letters]:
    part()
    print(part.__name__, "is well")
print("all is well")
