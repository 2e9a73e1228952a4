"""Lists runs in a process of its own: ``python -m workbench.server.listing_program ROOT``.

A folder may contain anything: large files, slow disks and mounts that do not answer block this
process, but neither the server nor its other requests; the process can be ended and started again.

A request is a line of JSON on stdin, ``{"folder"}``; the answer is a line, ``{"kind": "runs",
"bytes"}``, followed by that many bytes of JSON: ``{"runs", "truncated", "deleted"}``. The process
ends when stdin is closed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from workbench.records import to_json
from workbench.server.run_listing import Lister


def main(root: Path) -> None:
    """Answer requests until stdin is closed."""
    lister = Lister()
    for line in sys.stdin:
        runs, truncated, deleted = lister.list(Path(json.loads(line)["folder"]), root)
        answer = {
            "runs": [to_json(run) for run in runs],
            "truncated": truncated,
            "deleted": [str(path) for path in deleted],
        }
        data = json.dumps(answer).encode()
        sys.stdout.buffer.write(json.dumps({"kind": "runs", "bytes": len(data)}).encode() + b"\n")
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
