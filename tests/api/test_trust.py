"""Code reads no key that the table of trust does not have, by its name or by the object; and what the table says of guards is there."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct, structs

from fairlead.api import names, trust
from fairlead.api.gang import GangSpec
from fairlead.controller.gangs.admission.requests import GangRecord, gang_request
from fairlead.controller.gangs.claims.allocations import allocated_at
from fairlead.controller.gangs.evictions import eviction_marks
from fairlead.controller.gangs.held import idleness, leaving
from fairlead.controller.gangs.held.running import RunningContext, running_gang
from fairlead.kube import core, resource
from fairlead.ui.model.plain_pods import is_plain
from tests.controller.gang_views import NOW, Objects, claim, pod, view
from tests.support import quick_yaml

ROOT = Path(__file__).parents[2]
PRODUCT = ("cli", "driver", "webhook", "controller", "engine", "history", "ui", "lib")
OURS = re.compile(r"([a-z]+\.)*fairlead\.dev/[A-Za-z][A-Za-z-]*")

IDENTITIES = {
    "API_GROUP", "API_VERSION", "CONFIG_API_VERSION", "DRIVER", "NAMESPACE", "FIELD_MANAGER", "ANNOTATION_PREFIX", "EXEMPT_NAMESPACES",
    "CONTROLLER_ACCOUNT", "CONTROLLER_USER", "DRIVER_USER", "WEBHOOK_ACCOUNT", "DEFAULT_SCHEDULER", "GPU_CLASS", "MIG_CLASS", "KUEUE_API",
    "MANAGED_BY_VALUE", "INDEXES", "REVIEWED_POD", "REVIEWED_TEMPLATE", "ORDINAL",
}  # fmt: skip
"""What something is or who asks, by the apiserver's word; values and collections of keys; what is derived. No keys of what users write."""
WRITTEN_ONLY = {"fairlead.dev/smoke", "fairlead.dev/smoke-node", "fairlead.dev/simulated", f"{names.DRIVER}/trial"}
"""Of pods of `fairlead smoke`, of simulated nodes, and of a slice that no apiserver stores: they decide nothing."""


@functools.cache
def modules() -> list[tuple[Path, ast.Module]]:
    paths = [path for part in PRODUCT for path in (ROOT / part / "fairlead").rglob("*.py")]
    return [
        (path, ast.parse(path.read_text()))
        for path in paths
        if not path.match("lib/fairlead/api/names.py") and not path.match("lib/fairlead/api/trust.py")
    ]


def names_read(module: ast.Module) -> set[str]:
    return {
        node.attr
        for node in ast.walk(module)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "names"
        and node.attr.isupper()
    }


def literals(module: ast.Module) -> set[str]:
    """Keys of ours that are spelled in the code, also after `{names.DRIVER}` or `{names.API_GROUP}`."""
    found: set[str] = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and OURS.fullmatch(node.value):
            found.add(node.value)
        if isinstance(node, ast.JoinedStr) and len(node.values) == 2:
            first, second = node.values
            if isinstance(first, ast.FormattedValue) and isinstance(second, ast.Constant):
                prefix = {"names.DRIVER": names.DRIVER, "names.API_GROUP": names.API_GROUP}.get(
                    ast.unparse(first.value)
                )
                key = f"{prefix or ''}{second.value!s}"
                if OURS.fullmatch(key):
                    found.add(key)
    return found


@pytest.mark.slow
def test_every_name_that_code_reads_is_in_the_table() -> None:
    known = trust.keys()
    unknown = {
        f"names.{name} in {path.relative_to(ROOT)}"
        for path, module in modules()
        for name in names_read(module) - IDENTITIES
        if getattr(names, name) not in known
    }
    assert unknown == set(), "add a row to lib/fairlead/api/trust.yaml: who writes it, what keeps others from it"


@pytest.mark.slow
def test_every_key_of_ours_that_is_spelled_elsewhere_is_in_the_table() -> None:
    known = trust.keys() | WRITTEN_ONLY
    unknown = {
        f"{key} in {path.relative_to(ROOT)}"
        for path, module in modules()
        for key in literals(module)
        if key not in known and not key.rpartition("/")[2].startswith("v1")
    }
    assert unknown == set()


def test_a_key_that_is_not_in_the_table_is_found() -> None:
    planted = ast.parse('a = pod.metadata.annotations[names.LATER], "fairlead.dev/later", f"{names.DRIVER}/later"')
    assert names_read(planted) >= {"LATER"}
    assert literals(planted) == {"fairlead.dev/later", "gpu.fairlead.dev/later"}


