"""Traps of MLflow Projects: the Job template of a backend_config.json, and runs that are tracked where nothing is kept.

Source: mlflow v3.18.0 mlflow/projects/kubernetes.py (the template's first container gets image, command and MLFLOW_TRACKING_URI; the
Job a name for each run, the rest stays).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

from fairlead.api import names
from fairlead.cli.checks.traps.base import Json, Trap, annotations_of, containers, mapping, mappings

URI = "MLFLOW_TRACKING_URI"
TEMPLATE = "kube-job-template-path"
_HERE = {"localhost", "127.0.0.1", "::1", "0.0.0.0"}


def job(job: Json, others: Sequence[Json]) -> Iterator[Trap]:
    pod, where = mapping(job, "spec", "template", "spec"), "spec.template.spec"
    for number, container in enumerate(containers(pod)):
        for index, variable in enumerate(mappings(container, "env")):
            value = variable.get("value")
            if variable.get("name") == URI and isinstance(value, str) and _is_local(value):
                yield Trap(
                    field=f"{where}.containers[{number}].env[{index}]",
                    text=f"{URI} {value!r} is in the pod itself: what a run records is lost with it, or refused. Write the address of a "
                    "tracking server that pods can reach",
                    level="warning",
                )


def backend_config(config: Json, others: Sequence[Json]) -> Iterator[Trap]:
    """`spec` has the settings, `template` the Job template that they name."""
    template, path = mapping(config, "template"), mapping(config, "spec").get(TEMPLATE)
    said = annotations_of(mapping(template, "spec", "template"))
    if names.GANG in said:
        yield Trap(
            field=f"{TEMPLATE} {path}: spec.template.metadata.annotations[{names.GANG}]",
            text="every run of the project is made of this template, so that two runs at the same time are one gang: leave the name out "
            f"and write {names.GANG_SIZE}, then the gang has the name that MLflow gives the Job",
            level="warning",
        )
    for trap in job(template, others):
        yield Trap(field=f"{TEMPLATE} {path}: {trap.field}", text=trap.text, level=trap.level)


def _is_local(uri: str) -> bool:
    try:
        found = urlsplit(uri)
        host = found.hostname
    except ValueError:
        return False
    return found.scheme in {"", "file", "sqlite"} or (found.scheme in {"http", "https"} and host in _HERE)
