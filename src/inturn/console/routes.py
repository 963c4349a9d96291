"""The routes of the console: what each shows or does, who may, and which fields it takes.

The pages, the JSON API, its OpenAPI document and the tests of rights are all made from these tables.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

from inturn.console import dead_letters, queues, searching, sources, steps, views
from inturn.console.fields import RequestFields
from inturn.console.roles import Role

View: TypeAlias = Callable[[RequestFields], dict[str, Any]]
Act: TypeAlias = Callable[[RequestFields], dict[str, str]]


class RouteField(NamedTuple):
    """A field of a request.

    Attributes:
        name: its name.
        about: what it is.
        is_needed: whether it must be there.
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
        view: what it finds.
        fields: the fields that it takes.
        role: who may see it.
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
        act: what it does; it returns the fields of the page that follows.
        page: the page that follows.
        fields: the fields that it takes.
        role: who may do it.
    """

    path: str
    act: Act
    page: str
    fields: tuple[RouteField, ...]
    role: Role = Role.OPERATOR


_STORE: Final = RouteField("store", "The store, by its title as /api/stuck names it.", is_needed=True)
_DATABASE: Final = RouteField("database", "The database, by its title as /api/queues names it.", is_needed=True)
_QUEUE: Final = RouteField("queue", "The queue.", is_needed=True)
_SOURCE: Final = RouteField("source", "The source.", is_needed=True)
_PARTITION: Final = RouteField("partition", "The partition; all of the source without it.")
_GROUP: Final = RouteField("group", "The group.", is_needed=True)
_SELECTION: Final = (
    RouteField("group", "One group, by its name."),
    RouteField("like", "A shell pattern of groups."),
    RouteField("error", "A shell pattern of the last line of their error."),
    RouteField("all", "1: all groups to which the action applies."),
)
_DECISION: Final = (
    _STORE,
    RouteField("action", "resume, drop, skip, replace or give-up.", is_needed=True),
    *_SELECTION,
    RouteField(
        "seen", "What was shown, as /api/group and /api/preview name it: refused with 409 if all of it has moved since."
    ),
    RouteField("content", "For replace, the new content: a JSON object. Fields that it omits stay."),
    RouteField("why", "Why, in words; kept with the decision."),
    RouteField("by", "Who decides, where nobody is logged in."),
)

_LAST: Final = RouteField(
    "last", "Messages up to this sequence number alone: ``last`` of what was shown.", is_number=True
)
_DEAD: Final = (
    RouteField("group", "A shell pattern of groups."),
    RouteField("error", "A shell pattern of why they are there; not for viewers with masks."),
)

PAGES: Final = (
    PageRoute(
        "stuck",
        views.overview,
        (
            _STORE._replace(is_needed=False),
            RouteField("group", "A shell pattern of groups."),
            RouteField("error", "A shell pattern of the last line of their error; not for viewers with masks."),
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
            RouteField("first", "The name of the first decision.", is_needed=True),
            RouteField("count", "The number of decisions.", is_number=True),
            RouteField("group", "The group, if it is one."),
            RouteField("left", "The number of groups that were shown and left out.", is_number=True),
        ),
    ),
    PageRoute("queues", queues.queues),
    PageRoute(
        "queue",
        queues.queue,
        (
            _DATABASE,
            _QUEUE,
            RouteField("group", "Only this group."),
            RouteField("after", "Messages after this sequence number.", is_number=True),
        ),
    ),
    PageRoute("sources", sources.sources),
    PageRoute("steps", steps.steps),
    PageRoute("dead", dead_letters.dead_letters, (RouteField("queue", "Only this queue."), *_DEAD)),
    PageRoute(
        "search",
        searching.search,
        (
            RouteField("q", "A group or a shell pattern of groups, an id, an effect id, or a text."),
            RouteField("within", "``contents``: look in messages and outputs too; not for viewers."),
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
        (_DATABASE, _QUEUE, _LAST, RouteField("to", "The queue that takes all.")),
    ),
    ActionRoute("/dead/redrive", dead_letters.redrive, "dead", (_DATABASE, _QUEUE, _LAST, *_DEAD)),
    ActionRoute("/queue/resume", queues.resume, "queue", (_DATABASE, _QUEUE, _GROUP)),
    ActionRoute(
        "/queue/purge",
        queues.purge,
        "queue",
        (_DATABASE, _QUEUE, RouteField("again", "The queue's name once more.", is_needed=True)),
        Role.ADMIN,
    ),
    ActionRoute("/sources/pause", sources.pause, "sources", (_DATABASE, _SOURCE, _PARTITION)),
    ActionRoute("/sources/resume", sources.resume, "sources", (_DATABASE, _SOURCE, _PARTITION)),
    ActionRoute(
        "/sources/seek",
        sources.seek,
        "sources",
        (_DATABASE, _SOURCE, _PARTITION, RouteField("position", "The position, as JSON; none: the start.")),
    ),
)
TRY: Final = PageRoute("try", views.attempt, _DECISION, Role.OPERATOR)
"""A dry run: it changes nothing, but it runs the user's code, so it is posted."""