class Recording(dict[str, str]):
    """Annotations or labels that remember which keys were asked for."""

    def __init__(self, content: dict[str, str], seen: set[str]) -> None:
        super().__init__(content)
        self.seen = seen

    def get(self, key: str, default: Any = None) -> Any:
        self.seen.add(key)
        return super().get(key, default)

    def __getitem__(self, key: str) -> str:
        self.seen.add(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self.seen.add(str(key))
        return super().__contains__(key)


def recorded(obj: Any, seen: set[str]) -> Any:
    meta = obj.metadata
    watched = structs.replace(meta, annotations=Recording(meta.annotations, seen), labels=Recording(meta.labels, seen))
    return structs.replace(obj, metadata=watched)


@pytest.mark.parametrize("gated", [True, False])
def test_the_controller_asks_pods_and_claims_for_keys_of_the_table_only(gated: bool) -> None:
    seen: set[str] = set()
    made: core.Pod = recorded(pod("a", gang="g", size=1, claim="c", gated=gated, node="" if gated else "n1"), seen)
    held: resource.ResourceClaim = recorded(
        claim("c", "a", node=None if gated else "n1", reserved=() if gated else ("a",)), seen
    )
    gang = view(made, objects=Objects([held]))
    gang_request(gang, GangRecord(), {})
    running_gang(gang, GangRecord(), {}, RunningContext())
    eviction_marks.marked(gang)
    idleness.exempt(gang)
    leaving.ask(gang, None, NOW)
    allocated_at(held, (made,))
    is_plain({"metadata": {"annotations": made.metadata.annotations, "labels": made.metadata.labels}, "spec": {}})
    assert len(seen) > 10
    assert seen - trust.keys() == set()


def test_a_read_of_another_key_is_recorded() -> None:
    seen: set[str] = set()
    made: core.Pod = recorded(pod("a"), seen)
    made.metadata.annotations.get("fairlead.dev/later")
    assert "fairlead.dev/last" not in made.metadata.labels
    assert seen - trust.keys() == {"fairlead.dev/later", "fairlead.dev/last"}


@pytest.mark.parametrize(("kind", "status"), [("Pod", core.PodStatus), ("ResourceClaim", resource.ResourceClaimStatus)])
def test_what_is_read_of_a_status_is_in_the_table(kind: str, status: type[Struct]) -> None:
    """What the type does not declare is not decoded, and so not read."""
    known = {key for row in trust.TABLE if kind in row.on for key in row.keys}
    assert {f"status.{name}" for name in status.__struct_encode_fields__} - known == set()


def test_no_key_has_two_rows_for_one_kind() -> None:
    pairs = [(kind, row.form, key) for row in trust.TABLE for kind in row.on for key in row.keys]
    assert sorted({each for each in pairs if pairs.count(each) > 1}) == []


def test_the_policies_that_the_table_names_are_shipped() -> None:
    shipped = {
        document["metadata"]["name"]
        for path in (ROOT / "manifests" / "base").glob("*.yaml")
        for document in quick_yaml.load_all(path.read_text())
        if document and document["kind"] == "ValidatingAdmissionPolicy"
    }
    named = {guard for row in trust.TABLE for guard in row.guards if guard.startswith("fairlead-")}
    assert named <= shipped
    assert len(named) >= 6


def test_what_programs_alone_write_has_a_guard() -> None:
    programs = {"webhook", "controller", "driver"}
    assert [row.keys for row in trust.TABLE if set(row.writers) <= programs and not row.guards] == []


def test_every_field_of_a_gang_is_in_the_table() -> None:
    said = {key.removeprefix("spec.") for row in trust.TABLE if "Gang" in row.on for key in row.keys}
    assert {field.alias or name for name, field in GangSpec.model_fields.items()} <= said
    assert "status.*" in said


def test_marks_of_the_controller_come_from_the_table() -> None:
    found = trust.written_by("controller", on="Pod", form="annotation", guard=trust.WEBHOOK_MARKS)
    assert {names.EVICT_AT, names.EVICTION, names.CHECKPOINT_BY, names.RELEASED_AT} <= set(found)


def test_the_page_shows_the_table() -> None:
    page = (ROOT / "docs" / "security.md").read_text()
    assert trust.markdown() in page, "run `make manifests`"
