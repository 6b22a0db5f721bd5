"""What a `Transport` needs of the way to an apiserver: one request, one answer. `http_wire` is the way over HTTP."""

from collections.abc import AsyncIterator, Mapping
from typing import Final, Protocol

from fairlead.kube.exchange import Answer

CONNECTIONS: Final = 100
"""Most of one way to one apiserver."""
CLOSE_S: Final = 2.0
"""Most that closing waits for sockets; those of TLS close some turns of the loop after their connection."""


class Streamed(Protocol):
    """An answer whose body is read as it arrives. Reading raises ExchangeError, TimeoutError and OSError. To be closed by `aclose`."""

    status: int
    retry_after: str | None

    def chunks(self) -> AsyncIterator[bytes]: ...
    async def read(self) -> bytes: ...
    async def aclose(self) -> None: ...


class Wire(Protocol):
    """One user agent's way to one apiserver. Paths are quoted, and begin with a slash."""

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes | None,
        timeout_s: float,
    ) -> Answer:
        """Raises ExchangeError, TimeoutError and OSError."""
        ...

    async def open(
        self, path: str, *, params: Mapping[str, str], headers: Mapping[str, str], silence_max_s: float
    ) -> Streamed:
        """A GET. Raises ExchangeError, TimeoutError and OSError; so does reading, also after a silence of `silence_max_s`."""
        ...

    async def close(self) -> None: ...
