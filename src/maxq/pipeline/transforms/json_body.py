"""Bodies that are JSON, as columns.

messages.select("queueOffset", body_json("id BIGINT, price DOUBLE").alias("order")).where("order.price > 100")
"""

import json
from typing import Any

from pyspark.errors import ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from maxq.errors import ConfigError, PipelineError

_SAMPLE = 1000
_LITERAL_MAX = 1 << 20  # most characters of the sample from which Spark infers a schema


def body_json(schema: str | StructType, body: str = "body") -> Column:
    """Return a message's body as a structure; null where it is not JSON.

    Args:
        schema: its fields, as DDL such as "id BIGINT, items ARRAY<STRING>", or as a type.
        body: the column that has the bytes.
    """
    return F.from_json(F.col(body).cast("string"), schema)


def declared_schema(text: str) -> str:
    """Return the same text. Raises ConfigError if it is not a schema, because Spark's error would name all columns of
    the view."""
    try:
        StructType.fromDDL(text)
    except ParseException:
        raise ConfigError(
            f"{text!r} is no schema of JSON bodies: give fields with their types, such as 'id BIGINT, price DOUBLE'"
        ) from None
    return text


def infer_body_schema(messages: DataFrame, sample: int = _SAMPLE) -> str:
    """Infer the fields of JSON bodies, as DDL, from `sample` messages, as Spark's JSON reader would.

    Args:
        messages: with a column `body`.
        sample: how many to look at; those that are not JSON objects are passed over.

    Raises:
        PipelineError: none of them is a JSON object.
    """
    rows = messages.select(F.col("body").cast("string").alias("text")).limit(sample).collect()
    objects: list[str] = []
    size = 0
    for text in (row.text for row in rows):
        if text is not None and _is_object(text) and size + len(text) <= _LITERAL_MAX:
            objects.append(text)
            size += len(text)
    if not objects:
        raise PipelineError(f"none of {len(rows)} bodies is a JSON object: declare the schema")
    inferred: str = messages.sparkSession.range(1).select(F.schema_of_json(F.lit(f"[{','.join(objects)}]"))).first()[0]  # type: ignore[index]
    return inferred.removeprefix("ARRAY<").removesuffix(">")


def _is_object(text: str) -> bool:
    try:
        found: Any = json.loads(text)
    except ValueError:
        return False
    return isinstance(found, dict)
