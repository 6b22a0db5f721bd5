"""What a stolen token of the webhook's account reaches: no other account's token, and no object of any pod."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from fairlead.api import names
from fairlead.kube import errors
from fairlead.kube.client import Patch
from fairlead.kube.resources import CONFIG_MAPS, EVENTS, MUTATING_WEBHOOKS, SECRETS, VALIDATING_WEBHOOKS, raw
from fairlead.webhook.certificates.served import SECRET
from fairlead.webhook.registration import registrar
from fairlead.webhook.registration.configurations import Target
from tests.webhook.test_fences import GROUPS, Cluster, cluster

__all__ = ["cluster"]

Json = dict[str, Any]
ABSENT = {"apiVersion": "v1", "kind": "ConfigMap", "name": "absent", "uid": "00000000-0000-4000-8000-000000000000"}
TOKEN: Json = {
    "metadata": {
        "name": SECRET,
        "namespace": names.NAMESPACE,
        "annotations": {"kubernetes.io/service-account.name": names.CONTROLLER_USER.rpartition(":")[2]},
    },
    "type": "kubernetes.io/service-account-token",
}


async def test_it_makes_no_secret_also_where_its_own_is_gone(cluster: Cluster) -> None:
    async with cluster.client("admin") as admin, cluster.client(names.WEBHOOK_USER, *GROUPS) as stolen:
        await admin.delete(SECRETS, SECRET, names.NAMESPACE)
        for body in (TOKEN, {**TOKEN, "type": "Opaque"}, {**TOKEN, "metadata": {**TOKEN["metadata"], "name": "mine"}}):
            with pytest.raises(errors.Forbidden):
                await stolen.create(raw(SECRETS), body)
            name, empty = body["metadata"]["name"], dict[str, Any]()
            for kind, manager in ((Patch.APPLY, {"field_manager": "x", "force": True}), (Patch.MERGE, empty)):
                call = stolen.patch(raw(SECRETS), name, body, namespace=names.NAMESPACE, kind=kind, **manager)
                with pytest.raises((errors.Forbidden, errors.NotFound)):
                    await call
            with pytest.raises((errors.Forbidden, errors.NotFound)):
                await stolen.replace(raw(SECRETS), body)
        assert (await admin.list(raw(SECRETS), names.NAMESPACE)).items == []


async def test_it_hands_its_secret_to_no_garbage_collector_and_keeps_it_renewable(cluster: Cluster) -> None:
    async with cluster.client("admin") as admin, cluster.client(names.WEBHOOK_USER, *GROUPS) as stolen:
        before = await stolen.get(raw(SECRETS), SECRET, names.NAMESPACE)
        for metadata, more in (
            ({"ownerReferences": [ABSENT]}, {}),
            ({"finalizers": ["example.com/never"]}, {}),
            ({"labels": {"a": "b"}}, {}),
            ({"annotations": TOKEN["metadata"]["annotations"]}, {}),
            ({}, {"immutable": True}),
        ):
            body = {**before, **more, "metadata": {**before["metadata"], **metadata}}
            with pytest.raises(errors.Forbidden, match="the data of fairlead-webhook-tls only"):
                await stolen.replace(raw(SECRETS), body)
        with pytest.raises(errors.ApiError):
            await stolen.replace(raw(SECRETS), {**before, "type": TOKEN["type"]})
        with pytest.raises(errors.Forbidden):
            await stolen.delete(SECRETS, SECRET, names.NAMESPACE)
        with pytest.raises(errors.Forbidden):
            await stolen.list(raw(SECRETS), names.NAMESPACE)
        await stolen.replace(raw(SECRETS), {**before, "data": {"tls.key": "QQ=="}})
        everything = {"metadata": {"name": "other", "namespace": names.NAMESPACE}, "data": {}}
        await admin.create(raw(SECRETS), everything)
        with pytest.raises(errors.Forbidden):
            await stolen.get(raw(SECRETS), "other", names.NAMESPACE)


async def test_it_has_no_other_server_called_with_reviews(cluster: Cluster) -> None:
    """A server of the attacker's could put a container with any account into each pod that is created."""
    async with cluster.client("admin") as admin, cluster.client(names.WEBHOOK_USER, *GROUPS) as stolen:
        assert await registrar.ensure(stolen, Target(bundle="QQ=="))
        for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
            for client_config in (
                {"url": "https://evil.example.com/mutate"},
                {"url": "https://127.0.0.1.evil.example.com:443/mutate"},
                {"url": "https://127.0.0.1:443@evil.example.com/mutate"},
                {"service": {"name": "evil", "namespace": "ml", "path": "/"}},
                {"service": {"name": "fairlead-webhook", "namespace": "ml", "path": "/"}},
            ):
                ours = copy.deepcopy(await admin.get(resource, "fairlead"))
                ours["webhooks"][-1]["clientConfig"] = client_config
                with pytest.raises((errors.Forbidden, errors.Invalid)):
                    await stolen.replace(resource, ours)
                with pytest.raises(errors.ApiError):
                    await stolen.create(resource, {**ours, "metadata": {"generateName": "fairlead-"}})


async def test_of_other_accounts_it_has_events_in_its_own_namespace_only(cluster: Cluster) -> None:
    """So have the driver's: on its Node, whose events are in namespace default."""
    for user, node, where in ((names.WEBHOOK_USER, None, names.NAMESPACE), (names.DRIVER_USER, "n1", "default")):
        async with cluster.client(user, *GROUPS, node=node) as stolen:
            for namespace in ("default", "kube-system", "ml", names.NAMESPACE):
                event = {
                    "metadata": {"name": "e", "namespace": namespace},
                    "involvedObject": {"kind": "Pod", "name": "p", "namespace": namespace},
                    "reason": "Forged",
                    "message": "x",
                    "type": "Normal",
                }
                if namespace == where:
                    continue
                with pytest.raises(errors.Forbidden):
                    await stolen.create(raw(EVENTS), event)
            with pytest.raises(errors.Forbidden):
                await stolen.create(raw(CONFIG_MAPS), {"metadata": {"name": "c", "namespace": names.NAMESPACE}})
