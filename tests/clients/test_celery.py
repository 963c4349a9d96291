"""celery's workers over kombu's SQS transport against the endpoint: processes of their own, as a user starts them."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from kombu.utils.url import safequote
from served_endpoint import DEADLINE_S, REGION, Serving, unique

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent


class Celery:
    """An application with a queue of its own."""

    def __init__(self, serving: Serving, folder: Path, queue: str) -> None:
        self.queue = unique(queue)
        self._folder = folder
        self._file = folder / "done"
        self._file.touch()
        self._workers: list[subprocess.Popen[bytes]] = []
        key = serving.key
        self._environment = serving.environment(folder) | {
            "TEST_BROKER": f"sqs://{safequote(key.id)}:{safequote(key.secret)}@localhost:{serving.port}",
            "TEST_QUEUE": self.queue,
            "TEST_FILE": str(self._file),
            "PYTHONPATH": os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]),
        }
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"):  # the broker's URL has them
            del self._environment[name]
        self._sqs = boto3.client(
            "sqs",
            endpoint_url=serving.url,
            region_name=REGION,
            aws_access_key_id=key.id,
            aws_secret_access_key=key.secret,
        )

    def run(self, code: str, **environment: str) -> None:
        """Run a program that uses the tasks."""
        command = [sys.executable, "-c", f"from celery_tasks import *\n{code}"]
        subprocess.run(command, env=self._environment | environment, check=True, timeout=DEADLINE_S)

    def start(self, *arguments: str, **environment: str) -> "subprocess.Popen[bytes]":
        """Start a worker."""
        name = f"worker{len(self._workers)}"
        command = [sys.executable, "-m", "celery", "-A", "celery_tasks", "worker", "-n", f"{name}@%h", *arguments]
        with (self._folder / f"{name}.log").open("wb") as log:
            environment = self._environment | environment
            worker = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
        self._workers.append(worker)
        return worker

    def done(self) -> list[list[Any]]:
        """What the tasks wrote down."""
        return [json.loads(line) for line in self._file.read_text().splitlines()]

    def logs(self) -> str:
        """What the workers said."""
        return "\n".join(path.read_text() for path in sorted(self._folder.glob("*.log")))

    def wait_until(self, is_so: Callable[[list[list[Any]]], bool]) -> None:
        """Wait until what was done is as it should be."""
        deadline = time.monotonic() + DEADLINE_S
        while not is_so(self.done()):
            assert time.monotonic() < deadline, f"{self.done()}\n{self.logs()}"
            assert any(worker.poll() is None for worker in self._workers), self.logs()
            time.sleep(0.05)

    def wait_until_empty(self) -> None:
        """Wait until every message was acknowledged."""
        url = self._sqs.get_queue_url(QueueName=self.queue)["QueueUrl"]
        deadline = time.monotonic() + DEADLINE_S
        while True:
            attributes = self._sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
            remaining = {
                name: value for name, value in attributes.items() if "NumberOfMessages" in name and value != "0"
            }
            if not remaining:
                return
            assert time.monotonic() < deadline, f"{remaining}\n{self.logs()}"
            time.sleep(0.05)

    def stop(self) -> list[int]:
        """End the workers as celery has it, warmly; their exit codes."""
        for worker in self._workers:
            worker.terminate()
        return [worker.wait(DEADLINE_S) for worker in self._workers]

    def kill(self) -> None:
        for worker in self._workers:
            if worker.poll() is None:
                os.killpg(worker.pid, signal.SIGKILL)
                worker.wait(DEADLINE_S)


@pytest.fixture
def celery(request: pytest.FixtureRequest, serving: Serving, tmp_path: Path) -> Iterator[Celery]:
    celery = Celery(serving, tmp_path, request.param)
    yield celery
    celery.kill()


@pytest.mark.parametrize("celery", ["tasks"], indirect=True)
def test_each_celery_task_runs_once(celery: Celery) -> None:
    celery.run(
        "for number in range(20): step.delay('g', number)\n"
        "again.delay('rejected')\n"
        "retried.delay('retried')\n"
        "step.apply_async(('later', 0), countdown=1)\n"
        "step.apply_async(('by SQS', 0), DelaySeconds=1)\n"
    )
    celery.start("--concurrency", "2")
    celery.wait_until(lambda done: len(done) >= 26)
    celery.wait_until_empty()
    assert celery.stop() == [0], celery.logs()
    once = [["g", number] for number in range(20)] + [["later", 0], ["by SQS", 0]]
    assert sorted(celery.done()) == sorted([*once, ["rejected"], ["rejected"], ["retried"], ["retried"]])


GROUPS, LENGTH = 3, 8


@pytest.mark.parametrize("celery", ["tasks.fifo"], indirect=True)
def test_groups_keep_their_order_when_one_of_many_workers_dies(celery: Celery, serving: Serving) -> None:
    celery.run(
        f"for number in range({LENGTH}):\n"
        f"    for group in range({GROUPS}):\n"
        "        task = hang if (group, number) == (1, 2) else step\n"
        "        task.apply_async((f'g{group}', number), MessageGroupId=f'g{group}')\n"
        "        step.apply_async(('twice', number), MessageGroupId='t', MessageDeduplicationId=str(number))\n"
    )
    workers = [celery.start("--concurrency", "1") for _ in range(2)]
    celery.wait_until(lambda done: any(entry[0] == "worker" for entry in done))
    (hanging,) = (pid for name, pid, *_ in celery.done() if name == "worker")
    (dying,) = (worker for worker in workers if os.getpgid(hanging) == worker.pid)
    os.killpg(dying.pid, signal.SIGKILL)
    steps = {f"g{group}": list(range(LENGTH)) for group in range(GROUPS)} | {"twice": list(range(LENGTH))}

    def by_group(done: list[list[Any]]) -> dict[str, list[int]]:
        ended = [entry for entry in done if entry[0] in steps and len(entry) == 2]
        return {name: [number for group, number in ended if group == name] for name in steps}

    celery.wait_until(lambda done: sum(map(len, by_group(done).values())) >= (GROUPS + 1) * LENGTH)
    celery.wait_until_empty()
    assert sorted(celery.stop()) == [-signal.SIGKILL, 0], celery.logs()
    assert by_group(celery.done()) == steps


@pytest.mark.parametrize("celery", ["tasks"], indirect=True)
def test_a_worker_receives_only_tasks_of_its_region(celery: Celery) -> None:
    celery.run("step.delay('here', 1)")
    celery.run("step.delay('there', 1)", TEST_REGION="eu-west-1")
    celery.start("--concurrency", "1", TEST_REGION="eu-west-1")
    celery.wait_until(lambda done: len(done) >= 1)
    assert celery.stop() == [0], celery.logs()
    assert celery.done() == [["there", 1]]
    celery.start("--concurrency", "1")
    celery.wait_until(lambda done: len(done) >= 2)
    celery.wait_until_empty()
    celery.kill()
    assert celery.done() == [["there", 1], ["here", 1]]
