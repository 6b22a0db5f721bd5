"""The apiserver's address and our identity: kubeconfig or in-cluster.

Only this module imports `kubernetes.aio` (exec plugins, OIDC, several files), and only for a kubeconfig that is not plain
(`plain_kubeconfig`): it costs half a second and 50 MiB, and its REST layer is not used.
Invariants: a token file is read again at most every `REREAD_S` and after a 401; an exec plugin runs again when its
credential has expired or was refused.
"""

from __future__ import annotations

import dataclasses
import os
import ssl
import urllib.parse
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairlead.bounded import files
from fairlead.bounded.limits import SMALL, UnreadableError

if TYPE_CHECKING:
    from fairlead.kube.wire import Wire

REREAD_S = 30.0
TOKEN_BYTES_MAX = 2**20
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class CredentialsError(Exception):
    """No usable credentials for an apiserver; the message lists what was tried."""


async def _no_token(*, force: bool = False) -> str | None:
    return None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Credentials:
    """`authorization(force=…)` gives the Authorization header's value, or None; with force it does not use a cached one.

    `wire` makes the way to the apiserver, given a user agent; None is HTTP.
    """

    url: str
    tls: ssl.SSLContext | None = None
    server_name: str | None = None
    proxy: str | None = None
    authorization: Callable[..., Awaitable[str | None]] = _no_token
    wire: Callable[[str], Wire] | None = None


Kubeconfig = Path | str | Credentials | None
"""Where the cluster is: a file, or what would be read from one; None looks for a file (see `load`)."""


def fixed(url: str, *, token: str | None = None, tls: ssl.SSLContext | None = None) -> Credentials:
    """Credentials that never change: for tests, and for programs that are started with a URL."""

    async def authorization(*, force: bool = False) -> str | None:
        return f"Bearer {token}" if token else None

    return Credentials(url=url.rstrip("/"), tls=tls, authorization=authorization)


class TokenFile:
    """A bearer token in a file that kubelet rotates (projected service account tokens)."""

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        self._path = path
        self._clock = clock
        self._token = ""
        self._read_at = float("-inf")

    async def authorization(self, *, force: bool = False) -> str | None:
        if force or self._clock() - self._read_at >= REREAD_S:
            self._read()
        return f"Bearer {self._token}"

    def _read(self) -> None:
        try:
            token = files.text(self._path, bytes_max=TOKEN_BYTES_MAX).strip()
        except OSError as error:
            if not self._token:
                raise CredentialsError(f"token file {self._path}: {error.strerror}; mount or create it") from error
            token = self._token  # a rotation in progress: the old token may still be valid
        except UnreadableError as error:
            raise CredentialsError(f"token file {self._path}: {error}") from error
        if not token:
            raise CredentialsError(f"token file {self._path} is empty")
        self._token = token
        self._read_at = self._clock()


async def load(kubeconfig: Kubeconfig = None, *, context: str | None = None, clock: Callable[[], float]) -> Credentials:
    """From an explicit file, else $KUBECONFIG, else the pod's service account, else ~/.kube/config.

    Raises CredentialsError when none of them exists or the first that exists cannot be read.
    """
    if isinstance(kubeconfig, Credentials):
        return kubeconfig
    if kubeconfig is not None:
        return await _from_file(str(kubeconfig), context, clock)
    if os.environ.get("KUBECONFIG"):
        return await _from_file(os.environ["KUBECONFIG"], context, clock)
    if os.environ.get("KUBERNETES_SERVICE_HOST") and (SERVICE_ACCOUNT / "token").exists():
        return in_cluster(clock=clock)
    home = Path.home() / ".kube" / "config"
    if home.exists():
        return await _from_file(str(home), context, clock)
    raise CredentialsError(
        f"no apiserver to talk to: no kubeconfig was given, $KUBECONFIG is not set, this is no pod "
        f"({SERVICE_ACCOUNT} is absent) and {home} does not exist; pass --kubeconfig FILE"
    )


def in_cluster(
    *, clock: Callable[[], float], directory: Path = SERVICE_ACCOUNT, environ: dict[str, str] | None = None
) -> Credentials:
    """The pod's own service account."""
    variables = dict(os.environ) if environ is None else environ
    try:
        host, port = variables["KUBERNETES_SERVICE_HOST"], variables["KUBERNETES_SERVICE_PORT"]
    except KeyError as missing:
        raise CredentialsError(f"{missing} is not set; in-cluster credentials need a pod") from missing
    host = f"[{host}]" if ":" in host else host
    try:
        tls = ssl.create_default_context(cafile=str(directory / "ca.crt"))
    except (OSError, ssl.SSLError) as error:
        raise CredentialsError(f"{directory / 'ca.crt'}: {error}") from error
    return Credentials(
        url=f"https://{host}:{port}",
        tls=tls,
        proxy=_environment_proxy(f"https://{host}:{port}"),
        authorization=TokenFile(directory / "token", clock).authorization,
    )


