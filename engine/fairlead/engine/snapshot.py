"""What a decision starts from: the tables of devices and nodes, pending and running gangs, queues, flavors, budgets.

The controller keeps the tables up to date between decisions; `decide` reads them, never changes them, and must not run while
they change.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from fairlead.engine.inventory.inventory import Inventory
from fairlead.engine.inventory.node_table import NodeTable
from fairlead.engine.types.gangs import GangRequest, RunningGang
from fairlead.engine.types.pods import Workload
from fairlead.engine.types.settings import DisruptionBudget, FlavorSpec, NamespaceQuota, QueueSpec
from fairlead.kube import resource

SIMULATED_STEPS = 5_000  # of one namespace, in each decision of a simulated future


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a decision depends on. The same snapshot gives the same plan, to the byte.

    `inventory` (fairlead.engine.inventory.inventory.Inventory) is kept current by `set_slice(slice)`, `drop_slice(name)`,
    `set_claim(claim)` (any claim; without an allocation it holds nothing) and `drop_claim(uid)`. `nodes`
    (fairlead.engine.inventory.node_table.NodeTable) by `set_node(node)`, `drop_node(name)`, `set_pod(pod, node=None)` (a pod that
    is bound, or pinned by us, or in commit with `node` said; finished pods hold nothing) and `drop_pod(uid)`.
    """

    inventory: Inventory
    nodes: NodeTable
    classes: Mapping[str, resource.DeviceClass]  # by name
    gangs: tuple[GangRequest, ...] = ()
    running: tuple[RunningGang, ...] = ()
    queues: tuple[QueueSpec, ...] = ()
    flavors: tuple[FlavorSpec, ...] = ()
    budgets: tuple[DisruptionBudget, ...] = ()
    namespace_quotas: tuple[NamespaceQuota, ...] = ()
    workload: Workload | None = None  # the usual mix of requests, for fragmentation; None: not known
    usage_weight: float = 1.0  # k of the fair share: how strongly past use corrects weights; 0: not at all
    reserve_after_s: float = 600.0  # a blocked gang older than this gets a reservation; backfill no longer passes it
    search_steps: int = 200_000  # steps of one gang's search, after which it ends unproven
    # Steps of all searches for gangs of one namespace, beside those for the size of the cluster, see `plan.turns`; None: more
    # where gangs of one namespace wait alone.
    namespace_steps: int | None = None
    searched: frozenset[str] = frozenset()  # UIDs of gangs that had their turn, see `plan.turns`

    def simulated(self) -> Snapshot:
        """As simulated futures start: without autoscaling, no gang had its turn, and searches are short.

        A future takes hundreds of decisions. What is not found in so many steps starts in none of them.
        """
        steps = self.namespace_steps or SIMULATED_STEPS
        return replace(self.without_autoscaling(), searched=frozenset(), namespace_steps=min(steps, SIMULATED_STEPS))

    def without_autoscaling(self) -> Snapshot:
        """For simulated futures: no node is asked for in them, and none comes."""
        if not any(flavor.autoscaling for flavor in self.flavors):
            return self
        return replace(self, flavors=tuple(replace(flavor, autoscaling=None) for flavor in self.flavors))
