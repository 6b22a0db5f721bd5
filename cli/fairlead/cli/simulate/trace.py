"""The trace's three CSV files, read strictly: what is wrong is named by file, row, column and value.

A replay never runs on numbers that were misread. Columns are those of Alibaba's cluster-trace-gpu-v2023 (openb);
columns that a replay does not use may be missing. Rows are counted from 1, the header not counted.
"""

from __future__ import annotations

import csv
import hashlib
import io
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from fairlead.bounded import files
from fairlead.bounded.limits import UnreadableError
from fairlead.bounded.limits import shown as shown_text

CELLS_MAX = 1_000_000
HEADER_SHOWN_MAX = 400
WHOLE = 1000  # thousandths of a GPU
NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
POD_COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")


class TraceError(ValueError):
    """A file can't be used as it is. The text says where, and what to do."""


@dataclass(frozen=True, slots=True)
class Node:
    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    model: str


@dataclass(frozen=True, slots=True)
class PodRequest:
    """What a pod requests; equal for equal pods. `models` empty: any."""

    cpu_milli: int
    memory_mib: int
    gpus: int
    gpu_milli: int  # of each
    models: tuple[str, ...] = ()

    @property
    def demand(self) -> int:
        return self.gpus * self.gpu_milli


@dataclass(frozen=True, slots=True)
class Pod:
    name: str
    request: PodRequest


