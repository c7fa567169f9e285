"""`dispatcher local` in a container of Testcontainers, one for all tests."""

import boto3
import pytest
from testcontainers.core.container import DockerContainer
from testcontainers.core.waiting_utils import wait_for_logs


@pytest.fixture(scope="session")
def sqs():
    queue = (
        DockerContainer("dispatcher:0.1.0")
        .with_command("local --memory --listen 0.0.0.0:9324")
        .with_exposed_ports(9324)
    )
    with queue:
        wait_for_logs(queue, "AWS_ENDPOINT_URL_SQS")
        host, port = queue.get_container_host_ip(), queue.get_exposed_port(9324)
        yield boto3.client(
            "sqs",
            endpoint_url=f"http://{host}:{port}",
            region_name="us-east-1",
            aws_access_key_id="local",
            aws_secret_access_key="local",
        )
