"""Each example of examples/09 to 20, applied whole: `kubectl get gangs` shows what its README says, and each pod holds its devices.

The pods are those that the example's controller would make (`tests.support.shapes`); webhook and controller are the real ones.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fairlead.sandbox.objects import phase_of
from tests.support.sandbox import until
from tests.support.shapes.site import COLUMNS, Site, load

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, kw_only=True)
class Example:
    """What must be true of an example: how many devices each of its pods holds, by the beginning of the pod's name."""

    folder: str
    devices: dict[str, int]
    namespace: str = "language"
    files: tuple[str, ...] = ("claim.yaml", "legacy.yaml")
    without: tuple[str, ...] = field(default=())
    """Beginnings of names of pods that hold nothing and are not gated."""


EXAMPLES = (
    Example(
        folder="09-jobset",
        devices={"llama-workers-": 1, "llama-legacy-workers-": 1},
        without=("llama-driver-", "llama-legacy-driver-"),
    ),
    Example(folder="10-leaderworkerset", devices={"serve-0": 2, "serve-1": 2, "serve-legacy-": 2}),
)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.folder)
async def test_an_example_is_as_its_readme_says(site: Site, example: Example) -> None:
    objects = [each for file in example.files for each in load(f"{example.folder}/{file}")]
    expected = shown(ROOT / "examples" / example.folder / "README.md")
    try:
        await site.apply(objects)

        async def settled() -> bool:
            pods = await site.pods(example.namespace)
            return all(phase_of(pod) == "Running" for pod in pods) and await site.gangs(example.namespace) == expected

        try:
            await until(settled, timeout_s=15)
        except AssertionError:
            print(await site.gangs(example.namespace))
            print([(p["metadata"]["name"], phase_of(p)) for p in await site.pods(example.namespace)])
            raise
        await check_devices(site, example)
    finally:
        await site.delete(objects)


async def check_devices(site: Site, example: Example) -> None:
    seen: set[str] = set()
    for pod in await site.pods(example.namespace):
        name, held = pod["metadata"]["name"], await site.devices(pod)
        begins = max((each for each in (*example.devices, *example.without) if name.startswith(each)), key=len)
        assert len(held) == example.devices.get(begins, 0), f"{name} holds {held}"
        seen.add(begins)
    assert seen == {*example.devices, *example.without}


def shown(readme: Path) -> list[tuple[str, ...]]:
    """The rows of the table in a README that `kubectl get gangs` prints, by name, without the age."""
    lines = readme.read_text().splitlines()
    head = next(number for number, line in enumerate(lines) if re.match(r" *NAME +QUEUE +PHASE", line))
    begins = [lines[head].index(column) for column in (*COLUMNS, "AGE")]
    rows = []
    for line in lines[head + 1 :]:
        if not line.strip() or line.startswith("```"):
            break
        cells = [line[begin:end].strip() for begin, end in itertools.pairwise(begins)]
        rows.append(tuple(cells))
    return sorted(rows)
