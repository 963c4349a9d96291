"""The configuration of the console that the endpoint serves."""

from pathlib import Path
from typing import Annotated, TypeAlias

from msgspec import Meta
from msgspec.structs import replace

from inturn.serving.config_file import ConfigTable, resolved

Host: TypeAlias = Annotated[str, Meta(min_length=1, description='an address to listen on, such as "127.0.0.1"')]
Port: TypeAlias = Annotated[int, Meta(ge=0, le=65_535, description="a port from 0 to 65535 (0: any free port)")]


class ConsoleTable(ConfigTable, frozen=True, kw_only=True):
    """``[console]``: the console of the endpoint's database, on a separate port; off unless this table exists.

    Attributes:
        host: the address to listen on; a loopback one unless people log in.
        port: the port; 0: any free port.
        config: the file with people, masks and the log of actions, as for ``inturn console --config``.
        pipelines: the pipelines whose handlers dry runs use, each as ``file.py:name`` or ``module:name``.
    """

    host: Host = "127.0.0.1"
    port: Port = 9325
    config: str | None = None
    pipelines: tuple[str, ...] = ()

    def resolved(self, folder: Path) -> "ConsoleTable":
        """Return the table with its relative files resolved against a folder."""
        return replace(
            self,
            config=self.config and resolved(folder, self.config),
            pipelines=tuple(resolved(folder, pipeline, ":") for pipeline in self.pipelines),
        )
