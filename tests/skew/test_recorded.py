"""What an earlier version wrote into a cluster is read by this one, and what a later one may add is kept and passed over.

The objects are recorded (record.py), so that this holds without the repository's history; test_mixed_versions runs the programs themselves.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlead.api import claim_sources, config, crds, legacy, names
from fairlead.api.base import ManifestError
from fairlead.api.flavor import Flavor
from fairlead.api.gang import Gang, GangStatus
from fairlead.api.policy import TenancyPolicy
from fairlead.api.queue import Queue, QueueStatus
from fairlead.controller.gangs.evictions.eviction_marks import EvictionMark, mark_of
from fairlead.controller.gangs.evictions.moved import Spot
from fairlead.controller.gangs.evictions.past_evictions import PastEviction, past_eviction
from fairlead.controller.report.status_writer import known_fields
from fairlead.controller.watch import settings
from fairlead.driver.prepare.checkpoint import Checkpoint
from fairlead.engine.types.values import DeviceRef
from fairlead.history.facts import snapshot_file as facts
from fairlead.history.facts.form import FactsError
from fairlead.kube import core, timestamps
from fairlead.webhook.offline import judge, world_of

Json = dict[str, Any]
RECORDED: Json = json.loads((Path(__file__).parent / "data" / "objects.json").read_text())
OBJECTS: dict[str, dict[str, Json]] = {
    plural: {each["metadata"]["name"]: each for each in found} for plural, found in RECORDED["objects"].items()
}
NARROWED = (
    ": maxLength was None, is 63",  # a longer label value, or name of a capability, is none that Kubernetes has
    ": maxLength was None, is 512",  # of a user or group
    "matchLabels: maxProperties was None, is 64",
)
"""Bounds that were added where a value beyond them could match nothing."""
KEY = b"shared by the replicas"
NOW = 1_800_000_000.0
SPOT = Spot("n1", (DeviceRef(names.DRIVER, "n1", "gpu-0"),))


def annotations_of(plural: str, prefix: str) -> dict[str, str]:
    (found,) = (each for name, each in OBJECTS[plural].items() if name.startswith(prefix))
    noted: dict[str, str] = found["metadata"]["annotations"]
    return noted


def planted(text: str) -> str:
    """JSON to which a later version has added a field, to each object in it."""

    def add(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: add(each) for key, each in value.items()} | {"later": {"any": ["thing"]}}
        return [add(each) for each in value] if isinstance(value, list) else value

    return json.dumps(add(json.loads(text)))


def with_annotation(obj: Json, key: str, value: str) -> Json:
    made = copy.deepcopy(obj)
    made["metadata"]["annotations"][key] = value
    return made


def marked(obj: Json) -> EvictionMark | None:
    return mark_of(msgspec.convert(obj, core.Pod))


# -- annotations ---------------------------------------------------------------------------------------------------


def test_the_mark_of_an_eviction_is_read_with_or_without_newer_fields():
    victim = OBJECTS["pods"]["victim-0"]
    mark = marked(victim)
    assert mark is not None
    assert (mark.kind, mark.whole, mark.beneficiary) == ("Preempt", True, "default/rush")
    assert mark.at == timestamps.parse(victim["metadata"]["annotations"][names.EVICT_AT])
    assert "higher priority" in mark.why
    assert (
        marked(with_annotation(victim, names.EVICTION, planted(victim["metadata"]["annotations"][names.EVICTION])))
        == mark
    )


def test_a_mark_of_a_kind_that_is_not_known_evicts_nothing():
    """The pod runs on, and the version that wrote the mark finds it again."""
    victim = OBJECTS["pods"]["victim-0"]
    later = json.loads(victim["metadata"]["annotations"][names.EVICTION]) | {"kind": "Later"}
    assert marked(with_annotation(victim, names.EVICTION, json.dumps(later))) is None


def test_what_an_earlier_leader_noted_of_an_eviction_in_an_annotation_is_passed_over():
    """Users could write it. Such a gang's recreated pods wait with their own age (docs/upgrade.md)."""
    victim = OBJECTS["gangs"]["victim"]
    assert "fairlead.dev/evicted" in victim["metadata"]["annotations"]
    assert past_eviction(victim, NOW) is None


def test_a_past_eviction_is_read_with_or_without_newer_fields():
    past = PastEviction(
        at=NOW, queued_since=NOW - 60, mark="moved", why="room", until=NOW + 900, place=(SPOT,), held_until=NOW + 60
    )
    assert past_eviction({"status": past.status()}, NOW) == past
    assert past_eviction({"status": json.loads(planted(json.dumps(past.status())))}, NOW) == past


