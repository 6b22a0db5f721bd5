"""Nodes that lose their power, their disk, a GPU, or their object."""

from __future__ import annotations

from random import Random

from fairlead.driver.backend.simulated import fault_file
from fairlead.kube.resources import NODES
from tests.chaos.actions.processes import start_again
from tests.chaos.actions.registry import action, later
from tests.chaos.cluster import CONTROLLERS, ChaosNode
from tests.chaos.world import GPUS, World

XIDS = (13, 31, 48, 63, 79, 94, 119)


def _some_node(world: World, random: Random) -> ChaosNode:
    return world.cluster.nodes[random.choice(sorted(world.cluster.nodes))]


@action(2)
def power_loss(world: World, random: Random) -> str | None:
    node = _some_node(world, random)
    if not node.powered:
        return None
    node.power_off()
    removed = random.random() < 0.3
    if removed:
        world.in_background(f"delete node {node.name}", lambda: world.client.delete(NODES, node.name))
    off_s = later(world, random, 15.0, node.power_on)
    return f"{node.name} loses power for {off_s:.1f} s{', and its Node is deleted' if removed else ''}"


@action(4)
def disk_fault(world: World, random: Random) -> str | None:
    node, kind = _some_node(world, random), random.choice(("full", "failing", "lying", "dies"))
    match kind:
        case "full":
            node.disk.full = True
        case "failing":
            node.disk.failing = 0.3
        case "lying":
            node.disk.lying = True
        case _:
            node.disk.dies_in = random.randrange(20)
            driver = node.driver
            later(world, random, 4.0, lambda: start_again(world, driver))
    for_s = later(world, random, 10.0, node.disk.repair)
    told = f"disk of {node.name}: {kind} for {for_s:.1f} s"
    return f"{told}; {_recording_fault(world, random)}" if random.random() < 0.5 else told


def _recording_fault(world: World, random: Random) -> str:
    """Of the volume into which the controllers record."""
    disk, kind = world.cluster.recordings.disk, random.choice(("full", "failing", "dies", "power"))
    controllers = [world.cluster.programs[name] for name in CONTROLLERS]
    match kind:
        case "full":
            disk.full = True
        case "failing":
            disk.failing = 0.3
        case "dies":
            disk.dies_in = random.randrange(20)
        case _:
            for each in controllers:
                each.kill()
            disk.lose_power()
    for each in controllers:
        later(world, random, 4.0, lambda each=each: start_again(world, each))  # type: ignore[misc]
    return f"of the recording: {kind} for {later(world, random, 10.0, disk.repair):.1f} s"


@action(2)
def gpu_fault(world: World, random: Random) -> str | None:
    node, minor = _some_node(world, random), random.randrange(GPUS)
    path = node.data_dir / fault_file.NAME
    if not path.parent.exists():
        return None
    lost, xid = random.random() < 0.3, random.choice(XIDS)
    fault_file.inject(path, minor, xid=None if lost else xid, lost=lost)
    world.faulty.add(node.name)
    return f"{node.name}: gpu-{minor} {'falls off the bus' if lost else f'reports Xid {xid}'}"


@action(1)
def gpu_repaired(world: World, random: Random) -> str | None:
    node = _some_node(world, random)
    path = node.data_dir / fault_file.NAME
    if not path.exists():
        return None
    fault_file.clear(path)
    return f"{node.name}: its GPUs are well again"


@action(1)
def node_deleted(world: World, random: Random) -> str | None:
    """By hand or by a cloud provider's mistake: the machine still runs."""
    node = _some_node(world, random)
    world.in_background(f"delete node {node.name}", lambda: world.client.delete(NODES, node.name))
    later(world, random, 10.0, lambda: _reboot_kubelet(node))
    return f"Node {node.name} is deleted, and the machine runs on"


def _reboot_kubelet(node: ChaosNode) -> None:
    """A kubelet registers its Node when it starts."""
    if node.powered:
        node.kubelet.kill()
        node.kubelet.start()
