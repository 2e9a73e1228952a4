"""Several jobs one after the other in one process group: starting one takes longer than any job."""

from __future__ import annotations

import sys
from pathlib import Path

import torch.distributed as dist

from workbench.parallel.exchange.files import Folder
from workbench.parallel.rank.program import join, leave, train


def main(root: Path) -> None:
    join()
    for job in sorted(root.glob("*/job.json")):
        train(Folder(job.parent))
    dist.destroy_process_group()
    leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
