"""The three programs as an operator starts them: the `fairlead` command, flags, a kubeconfig, SIGTERM."""

import asyncio
import contextlib
import dataclasses
import signal
import socket
import sys
from pathlib import Path

import aiohttp
import pytest
import typer

from fairlead.cli import serve
from fairlead.cli.demo import cases
from fairlead.cli.demo.history import Observer
from fairlead.cli.options import Logged
from fairlead.controller.app import ControllerOptions
from fairlead.kube import logs
from fairlead.kube.errors import ApiError
from fairlead.sandbox import files
from fairlead.sandbox.cluster import Cluster, ClusterOptions, NodeSpec
from fairlead.webhook.options import WebhookOptions
from tests.support.commands import invoke
from tests.support.tasks import parsed

READY_TIMEOUT_S = 30.0
NODE = "worker"
CONTROLLER = "system:serviceaccount:fairlead-system:fairlead-controller"  # no other account may allocate


@contextlib.asynccontextmanager
async def running(*arguments, log: Path):
    """`fairlead ARGUMENTS` as a process of its own; at the end SIGTERM, and it must end well."""
    with log.open("wb") as stream:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "fairlead", *map(str, arguments), stdout=stream, stderr=stream
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
            code = await asyncio.wait_for(process.wait(), 20)
        assert code == 0, f"fairlead {arguments[0]} ended with {code}: {log.read_text()[-2000:]}"


async def ready(url):
    async with aiohttp.ClientSession() as session, asyncio.timeout(READY_TIMEOUT_S):
        while True:
            with contextlib.suppress(aiohttp.ClientError):
                async with session.get(url) as response:
                    if response.status == 200:
                        return
            await asyncio.sleep(0.1)


@pytest.mark.slow
async def test_the_programs_serve_a_cluster_from_the_command_line_and_stop_on_sigterm(tmp_path, free_port):
    nodes = (NodeSpec(NODE),)  # a kubelet without a driver: ours is started below
    async with (
        Cluster(ClusterOptions(workdir=tmp_path / "c", nodes=nodes, run_programs=False)) as cluster,
        cluster.client() as client,
        Observer(client).running() as observer,
    ):
        config, node = cluster.kubeconfig(), cluster.nodes[NODE]
        hook, metrics = free_port(), [free_port() for _ in range(3)]
        probes = [("--metrics-bind", f"127.0.0.1:{port}") for port in metrics]
        driver = ["driver", "--node-name", NODE, "--kubeconfig", config, "--backend", "simulated:hgx-h100"]
        driver += ["--plugins-dir", node.plugins_dir, "--registry-dir", node.registry_dir, "--cdi-dir", node.cdi_dir]
        webhook = [
            "webhook",
            "--kubeconfig",
            config,
            "--bind",
            f"127.0.0.1:{hook}",
            "--url",
            f"https://127.0.0.1:{hook}",
        ]
        async with (
            running(*driver, *probes[0], log=tmp_path / "driver.log"),
            running(*webhook, *probes[1], log=tmp_path / "webhook.log"),
            running(
                "controller",
                "--kubeconfig",
                cluster.kubeconfig(CONTROLLER),
                *probes[2],
                log=tmp_path / "controller.log",
            ),
        ):
            await asyncio.gather(*(ready(f"http://127.0.0.1:{port}/readyz") for port in metrics))
            await cluster.apply(files.find("examples/00-queues"))
            await cluster.apply(files.find("examples/01-one-gpu"))
            finished = await observer.until(lambda: cases.ONE_GPU.finished(observer.history), timeout_s=40)
            assert finished, (tmp_path / "controller.log").read_text()[-2000:]
            assert cases.ONE_GPU.failures(observer.history, observer.attributes) == []
        assert not list(node.registry_dir.glob("*.sock")), "the driver takes its sockets with it"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["driver", "--node-name", "n", "--backend", "simulated:hgx-h10"], "did you mean"),
        (["driver", "--node-name", "n", "--idle-levels", "1,200"], "--idle-levels: '1,200' is no list of utilisations"),
        (["driver", "--node-name", "n", "--idle-levels", "5%"], "is no list of utilisations"),
        (["controller", "--kubeconfig", "/nowhere.yaml"], "/nowhere.yaml"),
        (["controller", "--ledger", "mysql://host/x"], "mysql://…: not a kind of ledger"),
        (["controller", "--ledger", "/l", "--ledger-keep", "soon"], "soon"),
        (["webhook", "--url", "http://127.0.0.1:1"], "https"),
        (["controller", "--otlp-endpoint", "collector:4318"], "'collector:4318' is no URL of an OTLP/HTTP receiver"),
        (["controller", "--trace-ratio", "2"], "--trace-ratio"),
    ],
)
def test_a_wrong_flag_is_one_clear_line_and_exit_code_above_zero(arguments, complaint, tmp_path, monkeypatch):
    config = tmp_path / "config"
    config.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n"
        "clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\nusers: [{name: u, user: {token: t}}]\n"
    )
    monkeypatch.setenv("KUBECONFIG", str(config))
    places = ["--plugins-dir", tmp_path / "p", "--registry-dir", tmp_path / "r", "--cdi-dir", tmp_path / "c"]
    more = places if arguments[0] == "driver" else []
    done = invoke([*arguments, *map(str, more)], env={"COLUMNS": "200"})
    assert done.exit_code != 0
    assert isinstance(done.exception, SystemExit)
    assert complaint in " ".join(done.output.split())


