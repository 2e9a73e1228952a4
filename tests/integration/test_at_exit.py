"""A script's exit status is its own, whatever still runs when it ends; and nothing stays behind."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager, start_new_kernel
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.fork_server import ForkServer
from tests.integration.cells import run
from tests.integration.scripts import DEADLINE_S, Scripts, environment
from tests.waiting import wait_until
from workbench.experiment.checkpoint.folder import found_in
from workbench.server.run_listing import read_run

BEGINNING = """
import os, sys, threading, time
from pathlib import Path
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
import workbench as wb

torch.set_num_threads(1)
g = torch.Generator().manual_seed(1)
x = torch.randn(256, 8, generator=g)
y = (x[:, 0] > 0).long()
folder = Path(sys.argv[1])

def made(data=(x, y), **settings):
    return wb.Experiment(nn.Linear(8, 2), data, batch_size=32, runs=folder, name="run", **settings)

def until(condition):
    while not condition():
        time.sleep(0.01)
"""


@pytest.fixture
def scripts(tmp_path: Path, fork_server: ForkServer) -> Scripts:
    return Scripts(tmp_path, fork_server, BEGINNING)


def steps_on_disk(tmp_path: Path, run: str = "run") -> list[int]:
    found = EventAccumulator(str(tmp_path / "runs" / run), size_guidance={"scalars": 0})
    found.Reload()
    return [event.step for event in found.Scalars("train/loss")]


def said_step(text: str) -> int:
    found = re.search(r"(?:run|other) was stopped at step ([\d,]+) because the program ended", text)
    assert found, text
    return int(found[1].replace(",", ""))


def test_a_script_may_end_while_a_run_trains(scripts: Scripts, tmp_path: Path) -> None:
    done = scripts.ended(
        """
        exp = made(val=(x, y))
        exp.run(epochs=1_000_000)
        until(lambda: exp.epoch > 3)
        """,
        forked=False,  # one of them starts as a person starts it
    )
    assert done.returncode == 0, done.stderr
    assert steps_on_disk(tmp_path) == list(range(1, said_step(done.stderr) + 1))
    assert "run.wait()" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("how", "status"), [("sys.exit(3)", 3), ("raise ValueError('mine')", 1), ("os._exit(4)", 4)]
)
def test_the_exit_status_is_the_scripts(scripts: Scripts, how: str, status: int) -> None:
    done = scripts.ended(
        f"""
        exp = made()
        exp.run(epochs=1_000_000)
        until(lambda: exp.step_count > 3)
        {how}
        """,
    )
    assert done.returncode == status, done.stderr


def test_every_step_is_on_disk_once_a_wait_or_close_returns(scripts: Scripts) -> None:
    done = scripts.ended(
        """
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        def steps(tag="train/loss"):
            found = EventAccumulator(str(exp.path))
            found.Reload()
            return len(found.Scalars(tag))

        exp = made(val=(x, y))
        exp.run(epochs=1, wait=True)
        print(steps())
        exp.run(epochs=2).wait()
        print(steps())
        exp.run(steps=5)
        until(lambda: exp.step_count > 24)
        exp.close()
        print(steps() == exp.step_count, steps("val/accuracy"))
        found = EventAccumulator(str(exp.path))
        found.Reload()
        print(*(event.step for event in found.Images("val/confusion_matrix")[-1:]))
        print([t.name for t in threading.enumerate() if t.name.startswith("workbench-w")])
        """,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["8", "24", "True 3", "24", "[]"]


def test_a_thread_of_the_scripts_own_may_wait_for_a_run_and_use_what_it_trained(
    scripts: Scripts,
) -> None:
    done = scripts.ended(
        """
        exp = made()

        def train_and_save():
            exp.run(epochs=3, wait=True)
            print(exp.status, exp.step_count)

        threading.Thread(target=train_and_save).start()
        """,
    )
    assert (done.returncode, done.stdout) == (0, "finished 24\n"), done.stderr


def test_workers_of_a_loader_end_with_the_script(scripts: Scripts) -> None:
    done = scripts.ended(
        """
        loader = DataLoader(TensorDataset(x, y), batch_size=32, num_workers=2)
        exp = made(loader)
        exp.run(epochs=1_000_000)
        until(lambda: exp.step_count > 20)
        import psutil

        def workers():  # of the epoch that is under way: between two epochs there are none
            global found
            found = [child.pid for child in psutil.Process().children(recursive=True)]
            return len(found) >= 2

        until(workers)
        print(*found)
        """,
    )
    assert done.returncode == 0, done.stderr
    pids = [int(pid) for pid in done.stdout.split()]
    assert len(pids) >= 2
    wait_until(lambda: not any(map(psutil.pid_exists, pids)), "the end of the workers")


SLOW_CAPTURE = """
        from workbench.experiment import StepProbe
        exp.run(epochs=1, wait=True)
        computed = []
        def slow(module, inputs):
            computed.append(1)
            time.sleep(2)
        exp.model.register_forward_pre_hook(slow)
        exp.capture(StepProbe())
        exp.compute_captures()
