"""The catalogue: specs that people use, ready to be changed and sent."""

from functools import cache

from fastapi import APIRouter

from app.errors import NotFound
from app.experiments.schemas import CatalogueItem, PreviewAxis, PreviewCurve, PreviewOut, PreviewOutcome
from app.web.dependencies import CanRead, EdgeRoute
from app.web.paging import Page, Paged, encode_cursor
from bensemble_core.design import CATALOGUE, Experiment, preview, read_spec

router = APIRouter(prefix="/v1/catalog", tags=["experiments"], route_class=EdgeRoute)


@router.get("", summary="List the catalogue of models")
def list_catalogue(context: CanRead[None], paging: Paged) -> Page[CatalogueItem]:
    after, limit = paging.after(str), paging.limit
    ids = sorted(CATALOGUE, reverse=paging.is_descending)
    if after is not None:
        ids = [each for each in ids if paging.beyond(each, after[0])]
    following = encode_cursor(ids[limit - 1]) if len(ids) > limit else None
    return Page(items=[_item(each) for each in ids[:limit]], next_cursor=following)


@router.get("/{catalogue_id}", summary="Get a model of the catalogue")
def get_catalogue_item(catalogue_id: str, context: CanRead[None]) -> CatalogueItem:
    return _item(_known(catalogue_id))


@router.get("/{catalogue_id}/preview", summary="Get a picture of a model")
def get_catalogue_preview(catalogue_id: str, context: CanRead[None]) -> PreviewOut:
    """What its first outcome is expected to be along a design, for small, middling and large parameters."""
    return _preview(_known(catalogue_id))


def _known(catalogue_id: str) -> str:
    if catalogue_id not in CATALOGUE:
        raise NotFound(f"there is no {catalogue_id[:64]!r} in the catalogue; GET /v1/catalog lists what there is")
    return catalogue_id


@cache
def _preview(catalogue_id: str) -> PreviewOut:
    """Entries do not change while a process runs, and there are some dozens."""
    found = preview(Experiment(spec=read_spec(CATALOGUE[catalogue_id].spec)))
    return PreviewOut(
        x=PreviewAxis(name=found.design, values=list(found.values), is_log=found.is_log),
        y=PreviewOutcome(name=found.outcome, label=found.meaning),
        curves=[
            PreviewCurve(label=label, values=curve)
            for label, curve in zip(found.labels, found.curves.tolist(), strict=True)
        ],
    )


def _item(catalogue_id: str) -> CatalogueItem:
    return CatalogueItem.of(CATALOGUE[catalogue_id], id=catalogue_id)