PROGRAMS = {"webhook": WebhookOptions, "controller": ControllerOptions}


@pytest.mark.parametrize(
    ("arguments", "field", "value"),
    [
        (["driver", "--node-name=n", "--no-device-metadata"], "device_metadata", False),
        (["driver", "--node-name=n"], "plugins_dir", Path("/var/lib/kubelet/plugins")),
        (["driver", "--node-name=n"], "idle_levels", (1.0, 10.0, 20.0)),
        (["driver", "--node-name=n", "--idle-levels=2.5,50"], "idle_levels", (2.5, 50.0)),
        (["driver", "--node-name=n", "--idle-levels="], "idle_levels", ()),
        (["controller", "--managed-driver=a", "--managed-driver=b"], "managed_drivers", ("a", "b")),
        *[
            ([program, "--shared-claim-driver=a", "--shared-claim-driver=b"], "shared_claim_drivers", ("a", "b"))
            for program in ("webhook", "controller")
        ],
        (["controller", "--usage-half-life=12h"], "usage_half_life_s", 43200.0),
        (["controller", "--no-forecast"], "forecast", False),
        (["controller", "--record=/r"], "record", Path("/r")),
        (["controller", "--record-max-size=1Gi"], "record_bytes_max", 2**30),
        (["controller", "--record-max-age=2d"], "record_age_max_s", 172800.0),
        (["controller", "--ledger-label=b", "--ledger-label=a"], "ledger_labels", ("b", "a")),
        *[
            ([*program, "--otlp-endpoint=http://c:4318"], "otlp_endpoint", "http://c:4318")
            for program in (["driver", "--node-name=n"], ["webhook"], ["controller"])
        ],
        *[([program, "--trace-ratio=0.25"], "trace_ratio", 0.25) for program in ("webhook", "controller")],
    ],
)
def test_a_flag_sets_the_option_of_its_name(arguments, field, value):
    _, options = parsed(arguments)
    assert getattr(options, field) == value


@pytest.mark.parametrize("program", ["webhook", "controller"])
def test_without_flags_a_program_has_the_defaults_of_its_options(program):
    _, options = parsed([program])
    for field in dataclasses.fields(PROGRAMS[program]):
        assert getattr(options, field.name) == field.default, field.name


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(98, "cannot listen on 0.0.0.0:9443: Address already in use"), "[Errno 98] cannot listen on 0.0.0.0:9443: Address already in use"),
        (ExceptionGroup("unhandled errors", [ExceptionGroup("in a group", [ApiError("the apiserver answered 403")])]), "the apiserver answered 403"),
        (ExceptionGroup("two", [ValueError("first"), ValueError("first"), ValueError("second")]), "first; second"),
        (KeyError("name"), "KeyError: 'name'"),
        (TimeoutError(), "TimeoutError"),
    ],
)  # fmt: skip
def test_a_program_that_ends_says_what_ended_it(error, said, monkeypatch, caplog):
    async def program(options, *, ready):
        raise error

    monkeypatch.setattr(logs, "configure", lambda **_: None)
    with pytest.raises(typer.Exit) as ended:
        serve.serve(program, Logged())
    assert (ended.value.exit_code, [each.getMessage() for each in caplog.records]) == (1, [f"stopped: {said}"])


async def test_a_program_announces_that_it_is_ready_to_the_supervisor_that_asks_for_it(tmp_path, monkeypatch):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.bind(str(tmp_path / "notify"))
        supervisor.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))

        async def program(options, *, ready):
            ready.set()
            while not await asyncio.to_thread(supervisor.recv, 64):
                pass

        await serve._until_signalled(program, None)
