"""What each DRA driver of GPUs calls the attributes that Fairlead reads: one table, and what holds for a driver that is not in it.

Names without a slash are of the driver's own domain, as in its ResourceSlices. A name that a driver does not publish is empty, and what
needs it is left out: no island, no order among islands. `first_of` takes the first of several names that a device has, for drivers that
renamed one.

Sources, each read in the project's code or documentation:
- gpu.nvidia.com: kubernetes-sigs/dra-driver-nvidia-gpu 0.5, cmd/gpu-kubelet-plugin/deviceinfo.go and mig.go. It publishes no NVLink
  domain; with its gate FabricManagerPartitioning `partition<n>` is the fabric partition of n GPUs that a GPU belongs to;
- gpu.amd.com: ROCm/k8s-gpu-dra-driver, docs/driver-attributes.md and cmd/gpu-kubeletplugin/deviceinfo.go; numaNode of its own domain
  since pull request 18 (the standard name is asked for in issue 92), the standard pciBusID in place of pciAddr since pull request 35;
- gpu.intel.com: intel/intel-resource-drivers-for-kubernetes, cmd/kubelet-gpu-plugin/node_state.go;
- gpu.example.com: kubernetes-sigs/dra-example-driver 0.4, internal/profiles/gpu/gpu.go.

Example: a MIG device of gpu.nvidia.com has `type: mig`, `profile: 1g.10gb` and `parentUUID`; a partition of gpu.amd.com has
`type: amdgpu-partition`, `partitionProfile: cpx_nps1` and `parentPciAddr`.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeVar

from fairlead.api import names

NVIDIA: Final = "gpu.nvidia.com"
AMD: Final = "gpu.amd.com"
INTEL: Final = "gpu.intel.com"
EXAMPLE: Final = "gpu.example.com"
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverAttributes:
    """The names that one driver uses."""

    driver: str
    known: bool = True
    kind: str = ""
    """Says whether a device is a whole GPU or a part of one."""
    parts: frozenset[str] = frozenset()
    """Values of `kind` that mean a part; empty: a device that has `kind` at all is a part."""
    whole: str = ""
    """The value of `kind` that means a whole GPU, for selectors; empty where the driver's class has nothing else."""
    uuid: str = ""
    product: tuple[str, ...] = ()
    profile: str = ""
    """Of a part: which."""
    parent: tuple[str, ...] = ()
    """Of a part: names its GPU."""
    parent_of: tuple[str, ...] = ()
    """Of a whole GPU: what its parts have as `parent`."""
    parent_number: str = ""
    """Of a part: the number of its GPU, for a name where the GPU itself is not published."""
    islands: tuple[tuple[int, str], ...] = ()
    """(size, attribute): GPUs that NVLink joins have the same value. Size 0: islands of any size; else those of so many GPUs."""
    cliques: tuple[str, ...] = ()
    """As islands, of GPUs that NVLink joins across nodes: shown where a GPU has no island."""
    numa: tuple[str, ...] = (names.NUMA_NODE,)
    pcie_root: str = names.PCIE_ROOT
    memory: str = "memory"
    """A capacity."""
    gpu_class: str = ""
    part_class: str = ""
    """The DeviceClasses that the driver's project installs; without one for parts, `gpu_class` holds both."""
    serves_nvidia: bool = False
    """Whether its devices are what `nvidia.com/gpu` of the device plugin means."""

    def qualified(self, name: str) -> str:
        """The attribute's name with its domain."""
        return name if not name or "/" in name else f"{self.driver}/{name}"

    def is_part(self, kind: object) -> bool:
        """Whether a device with this value of `kind` (None: it has none) is a part of a GPU."""
        return kind is not None and (kind in self.parts if self.parts else bool(self.kind))

    def island(self, count: int) -> str:
        """The attribute by which `count` GPUs are joined, qualified: of the smallest islands that hold them; "" without one."""
        fitting = [name for size, name in self.islands if not size or size >= count]
        return self.qualified((fitting or [name for _, name in self.islands[-1:]] or [""])[0])


