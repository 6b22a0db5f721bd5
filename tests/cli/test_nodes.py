"""`fairlead nodes` on drawn clusters: counts as everywhere, labels of nodes, and nothing called free that is not known to be."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fairlead.cli.listing import Row
from fairlead.cli.views.nodes import Nodes
from fairlead.ui.model.cluster import Memory
from fairlead.ui.reading.cluster import Cluster, NotReadError
from tests.support import ui


def rows(server: Any) -> tuple[Nodes, list[Row]]:
    command = Nodes()
    return command, asyncio.run(command.rows(Cluster(server)))


def test_each_node_has_the_counts_of_the_map(tmp_path, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    lists = ui.a_cluster()
    command, found = rows(ui.Apiserver(lists))
    hardware = asyncio.run(ui.facts(lists)).hardware
    assert hardware is not None
    nodes = {node.name: node for node in Memory().draw(hardware).nodes}
    assert [row.name for row in found] == sorted(nodes)
    for row in found:
        node, value = nodes[row.name], row.value
        assert value["in_use"] == node.of("in use")
        assert (value["free"], value["unavailable"]) == (node.of("free"), node.of("unavailable"))
        assert value["in_use"] + value["free"] + value["unavailable"] == value["gpus"] == len(value["devices"])
        assert len(row.lines[0]) == len(command.columns())
    assert any(row.value["in_use"] for row in found)
    assert any(each["gangs"] for row in found for each in row.value["devices"])
    assert list(command.notes(found)) == []


def test_where_claims_may_not_be_listed_nothing_is_called_free(tmp_path, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    command, found = rows(ui.Apiserver(ui.a_cluster(), refused=["resourceclaims"]))
    assert {row.value["free"] for row in found} == {None}
    (note,) = command.notes(found)
    assert note.startswith("what is in use is not known: ")
    assert "resourceclaims" in note


@pytest.mark.parametrize("kind", ["nodes", "resourceslices"])
def test_without_nodes_or_slices_it_says_which_may_not_be_listed(kind, tmp_path, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(NotReadError, match=kind):
        rows(ui.Apiserver(ui.a_cluster(), refused=[kind]))
