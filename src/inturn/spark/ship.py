"""Send a pipeline to the workers: the user's functions and types, by value where the workers may not have them.

Spark's own cloudpickle does that for functions and dataclasses; it loses the fields of a ``msgspec.Struct``, so
those are described and made again. Only code travels this way, never data.
"""

import contextlib
import pickle
import site
import sys
import sysconfig
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import msgspec
from pyspark import cloudpickle as _untyped

from inturn.core.errors import SetupError
from inturn.core.pipeline import Pipeline

cloudpickle: Any = _untyped

_STRUCT_OPTIONS = (
    "tag", "tag_field", "omit_defaults", "forbid_unknown_fields", "frozen", "eq", "order", "kw_only",
    "repr_omit_defaults", "array_like", "gc", "weakref", "dict", "cache_hash",
)  # fmt: skip


def dumps(pipeline: Pipeline) -> bytes:
    """The pipeline as bytes for :func:`loads` on a worker.

    Raises:
        SetupError: if the handler or a type refers to something that cannot be sent.
    """
    buffer = BytesIO()
    try:
        with _own_code_by_value():
            _Pickler(buffer).dump(pipeline)
    except Exception as error:
        msg = f"pipeline {pipeline.name!r} cannot be sent to the workers: {error}; a handler must not refer to "
        raise SetupError(msg + "connections, locks or sessions: it is pure") from error
    return buffer.getvalue()


def loads(data: bytes) -> Pipeline:
    """The pipeline again, on a worker.

    Raises:
        SetupError: if a module that it needs is not installed there.
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
        return super().reducer_override(obj)


def _reduce_struct(struct: type[msgspec.Struct]) -> tuple[Any, ...]:
    config = struct.__struct_config__
    options = {name: getattr(config, name) for name in _STRUCT_OPTIONS if hasattr(config, name)}
    fields: list[tuple[Any, ...]] = []
    for field in msgspec.structs.fields(struct):
        if field.default is not msgspec.NODEFAULT:
            fields.append((field.name, field.type, "default", field.default))
        elif field.default_factory is not msgspec.NODEFAULT:
            fields.append((field.name, field.type, "default_factory", field.default_factory))
        else:
            fields.append((field.name, field.type))
    bases = tuple(base for base in struct.__bases__ if base is not msgspec.Struct and not _is_struct(base))
    made = (struct.__name__, fields, bases, struct.__module__, options)
    # Methods come afterwards: they may refer to the type itself.
    body = {
        name: value
        for kind in reversed(struct.__mro__)
        if _is_struct(kind)
        for name, value in vars(kind).items()
        if name in ("__doc__", "__post_init__") or (not name.startswith("__") and name not in struct.__struct_fields__)
    }
    return _make_struct, made, body, None, None, _set_body


def _is_struct(kind: type) -> bool:
    return isinstance(kind, type(msgspec.Struct)) and kind is not msgspec.Struct


def _make_struct(
    name: str, fields: list[Any], bases: tuple[type, ...], module: str, options: dict[str, Any]
) -> type[msgspec.Struct]:
    made = [(field, kind, msgspec.field(**{how[0]: how[1]})) if how else (field, kind) for field, kind, *how in fields]
    return msgspec.defstruct(name, made, bases=bases or None, module=module, **options)


def _set_body(struct: type, body: dict[str, Any]) -> None:
    for name, value in body.items():
        with contextlib.suppress(AttributeError, TypeError):
            setattr(struct, name, value)


@contextlib.contextmanager
def _own_code_by_value() -> Iterator[None]:
    """For a while, treat every module that is not installed (a script, a notebook, a test) as not importable."""
    own = [module for module in list(sys.modules.values()) if _is_own(module)]
    for module in own:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in own:
            cloudpickle.unregister_pickle_by_value(module)


def _installed() -> tuple[Path, ...]:
    places = {*sysconfig.get_paths().values(), *site.getsitepackages(), site.getusersitepackages()}
    here = Path(__file__).resolve().parents[1]
    return (*(Path(place).resolve() for place in places), here)


def _is_own(module: ModuleType | None) -> bool:
    file = getattr(module, "__file__", None)
    if module is None or file is None or getattr(module, "__name__", "__main__") == "__main__":
        return False
    path = Path(file).resolve()
    return path.suffix == ".py" and not any(path.is_relative_to(place) for place in _installed())
