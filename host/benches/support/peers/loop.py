# The loop that people write with boto3: python loop.py ENDPOINT QUEUE THREADS MODULE
import importlib, sys, threading
import boto3

endpoint, queue, threads, module = sys.argv[1:]
look_at = importlib.import_module(module).look_at
url = f"{endpoint}/000000000000/{queue}"

def work():
    sqs = boto3.session.Session().client("sqs", endpoint_url=endpoint)
    while True:
        messages = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=1).get("Messages", [])
        for message in messages:
            look_at(message["Body"])
        if messages:
            entries = [{"Id": str(n), "ReceiptHandle": m["ReceiptHandle"]} for n, m in enumerate(messages)]
            failed = sqs.delete_message_batch(QueueUrl=url, Entries=entries).get("Failed")
            assert not failed, failed

for _ in range(int(threads)):
    threading.Thread(target=work).start()
