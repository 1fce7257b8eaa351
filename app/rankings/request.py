"""Ask which rows to label next. What the answer depends on is fixed here, so that it can be given again."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

import bensemble_core as bc
from app.db import consensus, label_counts, pools, projects
from app.db.tables import Ensemble, Pool, Project, Ranking, Round, RoundItem
from app.db.types import new_id
from app.ensembles.queries import finished_ensemble
from app.errors import Conflict, Malformed
from app.methods.schemas import as_json
from app.pools.given_rows import as_npy, checked_rows
from app.projects.choice import family_of, refuse_mixture
from app.projects.targets import row_width
from app.queue import queue
from app.rankings.schemas import TargetPool, TargetRows
from app.rankings.target_sets import TARGET_ROWS
from app.services import Services
from app.settings import Settings
from bensemble_core.acquisition import default_notes, first_pair, resolve_pair, resolve_selection
from bensemble_core.acquisition.selections.shortlist import short_list_option, short_list_size
from bensemble_core.ranking.ranking import check_combination

SHORT_LIST_BYTES = 2**31


def request_ranking(
    session: Session,
    project: Project,
    pool: Pool,
    settings: Settings,
    *,
    acquisition: dict[str, Any] | None,
    selection: dict[str, Any] | None,
    k: int,
    seed: int | None = None,
    ensemble_id: str | None = None,
    round_id: str | None = None,
    target: dict[str, Any] | None = None,
    ranking_id: str | None = None,
) -> Ranking:
    """An acquisition or selection of None is chosen here: as the project has it, or by the task and by whether there is
    an ensemble; a seed of None is the watermark."""
    project = projects.lock(session, project.id)
    pools.refuse_ranking(pool)
    n_left = rows_left(session, project, pool, for_round=round_id is not None)
    if k > settings.max_k:
        raise Malformed(f"k is {k:,}; the cap is {settings.max_k:,}", pointer="/k")
    if k > n_left:
        raise Conflict(_too_many(pool, k, n_left, for_round=round_id is not None))
    current = projects.current_ensemble_id(session, project)
    is_first = ensemble_id is None and current is None
    acquisition, selection, notes = with_defaults(project, acquisition, selection, is_first=is_first)
    check_methods(session, project, acquisition, selection, target, for_round=round_id is not None)
    if target is not None and "pool_id" in target:
        pools.data_of(session, pools.pool_of(session, project.id, target["pool_id"]))
    how = bc.SELECTIONS[selection["name"]].needs
    uses_scores, uses_predictions = "scores" in how, "predictive" in how
    if ensemble_id or uses_predictions or (uses_scores and "ensemble" in bc.ACQUISITIONS[acquisition["name"]].needs):
        chosen: str | None = _ensemble_id(session, project, ensemble_id)
    else:  # it scores and compares rows if it is there, and explains what was chosen
        chosen = current
        if chosen is None:  # and the selection does without scores
            acquisition, target = {"name": "random"}, None
    _check_short_list(session, project, pool, selection, k, chosen)
    ranking = Ranking(
        id=ranking_id or new_id(),
        project_id=project.id,
        pool_id=pool.id,
        ensemble_id=chosen,
        acquisition=acquisition,
        selection=selection,
        k=k,
        seed=project.last_seq if seed is None else seed,
        target=target,
        watermark=project.last_seq,
        round_id=round_id,
    )
    return enqueue_ranking(session, ranking, notes)


def with_defaults(
    project: Project, acquisition: dict[str, Any] | None, selection: dict[str, Any] | None, *, is_first: bool
) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """What was named, or else the project's choice; what goes with it where something was not; and what a reader should
    know of that choice. One of the project that needs an ensemble waits for the first."""
    family = family_of(project)
    if acquisition is None and selection is None and (project.acquisition or project.selection):
        return _projects_choice(project, is_first=is_first)
    named = bc.SELECTIONS[selection["name"]] if selection is not None else None
    without_scores = is_first and (named is None or "scores" not in named.needs)
    options, how = resolve_pair(acquisition, selection, family, is_first=without_scores)
    notes = default_notes(acquisition, selection, family, is_first=is_first)
    return as_json(options), as_json(how), list(notes)


def _projects_choice(project: Project, *, is_first: bool) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    family = family_of(project)
    options, how = resolve_pair(project.acquisition, project.selection, family)
    named = f"the project's choice, {options.name} with {how.name}"
    if not is_first:
        return as_json(options), as_json(how), [f"chosen by {named}; name an acquisition or selection to override"]
    options, how, is_own = first_pair(project.acquisition, project.selection, family)
    notes = [f"chosen by {named}; name an acquisition or selection to override"]
    if not is_own:
        notes = [
            f"{named}, needs an ensemble, and there is none yet",
            *default_notes(None, None, family, is_first=True),
        ]
    return as_json(options), as_json(how), notes


def enqueue_ranking(session: Session, ranking: Ranking, notes: Sequence[str] = ()) -> Ranking:
    payload = {"ranking_id": ranking.id, "round_id": ranking.round_id, "notes": list(notes)}
    job = queue.enqueue(session, kind="rank_pool", queue="score", payload=payload, project_id=ranking.project_id).job
    ranking.job_id = job.id
    session.add(ranking)
    session.flush()
    return ranking


def target_key(ranking_id: str) -> str:
    return f"rankings/{ranking_id}/target.npy"


def store_target(
    services: Services, project: Project, ranking_id: str, name: str | None, target: TargetPool | TargetRows | None
) -> dict[str, Any] | None:
    """Rows go to storage before the transaction begins, so that writing them holds no lock."""
    if not isinstance(target, TargetRows):
        return {"pool_id": target.pool_id} if target is not None else None
    if name is None or "target" not in bc.ACQUISITIONS[name].needs:
        return {"n_rows": 0}  # the request is about to be refused
    rows = checked_rows(project, target.rows, cap=TARGET_ROWS, pointer="/target/rows")
    services.objects.put(target_key(ranking_id), as_npy(rows))
    return {"n_rows": len(rows)}


def _too_many(pool: Pool, k: int, n_left: int, *, for_round: bool) -> str:
    if n_left > 0:
        rows, waiting = "row of {} is" if n_left == 1 else "rows of {} are", " nor waiting in a round" * for_round
        what = f"only {n_left:,} {rows} neither labelled nor skipped{waiting}. Lower k, add a pool"
    else:
        what = f"no row of {{}} is left: all are labelled or skipped{', or wait in a round' * for_round}. Add a pool"
    what = what.replace("{}", f"pool {pool.name!r}") + ", close a round" * for_round
    return f"k is {k:,}, but {what}, or take labels or skips back with `retract`"


def check_methods(
    session: Session,
    project: Project,
    acquisition: dict[str, Any],
    selection: dict[str, Any],
    target: dict[str, Any] | None,
    *,
    for_round: bool,
    within: str = "",
) -> None:
    """What can be said of a choice before there is anything to choose from; `within` is its place in the body."""
    _check_family(project, bc.ACQUISITIONS, acquisition["name"], f"{within}/acquisition/name")
    _check_family(project, bc.SELECTIONS, selection["name"], f"{within}/selection/name")
    try:
        check_combination(acquisition, selection, family_of(project))
    except bc.InvalidOption as error:
        raise Malformed(str(error), pointer=f"{within}/selection") from error
    refuse_mixture(project, acquisition, pointer=f"{within}/acquisition/estimate")
    _check_target(session, project, acquisition["name"], target, for_round=for_round, pointer=f"{within}/target")


def _check_family(project: Project, registry: Mapping[str, Any], name: str, pointer: str) -> None:
    family = family_of(project)
    if family not in registry[name].families:
        fitting = ", ".join(other for other, entry in registry.items() if family in entry.families)
        raise Malformed(
            f"{name} is not defined for {project.task['kind']}; take one of {fitting}",
            pointer=pointer,
        )


def _check_short_list(
    session: Session, project: Project, pool: Pool, selection: dict[str, Any], k: int, ensemble_id: str | None
) -> None:
    """A selection holds the rows of its short list and what the members say of them in a worker's memory."""
    if bc.SELECTIONS[selection["name"]].short_list is None:
        return
    options = resolve_selection(selection)
    sets_size = short_list_option(options)
    try:
        n_rows = short_list_size(options, k)
    except bc.InvalidOption as error:
        raise Malformed(str(error), pointer=f"/selection/{sets_size}") from error
    n_rows = min(n_rows, pools.data_of(session, pool).n_rows)
    n_members = session.get_one(Ensemble, ensemble_id).n_members if ensemble_id is not None else 0
    n_classes = len(project.task.get("classes", ()))
    n_outputs = n_classes or project.task["outputs"]
    a_row = 4 * (row_width(project.input) + n_members * n_outputs)
    if n_rows * a_row > SHORT_LIST_BYTES:
        most = SHORT_LIST_BYTES // a_row
        smaller = f"a `short_list` of at most {most:,} rows"
        if sets_size == "candidates_per_pick":
            smaller = f"`candidates_per_pick` of at most {max(1, most // k):,}, or selection top_k, which holds none"
        raise Malformed(
            f"{selection['name']} would hold {n_rows:,} rows of {a_row:,} bytes in memory, more than "
            f"{SHORT_LIST_BYTES:,}; give {smaller}, or a smaller k",
            pointer=f"/selection/{sets_size}",
        )
    # the members' weights after it: in float64, with those after fewer picks up to twice as many, and in float32
    an_outcome = 20 * n_members
    n_outcomes = min(selection.get("outcomes", 0), n_classes ** min(k - 1, 64))
    if n_outcomes * an_outcome > SHORT_LIST_BYTES:
        raise Malformed(
            f"{selection['name']} would hold {n_outcomes:,} joint outcomes of {an_outcome:,} bytes in memory, more "
            f"than {SHORT_LIST_BYTES:,}; give `outcomes` of at most {SHORT_LIST_BYTES // an_outcome:,}",
            pointer="/selection/outcomes",
        )


