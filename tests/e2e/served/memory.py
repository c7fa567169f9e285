"""Asks `dispatcher local --memory` at $ENDPOINT for queues that its file declares, moves its clock
ahead, and resets it, through boto3 as a test suite would."""

import json
import os
import threading
import urllib.request

import boto3

ENDPOINT = os.environ["ENDPOINT"]
sqs = boto3.client("sqs", endpoint_url=ENDPOINT)


def ask(call, **body):
    data = json.dumps(body).encode()
    request = urllib.request.Request(f"{ENDPOINT}/_dispatcher/{call}", data=data, method="POST")
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def advance(time):
    return ask("clock", advance=time)["now_ms"]


def url(name):
    return sqs.get_queue_url(QueueName=name)["QueueUrl"]


def take(name, **words):
    words = {"WaitTimeSeconds": 0, "MessageSystemAttributeNames": ["All"], **words}
    return sqs.receive_message(QueueUrl=url(name), **words).get("Messages", [])


def bodies(name, **words):
    return [message["Body"] for message in take(name, **words)]


def send(name, body, **words):
    sqs.send_message(QueueUrl=url(name), MessageBody=body, **words)


def count(name):
    wanted = ["ApproximateNumberOfMessages"]
    found = sqs.get_queue_attributes(QueueUrl=url(name), AttributeNames=wanted)
    return int(found["Attributes"]["ApproximateNumberOfMessages"])


# The file declares them.
names = ["one.fifo", "orders", "orders-dead", "short"]
listed = sorted(found.rsplit("/", 1)[1] for found in sqs.list_queues()["QueueUrls"])
assert listed == names, listed
set_to = sqs.get_queue_attributes(QueueUrl=url("orders"), AttributeNames=["All"])["Attributes"]
assert set_to["VisibilityTimeout"] == "900", set_to
policy = json.loads(set_to["RedrivePolicy"])
assert policy["maxReceiveCount"] == 2 and policy["deadLetterTargetArn"].endswith(":orders-dead")

# Visibility ends when the clock says so, and the redrive policy counts.
send("orders", "a")
first = take("orders")[0]
assert bodies("orders") == []
advance("15m")
second = take("orders")[0]
assert second["Attributes"]["ApproximateReceiveCount"] == "2", second
advance("15m")
assert bodies("orders") == []
assert bodies("orders-dead") == ["a"]

# Dates follow, and delays.
send("orders", "later", DelaySeconds=900)
assert bodies("orders") == []
now = advance("15m")
later = take("orders")[0]
assert later["Body"] == "later", later
sent = int(later["Attributes"]["SentTimestamp"])
assert sent - int(first["Attributes"]["SentTimestamp"]) >= 1_800_000, (first, later)
assert 900_000 <= now - sent < 1_800_000, (now, sent)

# A long poll that waits is woken.
send("orders", "awaited", DelaySeconds=600)
found = []
poll = threading.Thread(target=lambda: found.extend(bodies("orders", WaitTimeSeconds=20)))
poll.start()
advance("10m")
poll.join()
assert found == ["awaited"], found

# An id counts for five minutes.
once = {"MessageGroupId": "g", "MessageDeduplicationId": "id"}
send("one.fifo", "b", **once)
send("one.fifo", "b", **once)
taken = take("one.fifo", MaxNumberOfMessages=10)
assert len(taken) == 1, taken
sqs.delete_message(QueueUrl=url("one.fifo"), ReceiptHandle=taken[0]["ReceiptHandle"])
advance("5m 1s")
send("one.fifo", "b", **once)
assert bodies("one.fifo") == ["b"]

# Retention ends, and nothing is left of it when the call is answered.
send("short", "c")
assert count("short") == 1
advance("61s")
assert count("short") == 0

# A reset leaves the declared queues, empty, and no other.
sqs.create_queue(QueueName="mine")
send("mine", "d")
send("orders", "d")
assert ask("reset") == {"queues": names}
listed = sorted(found.rsplit("/", 1)[1] for found in sqs.list_queues()["QueueUrls"])
assert listed == names, listed
assert count("orders") == 0
send("orders", "e")
assert bodies("orders") == ["e"]
print("all is well")
