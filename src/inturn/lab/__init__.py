"""The lab: a simulation of each design with the user's own messages, in virtual time."""

from inturn.lab.design import Design, Disposition, SimulationLog
from inturn.lab.draws import AttemptResult
from inturn.lab.fit import LogProfile, fitted, messages_of, profile_of
from inturn.lab.knobs import Knobs, LogNormalTime, MeasuredTime, UniformTime
from inturn.lab.recommend import Recommendation, recommend
from inturn.lab.results import DesignResult, LabResult
from inturn.lab.run import run
from inturn.lab.scenario import Scenario
from inturn.lab.scenarios import SCENARIOS, scenario
from inturn.lab.sweep import SweepResult, sweep
from inturn.lab.workload import LabMessage

__all__ = [
    "SCENARIOS",
    "AttemptResult",
    "Design",
    "DesignResult",
    "Disposition",
    "Knobs",
    "LabMessage",
    "LabResult",
    "LogNormalTime",
    "LogProfile",
    "MeasuredTime",
    "Recommendation",
    "Scenario",
    "SimulationLog",
    "SweepResult",
    "UniformTime",
    "fitted",
    "messages_of",
    "profile_of",
    "recommend",
    "run",
    "scenario",
    "sweep",
]
