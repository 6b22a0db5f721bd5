"""Each example of examples/09 to 20, applied whole: `kubectl get gangs` shows what its README says, and each pod holds its devices.

The pods are those that the example's controller would make (`tests.support.shapes`); webhook and controller are the real ones.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from fairlead.sandbox.objects import phase_of
from tests.support.sandbox import until
from tests.support.shapes import kubespawner, mlflow
from tests.support.shapes.base import Obj
from tests.support.shapes.site import COLUMNS, Site, load

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROOT = Path(__file__).parents[2] / "examples"
Row = tuple[str, ...]


def files(folder: str) -> list[Obj]:
    """The claim's form and the legacy one."""
    return [each for file in ("claim.yaml", "legacy.yaml") for each in load(f"{folder}/{file}")]


def mlflow_runs(folder: str) -> list[Obj]:
    """What `mlflow run` makes of the two Job templates."""
    made = [
        mlflow.submitted(
            load(f"{folder}/{form}.yaml")[0], project=f"train-{form}", image="train:1", command="python train.py"
        )
        for form in ("claim", "legacy")
    ]
    return [*load(f"{folder}/template.yaml"), *made]


def servers(folder: str) -> list[Obj]:
    """The Notebooks, and the pods of two users of two hubs with these settings."""
    pods = [
        kubespawner.pod(kubespawner.settings(ROOT / folder / f"{form}.py"), user)
        for form, user in (("claim", "ada"), ("legacy", "grace"))
    ]
    return [*files(folder), *pods]


@dataclass(frozen=True, kw_only=True)
class Example:
    """What must be true of an example: how many devices each of its pods holds, by the beginning of the pod's name."""

    folder: str
    devices: dict[str, int]
    namespaces: tuple[str, ...] = ("language",)
    objects: Callable[[str], list[Obj]] = files


EXAMPLES = (
    Example(
        folder="09-jobset",
        devices={"llama-workers-": 1, "llama-legacy-workers-": 1, "llama-driver-": 0, "llama-legacy-driver-": 0},
    ),
    Example(folder="10-leaderworkerset", devices={"serve-0": 2, "serve-1": 2, "serve-legacy-": 2}),
    Example(
        folder="11-kubeflow-training",
        devices={
            "bert-": 1,
            "resnet-": 1,
            "horovod-worker-": 1,
            "horovod-legacy-worker-": 1,
            "horovod-launcher-": 0,
            "horovod-legacy-launcher-": 0,
        },
    ),
    Example(
        folder="12-ray",
        devices={
            "explore-gpu-worker-": 2,
            "explore-legacy-gpu-worker-": 2,
            "explore-head-": 0,
            "explore-legacy-head-": 0,
            "tune-rpdbx-gpu-worker-": 2,
            "tune-legacy-g6z97-gpu-worker-": 2,
            "tune-rpdbx-head-": 0,
            "tune-legacy-g6z97-head-": 0,
        },
    ),
    Example(
        folder="13-kserve",
        devices={"llama-predictor-": 2, "llama-legacy-predictor-": 2, "detector-predictor-": 1, "detector-legacy-": 1},
    ),
    Example(folder="14-kubeai", devices={"model-llama-3.1-8b-": 2}, namespaces=("language", "vision")),
    Example(
        folder="15-pipelines",
        devices={
            "evaluate-score-": 1,
            "evaluate-by-patch": 1,
            "evaluate-legacy": 1,
            "finetune-": 2,
            "benchmark-pod": 1,
        },
    ),
    Example(folder="16-mlflow", devices={"train-claim-": 1, "train-legacy-": 1}, objects=mlflow_runs),
    Example(
        folder="17-notebooks",
        devices={"analysis-0": 1, "analysis-legacy-0": 1, "jupyter-ada": 1, "jupyter-grace": 1},
        objects=servers,
    ),
)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.folder)
async def test_an_example_is_as_its_readme_says(site: Site, example: Example) -> None:
    objects = example.objects(example.folder)
    expected = shown(ROOT / example.folder / "README.md")
    seen: list[Row] = []

    async def settled() -> bool:
        """All pods run, and the gangs are those of the README; a gang of one may have a Gang object if it waited for long."""
        pods = [pod for each in example.namespaces for pod in await site.pods(each)]
        seen[:] = sorted([row for each in example.namespaces for row in await site.gangs(each)])
        alone = {pod["metadata"]["name"] for pod in pods}
        told = [row for row in seen if row in expected or row[0] not in alone]
        return all(phase_of(pod) == "Running" for pod in pods) and told == expected

    try:
        await site.apply(objects)
        try:
            await until(settled, timeout_s=30)
        except AssertionError:
            pods = [pod for each in example.namespaces for pod in await site.pods(each)]
            states = [(pod["metadata"]["name"], phase_of(pod)) for pod in pods]
            raise AssertionError(f"gangs {seen}, expected {expected}; pods {states}") from None
        for namespace in example.namespaces:
            await check_devices(site, example, namespace)
    finally:
        await site.delete(objects)


async def check_devices(site: Site, example: Example, namespace: str) -> None:
    seen: set[str] = set()
    for pod in await site.pods(namespace):
        name, held = pod["metadata"]["name"], await site.devices(pod)
        begins = max((each for each in example.devices if name.startswith(each)), key=len, default=None)
        assert begins is not None, f"{name} is no pod of the example"
        assert len(held) == example.devices[begins], f"{name} holds {held}"
        seen.add(begins)
    assert seen == {*example.devices}


def shown(readme: Path) -> list[Row]:
    """The rows of the table in a README that `kubectl get gangs` prints, by name, without the age."""
    lines = readme.read_text().splitlines()
    heads = [number for number, line in enumerate(lines) if re.match(r"NAME +QUEUE +PHASE", line)]
    if not heads:
        assert "No resources found" in readme.read_text(), f"{readme} does not show what kubectl get gangs prints"
        return []
    begins = [lines[heads[0]].index(column) for column in (*COLUMNS, "AGE")]
    table = itertools.takewhile(lambda line: line.strip("`").strip(), lines[heads[0] + 1 :])
    return sorted(tuple(line[begin:end].strip() for begin, end in itertools.pairwise(begins)) for line in table)
