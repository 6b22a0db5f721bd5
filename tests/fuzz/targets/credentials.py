"""kubeconfig files: what the official client's loader makes of them is Credentials or a CredentialsError."""

from __future__ import annotations

import asyncio
import warnings
from pathlib import Path

import yaml

from fairlead.kube import credentials
from tests.fuzz.json_mutations import json_mutations
from tests.fuzz.mutations import byte_mutations, mixed
from tests.fuzz.target import Target, says_why

_WORDS = tuple(
    word.encode()
    for word in (
        "clusters:\n", "contexts:\n", "users:\n", "- name: a\n", "current-context: a\n", "cluster: {server: 'https://h:6443'}\n", "certificate-authority-data: AAAA\n", "insecure-skip-tls-verify: true\n",
        "token: x\n", "tokenFile: t\n", "client-certificate-data: AAAA\n", "proxy-url: 'socks5://x'\n", "auth-provider: {name: gcp}\n", "username: u\n", "&a ", "*a", "!!binary x", "2001-99-99", "tls-server-name: x\n",
    )
)  # fmt: skip


def kubeconfig(scratch: Path) -> Target:
    """Without exec plugins, which run a program, and without providers that ask the network."""
    path = scratch / "kubeconfig"
    loop = asyncio.new_event_loop()
    warnings.simplefilter("ignore")

    async def read() -> None:
        found = await credentials.load(path, clock=lambda: 0.0)
        assert isinstance(found.url, str)
        try:
            assert isinstance(await found.authorization(), str | None)
        except credentials.CredentialsError as error:
            says_why(error)

    def run(data: bytes) -> None:
        if b"exec" in data or b"auth-provider" in data:
            return
        path.write_bytes(data)
        loop.run_until_complete(read())

    def document(user: dict[str, object], **cluster: object) -> bytes:
        return yaml.safe_dump({
            "apiVersion": "v1", "kind": "Config", "current-context": "a", "preferences": {},
            "clusters": [{"name": "a", "cluster": {"server": "http://127.0.0.1:6443"} | cluster}],
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a", "namespace": "ml"}}],
            "users": [{"name": "a", "user": user}],
        }, default_flow_style=True).encode()  # fmt: skip

    seeds = (
        document({"token": "x"}),
        document({"username": "u", "password": "p"}),
        document({"tokenFile": "token"}),
        document(
            {},
            server="https://h:1",
            **{"insecure-skip-tls-verify": True, "tls-server-name": "x", "proxy-url": "http://p:1"},
        ),
    )
    run(seeds[0])  # imports the official client, which takes a second
    return Target(
        name="kubeconfig", run=run,
        close=loop.close, seeds=seeds, mutate=mixed((3, byte_mutations(_WORDS, most=2)), (1, json_mutations(("a", "token")))),
        allowed=(credentials.CredentialsError,), traced=("/kube/credentials.py",), bytes_max=1_500, growth_mib=16.0,
    )  # fmt: skip
