"""One of several processes that send to a bounded queue: waits for room, and looks how deep the queue is then."""

import sys

import inturn


def main(target: str, name: str, messages: str) -> None:
    with inturn.open(target, durable=False) as db:
        queue = db.queue("q", create=False)
        bound = queue.info().settings.max_depth
        assert bound is not None
        for number in range(int(messages)):
            queue.send([name, number], group=name, dedup_id=f"{name}-{number}" if number % 2 else None, wait_s=120)
            with db.transaction() as tx:
                depth = queue.depth(tx=tx).messages
            assert depth <= bound, f"{depth} messages"


if __name__ == "__main__":
    main(*sys.argv[1:])
