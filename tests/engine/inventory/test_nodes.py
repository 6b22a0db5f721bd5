"""What a pod needs of its node, and what a node has left, as kube-scheduler counts it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fairlead.engine.inventory.ledger import Ledger
from fairlead.engine.inventory.node_table import NodeTable
from fairlead.engine.inventory.nodes import NodeInfo
from fairlead.engine.types.pods import PodNeeds
from fairlead.kube import core


def pod(uid: str = "p", *, node: str = "", phase: str = "", **spec: Any) -> core.Pod:
    body = {"metadata": {"name": uid, "uid": uid}, "spec": {"nodeName": node, **spec}, "status": {"phase": phase}}
    return msgspec.convert(body, core.Pod)


def box(name: str = "c", **requests: str) -> dict[str, Any]:
    return {"name": name, "resources": {"requests": requests}}


def node(name: str = "n", *, labels: dict[str, str] | None = None, allocatable: Any = None, **spec: Any) -> core.Node:
    body = {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": spec,
        "status": {"allocatable": allocatable or {"cpu": "4", "memory": "8Gi", "pods": "10"}},
    }
    return msgspec.convert(body, core.Node)


def cpu(needs: PodNeeds) -> int:
    return dict(needs.requests).get("cpu", 0)


def info(table: NodeTable, name: str = "n") -> NodeInfo:
    found = table.get(name)
    assert found is not None
    return found


class TestNeeds:
    @pytest.mark.parametrize(
        ("spec", "thousandths"),
        [
            ({"containers": [box(cpu="1"), box(cpu="500m")]}, 1500),
            ({"containers": [box(cpu="1")], "initContainers": [box(cpu="3")]}, 3000),
            ({"containers": [box(cpu="1")], "initContainers": [box(cpu="2") | {"restartPolicy": "Always"}]}, 3000),
            (
                {
                    "containers": [box(cpu="1")],
                    "initContainers": [box(cpu="2") | {"restartPolicy": "Always"}, box(cpu="4")],
                },
                6000,
            ),
            ({"containers": [box(cpu="1")], "overhead": {"cpu": "250m"}}, 1250),
            ({"containers": [box(cpu="1")], "resources": {"requests": {"cpu": "5"}}}, 5000),
        ],
    )
    def test_requests_are_those_of_the_pod_as_a_whole(self, spec, thousandths):
        assert cpu(PodNeeds.of(pod(**spec))) == thousandths

    def test_a_pod_takes_a_place_among_pods(self):
        assert dict(PodNeeds.of(pod()).requests) == {"pods": 1000}

    def test_ports_of_a_pod_on_the_hosts_network_are_host_ports(self):
        ports = {"ports": [{"containerPort": 80}, {"containerPort": 90, "hostPort": 91}]}
        assert PodNeeds.of(pod(containers=[box() | ports])).ports == (("TCP", "0.0.0.0", 91),)
        assert len(PodNeeds.of(pod(containers=[box() | ports], hostNetwork=True)).ports) == 2

    def test_pods_of_one_job_have_equal_needs(self):
        spec: dict[str, Any] = {"containers": [box(cpu="1")], "nodeSelector": {"zone": "a"}}
        assert PodNeeds.of(pod("a", **spec)) == PodNeeds.of(pod("b", **spec))


class TestTable:
    def test_pods_count_where_they_are_bound_pinned_or_in_commit(self):
        pin = {"key": "metadata.name", "operator": "In", "values": ["n"]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": [pin]}]}}
        pinned: dict[str, Any] = {"affinity": {"nodeAffinity": required}}
        table = NodeTable()
        table.set_node(node())
        one = [box(cpu="1")]
        table.set_pod(pod("bound", node="n", containers=one))
        table.set_pod(pod("pinned", containers=one, **pinned))
        table.set_pod(pod("gated", containers=one, schedulingGates=[{"name": "g"}], **pinned))
        table.set_pod(pod("committed", containers=one, schedulingGates=[{"name": "g"}]), "n")
        table.set_pod(pod("nowhere", containers=one))
        assert info(table).used["cpu"] == 3000
        table.set_pod(pod("bound", node="n", phase="Succeeded", containers=one))
        table.drop_pod("committed")
        table.drop_pod("never-seen")
        assert info(table).used["cpu"] == 1000

    def test_pods_may_arrive_before_their_node(self):
        table = NodeTable()
        table.set_pod(pod(node="n", containers=[box(cpu="1")]))
        table.set_node(node())
        assert info(table).used["cpu"] == 1000
        table.drop_node("n")
        table.set_node(node())
        assert info(table).used["cpu"] == 1000

    def test_a_heartbeat_changes_nothing(self):
        table = NodeTable()
        table.set_node(node())
        before, cursor = info(table), table.changes.cursor
        table.set_node(node())
        assert info(table) is before
        assert table.changes.cursor == cursor
        table.set_node(node(labels={"new": "yes"}))
        assert info(table) is not before

    def test_a_malformed_quantity_offers_nothing_and_stops_nothing(self):
        table = NodeTable()
        table.set_node(node(allocatable={"cpu": "many", "pods": "1"}))
        assert info(table).allocatable == {"cpu": 0, "pods": 1000}


class TestRoom:
    def test_the_ledgers_pods_come_on_top_of_those_that_run(self):
        table, ledger = NodeTable(), Ledger()
        table.set_node(node())
        table.set_pod(pod("running", node="n", containers=[box(cpu="2")]))
        needs = PodNeeds.of(pod(containers=[box(cpu="1500m")]))
        assert ledger.node_lacks(info(table), needs) is None
        ledger.count_pod(info(table), needs, 1)
        assert ledger.node_lacks(info(table), needs) == "cpu: 500m left, 1500m wanted"
        ledger.count_pod(info(table), needs, -1)
        assert ledger.node_lacks(info(table), needs) is None

    def test_a_resource_that_the_node_does_not_have_is_lacking(self):
        table = NodeTable()
        table.set_node(node())
        lack = Ledger().node_lacks(info(table), PodNeeds.of(pod(containers=[box(**{"vendor.com/nic": "1"})])))
        assert lack == "vendor.com/nic: 0 left, 1 wanted"

    def test_a_port_on_every_address_clashes_with_one_on_any(self):
        table, ledger = NodeTable(), Ledger()
        table.set_node(node())

        def wants(address: str, protocol: str = "TCP") -> PodNeeds:
            port = {"containerPort": 1, "hostPort": 80, "hostIP": address, "protocol": protocol}
            return PodNeeds.of(pod(containers=[box() | {"ports": [port]}]))

        ledger.count_pod(info(table), wants("10.0.0.1"), 1)
        assert ledger.node_lacks(info(table), wants("10.0.0.2")) is None
        assert ledger.node_lacks(info(table), wants("10.0.0.1", "UDP")) is None
        assert ledger.node_lacks(info(table), wants("")) == "host port 80/TCP is taken"

    @pytest.mark.parametrize(
        ("offered", "why"),
        [
            (node(unschedulable=True), "unschedulable"),
            (node(taints=[{"key": "k", "effect": "NoExecute"}]), "untolerated taint k"),
            (node(taints=[{"key": "k", "effect": "PreferNoSchedule"}]), "node selector zone=a"),
            (node(labels={"zone": "b"}), "node selector zone=a"),
            (node(labels={"zone": "a"}), None),
        ],
    )
    def test_a_node_refuses_by_taint_schedulability_and_labels(self, offered, why):
        table = NodeTable()
        table.set_node(offered)
        assert info(table).refuses(PodNeeds.of(pod(nodeSelector={"zone": "a"}))) == why

    def test_an_unready_node_takes_nothing(self):
        table = NodeTable()
        body = {"metadata": {"name": "n"}, "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
        table.set_node(msgspec.convert(body, core.Node))
        assert info(table).refuses(PodNeeds.of(pod())) == "not ready"

    @pytest.mark.parametrize(
        ("operator", "names", "why"),
        [
            ("In", ["n"], None),
            ("In", ["other"], "node affinity metadata.name In other"),
            ("NotIn", ["other"], None),
            ("NotIn", ["n", "other"], "node affinity metadata.name NotIn n,other"),
        ],
    )
    def test_a_pod_that_names_nodes_or_excludes_them_by_name_is_taken_at_its_word(self, operator, names, why):
        table = NodeTable()
        table.set_node(node())
        rule = {"key": "metadata.name", "operator": operator, "values": names}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": [rule]}]}}
        assert info(table).refuses(PodNeeds.of(pod(affinity={"nodeAffinity": required}))) == why