"""


@pytest.mark.parametrize("work", ["compile", "ahead", "ddp:2", "capture"])
def test_whatever_is_under_way_ends_with_the_script(scripts: Scripts, work: str) -> None:
    begin = {
        "compile": "exp.modes = 'compile'; exp.run(epochs=1_000_000)",
        "ahead": "exp.run(epochs=1_000_000); wb.compile_ahead(exp)",
        "ddp:2": "exp.modes = 'ddp:2'; exp.run(epochs=1_000_000)",
        "capture": SLOW_CAPTURE,
    }[work]
    seen = {
        "compile": "'compiling' in exp.message",
        "ahead": "len(children()) > 0",
        "ddp:2": "exp.step_count > 3",
        "capture": "computed",
    }[work]
    done = scripts.ended(
        f"""
        import psutil
        children = lambda: psutil.Process().children(recursive=True)
        exp = made()
        {begin}
        until(lambda: {seen})
        print(*(child.pid for child in children()))
        """,
    )
    assert done.returncode == 0, done.stderr
    pids = [int(pid) for pid in done.stdout.split()]
    assert pids or work in ("compile", "capture")
    wait_until(lambda: not any(map(psutil.pid_exists, pids)), "the end of the child processes")


STUCK = """
class Stuck(nn.Linear):
    def forward(self, x):
        if exp.step_count > 3:
            stuck.append(exp.step_count + 1)
            while not Path(folder, "go").exists():
                time.sleep(0.01)
        return super().forward(x)

