"""`fairlead check cel` tells an author what the apiserver would."""

from pathlib import Path

import pytest

from tests.support.commands import invoke

SLICE = """
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: node-1}
spec:
  driver: gpu.example.com
  pool: {name: node-1, generation: 1, resourceSliceCount: 1}
  nodeName: node-1
  devices:
  - {name: gpu-0, attributes: {type: {string: gpu}}, capacity: {memory: {value: 80Gi}}}
  - {name: gpu-1, attributes: {type: {string: mig}}}
  - {name: gpu-2}
"""


def run(expression: str, device: Path | None = None) -> tuple[int, str]:
    done = invoke(["check", "cel", expression, *(["--device", str(device)] if device else [])], env={"COLUMNS": "160"})
    return done.exit_code, done.output


def test_a_good_selector_shows_its_type_cost_and_reads() -> None:
    status, shown = run('device.attributes["gpu.example.com"].type == "gpu"')
    assert status == 0
    assert "admitted" in shown
    assert "bool" in shown
    assert "5 of at most 1,000,000" in shown
    assert 'device.attributes["gpu.example.com"].type' in shown


def test_a_bad_one_shows_where_and_what_instead() -> None:
    status, shown = run("device.drivr == 'a'")
    assert status == 1
    assert "1:7: undefined field 'drivr' (did you mean 'driver'?)" in shown
    assert "      ^" in shown


def test_an_expensive_one_is_refused_with_its_cost() -> None:
    status, shown = run('device.attributes["d"].?a == optional.none()')
    assert status == 1
    assert "exceeds cost limit" in shown


def test_each_device_of_a_slice_is_judged(tmp_path: Path) -> None:
    file = tmp_path / "slice.yaml"
    file.write_text(SLICE)
    status, shown = run('device.attributes["gpu.example.com"].type == "gpu"', file)
    assert status == 0
    assert "no such key: type" in shown
    assert "1 match, 1 no-match, 1 runtime-error" in shown


@pytest.mark.parametrize("text", ["[", "kind: Pod", "", "- 1", "kind: ResourceSlice\nspec: {devices: 3}"])
def test_a_file_that_holds_no_slices_is_named(text: str, tmp_path: Path) -> None:
    file = tmp_path / "slice.yaml"
    file.write_text(text)
    status, shown = run("true", file)
    assert status == 2
    assert str(file) in shown
