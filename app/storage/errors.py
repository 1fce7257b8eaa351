"""What can go wrong with stored things.

StorageError
├── BadKey          a key that is not a plain relative path
├── MissingObject   nothing is stored under that key
├── AlreadyStored   objects are written once; that key is taken
└── StorageDown     the folder or the bucket does not answer
BadData             an uploaded file is not what it should be (names the row where there is one)
└── WrongWidth      its rows have another number of features
"""

from collections.abc import Iterator
from contextlib import contextmanager

from obstore.exceptions import AlreadyExistsError, BaseError


class StorageError(Exception):
    pass


class BadKey(StorageError):
    pass


class MissingObject(StorageError):
    pass


class AlreadyStored(StorageError):
    pass


class StorageDown(StorageError):
    pass


class BadData(ValueError):
    """`row` counts from 0 over the whole file; `column` is a column's name or its number in text."""

    def __init__(self, message: str, *, row: int | None = None, column: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.row = row
        self.column = column


class WrongWidth(BadData):
    def __init__(self, message: str, *, found: int, row: int | None = None, column: str | None = None) -> None:
        super().__init__(message, row=row, column=column)
        self.found = found


def bad_row(row: int, text: str, column: str | None = None) -> BadData:
    return BadData(f"Row {row}: {text}", row=row, column=column)


def bad_feature(row: int, name: str, text: str) -> BadData:
    return BadData(f"Row {row}, feature {name!r}: {text}", row=row, column=name)


@contextmanager
def translated(key: str) -> Iterator[None]:
    """obstore's errors as ours."""
    try:
        yield
    except FileNotFoundError as error:
        raise MissingObject(f"nothing is stored under {key}") from error
    except AlreadyExistsError as error:
        raise AlreadyStored(f"{key} is already stored; objects are written once, choose a new key") from error
    except BaseError as error:
        raise StorageError(f"{key}: {first_line(error)}") from error


def first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0]
