"""Texts in fields that users write: quantities, durations, versions, times, names, selectors; pods' metadata; and whole objects of our kinds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from fairlead.api import claim_sources, config, foreign, intent, legacy, names, queues, trace_context
from fairlead.api.base import CustomResource, ManifestError
from fairlead.api.bounds import read_bounds
from fairlead.api.durations import DURATION_MAX_S, duration_s
from fairlead.api.flavor import Flavor
from fairlead.api.gang import Gang
from fairlead.api.policy import TenancyPolicy
from fairlead.api.queue import Queue
from fairlead.api.recurrence import CRON_LENGTH_MAX, Recurrence, checked_cron, checked_zone
from fairlead.api.topology import levels
from fairlead.driver.backend import device_names
from fairlead.driver.prepare.records import valid_uid
from fairlead.kube import labels, nulls, semver, store, timestamps
from fairlead.kube.objects import LabelSelector
from fairlead.kube.probes import parse_bind
from fairlead.kube.quantity import Quantity, QuantityError
from tests.fuzz.json_mutations import json_mutations
from tests.fuzz.mutations import byte_mutations, mixed
from tests.fuzz.target import Target, says_why
from tests.fuzz.targets import webhook

_WORDS = tuple(
    word.encode()
    for word in (
        "1Gi", "500m", "1e3", "1E3", "0.5Mi", "-1Ki", "+5", "1n", "1Ei", "9223372036854775807", "1e2147483647", "1e-2147483648", "999999999999999999999999k", ".", "e", "E", "Ki", "i",
        "1h30m", "90s", "2d", "0.5ms", "99999999999d", "1.2.3", "v1.2", "1.0.0-rc.1+build.5", "-alpha", "+", "2026-11-21T01:50:31Z", "2026-11-21T01:50:31.123456789+23:59", "0001-01-01",
        "9999-12-31T23:59:60Z", "2026-W01-1", "required:", "preferred:", "a.b/c", "topology.kubernetes.io/rack", "gpu-0", "gpu-1-mig-1g10gb-19-0", "fairlead-gpu-2", "fairlead-mig-1g.10gb-1", ":8080", "[::1]:80",
        "0 20 * * 1-5", "*/15 0-6 L 2,4 MON#5", "0 0 30 2 *", "0 0 LW * 5L", "Europe/Berlin", "nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "T", "Z", "+00:00",
    )
)  # fmt: skip


def _quantity(text: str) -> None:
    one = Quantity.parse(text)
    again = Quantity.parse(str(one))
    if abs(float(one)) < 1e18:  # beyond, Go drops the suffix that it does not have, and so does `str`
        assert again == one, "the canonical text is the same quantity"
    for other in (Quantity.of(1), Quantity.parse("1500m"), Quantity.parse("8Ei")):
        assert (one < other) + (other < one) + (one == other) == 1
        one + other
        one - other
    int(one)
    float(one)
    hash(one)


def _readers() -> list[tuple[Callable[[str], object], tuple[type[Exception], ...]]]:
    def duration(text: str) -> None:
        assert 0 <= duration_s(text) <= DURATION_MAX_S

    def version(text: str) -> None:
        found = semver.parse(text)
        assert semver.parse(str(found)) == found
        assert semver.normalize(text) == found

    def time(text: str) -> None:
        at = timestamps.parse(text)
        timestamps.seconds(at)
        timestamps.micro(at)

    def cron(text: str) -> None:
        found = Recurrence(checked_cron(text[:CRON_LENGTH_MAX]), 3600.0)
        start = found.next_start(1.8e9)
        assert start is None or found.span(start) is not None

    def template(text: str) -> None:
        found = legacy.parse_template_name(text)
        if found is not None:
            legacy.template_manifest(text, namespace="ml", driver=names.DRIVER)

    return [
        (_quantity, (QuantityError,)),
        (duration, (ValueError,)),
        (version, (semver.VersionError,)),
        (semver.normalize, (semver.VersionError,)),
        (time, (ValueError,)),
        (levels, (ValueError,)),
        (template, (ValueError,)),
        (legacy.profile_of, ()),
        (legacy.is_legacy, ()),
        (device_names.parse, ()),
        (cron, (ValueError,)),
        (checked_zone, (ValueError,)),
        (valid_uid, ()),
        (store.number, ()),
        (parse_bind, (ValueError,)),
    ]


def texts(scratch: Path) -> Target:
    readers = _readers()

    def run(data: bytes) -> None:
        text = data.decode("utf-8", errors="replace")
        for read, refusals in readers:
            try:
                read(text)
            except refusals as error:
                says_why(error)

    return Target(
        name="texts", run=run, seeds=_WORDS, mutate=byte_mutations(_WORDS, most=3), bytes_max=12_000,
        traced=("/kube/quantity.py", "/kube/semver.py", "/kube/timestamps.py", "/fairlead/api/", "/backend/device_names.py"),
    )  # fmt: skip


def metadata(scratch: Path) -> Target:
    """A pod's annotations and labels, and a selector over labels: intents, other systems' words, recorded sources."""
    key = b"k"

    def run(data: bytes) -> None:
        try:
            document = msgspec.json.decode(data)
            found = nulls.convert(document, _Metadata)
        except (ValueError, RecursionError):
            return
        annotations, own_labels = found.annotations, found.labels
        for lenient in (False, True):
            try:
                read = intent.read_intent(annotations, own_labels, found.pod_group, lenient=lenient)
                assert isinstance(read.empty, bool)
            except intent.IntentError as error:
                says_why(error)
        foreign.gang_name(annotations, own_labels, found.pod_group)
        list(foreign.queues(annotations, own_labels))
        list(intent.overridden(annotations, own_labels, found.pod_group))
        list(intent.unsupported(annotations))
        intent.misspelt(annotations)
        context = trace_context.of(annotations)
        assert context is None or trace_context.parse(str(context)) == context
        try:
            claim_sources.read(annotations)
            if names.CLAIM_SOURCES in annotations:
                claim_sources.is_genuine(annotations, namespace="ml", owner_uid="u", key=key)
        except claim_sources.ClaimSourcesError as error:
            says_why(error)
        try:
            labels.matches(found.selector, own_labels)
        except labels.SelectorError as error:
            says_why(error)

    source = claim_sources.ClaimSource(claim="p-gpu-x", template="h100", uid="u")
    written = claim_sources.annotation({"gpu": source}, namespace="ml", owner_uid="u", key=key)
    selector = {
        "matchLabels": {"a": "b"},
        "matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}, {"key": "b", "operator": "DoesNotExist"}],
    }
    documents = [
        {"annotations": webhook._NOTES, "labels": {"a": "b"}, "podGroup": "llm", "selector": selector},
        {"annotations": {names.CLAIM_SOURCES: written}, "labels": {}},
        {"annotations": {names.TRACEPARENT: str(trace_context.begin("x", ratio=1.0))}, "labels": {}},
        {
            "annotations": {word.key: "4" for word in foreign.METADATA_KEYS},
            "labels": {word.key: "x" for word in foreign.METADATA_KEYS},
        },
    ]
    of_json = json_mutations((*webhook.WORDS, written))
    return Target(
        name="metadata", run=run, seeds=tuple(msgspec.json.encode(each) for each in documents), mutate=mixed((4, of_json), (1, byte_mutations())),
        traced=("/fairlead/api/", "/kube/labels.py"),
    )  # fmt: skip


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    annotations: dict[str, str] = {}
    labels: dict[str, str] = {}
    pod_group: str | None = None
    selector: LabelSelector | None = None


def kinds(scratch: Path) -> Target:
    """Queue, Flavor, TenancyPolicy and Gang as users write and as the cluster holds them, and opaque configurations."""
    models: dict[str, type[CustomResource]] = {
        "Queue": Queue,
        "Flavor": Flavor,
        "TenancyPolicy": TenancyPolicy,
        "Gang": Gang,
    }
    other = Queue.stored({"metadata": {"name": "other"}, "spec": {"namespaceSelector": webhook._SELECTING}})

    def run(data: bytes) -> None:
        try:
            document: Any = msgspec.json.decode(data)
        except (ValueError, RecursionError):
            return
        for strict in (True, False):
            try:
                config.decode(document, subject="x", strict=strict)
            except ManifestError as error:
                says_why(error)
        kind = document.get("kind") if isinstance(document, dict) else None
        for name, model in models.items():
            if isinstance(kind, str) and kind in models and kind != name:
                continue
            for read in (model.read, model.stored):
                try:
                    _use(read(document))
                except ManifestError as error:
                    says_why(error)

    def _use(found: CustomResource) -> None:
        assert isinstance(found.name, str)
        if isinstance(found, Queue):
            queues.may_overlap(found, [other])
            list(queues.unknown_flavors(found, ["h100"]))
            queues.open_to_all(found, {"root"})
            read_bounds(found.spec, "x")

    gang = {
        "kind": "Gang",
        "apiVersion": names.API_VERSION,
        "metadata": {"name": "g", "namespace": "ml"},
        "spec": {"size": 8, "queue": "team", "minRuntime": "1h", "topology": "required:rack"},
        "status": {
            "phase": "Waiting",
            "members": 3,
            "conditions": [{"type": "a", "status": "True", "lastTransitionTime": "2026-11-21T01:50:31Z"}],
        },
    }
    documents: list[Any] = [gang, webhook._CONFIG["opaque"]["parameters"]]
    documents.append(
        {
            "apiVersion": names.CONFIG_API_VERSION,
            "kind": "MigDeviceConfig",
            "sharing": {
                "strategy": "MPS",
                "mpsConfig": {
                    "defaultActiveThreadPercentage": 50,
                    "defaultPinnedDeviceMemoryLimit": "1Gi",
                    "defaultPerDevicePinnedMemoryLimit": {"0": "1Gi", "GPU-1": 5},
                    "multiUser": True,
                },
            },
        }
    )
    for kind in ("Queue", "Flavor", "TenancyPolicy"):
        documents.append(
            {"apiVersion": names.API_VERSION, "kind": kind, "metadata": {"name": "x"}, "spec": webhook._SPECS[kind]}
        )
        documents.append({"apiVersion": names.API_VERSION, "kind": kind, "metadata": {"name": "x"}, "spec": {}})
    return Target(
        name="kinds-and-configs",
        run=run,
        seeds=tuple(msgspec.json.encode(each) for each in documents),
        mutate=json_mutations((*webhook.WORDS, "GpuConfig", "TimeSlicing", "Short", "GPU-1", "1Gi", "10m")),
        traced=("/fairlead/api/",),
    )
