"""The routes of the console: the view or action, the required role and the fields of each.

The pages, the JSON API, its OpenAPI document and the tests of rights are all generated from these tables.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

from inturn.console import dead_letters, queues, search, sources, steps, views
from inturn.console.fields import RequestFields
from inturn.console.roles import Role

View: TypeAlias = Callable[[RequestFields], dict[str, Any]]
Act: TypeAlias = Callable[[RequestFields], dict[str, str]]


class RouteField(NamedTuple):
    """A field of a request.

    Attributes:
        name: its name.
        about: its description.
        is_needed: whether it is required.
        is_number: whether it is a whole number.
    """

    name: str
    about: str
    is_needed: bool = False
    is_number: bool = False


class PageRoute(NamedTuple):
    """A page, and the same as JSON below ``/api``.

    Attributes:
        name: name of the route, of its template and of its path; ``stuck`` is at the root.
        view: the function that returns its contents.
        fields: the fields that it takes.
        role: the role needed to see it.
    """

    name: str
    view: View
    fields: tuple[RouteField, ...] = ()
    role: Role = Role.VIEWER

    @property
    def path(self) -> str:
        """Return its path."""
        return "/" if self.name == "stuck" else f"/{self.name}"


class ActionRoute(NamedTuple):
    """An action: a form that is posted, and the same as JSON below ``/api``.

    Attributes:
        path: its path.
        act: the function that carries it out; it returns the fields of the next page.
        page: the next page.
        fields: the fields that it takes.
        role: the role needed to carry it out.
    """

    path: str
    act: Act
    page: str
    fields: tuple[RouteField, ...]
    role: Role = Role.OPERATOR


_STORE: Final = RouteField("store", "The title of the store, as in /api/stuck.", is_needed=True)
_DATABASE: Final = RouteField("database", "The title of the database, as in /api/queues.", is_needed=True)
_QUEUE: Final = RouteField("queue", "The queue.", is_needed=True)
_SOURCE: Final = RouteField("source", "The source.", is_needed=True)
_PARTITION: Final = RouteField("partition", "The partition; default: all partitions of the source.")
_GROUP: Final = RouteField("group", "The group.", is_needed=True)
_SELECTION: Final = (
    RouteField("group", "The name of one group."),
    RouteField("like", "A shell pattern for names of groups."),
    RouteField("error", "A shell pattern for the last line of the groups' error."),
    RouteField("all", "1 selects all groups to which the action applies."),
)
_DECISION: Final = (
    _STORE,
    RouteField("action", "resume, drop, skip, replace or give-up.", is_needed=True),
    *_SELECTION,
    RouteField(
        "seen",
        "``seen`` of /api/group or /api/preview. The decision is refused with 409 if the group, or every group of the "
        "list, has changed since.",
    ),
    RouteField("content", "For replace: the new content, a JSON object. Omitted fields are not changed."),
    RouteField("why", "The reason; stored with the decision."),
    RouteField("by", "The name of the user who decides; used only without log-in."),
)

_LAST: Final = RouteField(
    "last", "Select only messages up to this sequence number, such as ``last`` of the page.", is_number=True
)
_DEAD: Final = (
    RouteField("group", "A shell pattern for names of groups."),
    RouteField("error", "A shell pattern for the reason of the dead letters; not for viewers with masks."),
)

PAGES: Final = (
    PageRoute(
        "stuck",
        views.overview,
        (
            _STORE._replace(is_needed=False),
            RouteField("group", "A shell pattern for names of groups."),
            RouteField("error", "A shell pattern for the last line of the groups' error; not for viewers with masks."),
        ),
    ),
    PageRoute("group", views.group, (_STORE, _GROUP)),
    PageRoute("preview", views.preview, _DECISION[:6], Role.OPERATOR),
    PageRoute(
        "decided",
        views.decided,
        (
            _STORE,
            RouteField("action", "The action.", is_needed=True),
            RouteField("first", "The name of the first decision: ``first`` of /api/decide.", is_needed=True),
            RouteField("count", "The number of decisions.", is_number=True),
            RouteField("group", "The group, for a decision about one group."),
            RouteField("left", "The number of groups that were shown but left out.", is_number=True),
        ),
    ),
    PageRoute("queues", queues.queues),
    PageRoute(
        "queue",
        queues.queue,
        (
            _DATABASE,
            _QUEUE,
            RouteField("group", "Show only this group."),
            RouteField("after", "Show messages after this sequence number.", is_number=True),
        ),
    ),
    PageRoute("sources", sources.sources),
    PageRoute("steps", steps.steps),
    PageRoute("dead", dead_letters.dead_letters, (RouteField("queue", "Show only this queue."), *_DEAD)),
    PageRoute(
        "search",
        search.search,
        (
            RouteField("q", "The name of a group or a shell pattern, an id, an effect id, or a text."),
            RouteField("within", "``contents`` also searches messages and outputs; not for viewers."),
        ),
    ),
)
DECIDE: Final = ActionRoute("/decide", views.decide, "decided", _DECISION)
ACTIONS: Final = (
    DECIDE,
    ActionRoute(
        "/queue/send",
        queues.send,
        "queue",
        (
            _DATABASE,
            _QUEUE,
            RouteField("body", "The body, as JSON.", is_needed=True),
            RouteField("group", "The group."),
            RouteField("revision", "The revision.", is_number=True),
            RouteField("dedup_id", "The deduplication id."),
        ),
    ),
    ActionRoute(
        "/queue/redrive",
        queues.redrive,
        "queue",
        (
            _DATABASE,
            _QUEUE,
            _LAST,
            RouteField("to", "The queue to which all are moved; default: their original queues."),
        ),
    ),
    ActionRoute("/dead/redrive", dead_letters.redrive, "dead", (_DATABASE, _QUEUE, _LAST, *_DEAD)),
    ActionRoute("/queue/resume", queues.resume, "queue", (_DATABASE, _QUEUE, _GROUP)),
    ActionRoute(
        "/queue/purge",
        queues.purge,
        "queue",
        (_DATABASE, _QUEUE, RouteField("again", "The queue's name again, as confirmation.", is_needed=True)),
        Role.ADMIN,
    ),
    ActionRoute("/sources/pause", sources.pause, "sources", (_DATABASE, _SOURCE, _PARTITION)),
    ActionRoute("/sources/resume", sources.resume, "sources", (_DATABASE, _SOURCE, _PARTITION)),
    ActionRoute(
        "/sources/seek",
        sources.seek,
        "sources",
        (_DATABASE, _SOURCE, _PARTITION, RouteField("position", "The position, as JSON; default: the start.")),
    ),
)
TRY: Final = PageRoute("try", views.attempt, _DECISION, Role.OPERATOR)
"""A dry run changes nothing, but it runs the user's code, so it needs a POST request."""
