"""The link from the lab's page to the page of an audit."""

from dataclasses import dataclass


@dataclass(frozen=True)
class AuditLink:
    """The audit's page about the same log.

    Attributes:
        href: its path, relative to this page.
        source: name of the log.
    """

    href: str
    source: str
