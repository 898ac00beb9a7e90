"""Laws of a quantity that varies: sizes of messages, pauses, uncertain prices.

Where a study allows a law it also allows a plain value:

    output_tokens: 220 tokens
    new_tokens: {lognormal: {median: 700 tokens, p90: 4k tokens}}

A new law is one file with one class, and one line in `LAWS`.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any

from pydantic import AfterValidator, Discriminator, Field, Tag, create_model, model_validator

from kvmodel.formulas import laws
from kvmodel.laws.empirical import Empirical
from kvmodel.laws.exponential import Exponential
from kvmodel.laws.hyperexponential import Hyperexponential
from kvmodel.laws.lognormal import Lognormal
from kvmodel.laws.loguniform import Loguniform
from kvmodel.laws.lomax import Lomax
from kvmodel.laws.uniform import Uniform
from kvmodel.quantity import Record

LAWS = (Exponential, Hyperexponential, Lognormal, Lomax, Uniform, Loguniform, Empirical)


class LawChoice(Record):
    """Exactly one law by name, with its parameters; the typed forms come from `law_choice`."""

    @model_validator(mode="after")
    def _exactly_one(self) -> LawChoice:
        names = ["constant", *(law.kind for law in LAWS)]
        given = [name for name in names if getattr(self, name) is not None]
        if len(given) != 1:
            found = f"got {' and '.join(given)}" if given else "got none"
            raise ValueError(f"needs exactly one law of {', '.join(names)}; {found}")
        return self

    def law(self) -> Any:
        """The law itself (a member of formulas.laws), parameters in base units."""
        if self.constant is not None:
            return laws.Constant(self.constant)
        return next(chosen for law in LAWS if (chosen := getattr(self, law.kind)) is not None).law()


@cache
def law_choice(name: str, number: Any, base: type[LawChoice] = LawChoice) -> type[LawChoice]:
    """Record type with one optional field per law, each with parameters that are `number`s."""
    fields: dict[str, Any] = {"constant": (number | None, Field(None, description="Always this value."))}
    for law in LAWS:
        fields[law.kind] = (law[number] | None, Field(None, description=law.__doc__))
    return create_model(name, __base__=base, __doc__=base.__doc__, **fields)


def law_of(number: Any) -> Any:
    """Field type: a plain `number` or a law by name; either becomes a member of formulas.laws."""
    value = Annotated[number, AfterValidator(laws.Constant), Tag("value")]
    dimension = number.__metadata__[0].dimension
    record = law_choice(f"LawOf {dimension}", number)
    choice = Annotated[record, AfterValidator(lambda record: record.law()), Tag("law")]
    return Annotated[value | choice, Discriminator(lambda given: "law" if hasattr(given, "keys") else "value")]
