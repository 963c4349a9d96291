"""A device that numbers its readings and starts again at 0 after a restart.

Its boot count is the epoch: a higher epoch restarts the device's timeline. Without it, readings after a restart are too
old until the counter has passed its last value. Run it with ``python examples/device_resets.py``. It prints:

    boot 1, reading 338: 20.5
    boot 1, reading 339: 20.7
    boot 2, reading 0: 19.0
    boot 2, reading 1: 19.2
    without the epoch: applied 2, stale 2
    a late reading of boot 1: stale 1
"""

from dataclasses import dataclass

from inturn import Monotone, Pipeline


@dataclass(frozen=True)
class Reading:
    device: str
    boot: int
    counter: int
    celsius: float


@dataclass
class Device:
    readings: int = 0
    latest: float | None = None


def record(device: Device, reading: Reading) -> tuple[Device, list[str]]:
    text = f"boot {reading.boot}, reading {reading.counter}: {reading.celsius}"
    return Device(device.readings + 1, reading.celsius), [text]


def pipeline(epoch: str | None) -> Pipeline[Reading, Device, str]:
    order = Monotone("counter", epoch=epoch)
    return Pipeline(name="devices", group="device", order=order, message=Reading, state=Device, handler=record)


def main() -> None:
    arrived = [(1, 338, 20.5), (1, 339, 20.7), (2, 0, 19.0), (2, 1, 19.2)]
    readings = [Reading("door-3", *values) for values in arrived]
    devices = pipeline("boot")
    result = devices.replay(readings)
    for output in result.outputs:
        print(output.output)
    first, second = readings[:2], readings[2:]
    without = pipeline(None)
    before = without.replay(first)
    after = without.replay(second, after=before)
    print(f"without the epoch: applied {before.counts.applied + after.counts.applied}, stale {after.counts.stale}")
    late = devices.replay([Reading("door-3", 1, 337, 20.4)], after=result)
    print(f"a late reading of boot 1: stale {late.counts.stale}")


if __name__ == "__main__":
    main()