def test_the_sources_of_named_claims_are_read_and_a_newer_webhooks_are_genuine():
    noted = annotations_of("pods", "stays")
    (source,) = claim_sources.read(noted).values()
    assert source.claim in OBJECTS["resourceclaims"]
    assert (source.template, source.is_legacy) == ("two", False)

    document = json.loads(noted[names.CLAIM_SOURCES])
    document["claims"]["gpu"]["later"] = {"any": ["thing"]}
    terms = {"namespace": "default", "owner_uid": "job-1"}
    document["hmac"] = claim_sources._hmac(document["claims"], **terms, key=KEY)
    newer = {names.CLAIM_SOURCES: json.dumps(document | {"later": 1})}
    assert claim_sources.read(newer) == {"gpu": source}
    assert claim_sources.is_genuine(newer, **terms, key=KEY), (
        "a newer replica wrote it; this one must not refuse its pods"
    )
    document["claims"]["gpu"]["later"] = "changed"
    assert not claim_sources.is_genuine({names.CLAIM_SOURCES: json.dumps(document)}, **terms, key=KEY)


def test_a_legacy_request_is_read():
    noted = annotations_of("resourceclaims", "legacy")
    limit = legacy.parse_template_name(noted[names.LEGACY_REQUEST])
    assert limit is not None
    assert limit.count == 2


def test_an_annotation_of_a_later_version_is_no_reason_to_refuse_a_pod():
    """Nor is it taken off: the program that knows it may be a replica of the next version."""
    keys = {names.GANG: "rush", names.GANG_SIZE: "1", "fairlead.dev/later": "kept"}
    made = {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "new", "namespace": "default", "annotations": keys},
        "spec": {"containers": [{"name": "main", "image": "busybox", "resources": {"limits": {names.LEGACY_GPU: "1"}}}]},
    }  # fmt: skip
    (result,) = judge(made, world_of([]))
    assert result.allowed, result.last
    assert result.object["metadata"]["annotations"].items() >= keys.items()


# -- our kinds -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("plural", "model"), [("gangs", GangStatus), ("queues", QueueStatus)])
def test_no_field_of_a_status_was_removed(plural, model):
    """What an earlier version shows in it, this one does too; so does an earlier command line of what this one writes."""
    for each in OBJECTS[plural].values():
        assert known_fields(each["status"], model) == each["status"]


def test_stored_objects_are_read_with_fields_and_a_status_of_a_later_version():
    (queue,) = OBJECTS["queues"].values()
    later = copy.deepcopy(queue)
    later["spec"]["later"] = {"any": ["thing"]}
    later["spec"]["flavors"][0]["later"] = 1
    later["status"]["later"] = 1
    later["status"]["conditions"][0]["later"] = 1
    assert Queue.stored(later).spec == Queue.stored(queue).spec
    read = settings.read([later], [])
    assert [each.name for each in read.queues] == ["team"]
    assert [each.reason for each in read.problems] == ["UnknownFlavor"], "the flavor was not recorded"


def test_a_queue_with_a_choice_that_is_not_known_is_named_and_the_others_count():
    (queue,) = OBJECTS["queues"].values()
    later = copy.deepcopy(queue)
    later["metadata"] |= {"name": "newer", "uid": "u-newer"}
    later["spec"]["ordering"] = "ByColour"
    read = settings.read([queue, later], [])
    assert [each.name for each in read.queues] == ["team"]
    (problem,) = (each for each in read.problems if each.name == "newer")
    assert "spec.ordering: 'ByColour' is none of" in problem.message


@pytest.mark.parametrize("model", [Queue, Flavor, Gang, TenancyPolicy])
def test_a_kind_of_a_later_version_is_refused_with_what_is_known(model):
    with pytest.raises(ManifestError) as refused:
        model.read({"apiVersion": "fairlead.dev/v1", "kind": model.__name__, "metadata": {"name": "a"}, "spec": {}})
    said = f"apiVersion: 'fairlead.dev/v1' is unknown: write '{names.API_VERSION}', or use a fairlead that has that version"
    assert said in str(refused.value)


