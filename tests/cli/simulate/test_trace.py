"""What is wrong in a trace's files is named by file, row, column and value."""

from __future__ import annotations

import pytest

from fairlead.cli.simulate.replay import Counter, drawn_arrivals, mean_and_sd, node_order, parse_seeds
from fairlead.cli.simulate.trace import Pod, PodRequest, TraceError, read_arrivals, read_trace

HEAD = "sn,cpu_milli,memory_mib,gpu,model\n"
PODS_HEAD = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"


def test_a_good_trace_is_read_as_written(files):
    nodes, pods, arrivals = files()
    trace = read_trace(nodes, pods)
    assert trace.capacity == 12_000
    assert trace.pods[2].request == PodRequest(32000, 16384, 4, 1000, ("G2", "T4"))
    assert read_arrivals(arrivals, [42, 43], 5) == {42: (0, 1, 2, 3, 4, 2, 2), 43: (4, 3, 2, 1, 0)}


@pytest.mark.parametrize(
    ("nodes", "wrong"),
    [
        ("", "is empty; its first line should name the columns"),
        (HEAD, "has a header and no rows"),
        ("sn,cpu_milli\nn,1\n", "column memory_mib is missing; there are sn, cpu_milli"),
        (f"{HEAD}n,many,1,1,T4\n", "row 1: cpu_milli: 'many' is no whole number"),
        (f"{HEAD}n,1,1,,T4\n", "row 1: gpu: is empty"),
        (f"{HEAD}n,1,1,1\n", "row 1: model: is empty"),
        (f"{HEAD}n,1,1,-2,T4\n", "row 1: gpu: -2 is out of range; write a number from 0 to 64"),
        (f"{HEAD}n,1,1,1,T4\nn,1,1,1,T4\n", "row 2: sn: 'n' is there twice"),
    ],
)
def test_a_bad_node_list_is_refused_with_its_place(files, nodes, wrong):
    paths = files(nodes=nodes)
    with pytest.raises(TraceError) as refused:
        read_trace(paths[0], paths[1])
    assert str(refused.value).startswith(f"{paths[0]}: ")
    assert wrong in str(refused.value)


@pytest.mark.parametrize(
    ("row", "wrong"),
    [
        ("p,1,1,1,1001,", "gpu_milli: 1001 is out of range; write a number from 0 to 1000"),
        ("p,1,1,1,0,", "gpu_milli: 0 with num_gpu 1: both are 0, or none is"),
        ("p,1,1,2,500,", "gpu_milli: 500 with num_gpu 2: several GPUs are asked whole"),
        (",1,1,1,500,", "name: is empty"),
    ],
)
def test_a_bad_pod_is_refused_with_its_place(files, row, wrong):
    nodes, pods, _ = files(pods=f"{PODS_HEAD}{row}\n")
    with pytest.raises(TraceError) as refused:
        read_trace(nodes, pods)
    assert str(refused.value).startswith(f"{pods}: row 1: ")
    assert wrong in str(refused.value)


@pytest.mark.parametrize("row", ["p,1,1,1,500,A100", "p,999999,1,1,500,", "p,1,1,4,1000,T4"])
def test_a_pod_that_fits_on_no_node_is_part_of_the_list(files, row):
    nodes, pods, _ = files(pods=f"{PODS_HEAD}good,1,1,1,500,\n{row}\n")
    trace = read_trace(nodes, pods)
    assert trace.unplaceable == (1,)
    assert [pod.name for pod in trace.pods] == ["good", "p"]


def test_lists_are_told_apart_by_what_is_read_of_them(files):
    nodes, pods, _ = files()
    known = read_trace(nodes, pods).digest
    pods.write_bytes(pods.read_bytes().replace(b"\n", b"\r\n"))
    assert read_trace(nodes, pods).digest == known
    pods.write_bytes(pods.read_bytes().replace(b"p-1,2000", b"p-1,2001"))
    assert read_trace(nodes, pods).digest != known


@pytest.mark.parametrize(
    ("arrivals", "wrong"),
    [
        ("position,seed42\n0,5\n", "row 1: seed42: 5 is out of range; write a number from 0 to 4"),
        ("position,seed42\n0,1\n1,\n2,3\n", "row 3: seed42: '3' comes after the run's end"),
        ("position,seed7\n0,1\n", "there is no column seed42; recorded are seed7"),
        ("position,seed42\n0,\n", "column seed42 has no arrivals"),
    ],
)
def test_bad_arrivals_are_refused_with_their_place(files, arrivals, wrong):
    path = files(arrivals=arrivals)[2]
    with pytest.raises(TraceError, match=r"arrivals\.csv") as refused:
        read_arrivals(path, [42], 5)
    assert wrong in str(refused.value)


def test_a_file_that_is_not_there_or_no_text_is_refused(files, tmp_path):
    nodes, pods, _ = files()
    with pytest.raises(TraceError, match="can't be read"):
        read_trace(tmp_path / "none.csv", pods)
    nodes.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TraceError, match="can't be read"):
        read_trace(nodes, pods)


def test_drawn_arrivals_hold_the_list_once_and_stop_at_130_percent(files):
    trace = read_trace(*files()[:2])
    order = drawn_arrivals(trace, 42)
    assert sorted(order[:5]) == [0, 1, 2, 3, 4]
    assert order == drawn_arrivals(trace, 42)
    assert order != drawn_arrivals(trace, 43)
    total = sum(trace.pods[row].request.demand for row in order)
    assert 1.3 * trace.capacity - 1000 <= total <= 1.3 * trace.capacity + 3000  # the stop test counts one GPU of a pod


def test_a_list_beyond_130_percent_is_cut(files):
    pods = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\n" + "".join(f"p-{n},1000,1,1,1000\n" for n in range(40))
    trace = read_trace(*files(pods=pods)[:2])
    assert len(drawn_arrivals(trace, 1)) == 15  # of 12 GPUs, 130 %


def test_nodes_have_one_random_order_per_seed(files):
    trace = read_trace(*files()[:2])
    assert node_order(trace, 1) == node_order(trace, 1)
    assert set(node_order(trace, 2)) == set(trace.nodes)


def test_a_load_point_is_the_mean_of_the_arrivals_that_round_to_it():
    counter = Counter(100_000)
    for placed in (True, True, False, True):
        counter.note(Pod("p", PodRequest(1, 1, 1, 250)), placed=placed)
    assert counter.curve() == {0: 0.25, 1: pytest.approx((0.5 + 0.5 + 0.75) / 3)}
    assert counter.failed == 1


def test_mean_and_sample_deviation():
    assert mean_and_sd([2.0, 4.0]) == pytest.approx((3.0, 2**0.5))
    assert mean_and_sd([2.0]) == (2.0, None)


@pytest.mark.parametrize(("texts", "seeds"), [(["42"], (42,)), (["42-44", "43", "7"], (42, 43, 44, 7))])
def test_seeds_are_numbers_and_ranges(texts, seeds):
    assert parse_seeds(texts) == seeds


@pytest.mark.parametrize("text", ["", "x", "4-", "9-3", "0-99999"])
def test_other_seeds_are_refused(text):
    with pytest.raises(ValueError, match=r"such as 42-51|upwards"):
        parse_seeds([text])
