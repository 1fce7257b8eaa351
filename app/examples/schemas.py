"""Examples: which there are, and what comes of one."""

from typing import Literal

from pydantic import Field

from app.projects.schemas import ProjectOut
from app.web.fields import In, Out
from app.web.job_view import JobOut


class ExampleIn(In):
    name: Literal["digits"] = Field(description="`digits`: 1,297 handwritten digits to label, and 500 to measure on.")


class ExampleOut(Out):
    job: JobOut = Field(description="The first training; when it has succeeded, a round opens by itself.")
    project: ProjectOut
