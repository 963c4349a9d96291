"""Decoding with a schema registry: Avro, Protobuf and JSON Schema in Confluent's framing become JSON.

The decoders are those of confluent-kafka. This module distinguishes their errors: a record that cannot be decoded is
rejected; if the registry is unavailable, the source waits.
"""

import functools
import importlib
import pickle
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import msgspec

from inturn.core.address import shown
from inturn.core.errors import InputError, SetupError, SourceError
from inturn.core.override import override
from inturn.ingest import limits as source_limits
from inturn.ingest.mapping import MappingError
from inturn.ingest.source import Decoder, SourceRecord

Encoding: TypeAlias = Literal["avro", "protobuf", "json"]

_ENCODINGS: Final = ("avro", "protobuf", "json")
_DECODER_OPTIONS: Final = ("subject.name.strategy", "use.latest", "validate")  # beginnings of names
_SCHEMA_LOOKUPS: Final = {"get_schema", "get_schema_by_guid"}
_NOT_FOUND: Final = range(40_401, 40_500)  # a registry's own codes; any other 404 is a wrong address
_TEXT_LENGTH: Final = 200  # of what a foreign error says


class SchemaRegistry(Decoder):
    """A decoder of records whose schemas are in a registry of Confluent's interface.

    The value becomes JSON, on which the paths of a mapping work: decimals are texts, bytes are base64, dates and times
    are ISO 8601. Protobuf is JSON as Protobuf defines it, with the names of the ``.proto`` file and the fields that
    have their default; integers of 64 bits are texts. JSON is validated by its schema and not changed.

    A key that is decoded to a text is that text; any other is JSON. Records without a value or key pass.

    Schemas are asked for by id and cached. An id that the registry does not have rejects the record.

    Args:
        url: the registry, such as ``https://registry:8081``; several with commas.
        topic: the topic, from which the decoders make the subject where their options need one.
        value: the encoding of values; None: values are not decoded.
        key: the encoding of keys; None: keys are not decoded.
        message: the generated class of the values in Protobuf, or its place, such as ``orders_pb2:Order``.
        key_message: the same for keys.
        options: further settings of confluent-kafka's registry client and deserializers, such as
            ``basic.auth.user.info``, ``ssl.ca.location`` and ``use.latest.version``.
        folder: a further folder from which the modules of messages may be imported.

    It can be pickled: the copy has the same arguments, and a client of its own process.

    Raises:
        InputError: if an encoding, a message or an option is not valid.
        SetupError: if the extra is not installed.
    """

    def __init__(
        self,
        url: str,
        topic: str,
        *,
        value: Encoding | None = None,
        key: Encoding | None = None,
        message: Any = None,
        key_message: Any = None,
        options: Mapping[str, Any] | None = None,
        folder: Path | None = None,
    ) -> None:
        encodings = {"value": value, "key": key, "message": message, "key_message": key_message}
        self._arguments = {"url": url, "topic": topic, **encodings, "options": options, "folder": folder}
        if folder is not None:
            _import_from(folder)
        if value is None and key is None:
            raise InputError("neither value nor key is set; set one of them to 'avro', 'protobuf' or 'json'")
        try:
            from confluent_kafka.schema_registry import SchemaRegistryClient
            from confluent_kafka.serialization import MessageField, SerializationContext
        except ImportError as error:
            raise _missing_packages(error) from error
        decoder_options = {name: value for name, value in (options or {}).items() if name.startswith(_DECODER_OPTIONS)}
        client_options = {name: value for name, value in (options or {}).items() if name not in decoder_options}
        defaults = {"max.retries": 0, "timeout": source_limits.INGEST_REQUEST_S}  # the host tries again
        try:
            client = _Client(SchemaRegistryClient({"url": url, **defaults, **client_options}), url)
        except (TypeError, ValueError, OSError) as error:
            raise InputError(f"the schema registry {shown(url)!r}: {error}") from error
        self._topic, self._context = topic, SerializationContext
        self._value = _make_decoder("value", value, message, client, decoder_options)
        self._key = _make_decoder("key", key, key_message, client, decoder_options)
        self._fields = MessageField

    def __reduce__(self) -> tuple[Callable[[bytes], "SchemaRegistry"], tuple[bytes]]:
        """Return its arguments, from which another process makes it once."""
        return _shared_decoder, (pickle.dumps(self._arguments),)

    @override
    def __call__(self, record: SourceRecord) -> SourceRecord:
        key, body = record.key, record.body
        headers: Any = dict(record.headers)
        if key is not None and self._key is not None:
            key = self._key(key, self._context(self._topic, self._fields.KEY, headers))
            if key.startswith(b'"'):
                key = msgspec.json.decode(key, type=str).encode()
        if body is not None and self._value is not None:
            body = self._value(body, self._context(self._topic, self._fields.VALUE, headers))
        return record._replace(key=key, body=body)


