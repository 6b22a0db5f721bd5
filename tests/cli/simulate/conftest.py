"""A small cluster and a small list, as files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

NODES = """sn,cpu_milli,memory_mib,gpu,model
n-0,32000,65536,2,T4
n-1,32000,65536,2,T4
n-2,96000,262144,8,G2
"""
PODS = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec
p-0,4000,4096,1,1000,
p-1,2000,2048,1,500,T4
p-2,32000,16384,4,1000,G2|T4
p-3,8000,8192,0,0,
p-4,1000,1024,1,300,
"""
ARRIVALS = """position,seed42,seed43
0,0,4
1,1,3
2,2,2
3,3,1
4,4,0
5,2,
6,2,
"""
Files = tuple[Path, Path, Path]


@pytest.fixture
def files(tmp_path: Path) -> Callable[..., Files]:
    """Writes the three files, each as given or as above."""

    def write(nodes: str = NODES, pods: str = PODS, arrivals: str = ARRIVALS) -> Files:
        paths = tmp_path / "nodes.csv", tmp_path / "pods.csv", tmp_path / "arrivals.csv"
        for path, text in zip(paths, (nodes, pods, arrivals), strict=True):
            path.write_text(text)
        return paths

    return write
