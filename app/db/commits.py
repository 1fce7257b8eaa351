"""Whether anything was committed since one last looked, at the price of one number: whoever polls for changes of any
kind reads nothing else while nothing happens."""

from sqlalchemy import Connection

from app.db.engine import Database

_ASK = {
    "sqlite": "PRAGMA data_version",  # differs after a commit by any other connection
    "postgresql": "SELECT CAST(txid_current_snapshot() AS text)",  # names what has ended; readers do not count
}


class Commits:
    """Holds one connection, since SQLite counts for each of them what the others did."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._ask = _ASK[database.engine.dialect.name]
        self._connection: Connection | None = None

    def mark(self) -> str:
        """Equal to the mark before only if nothing was committed between."""
        if self._connection is None:
            self._connection = self._database.reader.connect()
        try:
            found = self._connection.exec_driver_sql(self._ask).scalar_one()
            self._connection.rollback()
        except BaseException:
            self.close()
            raise
        return str(found)

    def close(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            connection.close()