@functools.lru_cache(maxsize=16)
def _shared_decoder(arguments: bytes) -> SchemaRegistry:
    """Return the decoder of pickled arguments; the tasks of a process share its client and its schemas."""
    return SchemaRegistry(**pickle.loads(arguments))  # noqa: S301 - it is part of what the caller unpickles


class _RegistryUnavailable(SourceError):
    """A registry that is unavailable, or refuses to answer."""


class _Client:
    """The registry's client; every error except that of an unknown schema becomes ``_RegistryAway``.

    Unknown schema ids are remembered for a while; otherwise each of their records would cause a request.
    """

    def __init__(self, client: Any, url: str) -> None:
        from cachetools import TTLCache

        self._client, self._url = client, shown(url)
        self._unknown: Any = TTLCache(maxsize=1_000, ttl=source_limits.UNKNOWN_SCHEMA_S)

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._client, name)
        return self._translating_errors(attribute) if callable(attribute) else attribute

    def _translating_errors(self, method: Callable[..., Any]) -> Callable[..., Any]:
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        def call(*args: Any, **kwargs: Any) -> Any:
            schema_key = (method.__name__, *args[:1]) if method.__name__ in _SCHEMA_LOOKUPS else None
            if schema_key in self._unknown:
                raise SchemaRegistryError(*self._unknown[schema_key])
            try:
                result = method(*args, **kwargs)
            except SchemaRegistryError as error:
                if schema_key and error.http_status_code == 404 and error.error_code in _NOT_FOUND:
                    self._unknown[schema_key] = error.http_status_code, error.error_code, error.error_message
                elif schema_key or error.http_status_code != 404:
                    raise _RegistryUnavailable(self._response_error_text(error)) from error
                raise
            except Exception as error:  # whatever the network, a proxy or a certificate does
                raise _RegistryUnavailable(
                    f"the schema registry {self._url!r} cannot be reached: {_error_text(error)}"
                ) from error
            if schema_key and result.schema_str is None:
                self._client.clear_caches()  # it has kept even this
                raise _RegistryUnavailable(
                    f"{self._url!r} answered without a schema; check that it is a schema registry"
                )
            return result

        return call

    def _response_error_text(self, error: Any) -> str:
        status = error.http_status_code
        if status in {401, 403}:
            return (
                f"the schema registry {self._url!r} refuses the credentials (HTTP {status}): "
                "check basic.auth.user.info or the other credentials in the options"
            )
        return f"the schema registry {self._url!r} answers HTTP {status}: {str(error.error_message)[:_TEXT_LENGTH]}"


def _make_decoder(
    part: str, encoding: Encoding | None, message: Any, client: _Client, options: Mapping[str, Any]
) -> Callable[[bytes, Any], bytes] | None:
    """Return the function that converts bytes and their context to JSON; None: they are not decoded."""
    if encoding is None:
        return None
    if encoding not in _ENCODINGS:
        raise InputError(f"{part} is {encoding!r}; expected one of {', '.join(_ENCODINGS)}")
    if (encoding == "protobuf") != (message is not None):
        name = "message" if part == "value" else "key_message"
        requirement = f"needs {name}, such as 'orders_pb2:Order'" if message is None else f"takes no {name}; remove it"
        raise InputError(f"{part} is {encoding!r}, which {requirement}")
    conf = {"subject.name.strategy": _no_subject} if "subject.name.strategy.type" not in options else {}
    conf |= {name: value for name, value in options.items() if encoding == "json" or name != "validate"}
    try:
        to_json = _DECODER_FACTORIES[encoding](client, conf, message)
    except ImportError as error:
        raise _missing_packages(error) from error
    except (TypeError, ValueError) as error:
        raise InputError(f"invalid options of the schema registry: {error}") from error

    def decode(data: bytes, context: Any) -> bytes:
        try:
            return to_json(data, context)
        except _RegistryUnavailable:
            raise
        except Exception as error:  # decoders raise whatever garbage leads to
            raise MappingError(f"the {part} cannot be decoded as {encoding}: {_error_text(error)}") from error

    return decode


def _no_subject(_context: Any, _record_name: str | None) -> None:
    """Return no subject: a schema is requested by its id alone, whatever the strategy of its producer."""


def _avro(client: _Client, conf: dict[str, Any], _message: Any) -> Callable[[bytes, Any], bytes]:
    from confluent_kafka.schema_registry.avro import AvroDeserializer

    decode: Any = AvroDeserializer(client, conf=conf | {"schema.id.deserializer": _bounded_frame_reader(client, conf)})
    return lambda data, context: msgspec.json.encode(decode(data, context))


