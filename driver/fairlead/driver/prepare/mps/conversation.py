"""Runs a short command: its standard input given, its output and time bounded."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import time
from collections.abc import Mapping, Sequence

OUTPUT_BYTES_MAX = 64 * 1024


def converse(
    command: Sequence[str], text: bytes, *, environment: Mapping[str, str], timeout_s: float
) -> tuple[int, bytes]:
    """Exit status and output (with the errors). Raises OSError, TimeoutError when it does not end in time.

    A command that writes more than `OUTPUT_BYTES_MAX` is killed, and what it wrote is the output.
    """
    until = time.monotonic() + timeout_s
    with subprocess.Popen(  # noqa: S603 - a fixed program, its input our own
        command, env=dict(environment), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(text)
                process.stdin.flush()
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            output = _output(process.stdout.fileno(), until)
            if len(output) > OUTPUT_BYTES_MAX:
                process.kill()
            return process.wait(max(0.1, until - time.monotonic())), output
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(f"no answer within {timeout_s:g} s") from error
        except TimeoutError as error:
            raise TimeoutError(f"no answer within {timeout_s:g} s") from error
        finally:
            process.kill()


def _output(descriptor: int, until: float) -> bytes:
    """Until its end, or a little more than the limit. Raises TimeoutError."""
    output, poll = b"", select.poll()  # select() takes no descriptor above 1023
    poll.register(descriptor, select.POLLIN)
    while len(output) <= OUTPUT_BYTES_MAX:
        if not poll.poll(max(0.0, until - time.monotonic()) * 1000):
            raise TimeoutError
        part = os.read(descriptor, 65536)
        if not part:
            break
        output += part
    return output
