"""Read a snapshot file in a process of its own; the result is columns of numbers.

A pickle is a program. This one may build dictionaries, lists, tuples, strings and numbers and
nothing else: looking up any name, any extension code and any persistent object is refused, so
nothing in the file is ever called. It is built on the interpreter's own unpickler in C, because one
in Python takes ten times as long. What remains is a file that requests too many resources: a memo
of two billion entries, lists nested a million deep, dictionaries whose keys collide. Limits on
memory, CPU time and output end it, and with it only this process, which owns nothing: it has the
file on stdin, a file of limited size for stdout, and no other handle.

Runs under ``-I -S`` (no environment, no site packages) and so on the standard library alone.
Windows has no such limits, and macOS none on memory; there the caller's wall-clock limit ends a
file that requests too much.

Output: ``MAGIC``, the length of a JSON header, the header, then the columns it names, widest items
first so that each is aligned.
"""

from __future__ import annotations

import gc
import json
import os
import pickle
import sys
from contextlib import suppress
from io import BufferedReader, FileIO
from pathlib import Path
from typing import Any, BinaryIO

from workbench.allocator.snapshot.columns import Columns, columns_of
from workbench.allocator.snapshot.plain import RefusedError

MAGIC = b"WBALLOC1"
REFUSED = 3
"""Exit status if the file is not a snapshot; stderr says why."""
FAILED = 4
"""Exit status if it may be one, but the system prevented reading it; stderr says why."""
_BUFFER_BYTES = 1 << 16


class PlainUnpickler(pickle.Unpickler):
    """An unpickler that can only build plain containers, strings and numbers."""

    def find_class(self, module: Any, name: Any) -> Any:
        """Refuse every global."""
        raise RefusedError(f"it asks for the Python object {_short(module)}.{_short(name)}")

    def persistent_load(self, pid: Any) -> Any:
        """Refuse every persistent object."""
        raise RefusedError(f"it asks for a persistent object, named by a {type(pid).__name__}")


def load(stream: BinaryIO) -> Any:
    """Return the plain data in ``stream``.

    Raises:
        RefusedError: the pickle needs more than plain data, or is not a pickle.
        MemoryError: it needs more memory than this process may have.
    """
    try:
        return PlainUnpickler(stream).load()
    except (RefusedError, MemoryError, RecursionError):
        raise
    except Exception as error:  # noqa: BLE001 - a hostile pickle may raise anything at all
        raise RefusedError(
            f"it is no complete pickle ({type(error).__name__}: {str(error)[:100]})"
        ) from None


def limit(memory: int, seconds: int, output: int) -> None:
    """Limit what this process may use from now on; memory and output in bytes."""
    with suppress(OSError), Path("/proc/self/oom_score_adj").open("w") as score:
        score.write("1000")  # if memory still runs out, Linux ends this process first
    try:
        import resource
    except ImportError:  # Windows
        return
    bounds = {"AS": memory, "CPU": seconds, "FSIZE": output, "CORE": 0, "NPROC": 0}
    for name, bound in bounds.items():
        kind = getattr(resource, f"RLIMIT_{name}", None)
        if kind is not None:
            _, hard = resource.getrlimit(kind)
            if hard != resource.RLIM_INFINITY:
                bound = min(bound, hard)  # noqa: PLW2901 - a stricter limit stays
            # one second more before the end by force, so that the caller can determine the reason
            later = bound + 1 if name == "CPU" and hard == resource.RLIM_INFINITY else bound
            with suppress(ValueError):  # macOS maps more than this before a program begins
                resource.setrlimit(kind, (bound, later))


def write(columns: Columns, out: BinaryIO) -> None:
    """Write header and columns; see the module."""
    arrays = dict(sorted(columns.arrays.items(), key=lambda item: -item[1].itemsize))
    header = {
        "device": columns.device,
        "other_devices": columns.other_devices,
        "settings": columns.settings,
        "num_unknown": columns.num_unknown,
        "pools": columns.pools,
        "strings": columns.strings,
        "columns": {name: (array.typecode, len(array)) for name, array in arrays.items()},
    }
    text = json.dumps(header).encode("ascii")
    text += b" " * (-len(text) % 8)
    out.write(MAGIC + len(text).to_bytes(8, "little") + text)
    for column in arrays.values():
        out.write(memoryview(column))
    out.flush()


def main(arguments: list[str]) -> int:
    """Read stdin, write stdout; return 0, or `REFUSED` or `FAILED` with a reason on stderr.

    Args:
        arguments: device index or -1, size of the file in bytes, then the arguments of `limit`.
    """
    device, size, *bounds = map(int, arguments)
    limit(*bounds)
    # Nothing here is garbage before the end, and searching for some costs more than the reading.
    gc.disable()
    status = REFUSED
    try:
        with BufferedReader(FileIO(sys.stdin.fileno(), closefd=False), _BUFFER_BYTES) as stream:
            snapshot = load(stream)
        write(columns_of(snapshot, None if device < 0 else device, size), sys.stdout.buffer)
    except RefusedError as error:
        reason = str(error)
    except RecursionError:
        reason = "it is nested too deeply to be read"
    except MemoryError:
        reason = "it needs more memory than a snapshot of its size can"
    except OSError as error:
        status, reason = FAILED, f"its columns cannot be written ({error.strerror})"
    else:
        return 0
    sys.stderr.buffer.write(reason[:400].encode("ascii", "backslashreplace"))
    sys.stderr.buffer.flush()
    return status


def run() -> None:
    """Run `main` and exit without freeing a million dictionaries one by one."""
    os._exit(main(sys.argv[1:]))


def _short(name: Any) -> str:
    return name[:80] if isinstance(name, str) else type(name).__name__
