"""Tests of an application that uses SQS."""


def test_order_is_received_once(sqs):
    url = sqs.create_queue(QueueName="orders")["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="order 1")
    first = sqs.receive_message(QueueUrl=url)["Messages"]
    assert [message["Body"] for message in first] == ["order 1"]
    assert "Messages" not in sqs.receive_message(QueueUrl=url)


def test_each_test_begins_without_queues(sqs):
    assert "QueueUrls" not in sqs.list_queues()
