"""The catalogue: specs that people use, ready to be changed and sent."""

from fastapi import APIRouter

from app.errors import NotFound
from app.experiments.schemas import CatalogueItem
from app.web.dependencies import CanRead, EdgeRoute
from app.web.paging import Page, Paged, encode_cursor
from bensemble_core.design import CATALOGUE

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
    if catalogue_id not in CATALOGUE:
        raise NotFound(f"there is no {catalogue_id[:64]!r} in the catalogue; GET /v1/catalog lists what there is")
    return _item(catalogue_id)


def _item(catalogue_id: str) -> CatalogueItem:
    return CatalogueItem.of(CATALOGUE[catalogue_id], id=catalogue_id)
