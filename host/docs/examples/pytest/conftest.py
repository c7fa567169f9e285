"""One `dispatcher local` for all tests, empty at the start of each."""

import subprocess
import threading
import urllib.request
from collections import deque

import boto3
import pytest

EXPORT = "export AWS_ENDPOINT_URL_SQS="


@pytest.fixture(scope="session")
def sqs_endpoint():
    command = ["dispatcher", "local", "--memory", "--listen", "127.0.0.1:0"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        # It prints its address, with the port that it got, once it answers.
        lines = iter(server.stderr.readline, "")
        exported = next(line for line in lines if line.startswith(EXPORT))
        # Nobody reads the rest of its log: it would wait once the pipe is full.
        threading.Thread(target=deque, args=(lines, 0), daemon=True).start()
        yield exported.removeprefix(EXPORT).split()[0]
    finally:
        server.terminate()
        server.wait()


@pytest.fixture
def sqs(sqs_endpoint, monkeypatch):
    # The application under test finds the queues by these, like any program with an AWS SDK.
    for name, value in {
        "AWS_ENDPOINT_URL_SQS": sqs_endpoint,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
    }.items():
        monkeypatch.setenv(name, value)
    reset = urllib.request.Request(f"{sqs_endpoint}/_dispatcher/reset", method="POST")
    urllib.request.urlopen(reset).close()
    return boto3.client("sqs")
