"""The commands about queues and messages: what they do, print for people and for scripts, and refuse."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

import inturn
from inturn.cli import app
from inturn.core.errors import StoreError
from inturn.queue import Queue, QueueSettings

Q = "shop.db#payments"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def payments() -> Iterator[Queue]:
    """Its messages go to the queue named dead when they have been given back twice."""
    with inturn.open("shop.db", durable=False) as db:
        db.queue("dead")
        yield db.queue("payments", QueueSettings(dead_letter="dead", max_receives=2))


def run(*arguments: object, typed: str | bytes | None = None) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=typed)


def out(*arguments: object, typed: str | bytes | None = None) -> str:
    ran = run(*arguments, typed=typed)
    assert ran.exit_code == 0, ran.stderr
    return ran.stdout.rstrip()


def told(*arguments: object, typed: str | bytes | None = None, code: int = 1) -> str:
    """What it says on one line when it fails."""
    ran = run(*arguments, typed=typed)
    assert ran.exit_code == code, ran.stdout
    assert ran.exception is None or isinstance(ran.exception, SystemExit)
    return " ".join(ran.stderr.split())


def lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


# --- queues ---


def test_queue_create_list_and_show_commands() -> None:
    assert out("queue", "create", "shop.db#dead") == "shop.db#dead was created."
    created = json.loads(
        out("queue", "create", Q, "--dead-letter", "dead", "--max-receives", 5, "--dedup-for-ever", "--json")
    )
    assert (created["created"], created["queue"], created["messages"]) == (True, "payments", 0)
    assert created["settings"]["dedup_window_s"] is None
    assert created["settings"]["dead_letter"] == "dead"
    assert "nothing was changed" in out("queue", "create", Q)
    assert "max_receives is 5, not 6" in told(
        "queue", "create", Q, "--dead-letter", "dead", "--max-receives", 6, "--dedup-for-ever"
    )
    with inturn.open("shop.db") as db:
        queue = db.queue("payments")
        for number in range(3):
            queue.send(number)
        first = queue.peek()[0].sequence_number
        queue.reader("audit").commit(first)
        queue.reader("new").read()
    assert [entry["queue"] for entry in json.loads(out("queue", "list", "shop.db", "--json"))] == ["dead", "payments"]
    table = out("queue", "list", "shop.db")
    assert "dead after 5 receives" in table
    assert "audit 2, new 3" in table
    shown = out("queue", "show", Q)
    assert "3 messages" in shown
    assert f"reader audit has read up to {first}, 2 messages behind" in shown
    assert "dedup_window_s        for ever" in shown
    assert "retention_s           until acknowledged" in shown
    assert json.loads(out("queue", "show", Q, "--json"))["readers"]["audit"] == {"position": first, "lag": 2}


def test_queue_show_lists_unmatched_policy_resources() -> None:
    policy = {"Statement": {"Effect": "Deny", "Principal": "*", "Action": "*", "Resource": ["*", "pay\nments"]}}
    with inturn.open("shop.db", durable=False) as db:
        db.queue("payments", QueueSettings(extra={"policy": json.dumps(policy)}))
        db.queue("other", QueueSettings(extra={"policy": "nonsense"}))
    assert "  policy: the resource 'pay\\nments' is not a valid ARN" in out("queue", "show", Q)
    assert json.loads(out("queue", "show", Q, "--json"))["unmatched_resources"] == ["pay\nments"]
    assert "not a valid ARN" not in out("queue", "show", "shop.db#other")
    assert json.loads(out("queue", "show", "shop.db#other", "--json"))["unmatched_resources"] == []


def test_queue_create_with_invalid_settings_creates_nothing() -> None:
    assert "--dedup-for-ever exclude each other" in told(
        "queue", "create", Q, "--dedup-for-ever", "--dedup-window-s", 5
    )
    assert "--max-receives is not set; set both" in told("queue", "create", Q, "--dead-letter", "dead")
    assert "--visibility-timeout-s is -1.0" in told("queue", "create", Q, "--visibility-timeout-s", -1)
    told("queue", "create", Q, "--dedup-scope", "world", code=2)
    assert "in memory" in told("queue", "create", ":memory:#payments")
    assert list(Path().iterdir()) == []


def test_queue_purge_and_queue_delete_ask_for_confirmation(payments: Queue) -> None:
    payments.send("a")
    payments.send("b")
    assert "Aborted" in told("queue", "purge", Q, typed="n\n")
    assert "Aborted" in told("queue", "delete", Q, typed="")
    assert payments.depth().messages == 2
    assert "Remove 2 messages from shop.db#payments" in out("queue", "purge", Q, typed="y\n")
    assert out("queue", "purge", Q, "--yes") == "0 messages removed from shop.db#payments."
    assert "It is the dead-letter queue of payments," in run("queue", "delete", "shop.db#dead").stdout
    out("queue", "delete", Q, "-y")
    assert "no queue 'payments'; existing queues: dead" in told("queue", "show", Q)


@pytest.mark.parametrize(
    "command",
    [
        *("queue list", "queue show", "queue purge --yes", "queue delete --yes", "send x", "receive", "peek"),
        *("redrive", "groups", "ack 1:1", "nack 1:1"),
    ],
)
@pytest.mark.thorough
def test_a_mistyped_database_or_queue_creates_nothing_and_lists_the_existing_ones(
    payments: Queue, command: str
) -> None:
    words = command.split()
    name_index, rest = (2, words[2:]) if words[0] == "queue" else (1, words[1:])
    name = "shpo.db" if command == "queue list" else "shpo.db#payments"
    output = told(*words[:name_index], name, *rest)
    assert "no database 'shpo.db'; databases in its directory: shop.db" in output
    if command != "queue list":
        assert "no queue 'x'; existing queues: dead, payments" in told(*words[:name_index], "shop.db#x", *rest)
        assert "names no queue" in told(*words[:name_index], "shop.db", *rest)
        assert "existing queues: dead, payments" in told(*words[:name_index], "shop.db", *rest)
    assert {path.name for path in Path().iterdir()} <= {"shop.db", "shop.db-wal", "shop.db-shm"}
    Path("empty.db").touch()
    assert "has no queues" in told(*words[:name_index], name.replace("shpo", "empty"), *rest)
    assert Path("empty.db").read_bytes() == b""


# --- send ---


@pytest.mark.parametrize(
    ("arguments", "typed", "body"),
    [
        (['{"n": 1}'], None, {"n": 1}),
        ([" [1, 2]"], None, [1, 2]),
        (["5"], None, "5"),
        (["5", "--content", "json"], None, 5),
        (["{n}", "--content", "text"], None, "{n}"),
        (["-"], "héllo\n", "héllo\n"),
        (["-"], b"\xff\x00", b"\xff\x00"),
        (["-", "--content", "bytes"], "text", b"text"),
        (["--file", "body"], None, {"from": "a file"}),
        ([""], None, ""),
    ],
)
def test_send_parses_a_body_as_json_or_by_option(
    payments: Queue, arguments: list[str], typed: str | bytes | None, body: object
) -> None:
    Path("body").write_text('{"from": "a file"}')
    assert out("send", Q, *arguments, typed=typed).startswith("Sent as ")
    assert payments.peek()[0].body == body


def test_send_command_accepts_every_message_field(payments: Queue) -> None:
    options = ["--group", "acct-1", "--revision", 7, "--dedup-id", "tx-1", "--attributes", '{"source": "shop"}']
    sent = json.loads(out("send", Q, "{}", *options, "--json"))
    (message,) = payments.peek()
    assert sent == {"sequence_number": message.sequence_number, "duplicate": False, "revision": 7}
    assert (message.group, message.revision, message.dedup_id) == ("acct-1", 7, "tx-1")
    assert message.attributes == {"source": "shop"}
    assert out("send", Q, "{}", *options).endswith("nothing was added.")
    assert json.loads(out("send", Q, "{}", *options, "--json"))["duplicate"]
    out("send", Q, "later", "--delay-s", 60, "--group", "acct-2")
    assert "delayed until" in out("groups", Q, "acct-2")
    out("send", "new.db#q", "x", "--create")
    assert "1 message," in out("queue", "show", "new.db#q")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "expected exactly one of BODY"),
        (["x", "--file", "y"], "expected exactly one of BODY"),
        (["--file", "nowhere"], "nowhere: No such file"),
        (["{bad"], "correct it, or pass --content text"),
        (["x", "--content", "json"], "the body is not JSON"),
        (["x", "--attributes", "[1]"], "--attributes '[1]' is not a JSON object"),
        (["x", "--attributes", "{"], "--attributes is not JSON"),
        (["x", "--delay-s", "-1"], "--delay-s is -1.0"),
        (["x", "--group-field", "a"], "--start-line need --from"),
        (["x", "--start-line", "2"], "--start-line need --from"),
        (["--from", "nowhere"], "nowhere: No such file"),
        (["--from", "nowhere", "--group", "a"], "omit --group"),
        (["x", "--from", "nowhere"], "omit the body"),
    ],
)
def test_send_command_refuses_invalid_arguments(payments: Queue, arguments: list[str], words: str) -> None:
    assert words in told("send", Q, *arguments)
    assert payments.depth().messages == 0


def test_send_from_a_file_reads_lines_with_envelopes(payments: Queue) -> None:
    sources = [
        {"body": {"n": 1}, "group": "a", "revision": 1, "dedup_id": "x", "attributes": {"k": [1]}},
        {"body": "text", "group": 7},
        {"body": None, "dedup_id": "x"},
        {"body": "later", "delay_s": 60, "group": None},
    ]
    text = "\ufeff" + "\r\n\r\n".join(map(json.dumps, sources)) + "\n\n"
    answer = json.loads(out("send", Q, "--from", "-", "--json", typed=text))
    messages = payments.peek()
    assert answer == {
        "sent": 3,
        "duplicates": 1,
        "first": messages[0].sequence_number,
        "last": messages[2].sequence_number,
    }
    assert [(message.body, message.group, message.revision) for message in messages] == [
        ({"n": 1}, "a", 1),
        ("text", "7", None),
        ("later", None, None),
    ]
    assert messages[0].attributes == {"k": [1]}
    Path("none.jsonl").touch()
    assert out("send", Q, "--from", "none.jsonl") == "0 sent."


def test_send_from_a_file_reads_lines_as_bodies_with_field_options(payments: Queue) -> None:
    rows = [{"account": {"id": n}, "rev": n, "tx.id": n * 10, "amount": 5} for n in (1, 2)]
    Path("rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    fields = ["--group-field", "account.id", "--revision-field", "rev", "--dedup-field", "tx.id"]
    assert out("send", Q, "--from", "rows.jsonl", *fields).startswith("2 sent as ")
    assert out("send", Q, "--from", "rows.jsonl", *fields) == "0 sent, 2 duplicates."
    messages = payments.peek()
    assert [(message.group, message.revision, message.dedup_id) for message in messages] == [
        ("1", 1, "10"),
        ("2", 2, "20"),
    ]
    assert [message.body for message in messages] == rows


@pytest.mark.parametrize(
    ("line", "fields", "words"),
    [
        ('{"body": 1', [], "line 4: not JSON: "),
        ('{"body": NaN}', [], "begins with '{\"body\": NaN}'. Expected one JSON value per line"),
        ("5", [], 'not a JSON object; expected {"body": …'),
        ('{"group": "a"}', [], 'no body; expected {"body": …'),
        ('{"body": 1, "grup": "a"}', [], "unknown field 'grup'; did you mean 'group'?"),
        ('{"body": 1, "revision": "2"}', [], "revision is '2'; expected a whole number"),
        ('{"body": 1, "group": 1.5}', [], "invalid group"),
        ('{"body": 1, "attributes": "a"}', [], "attributes is 'a'; expected a dict"),
        ('{"id": 1}', ["--group-field", "account"], "no field 'account' for the group; existing fields: 'id'"),
        ('{"account": null}', ["--group-field", "account"], "'account' is null; expected the group"),
        ("[1]", ["--group-field", "account"], "no field 'account' for the group; not a JSON object"),
    ],
)
def test_send_from_a_file_stops_at_a_bad_line_and_names_the_line_to_continue_with(
    payments: Queue, line: str, fields: list[str], words: str
) -> None:
    valid = {"body": 0, "group": "g"} if not fields else {"account": "g"}
    Path("m.jsonl").write_text("\n".join([json.dumps(valid)] * 3 + [line] + [json.dumps(valid)] * 2))
    output = told("send", Q, "--from", "m.jsonl", *fields)
    assert "m.jsonl, line 4: " in output
    assert words in output
    assert "Lines 1 to 3 were sent (3 new); continue with --start-line 4." in output
    assert payments.depth().messages == 3
    output = told("send", Q, "--from", "m.jsonl", *fields, "--start-line", 4)
    assert "line 4: " in output
    assert "No message was sent." in output
    out("send", Q, "--from", "m.jsonl", *fields, "--start-line", 5)
    assert payments.depth().messages == 5


def test_send_from_a_file_reports_the_sent_lines_when_the_store_fails(
    payments: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inturn.cli.lines.BATCH_MESSAGES", 2)
    sent = Queue.send_many
    calls: list[int] = []

    class Failing:
        """The third batch finds the disk full."""

        def __get__(self, queue: Queue, owner: type) -> Any:
            def send(drafts: list[Any], **more: Any) -> Any:
                calls.append(len(drafts))
                if len(calls) == 3:
                    raise StoreError("the disk is full")
                return sent.__get__(queue, owner)(drafts, **more)

            return send

    monkeypatch.setattr(Queue, "send_many", Failing())
    output = told("send", Q, "--from", "-", typed='{"body": 1}\n' * 7)
    assert "StoreError: -, the disk is full. Lines 1 to 4 were sent (4 new); continue with --start-line 5" in output
    assert payments.depth().messages == 4


# --- receive, acknowledge, look ---


def test_receive_command_gives_printed_messages_back(payments: Queue) -> None:
    payments.send({"n": 1}, group="a", revision=1)
    payments.send("b\x1b[31m\n", group="a")
    payments.send(b"\xff")
    first, second, third = [message.sequence_number for message in payments.peek()]
    expected = f'{first}, group a, revision 1: {{"n": 1}}\n{second}, group a: b\\x1b[31m\\n\n{third}: base64:/w=='
    assert out("receive", Q, "--max-messages", 5) == expected
    assert out("peek", Q) == expected
    received = lines(out("receive", Q, "--max-messages", 5, "--json"))
    assert [message.get("body") for message in received] == [{"n": 1}, "b\x1b[31m\n", None]
    assert received[2]["body_base64"] == "/w=="
    assert [message["attempts"] for message in received] == [2, 1, 2]
    assert lines(out("receive", Q, "--group", "nobody", "--json")) == []


def test_receive_command_with_ack_acknowledges_messages(payments: Queue) -> None:
    payments.send("a")
    payments.send("b")
    assert out("receive", Q, "--ack").endswith(": a")
    (message,) = lines(out("receive", Q, "--ack", "--json", "--wait-s", 5))
    assert message["body"] == "b"
    assert payments.depth().messages == 0
    assert "queue is empty" in run("receive", Q).stderr
    assert "--ack and --keep exclude each other" in told("receive", Q, "--ack", "--keep")


def test_receive_command_with_keep_prints_a_receipt_for_ack_and_nack(payments: Queue) -> None:
    payments.send("a", group="g")
    payments.send("b", group="g")
    ran = run("receive", Q, "--keep", "--visibility-timeout-s", 60, "--json")
    (message,) = lines(ran.stdout)
    assert f"inturn ack {Q} {message['receipt']} (or inturn nack" in ran.stderr
    assert "run 'inturn groups shop.db#payments'" in run("receive", Q).stderr
    out("nack", Q, message["receipt"])
    assert "its lease has expired" in told("ack", Q, message["receipt"])
    receipt, rest = out("receive", Q, "--keep").split(", ", 1)
    assert rest == "group g, attempt 2: a"
    out("ack", Q, receipt)
    assert out("peek", Q).endswith(": b")
    for wrong in ("", "7", "7:", "a:b", "-1:2", "9" * 30 + ":1"):
        assert "is not a valid receipt" in told("ack", Q, "--", wrong)


def test_receive_command_gives_a_message_back_if_printing_fails(
    payments: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    payments.send("a")

    def closed(*args: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr("inturn.cli.messages._line", closed)
    assert run("receive", Q, "--ack").exit_code == 1
    assert payments.receive()[0].body == "a"


def test_peek_command_pages_with_after(payments: Queue) -> None:
    for number in range(5):
        payments.send(str(number))
    payments.receive(5)
    ran = run("peek", Q, "--limit", 3)
    last = payments.peek(3)[-1].sequence_number
    assert ran.stderr == f"There may be more; continue with --after {last}\n"
    assert [message["body"] for message in lines(out("peek", Q, "--after", last, "--json"))] == ["3", "4"]
    assert "No messages in shop.db#payments after" in run("peek", Q, "--after", 2**63 - 1).stderr
    assert all("leased_until" not in message for message in lines(out("peek", Q, "--json")))


def test_queue_commands_create_configure_and_print_a_kept_log() -> None:
    out("queue", "create", Q, "--keep-for", "30 days", "--keep-bytes", 1000)
    settings = json.loads(out("queue", "configure", Q, "keep_for=90 days", "keep_bytes=null", "--json"))["settings"]
    assert (settings["keep_for"], settings["keep_bytes"]) == (90 * 86_400, None)
    assert json.loads(out("queue", "configure", Q, "keep_for=60", "--json"))["settings"]["keep_for"] == 60
    assert "keep_for is '3 parsecs'; expected a text such as '10 minutes'" in told(
        "queue", "configure", Q, "keep_for=3 parsecs"
    )
    for group in ("a", "b"):
        out("send", Q, f"of {group}", "--group", group)
    out("receive", Q, "--ack")
    assert [message["body"] for message in lines(out("peek", Q, "--json"))] == ["of b"]
    assert [message["body"] for message in lines(out("peek", Q, "--log", "--json"))] == ["of a", "of b"]
    assert [message["body"] for message in lines(out("peek", Q, "--log", "--group", "a", "--json"))] == ["of a"]
    assert json.loads(out("queue", "configure", Q, "keep_for=null", "--json"))["settings"]["keep_for"] is None


# --- groups and redrive ---


def test_queue_park_and_resume_commands_and_locked_groups(payments: Queue) -> None:
    for group in ("a", "b"):
        payments.send("x", group=group)
    session = payments.session("a", lock_s=600)
    assert session is not None
    assert out("queue", "park", Q, "b", "no\nsuch").startswith("b is parked; resume it with: inturn queue resume")
    assert "group 'a' was not parked" in told("queue", "park", Q, "a", "x")
    table = out("groups", Q)
    assert "locked until" in table
    assert "parked: no\\nsuch" in table
    reasons = [(group["group"], group["why"], group["note"]) for group in json.loads(out("groups", Q, "--json"))]
    assert reasons == [("a", "locked", None), ("b", "parked", "no\nsuch")]
    assert "parked b since" in out("queue", "show", Q)
    assert [group["note"] for group in json.loads(out("queue", "show", Q, "--json"))["parked"]] == ["no\nsuch"]
    assert out("queue", "resume", Q, "b") == "b was resumed."
    assert out("queue", "resume", Q, "b") == "b is not parked."
    assert [message.body for message in payments.receive(10)] == ["x"]


def test_queue_list_counts_parked_groups(payments: Queue) -> None:
    for number in range(101):
        payments.park(f"g{number}", "why")
    payments.resume("g7")
    payments.park("g8", "another reason")
    queues = json.loads(out("queue", "list", "shop.db", "--json"))
    assert {entry["queue"]: entry["parked_groups"] for entry in queues} == {"dead": 0, "payments": 100}
    head, first, second = out("queue", "list", "shop.db").splitlines()
    assert "parked groups" in head
    assert (first.split(), second.split()[:3]) == (["dead", "0", "0"], ["payments", "0", "100"])
    assert "Shown: the first" not in out("queue", "show", Q)
    payments.park("g7", "again")
    assert "  Shown: the first 100 of 101 parked groups." in out("queue", "show", Q)
    shown = json.loads(out("queue", "show", Q, "--json"))
    assert (shown["parked_groups"], len(shown["parked"])) == (101, 100)


def parked(queue: Queue) -> list[str]:
    return [group.group for group in queue.parked()]


def test_queue_resume_resumes_groups_selected_by_name_and_error(payments: Queue) -> None:
    for name, reason in {"eu-1": "ValueError: 1", "eu-2": "KeyError", "us-1": "trace\nValueError: 2"}.items():
        payments.park(name, reason)
    assert out("queue", "resume", Q, "--group", "eu-*", "--error", "ValueError*") == (
        f"resume: 1 group of {Q}.\nresume: 1 done, 0 void."
    )
    assert parked(payments) == ["eu-2", "us-1"]
    report = json.loads(run("queue", "resume", Q, "eu-1", "us-1", "--json").stdout)
    assert report == {"action": "resume", "done": ["us-1"], "void": {"eu-1": "not parked"}}
    payments.park("us-1", "x")
    assert json.loads(out("queue", "resume", Q, "--all", "--json"))["done"] == ["eu-2", "us-1"]
    assert parked(payments) == []
    assert out("queue", "resume", Q, "--all") == f"resume: 0 groups of {Q}.\nresume: 0 done, 0 void."


def test_queue_resume_by_name_lists_groups_that_are_not_parked(payments: Queue) -> None:
    payments.park("a", "x")
    ran = run("queue", "resume", Q, "a", "b", *(f"c{number:02}" for number in range(20)))
    assert ran.exit_code == 1
    assert ran.stdout.splitlines()[1:3] == ["resume: 1 done, 21 void.", "  b: void, not parked"]
    assert ran.stdout.splitlines()[-1] == "  … and 1 more void; use --json for all."


def test_queue_resume_handles_more_groups_than_one_page_or_transaction(
    payments: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inturn.cli.groups._AT_ONCE", 3)
    monkeypatch.setattr("inturn.cli.groups._PAGE", 4)
    for number in range(10):
        payments.park(f"g{number}", "x" if number % 5 else "y")
    assert len(json.loads(out("queue", "resume", Q, "--error", "x", "--json"))["done"]) == 8
    assert sorted(parked(payments)) == ["g0", "g5"]


def test_queue_resume_resumes_only_the_groups_found_before_the_confirmation(
    payments: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        payments.park(name, "x")

    def asked(question: str, **_: object) -> bool:
        assert question == f"resume: 2 groups of {Q}; continue?"
        payments.resume("b")
        payments.park("new", "y")
        return True

    monkeypatch.setattr("inturn.cli.output.is_interactive", lambda: True)
    monkeypatch.setattr("inturn.cli.groups.typer.confirm", asked)
    ran = run("queue", "resume", Q, "--all")
    assert (ran.exit_code, parked(payments)) == (1, ["new"])
    assert "  b: void, resumed or parked again by another process meanwhile" in ran.stdout


def test_queue_resume_of_many_groups_asks_for_confirmation_on_a_terminal(
    payments: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        payments.park(name, "x")
    monkeypatch.setattr("inturn.cli.output.is_interactive", lambda: True)
    ran = run("queue", "resume", Q, "--all", typed="n\n")
    assert (ran.exit_code, f"resume: 3 groups of {Q}; continue?" in ran.output, len(parked(payments))) == (1, True, 3)
    ran = run("queue", "resume", Q, "--all", "--json", typed="y\n")
    assert sorted(json.loads(ran.stdout.splitlines()[-1])["done"]) == ["a", "b", "c"]
    payments.park("a", "x")
    payments.park("b", "x")
    assert "2 done" in out("queue", "resume", Q, "--all", "--yes")


@pytest.mark.parametrize(
    ("words", "says"),
    [([], "no group is selected; name groups"), (["a", "--all"], "pass either names or these")],
)
def test_queue_resume_refuses_an_unclear_selection(payments: Queue, words: list[str], says: str) -> None:
    payments.park("a", "x")
    assert says in told("queue", "resume", Q, *words)
    assert parked(payments) == ["a"]


def test_groups_command_lists_groups_with_their_state(payments: Queue) -> None:
    for body, group in (("1", "b"), ("2", "a"), ("3", "b"), ("4", None)):
        payments.send(body, group=group)
    payments.send("5", group="late", delay_s=60)
    token = payments.receive(2)[0].fencing_token
    groups = json.loads(out("groups", Q, "--json"))
    assert [group["group"] for group in groups] == ["b", "a", None, "late"]
    assert [group["why"] for group in groups] == ["in_flight", "ready", "ready", "delayed"]
    assert [group["messages"] for group in groups] == [2, 1, 1, 1]
    assert (groups[0]["fencing_token"], groups[0]["attempts"]) == (token, 1)
    assert groups[0]["until"] > groups[0]["head_sent_at"]
    assert 0 <= groups[0]["age_s"] < 60
    table = out("groups", Q).splitlines()
    assert [line.split()[0] for line in table[1:]] == ["b", "a", "none", "late"]
    assert "in flight until" in table[1]
    assert "ready" in table[2]
    ran = run("groups", Q, "--limit", 1)
    assert "the first 1 groups; use --limit for more" in ran.stderr
    ran = run("groups", Q, "a", "x")
    assert (len(ran.stdout.splitlines()), ran.stderr) == (2, "x: no messages\n")
    assert out("groups", "shop.db#dead") == "No group has messages."


def test_redrive_command_returns_messages_to_their_old_positions(payments: Queue) -> None:
    for body in "abc":
        payments.send(body, group="g")
    for _ in range(2):
        out("receive", Q)
    assert out("receive", Q).endswith(": b")
    out("receive", Q)
    assert out("receive", Q).endswith(": c")
    assert "from payments: received 2 times and never acknowledged: a" in out("peek", "shop.db#dead")
    assert json.loads(out("redrive", "shop.db#dead", "--limit", 1, "--json")) == {"moved": 1, "left": 1}
    assert out("redrive", "shop.db#dead") == "1 message moved back; 0 left in shop.db#dead."
    assert [message.body for message in payments.peek()] == ["a", "b", "c"]
    assert out("redrive", Q, "--to", "dead") == "3 messages moved to dead; 0 left in shop.db#payments."
    assert "no queue 'x'; existing queues: " in told("redrive", "shop.db#dead", "--to", "x")


# --- real processes ---


def process(*arguments: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "inturn.cli", *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.thorough
def test_a_receive_command_waits_for_a_send_command_of_another_process() -> None:
    out("queue", "create", Q)
    waiting = process("receive", Q, "--wait-s", "300", "--ack")  # longer than this test may take: it is woken
    time.sleep(1)
    sending = process("send", Q, "--from", "-", "--group-field", "g")
    body = '{"g": "a"}'
    assert sending.communicate(f"{body}\n" * 2500, timeout=100)[0].startswith("2,500 sent as ")
    answer, _ = waiting.communicate(timeout=100)
    assert answer.endswith(f"group a: {body}\n")
    assert "2,499 messages" in out("queue", "show", Q)


def test_queue_create_sets_the_retry_delay() -> None:
    options = ("--retry-delay-s", 60, "--retry-growth", 3, "--retry-max-s", 600, "--retry-jitter", 0)
    created = json.loads(out("queue", "create", Q, *options, "--json"))
    assert created["created"]
    with inturn.open("shop.db") as db:
        settings = db.queue("payments", create=False).info().settings
        queue = db.queue("payments", create=False)
        queue.send("x")
        queue.receive()[0].nack()
        assert queue.receive() == []
    stored = (settings.retry_delay_s, settings.retry_growth, settings.retry_max_s, settings.retry_jitter)
    assert stored == (60, 3, 600, 0)
    assert "--retry-jitter is 2" in told("queue", "create", "shop.db#other", "--retry-jitter", 2)


def test_max_depth_is_set_and_changed_by_commands_and_refuses_sends() -> None:
    out("queue", "create", "shop.db#small", "--max-depth", 3)
    with inturn.open("shop.db") as db:
        small = db.queue("small")
        output = told("send", "shop.db#small", "--from", "-", typed='{"body": 1}\n' * 7, code=1)
        assert "the queue 'small' has 3 messages with max_depth=3; there is no room for 3 more" in output
        assert "Lines 1 to 3 were sent (3 new); continue with --start-line 4." in output
        output = told("send", "shop.db#small", "x", "--wait-s", 0.01)
        assert "QueueFull" in output
        assert "max_depth             4" in out("queue", "configure", "shop.db#small", "max_depth=4", "retention_s=9.5")
        out("send", "shop.db#small", "x", "--wait-s", 60)
        settings = small.info().settings
        assert (settings.max_depth, settings.retention_s, settings.delay_s) == (4, 9.5, 0)
        shown = json.loads(out("queue", "configure", "shop.db#small", "max_depth=null", "content_dedup=true", "--json"))
        assert (shown["settings"]["max_depth"], shown["settings"]["content_dedup"]) == (None, True)
    assert "max_depth is 0; expected a whole number" in told("queue", "configure", "shop.db#small", "max_depth=0")
    assert "max_depth is 'x'; expected a whole number or null" in told(
        "queue", "configure", "shop.db#small", "max_depth=x"
    )
    assert "max_depth has no value; expected SETTING=VALUE" in told("queue", "configure", "shop.db#small", "max_depth")
    for wrong in ("max-depth", "extra"):
        expected = f"no setting '{wrong}'; existing settings: visibility_timeout_s"
        assert expected in told("queue", "configure", "shop.db#small", f"{wrong}={{}}")


def test_send_command_with_revision_next_assigns_revisions(payments: Queue) -> None:
    first = out("send", Q, "one", "--group", "a", "--revision", "next")
    assert first.endswith(", revision 1.")
    sent = json.loads(out("send", Q, "two", "--group", "a", "--revision", "next", "--expected-revision", 1, "--json"))
    assert (sent["revision"], sent["duplicate"]) == (2, False)
    refused = told("send", Q, "three", "--group", "a", "--revision", "next", "--expected-revision", 1)
    assert "--expected-revision is 1, but the last revision given to the group 'a' is 2" in refused
    assert "--revision is 'nxt'; expected a whole number, or next" in told("send", Q, "x", "--revision", "nxt")
    line = '{"body": "four", "group": "a", "revision": "next"}\n'
    out("send", Q, "--from", "-", typed=line)
    assert [(message.body, message.revision) for message in payments.peek(group="a")] == [
        ("one", 1),
        ("two", 2),
        ("four", 3),
    ]
