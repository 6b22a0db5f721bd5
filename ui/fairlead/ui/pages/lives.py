"""How busy each device of a gang was, as rows of a table with a picture: how high a bar stands is how busy it was. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from markupsafe import Markup

from fairlead.ui.model.gang_devices import Life, Lives
from fairlead.ui.model.gangs import age

HEIGHT = 22


@dataclass(frozen=True, slots=True)
class LifeRow:
    """`boxes`: class and place of each box, in percents of the width."""

    node: str
    device: str
    busy: str
    idle: str
    held: str
    boxes: tuple[tuple[str, Markup], ...]


@dataclass(frozen=True, slots=True)
class LivesPicture:
    since: float  # unix seconds
    until: float
    known: bool
    from_ledger: bool
    devices: tuple[LifeRow, ...]
    more: int


def lives_picture(found: Lives) -> LivesPicture:
    return LivesPicture(
        since=found.since,
        until=found.until,
        known=found.known,
        from_ledger=found.from_ledger,
        devices=tuple(_row(each, found) for each in found.devices),
        more=found.more,
    )


def _row(life: Life, of: Lives) -> LifeRow:
    return LifeRow(
        node=life.node,
        device=life.device,
        busy="not known" if life.busy is None else f"{life.busy:.0%}",
        idle=age(life.idle_s) if life.idle_s else "–",
        held=age(life.held_s),
        boxes=tuple(_boxes(life, of)),
    )


def _boxes(life: Life, of: Lives) -> Iterator[tuple[str, Markup]]:
    scale = 100 / max(of.until - of.since, 1.0)
    for each in life.stretches:
        left, width = scale * (each.start - of.since), max(0.1, scale * (each.end - each.start))
        yield f"held-{each.state}", _box(left, width, HEIGHT)
        if each.busy:
            yield "busy", _box(left, width, max(1.0, HEIGHT * each.busy))


def _box(left: float, width: float, height: float) -> Markup:
    return Markup(  # noqa: S704 - numbers alone
        f'x="{left:.2f}%" y="{HEIGHT - height:.1f}" width="{width:.2f}%" height="{height:.1f}"'
    )
