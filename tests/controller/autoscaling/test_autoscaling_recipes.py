"""The recipe for KEDA in docs/autoscaling.md, followed from look to look: it comes to rest where quota and work say, and stays there."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

PAGE = (Path(__file__).parents[3] / "docs" / "autoscaling.md").read_text(encoding="utf-8")
BLOCKS = [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]
TERM = re.compile(r'sum\((fairlead_\w+)\{queue="([^"]+)",flavor="h100"\}\)')


def recipe(kind: str) -> dict[str, Any]:
    (found,) = [each for each in BLOCKS if isinstance(each, dict) and each.get("kind") == kind]
    return dict(found["spec"])


def room(query: str, *, limit: int, others: int, own: int) -> int:
    """The query's answer, from what the queues hold; those below count in `language`, too."""
    values = {
        ("fairlead_queue_limit", "language"): limit,
        ("fairlead_queue_used", "language"): others + own,
        ("fairlead_queue_used", "language-worker"): own,
    }
    terms = TERM.sub(lambda term: str(values[term[1], term[2]]), query).split()
    return int(terms[0]) + sum(
        {"+": 1, "-": -1}[sign] * int(value) for sign, value in zip(terms[1::2], terms[2::2], strict=True)
    )


@pytest.mark.parametrize(
    ("limit", "others", "backlog", "rest"), [(16, 4, 100, 12), (16, 16, 100, 0), (16, 0, 3, 3), (8, 10, 100, 0)]
)
def test_kedas_replicas_come_to_rest_and_do_not_swing(limit: int, others: int, backlog: int, rest: int):
    spec = recipe("ScaledObject")
    assert spec["advanced"]["scalingModifiers"]["formula"] == "backlog < room ? backlog : room"
    triggers = {each["name"]: each["metadata"] for each in spec["triggers"]}
    seen, own = [], 0
    for _ in range(6):
        free = room(triggers["room"]["query"], limit=limit, others=others, own=own)
        wanted = max(0, min(backlog, free, spec["maxReplicaCount"]))
        own = min(wanted, max(0, limit - others))  # quota admits no more
        seen.append(wanted)
    assert seen == [rest] * 6


def test_the_recipes_name_metrics_that_there_are():
    metrics = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text(encoding="utf-8")
    named = set(re.findall(r"fairlead_[a-z_]+", PAGE))
    assert {each for each in named if f"`{each}`" not in metrics} == set()


def test_hpa_scales_by_a_metric_that_replicas_at_the_gate_do_not_raise():
    assert {each["type"] for each in recipe("HorizontalPodAutoscaler")["metrics"]} <= {"Pods", "Resource"}
