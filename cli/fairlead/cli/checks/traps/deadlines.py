"""Deadlines of pipelines that count while a pod waits for its GPU: of kinds that the webhook does not see (`api.clocks` has all).

Source: tektoncd/pipeline docs/taskruns.md and docs/pipelineruns.md: a run without a timeout has one of 60 minutes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from fairlead.api.clocks import running_out
from fairlead.cli.checks.traps.base import Json, Trap, at, has_claims, has_limits, mapping

_TEKTON: Final = {"TaskRun": ("timeout",), "PipelineRun": ("timeouts", "pipeline")}
DEPTH_MAX: Final = 24


def of_run(object_: Json, others: Sequence[Json]) -> Iterator[Trap]:
    """The traps of an Argo Workflow, of what makes one, and of Tekton's runs, where they or the tasks beside them ask for GPUs."""
    kind = str(object_.get("kind"))
    tekton = _TEKTON.get(kind)
    if not any(map(_asks, (object_, *(others if tekton else ())))):
        return
    if kind == "CronWorkflow":
        inner = {"spec": mapping(object_, "spec", "workflowSpec")}
        found = [text.replace("spec.", "spec.workflowSpec.", 1) for text in running_out("Workflow", inner)]
    else:
        found = list(running_out(kind if tekton else "Workflow", object_))
    for text in found:
        field, _, rest = text.partition(": ")
        yield Trap(field=field, text=rest, level="warning")
    if tekton is not None and at(object_, "spec", *tekton) is None:
        yield Trap(
            field=f"spec.{'.'.join(tekton)}",
            text='is not written, so it is 1 h, and the wait for a GPU counts: the run then fails. Write "0s" for none, and `timeout` in '
            "the steps' scripts",
            level="warning",
        )


def _asks(value: Any, depth: int = 0) -> bool:
    """Whether something in it asks for devices."""
    if depth > DEPTH_MAX:
        return False
    if isinstance(value, Mapping):
        resources = (value.get("resources"), value.get("computeResources"))
        if has_claims(dict(value)) or any(map(has_limits, resources)):
            return True
        return any(_asks(each, depth + 1) for each in value.values())
    return isinstance(value, list) and any(_asks(each, depth + 1) for each in value)
