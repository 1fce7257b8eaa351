"""What streams of events tell beside views of other nouns."""

from pydantic import Field

from app.web.fields import Out


class LabelsChange(Out):
    """How far the labels of a project have come."""

    project_id: str
    last_seq: int = Field(description="Number of the newest label event.")
    n_labelled: int = Field(description="Rows of its candidate pools with an agreed label.")
