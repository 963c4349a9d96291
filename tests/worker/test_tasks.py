"""The states of a worker's tasks: which may begin, and what becomes of those that have ended."""

from collections.abc import Iterable
from types import SimpleNamespace
from unittest import mock

import hypothesis.strategies as st
from hypothesis import given

from clocks import Clock
from inturn.core import limits
from inturn.core.errors import HandlerError
from inturn.core.pipeline.journal import Counts, Journal
from inturn.core.queue.messages import Delivery, StoredMessage
from inturn.store.records import StoredDecision
from inturn.worker import tasks as tasks_module
from inturn.worker.group_task import GroupResult, GroupTask
from inturn.worker.tasks import WorkerTasks
from inturn.worker.work_items import WorkResult, has_applied


def delivery(number: int, group: str | None = "a") -> tuple[str | None, Delivery]:
    message = StoredMessage(number, b"{}", 0, group, None, None, None, 0, None, None, None)
    return group, Delivery(message, number, 60_000, 1, None)


def begin(tasks: WorkerTasks, *deliveries: tuple[str | None, Delivery], due: Iterable[str] = ()) -> list[GroupTask]:
    return tasks.begin(WorkResult(0, list(deliveries), due=list(due)), lambda _: 60_000)


def end(tasks: WorkerTasks, task: GroupTask, *, applied: int = 1, wrong: bool = False) -> None:
    error = HandlerError("wrong") if wrong else None
    task.result = GroupResult(None, Journal(Counts(applied=applied), wrong=error), [], {})
    tasks.end(task)


def numbers(task: GroupTask) -> list[int]:
    return [delivery.message.sequence_number for delivery in task.deliveries]


def test_messages_of_a_busy_group_wait_for_its_next_task() -> None:
    tasks = WorkerTasks()
    (first,) = begin(tasks, delivery(1))
    assert begin(tasks, delivery(2), delivery(3), delivery(4, "b"))[0].group == "b"
    assert [numbers(task) for task in tasks.next.values()] == [[2, 3]]
    end(tasks, first)
    done, given_up, error = tasks.collect(is_stopping=False, is_proved=True)
    assert (done, given_up, error) == ([first], [], None)
    tasks.drop(first)
    (second,) = begin(tasks)
    assert numbers(second) == [2, 3]
    assert not tasks.next


def test_an_overtaken_task_takes_the_messages_of_the_next_one_and_begins_again() -> None:
    tasks = WorkerTasks()
    (first,) = begin(tasks, delivery(1))
    begin(tasks, delivery(2))
    first.decisions = [StoredDecision("d", "a", "{}")]
    end(tasks, first)
    tasks.collect(is_stopping=False, is_proved=True)
    tasks.queue_again(first)
    assert begin(tasks) == [first]
    assert numbers(first) == [1, 2]
    assert not first.decisions, "decisions are found again"
    assert first.result is None
    assert len(tasks) == 1


def test_a_task_without_messages_is_dropped_when_another_worker_has_changed_its_group() -> None:
    tasks = WorkerTasks()
    (task,) = begin(tasks, due=["a"])
    end(tasks, task)
    tasks.queue_again(task)
    assert len(tasks) == 0
    assert not tasks.busy


def test_a_refused_task_is_collected_again_and_at_a_stop_at_once() -> None:
    tasks = WorkerTasks()
    (task,) = begin(tasks, delivery(1))
    end(tasks, task)
    assert tasks.collect(is_stopping=False, is_proved=True).done == [task]
    tasks.refuse(task)
    assert tasks.started_except_for() == set()
    assert list(tasks.busy) == ["a"]
    assert tasks.collect(is_stopping=True, is_proved=True).done == [task]


def test_a_doubtful_task_is_stored_once_another_has_applied_a_message() -> None:
    tasks = WorkerTasks()
    doubtful, other = begin(tasks, delivery(1), delivery(2, "b"))
    end(tasks, doubtful, applied=0, wrong=True)
    assert tasks.collect(is_stopping=False, is_proved=False).done == []
    assert tasks.doubtful_count == 1
    end(tasks, other)
    assert tasks.collect(is_stopping=False, is_proved=False).done == [doubtful, other]
    assert tasks.doubtful_count == 0


def test_a_handler_that_applies_no_message_ends_the_worker_and_its_messages_are_given_up() -> None:
    tasks = WorkerTasks()
    first, second = begin(tasks, delivery(1), delivery(2, "b"))
    for task in (first, second):
        end(tasks, task, applied=0, wrong=True)
    assert tasks.collect(is_stopping=False, is_proved=False) == ([], [], None), "a further task may show it is right"
    done, given_up, error = tasks.collect(is_stopping=False, is_proved=False)
    assert (done, given_up) == ([], [first, second])
    assert isinstance(error, HandlerError)
    assert first.result is None, "nothing of it may be stored"


def test_a_stop_gives_up_doubtful_tasks_without_an_error() -> None:
    tasks = WorkerTasks()
    (task,) = begin(tasks, delivery(1))
    end(tasks, task, applied=0, wrong=True)
    assert tasks.collect(is_stopping=True, is_proved=False) == ([], [task], None)


def test_the_first_error_of_a_task_ends_the_worker_and_stores_the_others() -> None:
    tasks = WorkerTasks()
    good, bad, worse = begin(tasks, delivery(1), delivery(2, "b"), delivery(3, "c"))
    bad.error, worse.error = MemoryError(), ValueError()
    end(tasks, good)
    for task in (bad, worse):
        tasks.end(task)
    assert tasks.collect(is_stopping=False, is_proved=True) == ([good], [bad, worse], bad.error)


@given(st.data())
def test_no_message_is_lost_and_no_group_has_two_tasks_that_have_begun(data: st.DataObject) -> None:
    """A walk of a worker: it receives, ends, stores, refuses, and is overtaken, in any order."""
    clock = Clock()
    with mock.patch.object(tasks_module, "time", SimpleNamespace(monotonic=clock.s)):
        walk(data, clock)


def walk(data: st.DataObject, clock: Clock) -> None:
    tasks = WorkerTasks()
    running: list[GroupTask] = []
    received, stored = 0, list[int]()
    is_proved = False
    for _ in range(data.draw(st.integers(1, 25))):
        groups = data.draw(st.lists(st.sampled_from(["a", "b", None]), max_size=4))
        fresh = begin(tasks, *(delivery(received + at, group) for at, group in enumerate(groups, 1)))
        received += len(groups)
        running += fresh
        busy = [task.group for task in running if task.group is not None]
        assert len(busy) == len(set(busy))
        for task in [task for task in running if data.draw(st.booleans())]:
            running.remove(task)
            right = data.draw(st.booleans())
            end(tasks, task, applied=int(right), wrong=not right)
        clock.forward(data.draw(st.sampled_from([0, limits.POLL_S])))
        done, given_up, error = tasks.collect(is_stopping=False, is_proved=is_proved)
        for task in done:
            match data.draw(st.sampled_from(["store", "store", "refuse", "overtaken", "lost"])):
                case "refuse":
                    tasks.refuse(task)
                case "overtaken" if task.group is not None:
                    tasks.queue_again(task)
                case _:
                    is_proved = is_proved or has_applied(task)
                    stored += numbers(task)
                    tasks.drop(task)
        for task in given_up:
            stored += numbers(task)
            tasks.drop(task)
        assert tasks.doubtful_count <= limits.WORKER_DOUBTFUL
        if error is not None:
            break
    remaining = [number for task in tasks.except_for() for number in numbers(task)]
    assert sorted([*stored, *remaining]) == list(range(1, received + 1))
