"""A pipeline goes to workers that do not have the module it was written in."""

import shutil
import subprocess
import sys
import textwrap
import threading

import msgspec
import pytest
from programs import later, workshop
from pyspark.sql import SparkSession

from inturn import Gapless, Pipeline, pipelines
from inturn.core.errors import SetupError
from inturn.spark import pickling
from waiting import PROGRAM_S


def on_a_worker(pipeline: Pipeline, code: str) -> None:
    """Run code in a Python of its own that has no module of ours; `pipeline` is what came over."""
    before = """
        import sys
        from decimal import Decimal
        import msgspec
        from inturn.spark import pickling
        from inturn.spark.columns.records import record_fields
        from inturn.spark.columns.state_codec import StateCodec
        sent = sys.stdin.buffer.read()
        pipeline = pickling.loads(sent)
        assert not {"programs", "programs.workshop", "workshop", "later"} & sys.modules.keys()
    """
    program = textwrap.dedent(before) + textwrap.dedent(code)
    run = subprocess.run(
        [sys.executable, "-c", program],
        input=pickling.dumps(pipeline),
        capture_output=True,
        check=False,
        cwd="/",
        timeout=PROGRAM_S,
    )
    assert run.returncode == 0, run.stderr.decode()


def test_a_ready_made_pipeline_fills_a_pickled_dataclass_with_a_default_factory() -> None:
    on_a_worker(
        pipelines.latest("shelves", group="group", order=Gapless("revision"), row="after", state=workshop.Shelf),
        """
        Shelf = pipeline.state
        for after, expected in ((None, Shelf(is_deleted=True)), ({"marks": ["a"]}, Shelf(marks=["a"]))):
            message = {"group": "a", "revision": 1, "after": after}
            assert pipeline.handler(Shelf(), message) == (expected, [])
        """,
    )


def test_a_pickled_dataclass_keeps_defaults_methods_and_enum() -> None:
    on_a_worker(
        workshop.parts,
        """
        Part = pipeline.message
        part = Part(group="a", revision=1)
        Colour = type(part.colour)
        assert part == Part(group="a", revision=1, size=Decimal("1.50"), colour=Colour("red"), marks=[])
        assert part.marks is not Part(group="a", revision=2).marks
        assert [field.type for field in record_fields(Part)] == [str, int, Decimal, Colour, list[int]]
        assert pipeline.handler({}, part) == ({"red": 1}, [Decimal("3.00")])
        assert pipeline.handler({}, Part(group="a", revision=1, size=Decimal(10)))[1] == [None]
        """,
    )


def test_types_with_a_msgspec_cache_can_be_pickled() -> None:
    """It leaves a note on them that cannot be sent: a worker, or another pipeline, may have been there first."""
    part = msgspec.json.decode(b'{"group": "a", "revision": 1, "colour": "red"}', type=workshop.parts.message)
    assert all("__msgspec_cache__" in vars(kind) for kind in (type(part), type(part.colour)))
    on_a_worker(workshop.parts, "assert pipeline.message(group='a', revision=1).colour.value == 'red'")


def test_a_pickled_struct_keeps_options_and_methods() -> None:
    on_a_worker(
        workshop.money,
        """
        Money = pipeline.state
        assert Money(3) < Money(4) and {Money(3): 1}[Money(3)] == 1
        try:
            Money(3).cents = 4
        except AttributeError:
            pass
        else:
            raise AssertionError("it is not frozen any more")
        assert pipeline.handler(Money(20), {"amount": "4"}) == (Money(30), [])
        assert StateCodec(pipeline).signature == {"cents": "int64"}
        assert StateCodec(pipeline).unpack(StateCodec(pipeline).pack([Money(3)])) == [Money(3)]
        """,
    )


def test_a_pickled_tagged_struct_keeps_tag_and_defaults() -> None:
    on_a_worker(
        workshop.tagged,
        """
        Deposit = pipeline.message
        one, two = Deposit("a", 1), Deposit("a", 2)
        assert one.notes == [] and one.notes is not two.notes
        text = '{"kind":"in","group":"a","revision":1,"money":{"cents":5},"notes":[]}'
        assert msgspec.json.encode(one).decode() == text
        assert msgspec.json.decode(text, type=Deposit) == one
        """,
    )


def test_a_pickled_struct_keeps_operators() -> None:
    on_a_worker(workshop.added, "assert pipeline.handler(pipeline.state(5), {}) == (pipeline.state(6), ['0.05'])")


def test_types_unpickled_repeatedly_are_the_same_types() -> None:
    """A worker gets the pipeline with every task; what an earlier task made of a type, a later one must know."""
    on_a_worker(
        workshop.owner,
        """
        for each in (pipeline, pickling.loads(sent), pickling.loads(sent)):
            state, _ = each.handler(each.state(), None)
            codec = StateCodec(each)
            assert codec.unpack(codec.pack([state])) == [state]
            assert each.state is pipeline.state
        """,
    )


def test_a_pickled_struct_keeps_its_post_init_check() -> None:
    on_a_worker(
        workshop.checked,
        """
        try:
            pipeline.state(-1)
        except ValueError:
            sys.exit(0)
        sys.exit("it is not checked any more")
        """,
    )


def test_a_pickled_struct_keeps_its_base_struct() -> None:
    on_a_worker(
        workshop.deposits,
        "assert pipeline.handler({}, pipeline.message('a', 1))[1] == ['deposit, event 1', True]",
    )


def test_a_pickled_struct_keeps_renamed_json_fields() -> None:
    on_a_worker(workshop.named, """assert msgspec.json.encode(pipeline.state()) == b'{"firstName":"Ada"}'""")


def test_a_pickled_struct_keeps_keyword_only_fields() -> None:
    on_a_worker(workshop.keywords, "assert pipeline.message(group='a', revision=1).size == 1")


def test_a_pickled_type_with_string_annotations_is_usable() -> None:
    on_a_worker(
        later.visited,
        """
        assert [field.optional for field in record_fields(pipeline.message)] == [False, False, True]
        state = pipeline.handler(pipeline.state(), pipeline.message("a", 1))[0]
        assert StateCodec(pipeline).unpack(StateCodec(pipeline).pack([state])) == [state]
        """,
    )


def test_objects_of_installed_modules_are_pickled_by_name() -> None:
    registered = pickling.cloudpickle.list_registry_pickle_by_value()
    by_name = pickling.dumps(workshop.made(handler=shutil.copyfile))
    assert len(by_name) < len(pickling.dumps(workshop.made())) < 3_000
    assert pickling.loads(by_name).handler is shutil.copyfile
    on_a_worker(workshop.made(handler=shutil.copyfile), "import shutil; assert pipeline.handler is shutil.copyfile")
    assert pickling.cloudpickle.list_registry_pickle_by_value() == registered, "which is Spark's own, too"


def test_a_handler_with_a_lock_or_a_session_cannot_be_sent_and_is_refused(spark: SparkSession) -> None:
    for captured in (threading.Lock(), spark):
        holding = Pipeline(
            name="holding",
            group="g",
            order=Gapless("r"),
            handler=lambda state, message, captured=captured: (state, [captured]),
        )
        with pytest.raises(SetupError, match=r"'holding' cannot be sent .* must not refer to connections, locks"):
            pickling.dumps(holding)


def test_a_module_missing_on_a_spark_worker_is_named() -> None:
    sent = pickling.dumps(workshop.parts).replace(b"inturn.core.pipeline.order", b"inturn.core.pipeline.other")
    with pytest.raises(SetupError, match=r"cannot import 'inturn\.core\.pipeline\.other'.*--py-files"):
        pickling.loads(sent)