@dataclass(frozen=True)
class Trace:
    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]

    @property
    def capacity(self) -> int:
        return sum(node.gpus * WHOLE for node in self.nodes)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of what a replay reads of both lists: the same for a copy with other line ends or further columns."""
        found = hashlib.sha256()
        for node in self.nodes:
            found.update(repr((node.name, node.cpu_milli, node.memory_mib, node.gpus, node.model)).encode())
        for pod in self.pods:
            asked = pod.request
            fields = (pod.name, asked.cpu_milli, asked.memory_mib, asked.gpus, asked.gpu_milli, asked.models)
            found.update(repr(fields).encode())
        return found.hexdigest()

    @cached_property
    def unplaceable(self) -> tuple[int, ...]:
        """Rows, from 0, of the pods that fit on no node even when all are empty: published lists have such pods. They fail."""
        fits: dict[PodRequest, bool] = {}
        for pod in self.pods:
            if pod.request not in fits:
                fits[pod.request] = any(_could_hold(node, pod.request) for node in self.nodes)
        return tuple(row for row, pod in enumerate(self.pods) if not fits[pod.request])


class _Row:
    def __init__(self, path: Path, number: int, cells: dict[str, str]) -> None:
        self._path = path
        self._number = number
        self._cells = cells

    def text(self, column: str) -> str:
        value = self._cells[column].strip()
        if not value:
            raise self.wrong(column, "is empty; write a value")
        return value

    def optional(self, column: str) -> str:
        return (self._cells.get(column) or "").strip()

    def number(self, column: str, *, least: int = 0, most: int | None = None) -> int:
        value = self.text(column)
        try:
            found = int(value)
        except ValueError:
            raise self.wrong(column, f"{shown_text(value)} is no whole number") from None
        if found < least or (most is not None and found > most):
            bounds = f"at least {least}" if most is None else f"from {least} to {most}"
            raise self.wrong(column, f"{found} is out of range; write a number {bounds}")
        return found

    def wrong(self, column: str, what: str) -> TraceError:
        return TraceError(f"{self._path}: row {self._number}: {column}: {what}")


def read_trace(nodes: Path, pods: Path) -> Trace:
    """Raises TraceError."""
    return Trace(tuple(_nodes(nodes)), tuple(_pods(pods)))


def read_arrivals(path: Path, seeds: Sequence[int], pods: int) -> dict[int, tuple[int, ...]]:
    """The recorded order of each seed: rows of the pod list, counted from 0. Raises TraceError."""
    header, rows = _rows(path, ())
    columns = {seed: f"seed{seed}" for seed in seeds}
    missing = [column for column in columns.values() if column not in header]
    if missing:
        there = ", ".join(column for column in header if column.startswith("seed")) or "none"
        raise TraceError(
            f"{path}: there is no column {missing[0]}; recorded are {there}; leave out --arrivals to draw one"
        )
    orders: dict[int, list[int]] = {seed: [] for seed in seeds}
    ended: set[int] = set()
    for row in rows:
        for seed, column in columns.items():
            if not row.optional(column):
                ended.add(seed)
                continue
            if seed in ended:
                raise row.wrong(column, f"{row.optional(column)!r} comes after the run's end (a blank above)")
            orders[seed].append(row.number(column, most=pods - 1))
    for seed, order in orders.items():
        if not order:
            raise TraceError(f"{path}: column seed{seed} has no arrivals")
    return {seed: tuple(order) for seed, order in orders.items()}


def _nodes(path: Path) -> Iterator[Node]:
    seen: set[str] = set()
    for row in _rows(path, NODE_COLUMNS)[1]:
        name = row.text("sn")
        if name in seen:
            raise row.wrong("sn", f"{name!r} is there twice; names of nodes must differ")
        seen.add(name)
        yield Node(
            name,
            row.number("cpu_milli", least=1),
            row.number("memory_mib", least=1),
            row.number("gpu", most=64),
            row.text("model"),
        )


def _pods(path: Path) -> Iterator[Pod]:
    for row in _rows(path, POD_COLUMNS)[1]:
        gpus = row.number("num_gpu", most=32)
        milli = row.number("gpu_milli", most=WHOLE)
        if bool(gpus) != bool(milli):
            raise row.wrong("gpu_milli", f"{milli} with num_gpu {gpus}: both are 0, or none is")
        if gpus > 1 and milli != WHOLE:
            raise row.wrong("gpu_milli", f"{milli} with num_gpu {gpus}: several GPUs are asked whole, write {WHOLE}")
        models = tuple(sorted({model.strip() for model in row.optional("gpu_spec").split("|")} - {""})) if gpus else ()
        request = PodRequest(row.number("cpu_milli"), row.number("memory_mib"), gpus, milli, models)
        yield Pod(row.text("name"), request)


def _rows(path: Path, wanted: Sequence[str]) -> tuple[Sequence[str], list[_Row]]:
    try:
        text = files.text(path).removeprefix("\ufeff")
        if text.count(",") + text.count("\n") > CELLS_MAX:
            raise TraceError(f"{path}: has more than {CELLS_MAX} cells: split it")
        reader = csv.DictReader(io.StringIO(text, newline=""), restval="")
        header = tuple(reader.fieldnames or ())
        if not header:
            raise TraceError(f"{path}: is empty; its first line should name the columns")
        for column in wanted:
            if column not in header:
                raise TraceError(
                    f"{path}: column {column} is missing; there are {', '.join(header)[:HEADER_SHOWN_MAX]}"
                )
        most = CELLS_MAX // len(header)  # a row has as many cells as the header, however short it is
        rows = [_Row(path, number, cells) for number, cells in enumerate(itertools.islice(reader, most + 1), 1)]
    except (OSError, UnreadableError, csv.Error) as error:
        raise TraceError(f"{path}: can't be read: {error}") from None
    if len(rows) > most:
        raise TraceError(f"{path}: has more than {CELLS_MAX} cells, {len(header)} in each row: split it")
    if not rows:
        raise TraceError(f"{path}: has a header and no rows")
    return header, rows


def _could_hold(node: Node, request: PodRequest) -> bool:
    return (
        node.cpu_milli >= request.cpu_milli
        and node.memory_mib >= request.memory_mib
        and node.gpus >= request.gpus
        and (not request.models or node.model in request.models)
    )


def shown(request: PodRequest) -> str:
    models = f" of {' or '.join(request.models)}" if request.models else ""
    return f"{request.cpu_milli}m CPU, {request.memory_mib} MiB, {request.gpus} x {request.gpu_milli} thousandths of a GPU{models}"