stuck = []
exp = wb.Experiment(Stuck(8, 2), (x, y), batch_size=32, runs=folder, name="run")
exp.run(epochs=1_000_000)
until(lambda: stuck)
"""


def test_the_step_under_way_is_waited_for_and_said_so(scripts: Scripts, tmp_path: Path) -> None:
    with scripts.running(STUCK) as (process, stderr):
        assert "waiting for step 5 of run to end" in stderr.readline()
        assert process.poll() is None
        (tmp_path / "runs" / "go").touch()
        assert said_step(stderr.read()) == 5
        assert process.wait(DEADLINE_S) == 0


def test_an_interrupt_ends_without_the_step_under_way(scripts: Scripts) -> None:
    with scripts.running(STUCK) as (process, stderr):
        assert "an interrupt ends without it" in stderr.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == 128 + signal.SIGINT
        assert "terminate called" not in stderr.read()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no fork")
def test_a_fork_ends_without_the_threads_it_does_not_have(scripts: Scripts) -> None:
    done = scripts.ended(
        """
        exp = made()
        exp.run(epochs=1_000_000)
        until(lambda: exp.step_count > 3)
        child = os.fork()
        if child == 0:
            sys.exit(5)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """,
    )
    assert (done.returncode, done.stdout) == (0, "5\n"), done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no fork")
def test_a_fork_ends_what_it_begins_and_writes_nothing_of_its_parents(
    scripts: Scripts, tmp_path: Path
) -> None:
    """As a process of `multiprocessing` does that trains and returns."""
    done = scripts.ended(
        """
        import multiprocessing

        def other():
            exp = wb.Experiment(nn.Linear(8, 2), (x, y), batch_size=32, runs=folder, name="other")
            exp.run(epochs=1_000_000)
            until(lambda: exp.epoch > 3)

        exp = made()
        exp.run(epochs=1_000_000)
        until(lambda: exp.epoch > 3)
        for target in (other, lambda: None):
            child = multiprocessing.get_context("fork").Process(target=target)
            child.start()
            child.join()
            print(child.exitcode)
        """,
    )
    assert (done.returncode, done.stdout) == (0, "0\n0\n"), done.stderr
    other, mine = map(said_step, done.stderr.strip().splitlines())
    assert steps_on_disk(tmp_path) == list(range(1, mine + 1)), "each of them once"
    assert steps_on_disk(tmp_path, "other") == list(range(1, other + 1))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no fork")
@pytest.mark.parametrize("thread", ["", "threading.Thread(target=lambda: until(ended)).start()"])
def test_a_process_without_atexit_writes_what_a_slow_disk_has_not_taken_yet(
    scripts: Scripts, tmp_path: Path, thread: str
) -> None:
    """One of `multiprocessing`, whether or not a thread of its own waits for the run."""
    epochs = 30 if thread else 1_000_000
    done = scripts.ended(
        f"""
        import multiprocessing
        from workbench.metrics.event_file import EventFile

        write = EventFile.append

        def later(self, records):
            time.sleep(1)
            write(self, records)

        def other():
            exp = made()
            EventFile.append = later
            exp.run(epochs={epochs})
            until(lambda: exp.epoch > 3)
            ended = lambda: exp.status == "finished"
            {thread}

        child = multiprocessing.get_context("fork").Process(target=other)
        child.start()
        child.join()
        print(child.exitcode)
        """,
    )
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr
    steps = 8 * epochs if thread else said_step(done.stderr)
    assert steps_on_disk(tmp_path) == list(range(1, steps + 1))


def test_a_process_that_starts_no_thread_any_more_writes_all_the_same(
    scripts: Scripts, tmp_path: Path
) -> None:
    """Python 3.12 and newer refuse threads while they end; older ones are made to."""
    done = scripts.ended(
        """
        import atexit
        from workbench.metrics.writer import EventWriter

        exp = made(val=(x, y))
        exp.run(epochs=1_000_000)
        until(lambda: exp.epoch > 2)

        def refuse(thread):
            raise RuntimeError("can't create new thread at interpreter shutdown")

        def at_exit():
            threading.Thread.start = refuse

        threading._register_atexit(at_exit)
        """,
    )
    assert done.returncode == 0, done.stderr
    assert steps_on_disk(tmp_path) == list(range(1, said_step(done.stderr) + 1))
    assert found_in(tmp_path / "runs" / "run" / "checkpoints")


def test_a_run_that_begins_as_the_process_ends_is_ended_too(
    scripts: Scripts, tmp_path: Path
) -> None:
    """Its first thread has begun, and gets no second one (Python >= 3.12)."""
    done = scripts.ended(
        """
        exp = made()
        start = threading.Thread.start

        def refuse(thread):
            if thread.name != "workbench-runner":
                raise RuntimeError("can't create new thread at interpreter shutdown")
            start(thread)

        threading.Thread.start = refuse
        exp.run(epochs=1_000_000)
        until(lambda: exp.step_count > 3)
        """,
    )
    assert done.returncode == 0, done.stderr
    assert steps_on_disk(tmp_path) == list(range(1, said_step(done.stderr) + 1))


def test_a_run_whose_thread_cannot_be_started_is_refused_and_nothing_waits_for_it(
    scripts: Scripts,
) -> None:
    done = scripts.ended(
        """
        exp = made()
        start = threading.Thread.start

        def refuse(thread):
            if thread.name == "workbench-runner":
                raise RuntimeError("can't start new thread")
            start(thread)

        threading.Thread.start = refuse
        try:
            exp.run(epochs=1)
        except RuntimeError as error:
            print(error)
        print(exp.status)
        threading.Thread.start = start
        exp.run(epochs=1, wait=True)
        print(exp.status)
        threading.Thread.start = refuse
        """,
    )
    assert done.returncode == 0, done.stderr
    said, *statuses = done.stdout.splitlines()
    assert "no thread can be started" in said
    assert statuses == ["idle", "finished"]


def test_no_run_begins_once_the_program_ends(scripts: Scripts) -> None:
    """A daemon thread that runs one epoch after the other would keep the program going."""
    done = scripts.ended(
        """
        exps = [made(), wb.Experiment(nn.Linear(8, 2), (x, y), batch_size=1, runs=folder)]
        refused = []

        def train():
            try:
                for _ in range(100_000):
                    exps[0].run(epochs=1, wait=True)
            except RuntimeError as error:
                refused.append(str(error))

        threading.Thread(target=train, daemon=True).start()
        exps[1].run(epochs=100_000)
        until(lambda: all(exp.step_count > 20 for exp in exps))

        import atexit

        @atexit.register
        def say():
            until(lambda: refused)
            print(*refused)
        """,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "the program ends: no run begins any more\n", done.stderr


def test_data_that_is_read_by_an_executor_is_read_until_the_run_has_ended(
    scripts: Scripts, tmp_path: Path
) -> None:
    done = scripts.ended(
        """
        from concurrent.futures import ThreadPoolExecutor
        pool = ThreadPoolExecutor(1)
        pool.submit(int).result()

        class Data(torch.utils.data.Dataset):
            def __len__(self):
                return 256

            def __getitem__(self, i):
                return pool.submit(lambda: x[i]).result(), y[i]

        exp = made(Data())
        exp.run(epochs=1_000_000)
        until(lambda: exp.step_count > 3)
        """,
    )
    assert done.returncode == 0, done.stderr
    assert steps_on_disk(tmp_path) == list(range(1, said_step(done.stderr) + 1))
    assert len(done.stderr.strip().splitlines()) == 1


def test_an_impatient_interrupt_leaves_no_ranks(scripts: Scripts) -> None:
    with scripts.running(
        """
        exp = made(modes="ddp:2")
        exp.run(epochs=1_000_000)
        until(lambda: exp.step_count > 3)
        import psutil, signal
        from workbench.experiment.runtime import at_exit
        for child in psutil.Process().children(recursive=True):
            print(child.pid, file=sys.stderr, flush=True)
        # as soon as the end has begun
        interrupt = lambda: os.kill(os.getpid(), signal.SIGINT)
        at_exit.register(at_exit.Phase.PREPARATIONS, interrupt)
        """,
    ) as (process, stderr):
        assert process.wait(DEADLINE_S) == 128 + signal.SIGINT
        pids = [int(line) for line in stderr.read().split() if line.isdigit()]
        assert len(pids) >= 3
        wait_until(lambda: not any(map(psutil.pid_exists, pids)), "the end of the ranks")


@contextmanager
def kernel_with_loader_workers(
    tmp_path: Path, *, persistent: bool
) -> Generator[tuple[KernelManager, BlockingKernelClient]]:
    """A kernel whose run trains from a loader with two worker processes."""
    manager, client = start_new_kernel(extra_arguments=[], env=environment())
    try:
        loader = f"""DataLoader(
            TensorDataset(x, y), 32, shuffle=True, num_workers=2, persistent_workers={persistent}
        )"""
        run(client, f"import sys; sys.argv = ['kernel', {str(tmp_path / 'runs')!r}]\n{BEGINNING}")
        run(client, f"exp = wb.Experiment(nn.Linear(8, 2), {loader}, runs=folder, name='run')")
        run(client, "run = exp.run(epochs=1_000_000); until(lambda: exp.step_count > 10)")
        yield manager, client
    finally:
        client.shutdown()
        manager.finish_shutdown()
        client.stop_channels()
        manager.cleanup_resources()


@pytest.mark.parametrize("persistent", [True, False])
def test_a_run_whose_loader_has_workers_ends_with_its_kernel_and_not_in_a_fault(
    tmp_path: Path, persistent: bool
) -> None:
    """A kernel that is shut down ends its child processes first, and the fetch of a batch fails."""
    with kernel_with_loader_workers(tmp_path, persistent=persistent):
        pass
    assert read_run(tmp_path / "runs" / "run", tmp_path).status in {"stopped", "interrupted"}


def test_an_interrupt_of_a_cell_leaves_loader_workers_to_the_run_beside_it(tmp_path: Path) -> None:
    """Jupyter interrupts every process of the kernel's group, not the kernel alone."""
    with kernel_with_loader_workers(tmp_path, persistent=True) as (manager, client):
        message = client.execute("print('begun'); until(lambda: False)")
        while (told := client.get_iopub_msg(timeout=DEADLINE_S))["msg_type"] != "stream":
            assert told["msg_type"] != "error", told
        manager.interrupt_kernel()
        while (reply := client.get_shell_msg(timeout=DEADLINE_S)) and (
            reply["parent_header"]["msg_id"] != message
        ):
            pass
        assert reply["content"]["ename"] == "KeyboardInterrupt"
        run(client, "here = exp.step_count")
        # further than what its workers had fetched before
        run(client, "until(lambda: exp.step_count > here + 50 or exp.status != 'training')")
        assert run(client, "print(exp.status, exp.failure)") == "training None\n"
