"""Rankings: which rows to label next, with everything needed to get the same answer again."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, JsonValue, Tag

from app.methods.schemas import AcquisitionSpec, SelectionSpec
from app.web.bodies.long import Long
from app.web.fields import In, Many, Number, Out, Seed, Storable, Whole
from app.web.job_view import JobOut, JobStatus


class TargetPool(In):
    pool_id: Annotated[Storable, Field(max_length=36)] = Field(description="A pool of this project, of any purpose.")


class TargetRows(In):
    rows: Long[Many[Number]] = Field(description="Features, one list a row.")


def _which_target(given: Any) -> str | None:
    """Decided before either is read, so that a mistake in one is not also told as the lack of the other."""
    if isinstance(given, TargetPool | TargetRows):
        return type(given).__name__
    if not isinstance(given, dict) or ("pool_id" in given) == ("rows" in given):
        return None
    return "TargetRows" if "rows" in given else "TargetPool"


Target = Annotated[
    Annotated[TargetPool, Tag("TargetPool")] | Annotated[TargetRows, Tag("TargetRows")],
    Discriminator(
        _which_target,
        custom_error_type="one_target",
        custom_error_message='send one of pool_id and rows: {"pool_id": …} or {"rows": [[…], …]}',
    ),
]


OwnSeed = Annotated[
    Seed | None,
    Field(
        description="Same seed, same answer. Left out: the number of label events so far (`watermark`), so that "
        "rankings with labels between them draw anew. `metrics.estimate` of an ensemble needs that: the stored "
        "probabilities of draws hold only where no earlier ranking drew with the same numbers."
    ),
]


class Choice(In):
    """What is left out is None, and chosen when the ranking is requested."""

    acquisition: AcquisitionSpec = Field(
        default_factory=lambda: None,
        description="How a row is scored. Where neither it nor a selection is named and the project has a choice of "
        'its own, that is taken. Else, left out, or `"auto"`, it goes with the selection and the task: `margin` for '
        "classes, the members' spread (`predictive_variance`, epistemic) for numbers, `bald` with `batchbald`.",
    )
    selection: SelectionSpec = Field(
        default_factory=lambda: None,
        description='How k rows are taken by their scores, or by how they differ. Left out, or `"auto"`: `top_k`, the '
        "highest scores. Where no acquisition is named either, `cluster_margin` for classes and `power` for numbers; "
        "before there is an ensemble `typiclust` for classes, with one half of its picks at random, and `random` rows "
        "for numbers.",
    )


class RankingIn(Choice):
    k: Whole = Field(ge=1, le=2**31, description="How many rows to choose.")
    ensemble_id: Annotated[Storable, Field(max_length=36)] | None = Field(None, description="Default: the current one.")
    seed: OwnSeed = None
    target: Target | None = Field(
        None, description="Only for `epig`, which needs it: the rows that are to be predicted well."
    )


class RankedItem(Out):
    rank: int
    row: int
    key: str
    score: float
    value: float | None = Field(None, description="What the selection did for this pick; `measure` says what it is.")
    payload: JsonValue = None
    explanation: dict[str, Any] | None = Field(
        None,
        description="With explain=true, why this row; null if there was no ensemble. Classes: shares of the members' "
        "`votes` and mean `probabilities` of the ten likeliest classes (`n_left_out` says how many more there are, "
        "`votes_left_out` and `probability_left_out` what they have together), and the uncertainty in nats: `total` = "
        "`aleatoric` (noise of the label) + `epistemic` (the members disagree). Numbers: each of the `members`' means, "
        "and the standard deviations of the same split.",
    )


class RankingOut(Out):
    id: str
    project_id: str
    pool_id: str
    ensemble_id: str | None
    round_id: str | None
    replay_of: str | None = Field(description="The ranking that this one makes again.")
    status: JobStatus
    acquisition: dict[str, Any]
    selection: dict[str, Any]
    k: int
    seed: int
    target: dict[str, Any] | None = Field(
        description="The pool that is to be predicted well, or how many rows were sent, which are kept along."
    )
    watermark: int = Field(description="Rows labelled or skipped up to this label event are left out.")
    n_scored: int | None
    seconds: float | None = Field(
        description="From its first start to its end; of a ranking split into parts, with the time of the parts."
    )
    notes: list[str] = Field(description="What a reader of this ranking should know, e.g. that many rows tie.")
    measure: str | None = Field(
        description="What the items' `value` is: the score itself, the probability of the draw given the earlier ones, "
        "the information_gained jointly with the earlier ones, a distance, a typicality."
    )
    ceiling: float | None = Field(
        description="Nats that no score of these members can pass, ln M with M equal ones: nearer than a tenth to it "
        "rows can't be told apart, and `notes` say so. null for scores without a cap."
    )
    items: list[RankedItem] | None
    job_id: str
    error: dict[str, Any] | None
    created_at: datetime


class ScoresOut(Out):
    """How the scores of a ranking are distributed."""

    n: int = Field(description="Rows that could be chosen.")
    edges: list[float] = Field(description="65, of bins of equal width.")
    counts: list[int] = Field(description="64: rows from an edge to below the next, in the last bin including it.")
    picks: list[float] = Field(description="Scores of the picks in their order; of the first 5,000.")


class SampleOut(Out):
    """Some rows of a ranking, by columns: entry i of each is of row `row[i]`."""

    row: list[int] = Field(description="Ascending.")
    score: list[float]
    aleatoric: list[float] | None = Field(
        description="What no more labels would take away, the noise of the label; null without an ensemble."
    )
    epistemic: list[float] | None = Field(
        description="What labels can take away, the members' disagreement; null without an ensemble."
    )
    picked: list[bool]
    unit: Literal["nats", "sd"] = Field(
        description="Of aleatoric and epistemic: nats for classes; for numbers standard deviations in the labels' "
        "units, of several outputs the root of their summed variances."
    )


class RankingJobOut(Out):
    job: JobOut
    ranking: RankingOut
