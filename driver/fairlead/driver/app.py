"""The kubelet plugin of one node, put together and run: one program for the command line, the sandbox and tests.

Order: take the lifetime lock, read the hardware, recover what the process before left, serve kubelet, publish; the
reverse at the end. Holds no logic of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from pathlib import Path

from fairlead.api import names
from fairlead.driver.backend import factory
from fairlead.driver.common.locks import ProcessLock
from fairlead.driver.common.metrics import Metrics
from fairlead.driver.common.threads import Threads
from fairlead.driver.kubelet import server
from fairlead.driver.kubelet.plugin import Plugin, Refusals
from fairlead.driver.kubelet.server import PluginPaths, RegistrationService, SelfCheck
from fairlead.driver.layouts.keeper import LayoutKeeper
from fairlead.driver.layouts.state import NodeLabel
from fairlead.driver.metrics.collector import GpuCollector, SlicesCollector
from fairlead.driver.options import DriverOptions
from fairlead.driver.parts import Parts, claim_directories
from fairlead.driver.prepare import steps
from fairlead.driver.prepare.orphans import ClaimConsumers, Orphans
from fairlead.driver.prepare.record_cache import RecordCache, SharePrograms
from fairlead.driver.prepare.records import ClaimRecord
from fairlead.driver.prepare.upkeep import Cleaner, MpsSupervisor, OrphanGc
from fairlead.driver.publish.keeping import Found, Keeping
from fairlead.driver.publish.node_labels import NodeLabels
from fairlead.driver.publish.publisher import Publisher
from fairlead.driver.publish.slices import PoolSlices
from fairlead.driver.publish.sync import Annotations
from fairlead.driver.repair.repairer import Repairer
from fairlead.driver.repair.state import RepairStore
from fairlead.driver.reports import Reports
from fairlead.driver.usage.sampler import Rates
from fairlead.driver.usage.writer import UsageWriter
from fairlead.kube import otlp, probes, tracing
from fairlead.kube.client import Client
from fairlead.kube.events import EventRecorder
from fairlead.kube.resource import ResourceClaim
from fairlead.kube.resources import RESOURCE_CLAIMS
from fairlead.kube.tracing import OFF, Tracer

__all__ = ["Driver", "DriverOptions", "run"]

log = logging.getLogger(__name__)

RECOVERY_LOCK_S = 60.0


async def run(options: DriverOptions, *, ready: asyncio.Event | None = None) -> None:
    """Serve until cancelled. Raises SocketError, ProfileError, BackendError, TracingError or OSError when it cannot start.

    `ready` is set once kubelet can call and the slices are published.
    """
    tracer = otlp.tracer_for(options.otlp_endpoint, service="fairlead-driver", instance=options.node_name)
    paths = server.plugin_paths(
        driver=names.DRIVER,
        plugins_dir=options.plugins_dir,
        registry_dir=options.registry_dir,
        pod_uid=options.pod_uid,
    )
    paths.data.mkdir(mode=0o750, parents=True, exist_ok=True)
    paths.registration.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
    with (
        server.hold_lifetime_lock(paths.data / "plugin.lock", shared=options.pod_uid is not None),
        contextlib.closing(Threads()) as threads,
    ):
        records = RecordCache()
        backend = await threads.run(
            factory.open_backend,
            options.backend,
            node=options.node_name,
            data=paths.data,
            driver_root=options.driver_root,
            held=records.held,
            shares=SharePrograms(records, claim_directories(options, paths)),
        )
        try:
            async with (
                tracing.exporting(tracer) as spans,
                Client.connect(options.kubeconfig, user_agent="fairlead-driver") as client,
            ):
                parts = await Parts.of(options, paths, backend, threads, records)
                await Driver(options, paths, client, parts, spans).serve(ready)
        finally:
            await threads.run(backend.close)


class Driver:
    """The parts of one driver process."""

    def __init__(
        self, options: DriverOptions, paths: PluginPaths, client: Client, parts: Parts, tracer: Tracer | None
    ) -> None:
        async def read_claim(namespace: str, name: str) -> ResourceClaim:
            return await client.get(RESOURCE_CLAIMS, name, namespace)

        self._options = options
        self._paths = paths
        self._parts = parts
        self._threads = threads = parts.gpus.threads
        self._monitor = monitor = parts.gpus.monitor
        self._preparer = preparer = parts.gpus.preparer
        self._recovered = False
        self._metrics = Metrics()
        if tracer is not None:
            self._metrics.registry.register(tracer)
        self._events = EventRecorder(client, "fairlead-driver", instance=options.node_name)
        self._reports = Reports(self._events, self._metrics, options.node_name, options.wanted)
        self._process_lock = ProcessLock(paths.data / "serialize.lock", reload=self._reload)
        self._consumers = ClaimConsumers(read_claim, parts.records)
        self._orphans = Orphans(client, parts.records, fetch=self._consumers.fetch, changed=self._publish_if_changed)
        monitor.releasing = self._orphans.devices
        self._refusals = Refusals(client, fetch=self._consumers.fetch, pool=options.node_name)
        self._plugin = Plugin(
            preparer,
            fetch=self._consumers.fetch,
            is_orphan=self._orphans.is_one,
            wait_s=options.release_wait_s,
            outcome=lambda ref, problem: self._refusals.note((ref.namespace, ref.name, ref.uid), problem),
            process_lock=self._process_lock,
            threads=threads,
            metrics=self._metrics,
            tracing=tracer or OFF,
        )
        self._registration = RegistrationService(driver=names.DRIVER, endpoint=str(paths.dra))
        self._publisher = Publisher(
            client,
            node_name=options.node_name,
            keeping=Keeping(
                client, node_name=options.node_name, wanted=options.wanted, changed=self._follow_what_is_kept
            ),
            sync_delay_s=options.sync_delay_s,
            on_write=self._metrics.wrote,
        )
        self._sampler = parts.sampler
        self._usage_writer = UsageWriter(
            client,
            parts.sampler,
            parts.records,
            fetch=self._consumers.fetch,
            count=self._metrics.usage_written,
            rates=Rates(min_interval_s=options.usage_interval_s, spread_s=options.usage_interval_s / 5),
            interval_s=options.hardware_interval_s,
        )
        self._orphan_gc = OrphanGc(
            preparer,
            is_orphan=self._orphans.is_one,
            in_use=self._processes_of,
            unprepare=self._plugin.unprepare_record,
            interval_s=options.orphan_gc_interval_s,
        )
        self._mps_supervisor = MpsSupervisor(
            preparer,
            process_lock=self._process_lock,
            threads=threads,
            restarted=self._metrics.mps_restarted,
            report_unhealthy=monitor.report_unhealthy,
            interval_s=options.mps_interval_s,
        )
        self._cleaner = Cleaner(
            preparer.leftovers,
            process_lock=self._process_lock,
            threads=threads,
            report=self._reports.not_removed,
            count=self._metrics.leftovers,
        )
        self._repairer = Repairer(
            parts.gpus,
            store=RepairStore(paths.data / "repairs.json"),
            process_lock=self._process_lock,
            annotations=self._publisher.annotations,
            publish=self._publish_repairs,
            ended=self._reports.repair_ended,
            quiet_s=options.repair_quiet_s,
            interval_s=options.repair_interval_s,
        )
        self._mig_label = NodeLabel(client, self._events, options.node_name, changed=self._metrics.mig_config)
        self._layouts = self._layout_keeper()
        self._self_check = SelfCheck(paths, interval_s=options.self_check_s, timeout_s=options.self_check_timeout_s)

    async def _recover(self) -> None:
        async with self._process_lock.hold(timeout_s=RECOVERY_LOCK_S):
            self._reports.recovered(await self._threads.run(self._preparer.recover))
        await self._threads.run(self._repairer.start)  # before kubelet can ask for a GPU that is half repaired
        self._recovered = True
        if self._options.dynamic_mig:
            await self._monitor.poll()  # now that the records say which MIG devices are the driver's own
        self._monitor.rebuild()

    async def _reload(self) -> None:
        """Another process of this driver had the process lock. Before recovery there is nothing to read again."""
        if self._recovered:
            self._reports.unreadable(await self._threads.run(self._preparer.reload))

    async def serve(self, ready: asyncio.Event | None) -> None:
        """Recover, and serve until it is cancelled."""
        options = self._options
        await self._recover()
        self._register_metrics()
        if self._layouts is not None:
            await self._mig_label.read()
            await self._layouts.first()
            await self._monitor.poll(full=False)
        await self._orphans.first()
        self._publish(self._monitor.built)
        async with (
            probes.serve(
                options.metrics_bind,
                ready=self._readiness_problem,
                health=self._liveness_problem,
                registry=self._metrics.registry,
            ),
            server.serving(
                self._paths,
                self._plugin,
                self._registration,
                self._monitor.health,
                shared=options.pod_uid is not None,
            ),
            asyncio.TaskGroup() as group,
        ):
            group.create_task(self._events.run())
            group.create_task(self._publisher.run())
            group.create_task(self._monitor.run(self._publish, self._publisher.confirm))
            group.create_task(self._orphans.run())
            group.create_task(self._refusals.run())
            group.create_task(self._orphan_gc.run())
            group.create_task(self._self_check.run())
            group.create_task(self._mps_supervisor.run())
            group.create_task(self._cleaner.run())
            group.create_task(self._repairer.run())
            if self._layouts is not None:
                group.create_task(self._mig_label.run())
                group.create_task(self._layouts.run())
            if options.device_usage:
                group.create_task(self._usage_writer.run())
            if options.node_labels_dir is not None:
                group.create_task(self._node_labels(options.node_labels_dir).run())
            await self._publisher.published.wait()
            log.info(
                "serving",
                extra={
                    "node": options.node_name,
                    "socket": str(self._paths.dra),
                    "devices": len(self._monitor.built.devices),
                },
            )
            if ready is not None:
                ready.set()

    def _layout_keeper(self) -> LayoutKeeper | None:
        if self._options.mig_config_file is None:
            return None
        return LayoutKeeper(
            self._options.mig_config_file,
            self._mig_label,
            self._parts.gpus,
            self._parts.cutter,
            process_lock=self._process_lock,
            synced_at_s=lambda: self._publisher.synced_at_s,
            count=self._metrics.mig_cut,
            interval_s=self._options.hardware_interval_s,
            settle_s=self._options.mig_settle_s,
        )

    def _node_labels(self, directory: Path) -> NodeLabels:
        strategy = self._options.mig_strategy
        return NodeLabels(directory, strategy, lambda: self._monitor.inventory, self._threads, wall=time.time)

    def _register_metrics(self) -> None:
        self._metrics.track_claims_held(lambda: Counter(record.state for record in self._preparer.records()))
        self._metrics.registry.register(
            GpuCollector(
                inventory=lambda: self._monitor.inventory,
                telemetry=lambda: self._monitor.telemetry,
                conditions=lambda: self._monitor.conditions,
                xids=self._monitor.xids,
                records=self._preparer.records,
                pods=self._consumers.pods,
                usages=lambda uid: self._sampler.usages(uid, time.time()),
                node=self._options.node_name,
                with_dcgm=self._options.dcgm_metrics,
            )
        )
        self._metrics.registry.register(SlicesCollector(lambda: self._publisher.synced_at_s))

    def _publish(self, built: PoolSlices) -> None:
        types = Counter(device.attributes["type"].string or "" for device in built.devices)
        self._metrics.published(
            types,
            tainted=sum(1 for device in built.devices if device.taints),
            withheld=len({name.partition("-mig-")[0] for name in built.notes}),
        )
        self._publisher.publish(built.slices, self._reports.notes(built))

    def _follow_what_is_kept(self, found: Found) -> None:
        """Nothing is written that rests on what the apiserver drops: slices are built again before the next write."""
        self._reports.kept(found)
        self._monitor.keep(found.kept)
        self._publish(self._monitor.built)

    def _publish_repairs(self, annotations: Annotations) -> None:
        """Taints and annotations of repairs, at once."""
        self._reports.repairs(self._repairer.repairs.values())
        self._publisher.annotate(annotations)
        self._publish_if_changed()

    def _publish_if_changed(self) -> None:
        if self._monitor.rebuild():
            self._publish(self._monitor.built)

    async def _processes_of(self, record: ClaimRecord) -> str:
        """The processes on the record's GPUs, in words. Where a GPU is shared they may be another claim's."""
        return ", ".join(await self._threads.run(steps.processes, self._parts.gpus.backend, record))

    def _liveness_problem(self) -> str | None:
        """Why a restart would help."""
        return self._self_check.problem or self._monitor.restart_reason

    def _readiness_problem(self) -> str | None:
        """Why kubelet and the scheduler cannot use this node's devices now."""
        return self._registration.problem or self._publisher.problem or self._monitor.problem