def _check_target(
    session: Session, project: Project, name: str, target: dict[str, Any] | None, *, for_round: bool, pointer: str
) -> None:
    is_needed = "target" in bc.ACQUISITIONS[name].needs
    if is_needed and target is None:
        rows = "" if for_round else ' or "target": {"rows": [[…], …]}'
        raise Malformed(
            f'{name} needs a target set, the rows that are to be predicted well: send "target": {{"pool_id": …}}{rows}',
            pointer=pointer,
        )
    if target is not None and not is_needed:
        raise Malformed(f"{name} knows no target set; leave `target` out, or name epig", pointer=pointer)
    if target is not None and "pool_id" in target:
        pools.pool_of(session, project.id, target["pool_id"])


def rows_left(session: Session, project: Project, pool: Pool, *, for_round: bool) -> int:
    """Rows neither labelled nor skipped; for a round also those that wait in no other round."""
    counts = label_counts.read_counts(session, pool.id)
    n_left = pools.data_of(session, pool).n_rows - counts.n_labelled - counts.n_skipped
    if for_round and (waiting := waiting_rows(session, pool.id)):
        said = consensus.verdicts(session, pool.id, waiting, kind=project.task["kind"])
        n_left -= sum(row not in said or said[row].status in ("open", "unlabelled") for row in waiting)
    return n_left


def waiting_rows(session: Session, pool_id: str) -> list[int]:
    """Rows that open rounds of the pool still ask for."""
    query = (
        select(RoundItem.row)
        .join(Round, Round.id == RoundItem.round_id)
        .where(Round.pool_id == pool_id, Round.status == "open", RoundItem.n_done < Round.overlap)
    )
    return sorted(set(session.scalars(query)))


def _ensemble_id(session: Session, project: Project, asked: str | None) -> str:
    if asked is None:
        current = projects.current_ensemble_id(session, project)
        if current is None:
            raise Conflict(
                "this project has no trained ensemble yet. Label some rows and train one with "
                f"POST /v1/projects/{project.id}/ensembles, or ask for a ranking that needs none: "
                '{"selection": {"name": "typiclust"}}, {"selection": {"name": "kcenter"}} or '
                '{"acquisition": {"name": "random"}}'
            )
        return current
    return finished_ensemble(session, project.id, asked).id