def changes(before: Json, now: Json, path: str) -> Iterator[str]:
    """What of a schema would refuse or drop what the one before took."""
    if before.get("type") != now.get("type"):
        yield f"{path}: type {before.get('type')} became {now.get('type')}"
    for name, inner in before.get("properties", {}).items():
        if name in now.get("properties", {}):
            yield from changes(inner, now["properties"][name], f"{path}.{name}")
        else:
            yield f"{path}.{name} is gone"
    for key in ("items", "additionalProperties"):
        if isinstance(before.get(key), dict):
            yield from changes(before[key], now.get(key) or {}, f"{path}.{key}")
    if "enum" in now and not set(before.get("enum", ())) <= set(now["enum"]):
        yield f"{path}: of {before.get('enum')} only {now['enum']} are left"
    if "enum" in now and "enum" not in before:
        yield f"{path}: only {now['enum']} are taken now"
    for name in set(now.get("required", ())) - set(before.get("required", ())):
        yield f"{path}.{name} is required now"
    for key in ("maxLength", "maxItems", "maxProperties", "maximum"):
        if key in now and now[key] < before.get(key, float("inf")):
            yield f"{path}: {key} was {before.get(key)}, is {now[key]}"
    for key in ("minLength", "minItems", "minimum"):
        if key in now and now[key] > before.get(key, float("-inf")):
            yield f"{path}: {key} was {before.get(key)}, is {now[key]}"
    if "default" in before and before["default"] != now.get("default"):
        yield f"{path}: the default {before['default']} became {now.get('default')}"


def schemas() -> dict[str, dict[str, Json]]:
    import yaml

    found: dict[str, dict[str, Json]] = {}
    for text in crds.render().values():
        document = yaml.safe_load(text)
        if document.get("kind") == "CustomResourceDefinition":
            spec = document["spec"]
            found[spec["names"]["kind"]] = {
                each["name"]: each["schema"]["openAPIV3Schema"] for each in spec["versions"]
            }
    return found


def test_the_crds_take_all_that_the_earlier_ones_took():
    now = schemas()
    assert RECORDED["crds"].keys() <= now.keys()
    found = [
        each
        for kind, versions in RECORDED["crds"].items()
        for version, before in versions.items()
        for each in changes(before, now[kind].get(version, {}), f"{kind} {version}")
    ]
    assert [each for each in found if not each.endswith(NARROWED)] == []


def test_a_change_that_breaks_the_contract_is_found():
    before = {
        "type": "object",
        "properties": {"a": {"type": "string", "enum": ["x", "y"], "maxLength": 9}, "b": {"type": "string"}},
    }
    now = {"type": "object", "required": ["c"], "properties": {"a": {"type": "string", "enum": ["x"], "maxLength": 5}}}
    assert list(changes(before, now, "K")) == [
        "K.a: of ['x', 'y'] only ['x'] are left", "K.a: maxLength was 9, is 5", "K.b is gone", "K.c is required now",
    ]  # fmt: skip


# -- files and documents -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("newer", [False, True])
def test_the_drivers_records_are_read_after_an_upgrade_and_after_a_downgrade(newer, tmp_path):
    boots = set()
    for name, text in RECORDED["records"].items():
        head, payload = text.rstrip("\n").split("\n")
        boots.add(json.loads(head)["bootID"])
        if newer:
            payload = planted(payload)
            head = json.dumps(json.loads(head) | {"schema": 2, "sha256": hashlib.sha256(payload.encode()).hexdigest()})
        (tmp_path / name).write_text(f"{head}\n{payload}\n")
    (boot,) = boots
    loaded = Checkpoint(tmp_path, boot_id=boot).load()
    assert loaded.unreadable == ()
    assert {f"{uid}.json" for uid in loaded.records} == RECORDED["records"].keys()
    claims = {each["metadata"]["uid"]: name for name, each in OBJECTS["resourceclaims"].items()}
    assert all(claims[uid] == record.name and record.devices for uid, record in loaded.records.items())


def test_a_configuration_of_a_later_version_is_refused_with_what_is_known():
    with pytest.raises(
        ManifestError, match=f"apiVersion: 'gpu.fairlead.dev/v1' is unknown: write {names.CONFIG_API_VERSION}"
    ):
        config.decode({"apiVersion": "gpu.fairlead.dev/v1", "kind": "GpuConfig"}, subject="ResourceClaim a")
    read = {"apiVersion": names.CONFIG_API_VERSION, "kind": "GpuConfig"}
    assert config.decode(read | {"later": 1}, subject="a", strict=False) == config.decode(read, subject="a")


def test_documents_of_a_later_version_say_which_version_is_read_and_what_to_do():
    head = {"format": "fairlead-snapshot", "version": 2, "at": 1.0, "code": "9.9.9", "facts": {}}
    snapshot = json.dumps(head).encode()
    with pytest.raises(FactsError, match="version: 2: this fairlead reads version 1; use the fairlead that wrote"):
        facts.load_facts(snapshot)
