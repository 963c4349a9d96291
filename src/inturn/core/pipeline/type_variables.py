"""Type variables of a pipeline: its messages, states and outputs.

Type checkers take each as ``Any`` where it is not named (PEP 696), so ``Pipeline`` alone is the pipeline of anything.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    MessageT = TypeVar("MessageT", default=Any)
    StateT = TypeVar("StateT", default=Any)
    OutputT = TypeVar("OutputT", default=Any)
else:  # defaults came with Python 3.13
    from typing import TypeVar

    MessageT, StateT, OutputT = TypeVar("MessageT"), TypeVar("StateT"), TypeVar("OutputT")

__all__ = ["MessageT", "OutputT", "StateT"]
