"""What stands in the way of an uninstall is said, and ended when asked for."""

from typing import Any

from fairlead.api import names
from fairlead.cli.programs.uninstall import Held, Preparation, said
from fairlead.kube import errors
from tests.support.commands import invoke


def claim(name, pod=None, driver=names.DRIVER):
    reserved = [{"resource": "pods", "name": pod}] if pod else []
    allocation = {"devices": {"results": [{"driver": driver}]}}
    return {
        "metadata": {"name": name, "namespace": "ml"},
        "status": {"allocation": allocation, "reservedFor": reserved},
    }


def pod(name, gate=names.ADMISSION_GATE):
    return {"metadata": {"name": name, "namespace": "ml"}, "spec": {"schedulingGates": [{"name": gate}]}}


class FakeCluster:
    """Claims whose pods can be evicted; a pod in `guarded` only at the second try. Everything lets go at once."""

    def __init__(self, claims=(), pods=(), guarded=()):
        self.claims = list(claims)
        self.pods = list(pods)
        self.guarded = set(guarded)
        self.scaled: list[Any] = []

    async def list(self, resource, namespace=None):
        class Listing:
            items = self.claims if resource.plural == "resourceclaims" else self.pods

        return Listing()

    async def patch(self, resource, name, body, *, namespace):
        self.scaled.append((name, body["spec"]["replicas"]))

    async def evict(self, name, namespace):
        if name in self.guarded:
            self.guarded.discard(name)
            raise errors.TooManyRequests("the disruption budget guard needs 1 healthy pods", status=429)
        self.claims = [c for c in self.claims if name not in {r["name"] for r in c["status"]["reservedFor"]}]


async def no_sleep(_seconds):
    return


def preparation(cluster):
    return Preparation(cluster, [names.DRIVER], sleep=no_sleep)


async def test_claims_of_other_drivers_and_gates_of_others_are_none_of_our_business():
    cluster = FakeCluster(
        [claim("a", "p"), claim("b", driver="gpu.example.com"), {"metadata": {"name": "c", "namespace": "ml"}}],
        [pod("waits"), pod("other", gate="example.com/queue")],
    )
    assert await preparation(cluster).look() == Held({"ml/a": ("ml/p",)}, ("ml/waits",))


async def test_pods_are_evicted_when_their_budget_allows_it_and_the_controller_stops_first(capsys):
    cluster = FakeCluster([claim("a", "p"), claim("b", "q")], guarded=["q"])
    await preparation(cluster).evict(60.0)
    assert cluster.scaled == [(names.CONTROLLER_ACCOUNT, 0)]
    assert cluster.claims == []
    printed = capsys.readouterr().out
    assert "ml/q: not now: the disruption budget guard" in printed
    assert "ml/q: evicted" in printed


async def test_what_cannot_be_ended_is_waited_for_no_longer_than_told():
    cluster = FakeCluster([claim("a")])
    await preparation(cluster).evict(0.0)
    assert (await preparation(cluster).look()).claims == {"ml/a": ()}


def test_people_are_told_who_holds_what_and_what_to_do():
    lines = said(Held({"ml/a": ("ml/p",), "ml/b": ()}, tuple(f"ml/{i}" for i in range(30))))
    assert lines[0] == "2 claims hold devices; end their pods, or run `fairlead prepare-uninstall --evict`:"
    assert lines[1:3] == ["  ml/a: ml/p", "  ml/b: reserved for no pod"]
    assert lines[3].startswith("30 pods wait behind fairlead.dev/admission")
    assert lines[-1] == "  and 10 more"
    assert said(Held({}, ())) == ["no claim holds a device"]


def test_who_writes_uninstall_is_shown_the_command():
    done = invoke(["uninstall"], env={"COLUMNS": "200"})
    assert done.exit_code == 2
    assert "prepare-uninstall" in done.output
