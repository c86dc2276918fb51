"""Where a run's records go: small buffers of tuples that become columns, in memory or in Parquet row groups."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.records import TABLES

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import pyarrow as pa
    from numpy.typing import NDArray

#: Records held as tuples before they become columns.
CHUNK_ROWS = 20_000
#: Rows held in memory before a table without a folder goes to temporary files.
SPILL_ROWS = 500_000
#: The column every table of a run has besides those of `sim.records`.
REPLICATION = "replication"


class Table:
    """One table of a run, replication after replication.

    Parameters
    ----------
    name
        A key of `sim.records.TABLES`.
    folder
        Where ``<name>.parquet`` is written as the run goes on; None keeps the columns in memory.
    grown
        Called after each batch of rows.
    """

    __slots__ = ("_batches", "_buffer", "_file", "_grown", "_reader", "_writer", "name", "replication", "rows",
                 "schema", "spans")

    def __init__(self, name: str, folder: Path | None = None, grown: Callable[[], None] | None = None) -> None:
        import pyarrow as pa

        self.name = name
        self.replication = 0
        #: Rows written so far.
        self.rows = 0
        #: replication -> numbers of its row groups (or batches), which never hold two replications.
        self.spans: dict[int, list[int]] = {}
        fields = [(REPLICATION, pa.int32())]
        fields += [(column, pa.type_for_alias(kind)) for column, (kind, _) in TABLES[name].items()]
        self.schema = pa.schema(fields)
        self._buffer: list[tuple[Any, ...]] = []
        self._batches: list[Any] = []
        self._file: Path | None = None
        self._writer: Any = None
        self._reader: Any = None
        self._grown = grown
        if folder is not None:
            self.to_files(folder)

    def append(self, record: tuple[Any, ...]) -> None:
        """Take one record, in the order of the table's columns."""
        self._buffer.append(record)
        if len(self._buffer) >= CHUNK_ROWS:
            self.flush()

    def flush(self) -> None:
        """Turn the buffered tuples into one batch of columns."""
        import pyarrow as pa

        if not self._buffer:
            return
        count = len(self._buffer)
        arrays = [pa.repeat(pa.scalar(self.replication, pa.int32()), count)]
        columns = zip(*self._buffer, strict=True)
        arrays += [pa.array(values, field.type) for values, field in zip(columns, list(self.schema)[1:], strict=True)]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        self._buffer = []
        groups = sum(len(numbers) for numbers in self.spans.values())
        self.spans.setdefault(self.replication, []).append(groups)
        self.rows += count
        self._put(batch)
        if self._grown is not None:
            self._grown()

    def _put(self, batch: pa.RecordBatch) -> None:
        if self._writer is None:
            self._batches.append(batch)
        else:
            self._writer.write_batch(batch, row_group_size=max(batch.num_rows, 1))

    def to_files(self, folder: Path) -> None:
        """Write what is in memory, and everything that follows, to a Parquet file in `folder`."""
        import pyarrow.parquet as pq

        self._file = folder / f"{self.name}.parquet"
        self._writer = pq.ParquetWriter(self._file, self.schema, compression="zstd")
        batches, self._batches = self._batches, []
        for batch in batches:
            self._put(batch)

    def close(self) -> None:
        """Flush, and end the file so that it can be read."""
        self.flush()
        if self._writer is not None:
            self._writer.close()

    def abandon(self) -> None:
        """Let go of the file without caring whether it is whole."""
        if self._writer is not None and self._writer.is_open:
            try:
                self._writer.close()
            except OSError:  # the disk that failed us may well fail again
                self._writer.is_open = False

    def moved(self, folder: Path) -> None:
        """Say that the file now lies in `folder`."""
        if self._file is not None:
            self._file, self._reader = folder / self._file.name, None

    def read(self, columns: list[str] | None = None, replication: int | None = None) -> pa.Table:
        """Return columns as an Arrow table: all replications, or one."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        groups = [number for key, numbers in self.spans.items() if replication in (None, key) for number in numbers]
        if self._file is None:
            schema = self.schema if columns is None else pa.schema([self.schema.field(name) for name in columns])
            batches = [self._batches[number] for number in groups]
            return pa.Table.from_batches([b if columns is None else b.select(columns) for b in batches], schema=schema)
        if self._reader is None:
            self._reader = pq.ParquetFile(self._file)
        table = self._reader.read_row_groups(groups, columns=columns)
        return table if columns is None else table.select(columns)


class Tables:
    """The sink of a run: all its tables.

    Parameters
    ----------
    folder
        Where the Parquet files grow during the run. None keeps columns in memory, up to `SPILL_ROWS` rows over all
        tables; beyond that they move to a temporary folder which goes when this object goes.

    Notes
    -----
    Call `begin` before each replication and `close` after the last; columns can be read only then.
    """

    def __init__(self, folder: Path | None = None) -> None:
        grown = self._spill if folder is None else None
        self.tables = {name: Table(name, folder, grown) for name in TABLES}
        self._folder = folder
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self.turn = self.tables["turns"].append
        self.trajectory = self.tables["trajectories"].append
        self.pause = self.tables["pauses"].append
        self.move = self.tables["moves"].append
        self.sample = self.tables["timeline"].append
        self.space = self.tables["address_space"].append

    def begin(self, replication: int) -> None:
        """Book what follows under this replication."""
        for table in self.tables.values():
            table.flush()
            table.replication = replication

    def _spill(self) -> None:
        """When memory holds many rows, move them to temporary files and let the rest follow."""
        if self._scratch is None and sum(table.rows for table in self.tables.values()) > SPILL_ROWS:
            self._scratch = tempfile.TemporaryDirectory(prefix="kvplan-", ignore_cleanup_errors=True)
            for table in self.tables.values():
                table.to_files(Path(self._scratch.name))

    def close(self) -> None:
        """End every table."""
        for table in self.tables.values():
            table.close()

    def abandon(self) -> None:
        """Let go of every file after a failure."""
        for table in self.tables.values():
            table.abandon()

    def moved(self, folder: Path) -> None:
        """Say that the files were moved to `folder`."""
        for table in self.tables.values():
            table.moved(folder)

    def column(self, table: str, name: str, replication: int | None = None) -> NDArray[Any]:
        """Return one column as a numpy array, of one replication or of all.

        Text columns come back as arrays of Python strings.
        """
        import pyarrow as pa

        column = self.tables[table].read([name], replication).column(0)
        if pa.types.is_string(column.type):
            column = column.dictionary_encode().combine_chunks()
            column = pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column
            words: NDArray[Any] = column.dictionary.to_numpy(zero_copy_only=False)
            return words[column.indices.to_numpy(zero_copy_only=False)] if len(column) else words
        array: NDArray[Any] = column.to_numpy()
        return array

    def frame(self, table: str) -> pd.DataFrame:
        """Return a table as a pandas DataFrame."""
        frame: pd.DataFrame = self.tables[table].read().to_pandas()
        return frame

    def write(self, table: str, path: Path) -> None:
        """Write a table as one Parquet file."""
        import pyarrow.parquet as pq

        data = self.tables[table].read()
        pq.write_table(data, path, compression="zstd", row_group_size=CHUNK_ROWS)


class Columns:
    """The columns of one replication, read one at a time so that a long run needs little memory.

    `columns("turns", "ready_s")` is that column as a numpy array.
    """

    __slots__ = ("_replication", "_tables")

    def __init__(self, tables: Tables, replication: int) -> None:
        self._tables = tables
        self._replication = replication

    def __call__(self, table: str, name: str) -> np.ndarray[Any, Any]:
        """Return one column."""
        return self._tables.column(table, name, self._replication)

    def equals(self, table: str, name: str, word: str) -> NDArray[np.bool_]:
        """Return where a text column holds `word`."""
        import pyarrow.compute as pc

        column = self._tables.tables[table].read([name], self._replication).column(0)
        found: NDArray[np.bool_] = pc.equal(column, word).to_numpy(zero_copy_only=False).astype(bool)
        return found
