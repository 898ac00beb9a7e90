"""One declaration per number: unit, bounds and meaning, for validation, schema, docs and spreadsheet help.

    capacity: Annotated[Number, Quantity("B", ge=0)]
    \"\"\"Bytes one device offers to KV.\"\"\"

A field accepts a bare number in the base unit, text with a unit, or a numpy array (a sweep or draws put there
by the study): bounds are checked on every element. Records are immutable and refuse unknown keys.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import core_schema

from kvmodel import units

Number = Any  # float or ndarray of study axes; the Quantity beside it says of what


class Values:
    """Several values for one number: the place where it is put decides their unit.

    After the record that holds it has been validated, `numbers` has the values in the base unit of that place, and
    `dimension` its dimension.
    """

    def __init__(self, texts: Sequence[Any]):
        self.texts = texts
        self.numbers: np.ndarray | None = None
        self.dimension = ""


@dataclass(frozen=True)
class Quantity:
    """Dimension (a key of units.DIMENSIONS) and bounds of a number."""

    dimension: str
    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None

    def __call__(self, value: Any) -> Any:
        if isinstance(value, Values):
            value.numbers = np.array([self(text) for text in value.texts], dtype=float)
            value.dimension = self.dimension
            return value.numbers
        if isinstance(value, str):
            value = units.parse(value, self.dimension)
        try:
            number = np.asarray(value, dtype=float)
            numeric = value is not None and np.asarray(value).dtype.kind in "iufO"  # True is not 1
            numeric = numeric and not isinstance(value, list | tuple)  # an axis has a name: only the study makes them
        except (TypeError, ValueError, OverflowError):
            numeric = False
        if not numeric:
            expected, example = units.DIMENSIONS[self.dimension]
            raise ValueError(f"expected {expected}, for example {example!r}")
        self._check_bounds(number)
        return float(number) if number.ndim == 0 else number

    def _check_bounds(self, number: np.ndarray) -> None:
        if np.isnan(number).any():
            raise ValueError("not a number")
        for bound, fails, word in (
            (self.ge, np.less, "at least"),
            (self.gt, np.less_equal, "more than"),
            (self.le, np.greater, "at most"),
            (self.lt, np.greater_equal, "less than"),
        ):
            if bound is not None and (bad := fails(number, bound)).any():
                worst = units.text(float(number[bad].flat[0]), self.dimension)
                raise ValueError(f"must be {word} {units.text(bound, self.dimension)}, got {worst}")

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(
            self, serialization=core_schema.plain_serializer_function_ser_schema(_plain)
        )

    def __get_pydantic_json_schema__(self, schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        _, example = units.DIMENSIONS[self.dimension]
        number: dict[str, Any] = {"type": "number"}
        for key, bound in (
            ("minimum", self.ge),
            ("exclusiveMinimum", self.gt),
            ("maximum", self.le),
            ("exclusiveMaximum", self.lt),
        ):
            if bound is not None:
                number[key] = bound
        return {"anyOf": [number, {"type": "string", "examples": [example]}], "unit": self.dimension or "1"}


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


Fraction = Annotated[Number, Quantity("", ge=0, le=1)]
Positive = Annotated[Number, Quantity("", gt=0)]
Bytes = Annotated[Number, Quantity("B", ge=0, le=1e21)]
Bandwidth = Annotated[Number, Quantity("B/s", gt=0, le=1e16)]
Seconds = Annotated[Number, Quantity("s", ge=0, le=1e11)]
Tokens = Annotated[Number, Quantity("token", ge=0, le=1e12)]
Rate = Annotated[Number, Quantity("/s", ge=0, le=1e9)]
Money = Annotated[Number, Quantity("USD", ge=0, le=1e12)]
Power = Annotated[Number, Quantity("W", ge=0, le=1e9)]


class Record(BaseModel):
    """Immutable parameters. Attribute docstrings are the field descriptions, read when they are asked for."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        arbitrary_types_allowed=True,
        protected_namespaces=(),
        defer_build=True,  # only the record that is validated needs a validator of its own; halves the start-up time
    )

    @classmethod
    def __get_pydantic_json_schema__(cls, core: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        body = handler(core)
        properties = handler.resolve_ref_schema(body).get("properties", {})
        for name, field in cls.model_fields.items():
            if (place := properties.get(field.alias or name)) is not None and (meaning := field_meaning(cls, name)):
                place.setdefault("description", meaning)
        return body


def field_meaning(record: type[BaseModel], name: str) -> str:
    """What a field means: its stated description, or the docstring below it in its class; empty where there is none."""
    stated = record.model_fields[name].description
    return stated or next((docs[name] for cls in record.__mro__ if name in (docs := _attribute_docstrings(cls))), "")


@cache
def _attribute_docstrings(cls: type) -> dict[str, str]:
    """Docstrings below the annotated attributes of a class, from its source; none for a class made at run time.

    Read on demand: pydantic's own extraction, at import, takes as long as everything else `validate` does.
    """
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0].body
    except (OSError, TypeError, SyntaxError):
        return {}
    return {
        field.target.id: inspect.cleandoc(below.value.value)
        for field, below in itertools.pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
        and isinstance(below.value.value, str)
    }
