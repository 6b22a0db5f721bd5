"""The table of verdicts (verdicts/*.yaml): manifest in; verdict, message, warnings and patch out. docs/admission.md is made of it."""

import copy
import re
from typing import Any

import pytest
import yaml

from fairlead.api import names
from fairlead.api.drivers import NVIDIA
from fairlead.sandbox.apiserver.kinds.podspec import default_pod
from fairlead.sandbox.apiserver.kinds.podvalidation import pod_spec
from fairlead.webhook.handlers import dispatch
from fairlead.webhook.offline import Result, review_of
from tests.support.webhook import patched
from tests.webhook import verdict_table as table

Json = dict[str, Any]


CASES: list[tuple[str, Json]] = list(table.cases())
NAMES, ROWS = [name for name, _ in CASES], [case for _, case in CASES]


@pytest.mark.parametrize("case", ROWS, ids=NAMES)
def test_the_verdict_is_the_one_in_the_table(case: Json) -> None:
    before = copy.deepcopy(case["object"])
    assert table.outcome(case) == case["expect"]
    assert case["object"] == before, "a verdict must not change what it judges"


def _of_any_driver() -> list[tuple[str, Json]]:
    """Without the cases on configurations, which are our driver's own."""
    return [(name, case) for name, case in CASES if names.CONFIG_API_VERSION not in str(case)]


@pytest.mark.parametrize("case", [case for _, case in _of_any_driver()], ids=[name for name, _ in _of_any_driver()])
def test_the_verdict_is_the_same_where_the_devices_are_nvidias(case: Json) -> None:
    theirs = table.in_names_of(NVIDIA, case) | {"driver": NVIDIA}
    assert _without_columns(table.outcome(theirs)) == _without_columns(theirs["expect"])


def _without_columns(expected: Json) -> str:
    """Where in a selector a fault is depends on how long the driver's name is."""
    return re.sub(r"\d+:\d+: |\| +\^", "", str(expected))


def test_the_page_is_made_of_the_table() -> None:
    for path, text in ((table.PAGE, table.page()), (table.RULES_PAGE, table.rules_page())):
        assert path.read_text() == text, "run: python -m tests.webhook.verdict_table"


def test_every_row_of_the_page_links_to_the_line_of_its_case() -> None:
    links = re.findall(r"^\| \[(.+?)\]\(\.\./(\S+)#L(\d+)\)", table.page(), re.MULTILINE)
    assert len(links) == len(ROWS)
    for name, file, line in links:
        text = (table.ROOT / file).read_text().splitlines()[int(line) - 1]
        assert yaml.safe_load(text)[0]["name"] == name


def test_every_ready_policy_is_in_the_table_and_in_the_kustomization() -> None:
    used = {found for case in ROWS for found in case.get("policies", ()) if isinstance(found, str)}
    ready = {path.stem for path in table.READY.glob("*.yaml")} - {"kustomization"}
    listed = yaml.safe_load((table.READY / "kustomization.yaml").read_text())["resources"]
    assert used == ready == {name.removesuffix(".yaml") for name in listed}


def _allowed() -> list[tuple[str, Json]]:
    return [(name, case) for name, case in CASES if case["expect"]["verdict"] in {"patched", "allowed"}]


@pytest.mark.parametrize("case", [case for _, case in _allowed()], ids=[name for name, _ in _allowed()])
def test_a_second_pass_changes_nothing_and_what_the_object_creates_is_admitted(case: Json) -> None:
    found: list[Result] = table.results(case)
    for result in found:
        assert result.allowed, f"{result.review.subject}: {result.last.message}"
        facts = table.world(case).facts(result.review)
        again = dispatch.mutate(review_of(result.object, "alice", result.review.groups), facts)
        assert again.patch == ()


@pytest.mark.parametrize("case", [case for _, case in _allowed()], ids=[name for name, _ in _allowed()])
def test_a_patched_pod_passes_the_apiservers_validation(case: Json) -> None:
    for result in table.results(case):
        if result.review.kind != "Pod":
            continue
        stored = patched(result.review.object or {}, result.mutated) if not result.last.allowed else result.object
        stored = copy.deepcopy(stored)
        default_pod(stored)
        assert [f"{fault.field}: {fault.message}" for fault in pod_spec(stored["spec"])] == []
