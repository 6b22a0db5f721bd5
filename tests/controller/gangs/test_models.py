"""One model for one gang: what its pods, policies and queues say, what runs, and all of it on a sandbox of two products."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fairlead.api import names
from fairlead.controller.gangs.admission.requests import GangRecord, gang_request, placed_claims
from fairlead.controller.gangs.membership.gangs import gang_spec
from fairlead.controller.watch.rules import models_of, read_policies
from fairlead.kube.resources import QUEUES, TENANCY_POLICIES
from fairlead.sandbox.cluster import NodeSpec
from fairlead.ui.model.explanations import gang_explanation
from tests.controller.conftest import Bench, benches
from tests.controller.gang_views import Objects, asked, claim, pod, view

H100, A100 = "h1", "h2"  # nodes of eight H100s, and of six A100s


def policy(name: str, models: str, **spec: Any) -> Any:
    meta = {"name": name}
    return {
        "apiVersion": "fairlead.dev/v1alpha1",
        "kind": "TenancyPolicy",
        "metadata": meta,
        "spec": {"models": models, **spec},
    }


def member(name: str, *, labels: dict[str, str] | None = None, models: str | None = None, **more: Any) -> Any:
    notes = {names.GANG: "g", names.GANG_SIZE: "3"} | ({names.MODELS: models} if models else {})
    return pod(name, annotations=notes, labels=labels or {}, **more)


class TestWhatIsSaid:
    def test_by_the_pods_and_then_by_policies(self):
        said = view(member("a", models="any"), member("b"), member("c"))
        (asked, other) = (gang_request(each, GangRecord(), {}, models="same") for each in (said, view(member("a"))))
        assert asked is not None and asked.models == "any"
        assert other is None or other.models == "same"
        assert gang_spec(said)["models"] == "any"

    def test_of_several_policies_the_stricter_one_counts_and_only_those_that_enforce(self):
        policies = [policy("a", "any"), policy("b", "same", namespaceSelector={"matchLabels": {"team": "x"}})]
        read = read_policies(
            [*policies, policy("c", "same", mode="Warn"), policy("d", "same", exemptions={"namespaces": ["ml"]})]
        )
        assert models_of(read, "ml", {}) == "any"
        assert models_of(read, "ml", {"team": "x"}) == "same"
        assert models_of(read_policies([]), "ml", {}) is None


class TestWhatRuns:
    def test_a_member_that_joins_has_what_the_others_hold(self):
        parts = [{names.RAY_GROUP: f"part-{n % 2}"} for n in range(3)]
        running = [
            member(f"p{n}", labels=parts[n], gated=False, node=f"n{n}", claim=f"c{n}", phase="Running")
            for n in range(3)
        ]
        held = [claim(f"c{n}", f"p{n}", node=f"n{n}", reserved=[f"p{n}"]) for n in range(3)]
        gang = view(*running, member("late", labels=parts[1]), objects=Objects(claims=held))
        request = asked(gang)
        assert [each.worker_group for each in request.members] == ["part-1"]
        assert [(group, each.name) for group, each in request.placed_claims] == [
            ("part-0", "c0"),
            ("part-0", "c2"),
            ("part-1", "c1"),
        ]
        assert {each.allocation is not None for _, each in request.placed_claims} == {True}

    def test_of_many_alike_a_few_nodes_are_enough(self):
        running = [member(f"p{n}", gated=False, node=f"n{n // 2}", claim=f"c{n}", phase="Running") for n in range(40)]
        held = [claim(f"c{n}", f"p{n}", node=f"n{n // 2}", reserved=[f"p{n}"]) for n in range(40)]
        found = placed_claims(view(*running, objects=Objects(claims=held)).members)
        assert len({each.allocation.devices.results[0].pool for _, each in found if each.allocation}) == len(found) == 8


# -- on the sandbox: pods of two GPUs


@pytest.fixture
async def products(tmp_path: Path) -> AsyncIterator[Bench]:
    async with benches(tmp_path, count=1, more=[NodeSpec("h2", "dgx-a100")]) as made:
        await made.template("two", 2)
        yield made


def nodes(bench: Bench, pods: list[str]) -> set[str]:
    return {found.spec.node_name for name in pods if (found := bench.get(name)) is not None and found.spec.node_name}


def explained(bench: Bench, gang: str) -> tuple[str, ...]:
    raw = next((each for each in bench.gangs.all() if each["metadata"]["name"] == gang), None)
    parts = () if raw is None else gang_explanation(raw, now=0.0).parts
    return next((part.lines for part in parts if part.title == "Models"), ())


@pytest.mark.slow
@pytest.mark.parametrize("by", ["queue", "policy"])
async def test_one_that_no_model_holds_says_so_until_models_may_mix(products: Bench, by: str):
    async with products.controller():
        pods = await products.gang("g", 7, template="two")
        await products.until(lambda: products.status("g").get("reason") == "NeverFits", "it waits")
        said = products.status("g")["message"]
        assert "14 of one model wanted: NVIDIA A100-SXM4-80GB has 6, NVIDIA H100 80GB HBM3 has 8" in said
        assert products.gated(pods)
        if by == "queue":
            queue = {"metadata": {"name": "q"}, "spec": {"models": "any", "namespaceSelector": {}}}
            await products.client.create(QUEUES, queue)
        if by == "policy":
            await products.client.create(TENANCY_POLICIES, {"metadata": {"name": "p"}, "spec": {"models": "any"}})
        await products.until(lambda: products.running(pods), "it runs on both")
        assert nodes(products, pods) == {H100, A100}
        mix = "8 × NVIDIA H100 80GB HBM3, 6 × NVIDIA A100-SXM4-80GB; models may mix (fairlead.dev/models: any)"
        await products.until(lambda: explained(products, "g") == (mix,), "explain says on which models")
