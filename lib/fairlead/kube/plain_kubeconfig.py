"""A kubeconfig of one file whose credentials are in it or in files beside it: a token, a token file, a client certificate.

It is read here, since the official loader takes a quarter of a second to import. What needs that loader (exec plugins, auth providers,
passwords, several files) is left to it, and so is a file that is not as it should be: `read` returns None, and the loader says why.
"""

from __future__ import annotations

import base64
import contextlib
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from fairlead.bounded import files, yaml_text
from fairlead.bounded.limits import SMALL, UnreadableError

_CLUSTER = {
    "server", "certificate-authority", "certificate-authority-data", "insecure-skip-tls-verify", "tls-server-name", "proxy-url",
    "disable-compression", "extensions",
}  # fmt: skip
_USER = {"token", "tokenFile", "client-certificate", "client-certificate-data", "client-key", "client-key-data"}


class Plain(NamedTuple):
    """`server` without a slash at its end; `token` or `token_file`, or neither."""

    server: str
    tls: ssl.SSLContext | None
    server_name: str | None
    proxy: str | None
    token: str | None
    token_file: Path | None


def read(file: str, context: str | None) -> Plain | None:
    """None where it is not plain, or not right."""
    path = Path(file).expanduser()
    try:
        document = yaml_text.document(files.read(path, bytes_max=SMALL.bytes), SMALL)
        chosen = _named(document, "contexts", "context", context or document["current-context"])
        cluster = _named(document, "clusters", "cluster", chosen["cluster"])
        user = _named(document, "users", "user", chosen["user"])
        if not (cluster.keys() <= _CLUSTER and user.keys() <= _USER and _texts(cluster) and _texts(user)):
            return None
        server, base = cluster["server"].rstrip("/"), path.parent
        urlsplit(server)
        token = user.get("token")
        return Plain(
            server,
            _tls(cluster, user, base) if server.startswith("https") else None,
            cluster.get("tls-server-name"),
            cluster.get("proxy-url"),
            token,
            base / user["tokenFile"] if user.get("tokenFile") and not token else None,
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, UnreadableError):
        return None


def _named(document: Any, entries: str, key: str, name: str) -> dict[str, Any]:
    """The first entry of that name, as kubectl takes it."""
    found = next(each[key] for each in [*document[entries], {"name": name, key: None}] if each["name"] == name)
    if not isinstance(found, dict):
        raise TypeError(f"{entries}: {name}")
    return found


def _texts(entry: Mapping[str, Any]) -> bool:
    return all(
        isinstance(value, str) or key in {"insecure-skip-tls-verify", "disable-compression", "extensions"}
        for key, value in entry.items()
    )


def _tls(cluster: Mapping[str, Any], user: Mapping[str, Any], base: Path) -> ssl.SSLContext:
    with _file(cluster, "certificate-authority", base) as authority:
        tls = ssl.create_default_context(cafile=authority)
    with _file(user, "client-certificate", base) as certificate, _file(user, "client-key", base) as key:
        if certificate is not None:
            tls.load_cert_chain(certificate, keyfile=key)
    if cluster.get("insecure-skip-tls-verify"):
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    return tls


@contextlib.contextmanager
def _file(entry: Mapping[str, Any], key: str, base: Path) -> Iterator[str | None]:
    """A file with what `key`, or before it `key-data`, gives."""
    if data := entry.get(f"{key}-data"):
        with tempfile.NamedTemporaryFile() as file:  # only its owner can read it
            file.write(base64.b64decode(data, validate=True))
            file.flush()
            yield file.name
    else:
        yield str(base / entry[key]) if entry.get(key) else None
