"""Pickling of a pipeline for the workers: the user's functions and types, by value where a worker may lack them.

Spark's own cloudpickle does this for functions and dataclasses. It loses the fields of a ``msgspec.Struct``, so a
struct is sent as a description and defined again. Only code is sent this way, never data.
"""

import contextlib
import dataclasses
import functools
import inspect
import pickle
import site
import sys
import sysconfig
import typing
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import msgspec
from pyspark import cloudpickle as _untyped

from inturn.core.errors import SetupError
from inturn.core.pipeline.definition import Pipeline

cloudpickle: Any = _untyped

_STRUCT_OPTIONS = (
    "tag", "tag_field", "omit_defaults", "forbid_unknown_fields", "frozen", "eq", "order",
    "repr_omit_defaults", "array_like", "gc", "weakref", "dict", "cache_hash",
)  # fmt: skip

_CACHE = "__msgspec_cache__"
"""The cache that msgspec keeps on a type; it cannot be pickled, and msgspec builds it again."""
_STATE = 2
"""The index of the class body in the reduced form of a type."""
_MADE = {
    "__module__", "__qualname__", "__annotations__", "__annotate__", "__annotate_func__", "__annotations_cache__",
    "__slots__", "__dict__", "__weakref__", "__match_args__", "__static_attributes__", "__firstlineno__",
}  # fmt: skip
"""The attributes that Python creates for every class."""


def dumps(pipeline: Pipeline) -> bytes:
    """Pickle a pipeline for :func:`loads` on a worker.

    Raises:
        SetupError: if the handler or a type refers to an object that cannot be pickled.
    """
    buffer = BytesIO()
    try:
        with _own_code_by_value():
            _Pickler(buffer).dump(pipeline)
    except Exception as error:
        msg = f"pipeline {pipeline.name!r} cannot be sent to the workers: {error}; a handler must be pure: it must "
        raise SetupError(msg + "not refer to connections, locks or sessions") from error
    return buffer.getvalue()


def loads(data: bytes) -> Pipeline:
    """Unpickle a pipeline on a worker.

    Raises:
        SetupError: if a module that the pipeline needs is not installed there.
    """
    try:
        return cast("Pipeline", pickle.loads(data))  # noqa: S301 - code from our own driver, never data
    except ImportError as error:
        msg = f"a worker cannot import {error.name!r}, which the pipeline needs; install it there, or send it with "
        raise SetupError(msg + "spark.addArtifacts(…, pyfile=True) or --py-files") from error


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, type(msgspec.Struct)) and cloudpickle.cloudpickle._should_pickle_by_reference(obj) is False:
            return _reduce_struct(obj)
        # Both are compared by identity, which pickle loses for MISSING, and Spark 3.5's cloudpickle for the others.
        if obj is dataclasses.MISSING:
            return getattr, (dataclasses, "MISSING")
        if isinstance(obj, dataclasses._FIELD_BASE):  # type: ignore[attr-defined]
            return getattr, (dataclasses, obj.name)
        reduced = super().reducer_override(obj)
        if isinstance(obj, type) and isinstance(reduced, tuple) and len(reduced) > _STATE and reduced[_STATE]:
            reduced[_STATE][0].pop(_CACHE, None)
        if dataclasses.is_dataclass(obj) and isinstance(obj, type) and isinstance(reduced, tuple):
            # String annotations are resolved in the type's module, which a worker lacks.
            hints = typing.get_type_hints(obj, include_extras=True)
            reduced[_STATE][0]["__annotations__"] = {name: hints[name] for name in inspect.get_annotations(obj)}
        return reduced


def _reduce_struct(struct: type[msgspec.Struct]) -> tuple[Any, ...]:
    config = struct.__struct_config__
    options = {name: getattr(config, name) for name in _STRUCT_OPTIONS if hasattr(config, name)}
    own = [name for name in inspect.get_annotations(struct) if name in struct.__struct_fields__]
    parameters = inspect.signature(struct).parameters  # msgspec's field info does not say which are keyword-only
    options["kw_only"] = any(parameters[name].kind is inspect.Parameter.KEYWORD_ONLY for name in own)
    fields = [(field.name, field.type, _field(field)) for field in msgspec.structs.fields(struct) if field.name in own]
    # Methods are set afterwards, since they may refer to the type itself.
    body = {
        name: value
        for name, value in vars(struct).items()
        if name not in struct.__struct_fields__ and name not in _MADE and not name.startswith("__struct_")
    }
    checks = "__post_init__" in body
    known_as = cloudpickle.cloudpickle._get_or_create_tracker_id(struct)
    arguments = (struct.__name__, fields, struct.__bases__, struct.__module__, options, checks, known_as)
    return _make_struct, arguments, body, None, None, _set_body


def _field(field: msgspec.structs.FieldInfo) -> dict[str, Any]:
    how: dict[str, Any] = {} if field.encode_name == field.name else {"name": field.encode_name}
    for kind in ("default", "default_factory"):
        if getattr(field, kind) is not msgspec.NODEFAULT:
            how[kind] = getattr(field, kind)
    return how


def _make_struct(
    name: str,
    fields: list[Any],
    bases: tuple[type, ...],
    module: str,
    options: dict[str, Any],
    checks: bool,  # noqa: FBT001 - called by pickle
    known_as: str,
) -> type[msgspec.Struct]:
    """Define a struct type, or return the one defined before: other types sent with it still refer to that one."""
    struct_type: type[msgspec.Struct]

    def look_up(struct: msgspec.Struct) -> None:  # msgspec checks only at definition whether there is one
        vars(struct_type)["__post_init__"](struct)

    namespace = {"__post_init__": look_up} if checks else {}
    described = [(field, kind, msgspec.field(**how)) for field, kind, how in fields]
    struct_type = msgspec.defstruct(name, described, bases=bases, module=module, namespace=namespace, **options)
    return cast("type[msgspec.Struct]", cloudpickle.cloudpickle._lookup_class_or_track(known_as, struct_type))


def _set_body(struct: type, body: dict[str, Any]) -> None:
    for name, value in body.items():
        setattr(struct, name, value)


@contextlib.contextmanager
def _own_code_by_value() -> Iterator[None]:
    """Pickle modules that are not installed (a script, a notebook, a test) by value within the block."""
    own = [module for module in list(sys.modules.values()) if _is_own(module)]
    for module in own:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in own:
            cloudpickle.unregister_pickle_by_value(module)


@functools.cache
def _installed() -> tuple[Path, ...]:
    places = {*sysconfig.get_paths().values(), *site.getsitepackages(), site.getusersitepackages()}
    package_dir = Path(__file__).resolve().parents[1]
    return (*(Path(place).resolve() for place in places), package_dir)


def _is_own(module: ModuleType | None) -> bool:
    file = getattr(module, "__file__", None)
    if module is None or file is None or getattr(module, "__name__", "__main__") == "__main__":
        return False
    return _is_own_file(file)


@functools.cache
def _is_own_file(file: str) -> bool:
    path = Path(file).resolve()
    return path.suffix == ".py" and not any(path.is_relative_to(place) for place in _installed())