async def _from_file(paths: str, context: str | None, clock: Callable[[], float]) -> Credentials:
    from fairlead.kube import plain_kubeconfig  # with yaml

    if os.pathsep not in paths and (found := plain_kubeconfig.read(paths, context)) is not None:
        authorization = fixed("", token=found.token).authorization
        if found.token_file is not None:
            authorization = TokenFile(found.token_file, clock).authorization
        return Credentials(
            url=found.server,
            tls=found.tls,
            server_name=found.server_name,
            proxy=found.proxy or _environment_proxy(found.server),
            authorization=authorization,
        )
    return await _by_official_loader(paths, context, clock)


async def _by_official_loader(paths: str, context: str | None, clock: Callable[[], float]) -> Credentials:
    from kubernetes.aio import config
    from kubernetes.aio.client import Configuration

    if not _exists(paths):
        raise CredentialsError(f"kubeconfig {paths}: no such file")
    configuration = Configuration()
    try:
        _check(paths)
        loader = await config.load_kube_config(  # type: ignore[no-untyped-call]
            config_file=paths, context=context, client_configuration=configuration, persist_config=False
        )
        return Credentials(
            url=str(configuration.host).rstrip("/"),
            tls=_tls_without_files(configuration),
            server_name=configuration.tls_server_name,
            proxy=configuration.proxy or _environment_proxy(str(configuration.host)),
            authorization=_authorization(paths, loader, clock),
        )
    except (config.ConfigException, OSError, ssl.SSLError, UnreadableError) as error:
        raise CredentialsError(f"kubeconfig {paths}: {error}") from error
    except (
        Exception
    ) as error:  # the loader checks no types, and PyYAML not every scalar: whatever they raise, the file is wrong
        raise CredentialsError(f"kubeconfig {paths}: cannot be read: {type(error).__name__}: {error}") from error


def _check(paths: str) -> None:
    """The official loader has no bounds, and checks no types: what it would read is read by ours first. Raises UnreadableError, OSError."""
    from fairlead.bounded import yaml_text

    for each in filter(None, paths.split(os.pathsep)):
        path = Path(each).expanduser()
        if path.is_file():
            found = yaml_text.documents(files.read(path, bytes_max=SMALL.bytes), SMALL)
            if not found or not isinstance(found[0], dict):
                raise UnreadableError(
                    "is empty" if not found or found[0] is None else "is no kubeconfig: its YAML is no mapping"
                )


def _environment_proxy(url: str) -> str | None:
    """From HTTPS_PROXY and NO_PROXY, read once: with aiohttp's `trust_env` every request would switch threads for it."""
    parts = urllib.parse.urlsplit(url)
    if not any(name.lower().endswith("_proxy") for name in os.environ):
        return None
    from urllib import request  # with http.client and email

    if parts.hostname is None or request.proxy_bypass(parts.hostname):
        return None
    return request.getproxies().get(parts.scheme)


def _exists(paths: str) -> bool:
    return any(Path(path).expanduser().is_file() for path in paths.split(os.pathsep) if path)


def _tls_without_files(configuration: Any) -> ssl.SSLContext | None:
    """The loader writes certificates and keys of a kubeconfig into files, and removes them when the process ends in order: none may."""
    from kubernetes.aio.config import kube_config

    try:
        return _tls(configuration)
    finally:
        used = {configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file}
        for content, name in list(kube_config._temp_files.items()):  # noqa: SLF001 - it has no other way to forget some
            if name in used:
                del kube_config._temp_files[content]  # noqa: SLF001
                Path(name).unlink(missing_ok=True)


def _tls(configuration: Any) -> ssl.SSLContext | None:
    if not str(configuration.host).startswith("https"):
        return None
    tls = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    if configuration.cert_file:
        tls.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
    if not configuration.verify_ssl:
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    return tls


def _authorization(paths: str, loader: Any, clock: Callable[[], float]) -> Callable[..., Awaitable[str | None]]:
    """The `authorization` of a kubeconfig's user: by token file, exec plugin, GCP provider or fixed token."""
    user = _user(loader)
    if user.get("tokenFile") and not user.get("token"):
        base = Path(paths.split(os.pathsep, maxsplit=1)[0]).expanduser().parent
        return TokenFile(base / user["tokenFile"], clock).authorization

    async def authorization(*, force: bool = False) -> str | None:
        if "exec" in user:
            if force and hasattr(loader, "exec_plugin_expiry"):
                del loader.exec_plugin_expiry
            if force or hasattr(loader, "exec_plugin_expiry"):
                await loader.load_from_exec_plugin()  # runs the plugin only if its credential has expired
        elif force and loader.provider == "gcp":
            await loader.load_gcp_token()
        token = getattr(loader, "token", None)
        return str(token) if token else None

    return authorization


def _user(loader: Any) -> dict[str, Any]:
    node = loader._user  # noqa: SLF001 - the loader has no public view of the user's entry
    value = getattr(node, "value", node)
    return value if isinstance(value, dict) else {}
