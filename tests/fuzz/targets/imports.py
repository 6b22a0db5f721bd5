"""Configurations of other queue systems: what `fairlead import` makes of them is valid objects and their text, or a RefusedError."""

from __future__ import annotations

from pathlib import Path

import yaml

from fairlead.cli.imports import command
from fairlead.cli.imports.command import READERS
from fairlead.cli.imports.model import RefusedError, documents
from tests.fuzz.mutations import byte_mutations
from tests.fuzz.target import Target

_WORDS = tuple(
    word.encode()
    for word in (
        "nvidia.com/gpu: 8", "nvidia.com/mig-1g.10gb: 2", "nominalQuota: -1", "cohortName: a", "parent: a", "parentName: a", "parentQueue: a", "weight: 0.5", "weight: 500m", "limit: -1", "quota: 1e9",
        "namespaceSelector: {}", "nodeLabels: {nvidia.com/gpu.product: A}", "clusterQueue: a", "apiVersion: kueue.x-k8s.io/v1beta1", "---\n", "&a ", "*a", "<<: *a", "!!set {a}", "[", "]", "{", "}", "null", "~",
    )
)  # fmt: skip
_SEEDS = (
    ("apiVersion: kueue.x-k8s.io/v1beta2\nkind: ResourceFlavor\nmetadata: {name: a}\nspec: {nodeLabels: {nvidia.com/gpu.product: A, b: c}, tolerations: [{operator: Exists}]}\n---\n"
    "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ClusterQueue\nmetadata: {name: q}\nspec: {cohortName: c, namespaceSelector: {}, resourceGroups: [{coveredResources: [nvidia.com/gpu], "
    "flavors: [{name: a, resources: [{name: nvidia.com/gpu, nominalQuota: 4, borrowingLimit: 2}]}]}]}\n---\n"
    "apiVersion: kueue.x-k8s.io/v1beta1\nkind: LocalQueue\nmetadata: {name: l, namespace: n}\nspec: {clusterQueue: q}\n"),
    ("apiVersion: scheduling.volcano.sh/v1beta1\nkind: QueueList\nitems:\n- metadata: {name: a}\n  spec: {weight: 2, capability: {nvidia.com/gpu: 8}}\n"
    "- metadata: {name: b}\n  spec: {parent: a, reclaimable: false, deserved: {nvidia.com/gpu: 4}, guarantee: {resource: {nvidia.com/gpu: 1}}}\n"),
    ("partitions:\n- name: default\n  placementrules: [{name: tag, value: namespace, create: true}]\n  queues:\n  - name: root\n    queues:\n"
    "    - {name: a, resources: {guaranteed: {nvidia.com/gpu: 2}}, queues: [{name: B_c, resources: {max: {nvidia.com/gpu: 1}}}]}\n"),
    ("apiVersion: scheduling.run.ai/v2\nkind: Queue\nmetadata: {name: a}\nspec: {priority: 5, resources: {gpu: {quota: 2.5, limit: -1, overQuotaWeight: 1}}}\n---\n"
    "apiVersion: run.ai/v2\nkind: Project\nmetadata: {name: p}\nspec: {deservedGpus: 1}\n"),
)  # fmt: skip


def configurations(scratch: Path) -> Target:
    """Each input by the reader of every system."""

    def run(data: bytes) -> None:
        found = documents(data.decode(errors="replace"), "in.yaml")
        refused: list[RefusedError] = []
        for system, read in READERS.items():
            try:
                imported = read(found)
            except RefusedError as error:
                refused.append(error)
                continue
            text = command.as_yaml(imported, system)
            assert [each for each in yaml.safe_load_all(text) if each] == command.objects(imported), (
                "comments end with their lines"
            )
            command.as_json(imported).encode()
        assert all(str(fault).isprintable() for error in refused for fault in error.faults), "a fault is one line"
        if len(refused) == len(READERS):
            raise refused[0]

    return Target(
        name="imports", run=run, seeds=tuple(seed.encode() for seed in _SEEDS), mutate=byte_mutations(_WORDS, most=3),
        allowed=(RefusedError,), traced=("/cli/imports/",), bytes_max=2_000, growth_mib=16.0,
    )  # fmt: skip
