"""Conversion of instants to UTC, at any depth.

Spark sends instants in the session's zone, and a group must not get two zones.
"""

import functools

import pyarrow as pa


def in_utc(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows with every instant in UTC, also in structs, lists and maps; the bytes are unchanged."""
    schema = _schema_in_utc(batch.schema)
    return batch if schema is batch.schema or schema == batch.schema else batch.cast(schema)


@functools.lru_cache(maxsize=16)
def _schema_in_utc(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_type(_type_in_utc(field.type)) for field in schema])


def _type_in_utc(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp(kind.unit, "UTC") if kind.tz else kind
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_type_in_utc(field.type)) for field in kind])
    if pa.types.is_map(kind):
        key, item = (field.with_type(_type_in_utc(field.type)) for field in (kind.key_field, kind.item_field))
        return pa.map_(key, item)
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_type_in_utc(kind.value_type)))
    return kind
