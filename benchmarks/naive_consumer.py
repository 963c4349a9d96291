"""How many messages of RabbitMQ are applied out of turn by four usual consumers, and by inturn, from the same queue.

    python benchmarks/naive_consumer.py amqp://guest:guest@localhost/ [--messages 2000] [--prefetch 10] [--json]

Fifty accounts have messages with the numbers 1, 2, 3, … A handler takes about a millisecond; for two messages in a
hundred its first attempt fails. The usual consumer acknowledges what was applied and requeues what failed. A message is
out of turn if it is not the next number of its account when it is applied.
"""

import argparse
import asyncio
import json
import random
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import aio_pika

import inturn
from inturn.ingest import Ingest, MessageMapping, RabbitSource

Numbered = tuple[str, int]
"""An account, and the number of a message of it."""
CONSUMERS: Final = 4
ACCOUNTS: Final = 50
FAILING: Final = 0.02
QUEUE: Final = "naive-consumer"


class Handler:
    """A handler of a millisecond or so, whose first attempt fails for some messages."""

    def __init__(self, failing: Sequence[Numbered]) -> None:
        self._failing, self._lock = set(failing), threading.Lock()

    def fails(self, message: Numbered) -> bool:
        with self._lock:
            fails = message in self._failing
            self._failing.discard(message)
        return fails


def drawn(count: int, seed: int) -> tuple[list[Numbered], list[Numbered]]:
    """Return messages, and those of them that fail at first."""
    chance, last = random.Random(seed), defaultdict[str, int](int)  # noqa: S311 - repeatable
    messages = []
    for _ in range(count):
        account = f"acct-{chance.randrange(ACCOUNTS)}"
        last[account] += 1
        messages.append((account, last[account]))
    return messages, [message for message in messages if chance.random() < FAILING]


def out_of_turn(applied: Sequence[Numbered]) -> int:
    """Return how many messages were not the next of their account when they were applied."""
    last, count = defaultdict[str, int](int), 0
    for account, number in applied:
        count += number != last[account] + 1
        last[account] = number
    return count


async def publish(url: str, messages: Sequence[Numbered]) -> None:
    """Make the queue anew and publish."""
    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        await channel.queue_delete(QUEUE)
        await channel.declare_queue(QUEUE, durable=True)
        for account, number in messages:
            body = json.dumps({"account": account, "n": number}).encode()
            message = aio_pika.Message(body, message_id=f"{account}-{number}", delivery_mode=2)
            await channel.default_exchange.publish(message, QUEUE)


async def consume(url: str, count: int, handler: Handler, prefetch: int) -> list[Numbered]:
    """Apply all messages by consumers that acknowledge and requeue; return them as they were applied."""
    applied: list[Numbered] = []
    done = asyncio.Event()
    chance = random.Random(1)  # noqa: S311 - repeatable

    async def consumer() -> None:
        async with await aio_pika.connect(url) as connection:
            channel = await connection.channel()
            await channel.set_qos(prefetch_count=prefetch)
            queue = await channel.declare_queue(QUEUE, passive=True)
            async with queue.iterator() as messages:
                stop = asyncio.create_task(done.wait())
                while not done.is_set():
                    following = asyncio.ensure_future(anext(messages))
                    await asyncio.wait({following, stop}, return_when=asyncio.FIRST_COMPLETED)
                    if not following.done():
                        following.cancel()
                        return
                    message = following.result()
                    content = json.loads(message.body)
                    await asyncio.sleep(chance.uniform(0.0005, 0.0015))
                    if handler.fails((content["account"], content["n"])):
                        await message.nack(requeue=True)
                        continue
                    applied.append((content["account"], content["n"]))
                    await message.ack()
                    if len(applied) == count:
                        done.set()

    await asyncio.gather(*(consumer() for _ in range(CONSUMERS)))
    return applied


def ingested(url: str, handler: Handler, folder: Path) -> list[Numbered]:
    """Apply all messages by a source and four threads of inturn; return them as they were applied."""

    def apply(state: Any, message: dict[str, Any]) -> tuple[Any, list[Any]]:
        time.sleep(0.001)
        if handler.fails((message["account"], message["n"])):
            raise inturn.Retryable("the first attempt fails")
        return state, [{"account": message["account"], "n": message["n"]}]

    applied: list[Numbered] = []

    def deliver(output: dict[str, Any], _effect_id: str) -> None:
        applied.append((output["account"], output["n"]))

    with inturn.open(folder / "shop.db") as db:
        queue = db.queue("payments")
        mapping = MessageMapping(group="body.account", id="headers.message-id")
        Ingest(RabbitSource(url, QUEUE), queue, mapping, name="bank").run(until="caught up")
        pipeline = inturn.Pipeline(
            name="bank",
            group="account",
            order=inturn.Arrival(),
            handler=apply,
            id="id",
            arrival="arrival",
            retry=inturn.Retry(times=3, backoff="1 milliseconds"),
        )
        inturn.work(pipeline, queue, concurrency=CONSUMERS, deliver=deliver, until="empty")
    return applied


def measured(url: str, count: int, prefetch: int, seed: int = 1) -> dict[str, dict[str, float]]:
    """Return for each kind of consumer how many messages were applied, how many out of turn, and in what time."""
    messages, failing = drawn(count, seed)
    results = {}
    for name in ("usual consumers", "inturn"):
        asyncio.run(publish(url, messages))
        begun = time.perf_counter()
        if name == "inturn":
            with tempfile.TemporaryDirectory() as folder:
                applied = ingested(url, Handler(failing), Path(folder))
        else:
            applied = asyncio.run(consume(url, count, Handler(failing), prefetch))
        elapsed_s = time.perf_counter() - begun
        results[name] = {"applied": len(applied), "out of turn": out_of_turn(applied), "seconds": round(elapsed_s, 2)}
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", help="the server; the queue naive-consumer is made there anew")
    parser.add_argument("--messages", type=int, default=2000)
    parser.add_argument("--prefetch", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    results = measured(args.url, args.messages, args.prefetch)
    if args.json:
        print(json.dumps(results))
        return
    for name, figures in results.items():
        part = figures["out of turn"] / figures["applied"]
        print(f"{name}: {figures['applied']:,} applied, {part:.1%} out of turn, {figures['seconds']} s")


if __name__ == "__main__":
    main()
