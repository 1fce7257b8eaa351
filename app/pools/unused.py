"""What whoever sends a file should know of its columns: which are not used and why, and what to do about it."""

from app.pools.suggest import MANY_ROWS, Guess
from app.storage.inspection import Column, Look
from app.storage.readers.plan import Plan, listed


def notes_of(look: Look, guess: Guess, plan: Plan) -> list[str]:
    by_name = {column.name: column for column in look.columns}
    unused = [by_name[name] for name in plan.unused]
    features = [by_name[name] for name in plan.features]
    return [*_of_features(features, look), *_of_unused(unused, plan), *_of_roles(look, guess), *_of_rows(look)]


def _of_features(features: list[Column], look: Look) -> list[str]:
    notes = []
    if not features:
        notes.append(
            "No column holds numbers, so there are no features to learn from. Turn each text or picture into numbers "
            "first, an embedding for example, and add them as columns, or as a list column 'x' (NDJSON, Parquet)."
        )
    if missing := [f"{column.name} ({column.n_missing:,})" for column in features if column.n_missing]:
        notes.append(
            f"Values are missing in {listed(missing)}, and every feature needs one: fill them, or leave those rows out."
        )
    notes += [
        f"{column.name!r} holds numbers, but {column.odd_one!r} too: write numbers throughout, or text throughout."
        for column in features
        if column.kind == "mixed" and column.odd_one is not None
    ]
    notes += [
        f"The column {column.name!r} only counts the rows, and would be a feature: leave it out of the file."
        for column in features
        if column.is_count and look.n_looked >= MANY_ROWS and len(features) > 1
    ]
    if any(column.type == "list" and column.width is None for column in features):
        notes.append("The lists in 'x' differ in length, or hold other things than numbers; each row needs the same.")
    return notes


def _of_unused(unused: list[Column], plan: Plan) -> list[str]:
    notes = []
    if texts := [column.name for column in unused if column.kind == "text"]:
        notes.append(
            f"Not used, since text is no feature: {listed(texts)}. To learn from it, write a category as columns of 0 "
            "and 1, and a text as an embedding; to show it to annotators, make it the payload."
        )
    if truths := [column.name for column in unused if column.kind == "boolean"]:
        notes.append(f"Not used: {listed(truths)}. To learn from true and false, write 1 and 0.")
    if lists := [column.name for column in unused if column.kind == "list" and column.type == "list"]:
        notes.append(f"Not used: {listed(lists)}. If {lists[0]!r} holds the features, rename it to 'x'.")
    if numbers := [column.name for column in unused if column.kind == "number"]:
        notes.append(f"Not used, since the features are the list column 'x': {listed(numbers)}.")
    said = {*texts, *truths, *lists, *numbers}
    if others := [column.name for column in unused if column.name not in said]:
        notes.append(f"Not used, since they hold neither numbers throughout nor text: {listed(others)}.")
    return notes


def _of_roles(look: Look, guess: Guess) -> list[str]:
    notes = []
    if guess.key is None:
        notes.append("No column names the rows: they are numbered from 0.")
    else:
        (column,) = (column for column in look.columns if column.name == guess.key)
        if column.n_missing or column.n_distinct < look.n_looked:
            notes.append(f"The key {guess.key!r} has to be there and different in every row, and it is not.")
    if guess.label is None:
        notes.append("No column looks like labels, which is fine: they are given later.")
    return notes


def _of_rows(look: Look) -> list[str]:
    if look.n_rows is not None and look.n_looked == look.n_rows:
        return []
    if not look.n_looked:
        return ["The rows unpack to too much to be looked at here; this is what the file says of its columns."]
    return [f"Only the first {look.n_looked:,} rows were looked at."]
