"""One contender in one row of a table: what was measured of it in each round, and the medians."""

import statistics
from dataclasses import dataclass, field


@dataclass
class Cell:
    """Messages or requests per second, and CPU microseconds for each."""

    per_s: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return statistics.median(self.per_s)

    @property
    def cpu(self) -> float:
        return statistics.median(self.cpu_us)
