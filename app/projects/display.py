"""How a project's items are shown to annotators. The service only keeps it: whoever draws items reads it."""

import math
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from app.errors import Malformed
from app.web.fields import In, Number, Out, Storable, Whole

Kind = Literal["auto", "image", "text", "table"]
Side = Annotated[Whole, Field(ge=1, le=10_000)]
ColumnName = Annotated[Storable, Field(max_length=200)]
_KIND = (
    "`image`: the features as pixels, or the payload as the address of a picture; `text`: the payload as text; "
    "`table`: the features by name, or the payload's fields; `auto`: what the payload looks like, else the features."
)
_SHAPE = (
    "Of images made of the features: [height, width] or [height, width, 3]. The colours of a pixel stand together, "
    "unless the project's `input.shape` is [3, height, width]: then each colour is a picture of its own, red first."
)
_RANGE = (
    "Of pictures: the number that is black and the one that is white, [0, 255] or, for dark ink on paper, [255, 0]. "
    "Left out: the least and the greatest number of each row."
)
_COLUMNS = "Names of the features, in their order, for tables."
_UNIT = "Of the numbers that are labelled, such as `mm`."
_INSTRUCTIONS = "What annotators are asked to do, in plain text."


class DisplayIn(In):
    """How items are shown to annotators."""

    kind: Kind = Field("auto", description=_KIND)
    shape: Annotated[list[Side], Field(min_length=2, max_length=3)] | None = Field(None, description=_SHAPE)
    range: Annotated[list[Number], Field(min_length=2, max_length=2)] | None = Field(None, description=_RANGE)
    columns: Annotated[list[ColumnName], Field(min_length=1, max_length=10_000)] | None = Field(
        None, description=_COLUMNS
    )
    unit: Annotated[Storable, Field(min_length=1, max_length=40)] | None = Field(None, description=_UNIT)
    instructions: Annotated[Storable, Field(min_length=1, max_length=2000)] | None = Field(
        None, description=_INSTRUCTIONS
    )

    @model_validator(mode="after")
    def _can_be_drawn(self) -> Self:
        if self.shape is not None and len(self.shape) == 3 and self.shape[2] != 3:
            raise ValueError(f"`shape` is [height, width], or [height, width, 3] of colours; got {self.shape}")
        if self.range is not None and self.range[0] == self.range[1]:
            raise ValueError(f"`range` is [black, white], two different numbers; got {self.range}")
        return self


class Display(Out):
    """How items are shown to annotators."""

    kind: Kind = Field(description=_KIND)
    shape: list[int] | None = Field(description=_SHAPE)
    range: list[float] | None = Field(description=_RANGE)
    columns: list[str] | None = Field(description=_COLUMNS)
    unit: str | None = Field(description=_UNIT)
    instructions: str | None = Field(description=_INSTRUCTIONS)


def stored_display(wanted: DisplayIn | None, input_shape: list[int]) -> dict[str, Any] | None:
    """What the project keeps, once it is sure that rows of this shape can be shown so."""
    if wanted is None:
        return None
    width = math.prod(input_shape)
    if wanted.shape is not None and math.prod(wanted.shape) != width:
        raise Malformed(
            f"an image of shape {wanted.shape} has {math.prod(wanted.shape):,} numbers; a row of this project has "
            f"{width:,}",
            pointer="/display/shape",
        )
    if wanted.columns is not None and len(wanted.columns) != width:
        raise Malformed(
            f"there are {len(wanted.columns):,} names of columns; a row of this project has {width:,} numbers",
            pointer="/display/columns",
        )
    return wanted.model_dump()
