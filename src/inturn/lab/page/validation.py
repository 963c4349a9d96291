"""Measured differences between the models and their engines: the file written by the benchmark of the lab."""

from importlib.resources import files

import msgspec


class ValidationRow(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of an engine, and of its model with the same messages.

    Attributes:
        design: name of the design.
        engine: engine and version.
        setup: number of consumers and other settings, in words.
        measure: the figure, such as ``out_of_turn_share``.
        unit: ``share``, ``us``, ``per_s`` or ``count``.
        engine_median: median of the engine's runs.
        engine_low: minimum of the engine's runs.
        engine_high: maximum of the engine's runs.
        model_median: median of the model's runs.
        role: ``fitted`` if constants of the model were fitted on this row, else ``held out``.
        holds: whether the difference is within the benchmark's tolerance.
    """

    design: str
    engine: str
    setup: str
    measure: str
    unit: str
    engine_median: float
    engine_low: float
    engine_high: float
    model_median: float
    role: str
    holds: bool


class ValidationReport(msgspec.Struct, frozen=True, kw_only=True):
    """A comparison of the models with the engines.

    Attributes:
        checked_on: date, ISO 8601.
        inturn: version of inturn.
        machine: machine in words.
        runs: runs of an engine for each row.
        rows: the figures.
    """

    checked_on: str
    inturn: str
    machine: str
    runs: int
    rows: list[ValidationRow]


def validation_report() -> ValidationReport | None:
    """Return the comparison in this version; None if there is none."""
    file = files("inturn.lab") / "validation.json"
    return msgspec.json.decode(file.read_bytes(), type=ValidationReport) if file.is_file() else None