def _nvidia_names(
    driver: str, *, islands: tuple[tuple[int, str], ...], part_class: str, cliques: tuple[str, ...] = ()
) -> DriverAttributes:
    return DriverAttributes(
        driver=driver,
        kind="type",
        parts=frozenset({"mig"}),
        uuid="uuid",
        product=("productName",),
        profile="profile",
        parent=("parentUUID",),
        parent_of=("uuid",),
        parent_number="parentIndex",
        islands=islands,
        cliques=cliques,
        gpu_class=driver,
        part_class=part_class,
        serves_nvidia=True,
    )


_TABLE: Final = (
    _nvidia_names(names.DRIVER, islands=((0, "nvlinkDomain"),), cliques=("nvlinkClique",), part_class=names.MIG_CLASS),
    _nvidia_names(
        NVIDIA,
        islands=((2, "partition2"), (4, "partition4"), (8, "partition8")),
        part_class="mig.nvidia.com",
    ),
    DriverAttributes(
        driver=AMD,
        kind="type",
        parts=frozenset({"amdgpu-partition"}),
        whole="amdgpu",
        product=("productName",),
        profile="partitionProfile",
        parent=("parentPciAddr", names.PCI_BUS_ID),
        parent_of=("pciAddr", names.PCI_BUS_ID),
        numa=(names.NUMA_NODE, "numaNode"),
        gpu_class=AMD,
    ),
    DriverAttributes(
        driver=INTEL,
        kind="type",
        parts=frozenset({"vf"}),
        whole="gpu",
        product=("model",),
        gpu_class=INTEL,
    ),
    DriverAttributes(
        driver=EXAMPLE,
        kind="partition",
        uuid="uuid",
        product=("model",),
        parent=("uuid",),
        parent_of=("uuid",),
        gpu_class=EXAMPLE,
    ),
)
DRIVERS: Final = {each.driver: each for each in _TABLE}


@lru_cache(maxsize=1024)
def attributes_of(driver: str) -> DriverAttributes:
    """The names of a driver's attributes; of one that is not in the table those that Kubernetes names, and no parts; see `unknown_driver`."""
    return DRIVERS.get(driver) or DriverAttributes(driver=driver, known=False)


def first_of(known: DriverAttributes, attributes: Sequence[str], read: Callable[[str], T | None]) -> T | None:
    """The first of these attributes that the device has. `read` takes a qualified name."""
    for name in attributes:
        value = read(known.qualified(name))
        if value is not None:
            return value
    return None


def unknown_driver(driver: str) -> str | None:
    """What a driver that is not in the table goes without, as a sentence; None for one that is in it."""
    if driver in DRIVERS:
        return None
    return (
        f"driver {driver} is not one whose attributes are known to Fairlead ({', '.join(DRIVERS)}): its devices are allocated and counted, each "
        f"as a whole one unless it draws from counters, placed by {names.NUMA_NODE} alone and not by NVLink, and shown without product; "
        "write measure Devices or Capacity in its Flavors, by which quotas are exact"
    )


def legacy_driver(managed: Sequence[str]) -> str:
    """The managed driver whose devices `nvidia.com/gpu` stands for: NVIDIA's or ours before one that is not known."""
    serving = [driver for driver in managed if attributes_of(driver).serves_nvidia]
    unknown = [driver for driver in managed if driver not in DRIVERS]
    return (serving or unknown or list(managed))[0]


def serve_nvidia(managed: Iterable[str]) -> bool:
    """Whether any of the managed drivers may have the GPUs of `nvidia.com/gpu`; one that is not known may."""
    return any(attributes_of(driver).serves_nvidia or driver not in DRIVERS for driver in managed)


def classes_of(driver: str) -> tuple[str, ...]:
    """The DeviceClasses that a driver's project installs; of one that is not known, those that NVIDIA's would have under its name."""
    known = attributes_of(driver)
    if known.known:
        return tuple(name for name in (known.gpu_class, known.part_class) if name)
    return (driver, f"mig.{driver.removeprefix('gpu.')}")


def part_class(driver: str) -> str:
    """The class to ask for parts of GPUs (MIG devices) of this driver."""
    return classes_of(driver)[-1]
