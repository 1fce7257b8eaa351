"""Types of fields that recur: texts that every database can hold, strict numbers, and what all bodies share."""

import math
from typing import Annotated, Any, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

T = TypeVar("T")
WITHOUT_NUL = r"^[^\x00]*$"
"""What PostgreSQL can keep; pydantic matches UTF-8, so half of a surrogate pair (JSON can spell it) is refused too."""


Storable = Annotated[str, Field(pattern=WITHOUT_NUL)]
Name = Annotated[Storable, Field(min_length=1, max_length=200)]
Annotator = Annotated[Storable, Field(min_length=1, max_length=200)]
Flag = Annotated[bool, Field(strict=True)]  # neither "yes" nor 1 is true
Whole = Annotated[int, Field(strict=True)]  # neither "3" nor true is a number
Row = Annotated[Whole, Field(ge=0, lt=2**62)]
Seed = Annotated[Whole, Field(ge=0, lt=2**63, description="Same seed, same answer.")]
Number = Annotated[float, Field(allow_inf_nan=False, strict=True)]  # neither "1.5" nor true is a number
Result = Annotated[
    float | None,
    BeforeValidator(lambda value: value if not isinstance(value, float) or math.isfinite(value) else None),
    Field(description="Null where it is infinite or undefined, which JSON cannot say."),
]
"""A number that was computed and need not be finite."""
Many = Annotated[list[T], Field(fail_fast=True)]
"""A list that may be long: its first mistake is told, for a list of all could be far larger than the body."""


class In(BaseModel):
    """A request body: unknown fields are refused, so that a misspelt option is not silently ignored."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Out(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    @classmethod
    def of(cls, *rows: object, **values: Any) -> Self:
        """Each field from the values given, or from the first of the rows that has it; what none has is left to its
        default, or null."""
        for name, field in cls.model_fields.items():
            if name in values:
                continue
            if (row := next((row for row in rows if hasattr(row, name)), None)) is not None:
                values[name] = getattr(row, name)
            elif field.is_required():
                values[name] = None
        return cls(**values)