def _bounded_frame_reader(client: _Client, conf: Mapping[str, Any]) -> Callable[[bytes, Any, Any], Any]:
    """Return the function that reads the frame of a record in Avro and returns the rest of it.

    With a recursive schema a value can nest as deeply as it has bytes. The compiled reader of fastavro has no bound, so
    a few thousand bytes would crash the process. The reader in Python has a bound, so it reads such values first.
    """
    from confluent_kafka.schema_registry import dual_schema_id_deserializer, topic_subject_name_strategy
    from fastavro import _read_py

    recursive: dict[Any, Any] = {}  # the parsed schemas by their ids; None: it does not contain itself

    def read(data: bytes, context: Any, schema_id: Any) -> Any:
        payload = dual_schema_id_deserializer(data, context, schema_id)
        id_ = schema_id.guid if schema_id.id is None else schema_id.id
        if id_ not in recursive:
            subject = topic_subject_name_strategy(context, None) if "subject.name.strategy.type" in conf else None
            by_guid = schema_id.id is None
            schema = client.get_schema_by_guid(str(id_)) if by_guid else client.get_schema(id_, subject)
            recursive[id_] = _parsed_if_recursive(client, schema)
        if recursive[id_] is not None:
            start = payload.tell()
            _read_py.schemaless_reader(payload, recursive[id_], None)
            payload.seek(start)
        return payload

    return read


def _parsed_if_recursive(client: _Client, schema: Any) -> Any:
    from fastavro.schema import expand_schema, parse_schema

    known: dict[str, Any] = {}

    def parse(registered: Any) -> Any:
        for reference in registered.references or []:
            if reference.name not in known:
                parse(client.get_version(reference.subject, reference.version, deleted=True).schema)
        return parse_schema(msgspec.json.decode(registered.schema_str), named_schemas=known)

    parsed = parse(schema)
    return parsed if _is_recursive(expand_schema(parsed), frozenset(known)) else None


def _is_recursive(schema: Any, known: frozenset[str]) -> bool:
    """Return whether an expanded schema still has names of other types, as only a recursive schema does."""
    if isinstance(schema, str):
        return schema in known
    if isinstance(schema, list):
        return any(_is_recursive(branch, known) for branch in schema)
    inner = [schema.get("type"), schema.get("items"), schema.get("values")]
    inner += [field["type"] for field in schema.get("fields", ())]
    return any(_is_recursive(subschema, known) for subschema in inner if subschema is not None)


def _json(client: _Client, conf: dict[str, Any], _message: Any) -> Callable[[bytes, Any], bytes]:
    from confluent_kafka.schema_registry.json_schema import JSONDeserializer

    raw = b""

    def read(data: bytes) -> Any:
        nonlocal raw
        raw = data
        return msgspec.json.decode(data)

    decode: Any = JSONDeserializer(None, schema_registry_client=client, conf=conf, json_decode=read)

    def to_json(data: bytes, context: Any) -> bytes:
        value = decode(data, context)
        return raw if value == msgspec.json.decode(raw) else msgspec.json.encode(value)  # a rule may have changed it

    return to_json


def _protobuf(client: _Client, conf: dict[str, Any], message: Any) -> Callable[[bytes, Any], bytes]:
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
    from google.protobuf.json_format import MessageToDict

    message_class = _import_class(message) if isinstance(message, str) else message
    if not hasattr(message_class, "DESCRIPTOR"):
        raise InputError(f"{message_class!r} is not a Protobuf message; expected a class generated by protoc")
    decode: Any = ProtobufDeserializer(message_class, conf, schema_registry_client=client)
    json_options = {"preserving_proto_field_name": True, "always_print_fields_with_no_presence": True}
    return lambda data, context: msgspec.json.encode(MessageToDict(decode(data, context), **json_options))


_DECODER_FACTORIES: Final[
    Mapping[Encoding, Callable[[_Client, dict[str, Any], Any], Callable[[bytes, Any], bytes]]]
] = {
    "avro": _avro,
    "json": _json,
    "protobuf": _protobuf,
}


def _import_class(place: str) -> Any:
    module, colon, name = place.partition(":")
    if not (module and colon and name):
        raise InputError(f"the message is {place!r}; expected a module and a class, such as 'orders_pb2:Order'")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise InputError(f"the message {place!r} cannot be imported: {error}") from error


def _import_from(folder: Path) -> None:
    """Allow imports from a folder too, such as the folder of a configuration."""
    if str(folder.resolve()) not in sys.path:
        sys.path.append(str(folder.resolve()))


def _error_text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:_TEXT_LENGTH]


def _missing_packages(error: ImportError) -> SetupError:
    return SetupError(f"a schema registry needs further packages: pip install 'inturn[schema-registry]' ({error})")
