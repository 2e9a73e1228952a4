"""Another user of the machine, who may write to a folder above the runs, and what he gets by it."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import torch

import workbench as wb
from tests.fork_server import ForkServer
from tests.integration.parallel.support import Net, losses, made
from tests.integration.parallel.test_attach import as_if_it_had_stayed, script
from tests.integration.parallel.test_experiment import under_way
from tests.integration.scripts import environment
from tests.strangers import (
    STRANGER,
    as_stranger,
    begin_as_stranger,
    needs_a_stranger,
    shared_folder,
)
from tests.waiting import wait_until
from workbench.experiment import Experiment, RunError
from workbench.parallel.attach import _take_seal
from workbench.parallel.exchange.files import Folder, Job
from workbench.server.run_listing import Lister
from workbench.trust import NotAFileError, Seal, SealError, open_beneath, seal

pytestmark = needs_a_stranger

RUN = """
top, marker = sys.argv[1:3]
run = os.path.join(top, "runs", sys.argv[3])
session = os.path.join(run, "parallel", "1")
os.makedirs(os.path.join(session, "last"))
os.makedirs(os.path.join(session, "start"))
os.makedirs(os.path.join(run, "checkpoints"))
seal = b"workbench.sealed/1 " + b"0" * 64 + b"\\n"
program = pickle.dumps(Program(marker))
for name in ("payload.pkl", "last/rest.pt", "last/.metadata", "start/rest.pt", "start/.metadata"):
    with open(os.path.join(session, name), "wb") as file:
        file.write((b"" if "metadata" in name else seal) + program)
with open(os.path.join(session, "job.json"), "wb") as file:
    file.write(seal + b'{"layout": "ddp:2", "until_step": 5, "until_epoch": null, "session": ""}')
with open(os.path.join(session, "launcher.json"), "wb") as file:
    file.write(seal + b'{"pid": %d, "created": 0.0, "host": "%s", "ranks": 2, "meeting": ""}'
               % (os.getppid(), os.uname().nodename.encode()))
with open(os.path.join(run, "run.json"), "w") as file:
    file.write('{"status": "training", "created_at": 0, "process": {"pid": 4000000, "host": "%s"}}'
               % os.uname().nodename)
with open(os.path.join(session, "events.jsonl"), "w") as file:
    for line in ('{"type":"saved","step":7}', '{"type":"end","how":"finished"}'):
        file.write(line + "\\n")
open(os.path.join(session, "control.jsonl"), "w").close()
"""
"""A run directory that runs ``marker`` wherever something of it is unpickled."""


@pytest.fixture
def project() -> Iterator[Path]:
    """A folder that all users may write to, without the sticky bit."""
    with shared_folder(0o777) as path:
        yield path


@pytest.mark.usefixtures("forked_ranks")
def test_a_run_that_is_under_way_is_not_led_to_what_he_put_there(project: Path) -> None:
    """He moves ``runs`` and has one of his own in its place: it was unpickled in the kernel."""
    marker, mine = project / "he-ran-it", project / "precious"
    mine.write_text("mine")
    experiment = made(project / "runs", Net, modes="ddp:2", name="run")
    run = under_way(experiment)
    as_stranger(
        "os.rename(sys.argv[1] + '/runs', sys.argv[1] + '/old')\n"
        + RUN
        + "os.symlink(sys.argv[4], run + '/.run.json.%d' % os.getppid())\n"
        + "os.symlink(sys.argv[4], run + '/checkpoints/last.tmp')\n",
        project, marker, "run", mine,
    )  # fmt: skip
    reached = experiment.step_count
    wait_until(lambda: experiment.step_count > reached + 20, "steps after it")
    run.pause()
    experiment.wait(120)
    assert experiment.status == "paused"
    assert not marker.exists()
    steps = experiment.step_count
    stayed = made(project / "stayed", Net)
    stayed.run(steps=steps, wait=True)
    torch.testing.assert_close(losses(experiment), losses(stayed), rtol=1e-4, atol=1e-5)
    assert len(losses(experiment)) == steps, "no step is lost"
    experiment.modes = ""
    experiment.run(steps=2, wait=True)
    experiment.close()
    assert not marker.exists()
    assert mine.read_text() == "mine"


def test_his_run_is_not_attached_to_and_the_sentence_says_whose_it_is(project: Path) -> None:
    as_stranger(RUN, project, project / "he-ran-it", "run")
    with pytest.raises(PermissionError, match=f"it belongs to user {STRANGER}") as error:
        wb.attach(project / "runs" / "run")
    assert "does not have your seal" in str(error.value)
    assert "wb.attach(run, trust=True)" in str(error.value)
    assert not (project / "he-ran-it").exists()
    with contextlib.suppress(Exception):  # whatever comes of what he wrote: it was trusted
        wb.attach(project / "runs" / "run", trust=True)
    assert (project / "he-ran-it").exists(), "or this test shows nothing"


@pytest.fixture(scope="module")
def left_behind(fork_server: ForkServer) -> Iterator[Path]:
    """A run whose kernel was killed, and whose ranks have trained 60 steps and ended since."""
    with shared_folder(0o755) as folder:
        go_on, log = folder / "go-on", folder / "kernel.log"
        begun = fork_server.script(
            script(folder), str(folder / "runs"), "40", "die", str(go_on),
            env=environment(), stdout=log, stderr=log,
        )  # fmt: skip
        assert begun.wait(300) == -signal.SIGKILL, log.read_text()
        go_on.touch()
        session = folder / "runs" / "run" / "parallel" / "1"
        launcher = Seal.unchecked().read_json(session / "launcher.json", "")["pid"]
        wait_until(lambda: not psutil.pid_exists(launcher), "the end")
        yield folder / "runs" / "run"


def test_a_run_from_a_colleague_is_attached_to_once_it_is_trusted(
    left_behind: Path, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = project / "copied" / "run"
    shutil.copytree(left_behind, copied)
    for path in (copied, *copied.rglob("*")):
        os.chown(path, STRANGER, STRANGER)
    mine = Folder(copied / "parallel" / "1")
    _take_seal(mine, trust=False)  # as on a mount that knows no owners: the seal is mine
    assert mine.seal.checks
    monkeypatch.setattr(seal._keys, "_of_user", b"another user's key, of 32 bytes.")
    with pytest.raises(PermissionError, match="does not have your seal"):
        wb.attach(copied)
    unpacked = tmp_path / "run"  # as of an archive: whoever unpacks it owns it
    shutil.copytree(copied, unpacked)
    with pytest.raises(PermissionError, match=r"does not have your seal.* unpacked or copied"):
        wb.attach(unpacked)
    experiment = wb.attach(copied, trust=True)
    experiment.wait(120)
    assert (experiment.status, experiment.step_count) == ("finished", 60)
    torch.testing.assert_close(
        losses(experiment), as_if_it_had_stayed(project, 60), rtol=1e-5, atol=1e-6
    )
    experiment.close()


@pytest.mark.parametrize("umask", [0o002, 0o022, 0o077])
def test_without_a_key_that_was_kept_ones_own_folder_is_trusted(
    umask: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container whose home cannot be written to: the key ended with its kernel."""
    monkeypatch.setattr(seal._keys, "_of_user", seal._keys._own)
    before = os.umask(umask)
    try:
        path = tmp_path / "1"
        path.mkdir(mode=0o700)
        folder = Folder(path, Seal(b"x" * 32, "a session"))
        folder.write_job(Job("ddp:2", 5, None))
        gone = {"pid": 1 << 22, "created": 0.0, "host": platform.node(), "ranks": 2, "meeting": ""}
        folder.seal.write_json(folder.launcher, gone, "launcher")
        (path / "start").mkdir()
        (path / "start" / "rest.pt").touch()
    finally:
        os.umask(before)
    found = Folder(path)
    _take_seal(found, trust=False)
    assert found.read_job() == Job("ddp:2", 5, None)
    os.chown(path / "start" / "rest.pt", STRANGER, STRANGER)
    with pytest.raises(PermissionError, match=f"user {STRANGER} may write to"):
        _take_seal(Folder(path), trust=False)


SWAP = """
path, genuine, secret, marker = sys.argv[1:5]
program = pickle.dumps(Program(marker))
folder = os.path.dirname(path)
def put(number, data):
    draft = os.path.join(folder, "draft%d" % number)
    with open(draft, "wb") as file:
        file.write(data)
    return draft
print("begun", flush=True)
data = open(genuine, "rb").read()
while True:
    for number in range(5):
        draft = os.path.join(folder, "draft")
        if os.path.lexists(draft):
            os.unlink(draft)
        if number == 0:
            os.rename(put(0, data), draft)
        elif number == 1:
            os.rename(put(1, program), draft)
        elif number == 2:
            os.symlink(secret, draft)
        elif number == 3:
            os.mkfifo(draft)
        else:
            os.rename(put(4, data[:84] + program), draft)
        os.rename(draft, path)
"""


@pytest.mark.parametrize("tries", [2_000, pytest.param(100_000, marks=pytest.mark.fuzz)])
def test_what_is_swapped_between_looks_is_never_taken(tries: int, project: Path) -> None:
    """He puts a file of his, a link and a pipe in its place, over and over."""
    genuine, secret = project / "genuine", project / "secret"
    one = Seal.new()
    one.write(genuine, b"genuine", "payload")
    secret.write_bytes(b"secret")
    secret.chmod(0o600)
    theirs = project / "theirs"
    theirs.mkdir()
    theirs.chmod(0o777)
    path, found = theirs / "it", dict[str, int]()
    with begin_as_stranger(SWAP, path, genuine, secret, project / "he-ran-it") as swaps:
        try:
            assert swaps.stdout is not None
            assert swaps.stdout.readline() == "begun\n"
            wait_until(lambda: os.path.lexists(path), "the first of them")
            for _ in range(tries):
                try:
                    assert one.read(path, "payload") == b"genuine"
                    what = "genuine"
                except (SealError, NotAFileError) as error:
                    what = type(error).__name__
                found[what] = found.get(what, 0) + 1
                with contextlib.suppress(NotAFileError), open_beneath(project, path) as stream:
                    assert stream.read() != b"secret"
        finally:
            swaps.kill()
    assert not (project / "he-ran-it").exists()
    print(f"{tries:,} tries: {found}")
    assert set(found) == {"genuine", "SealError", "NotAFileError"}, "all of them were met"


EVERYTHING = """
run, secret, marker, seed, *more = sys.argv[1:]
chance = random.Random(int(seed))
program = pickle.dumps(Program(marker))
spare = os.path.join(os.path.dirname(run), "spare")
os.makedirs(spare, exist_ok=True)
print("begun", flush=True)
done = 0
while not os.path.exists(os.path.join(spare, "stop")):
    known = ["run.json", "parallel", "checkpoints", "records", "events.out.tfevents.9.h.1.0"]
    for name in {*os.listdir(run), *known, *more}:
        path, kept = os.path.join(run, name), os.path.join(spare, "%d" % (done % 1_000))
        what = chance.randrange(6)
        try:
            if what == 0:
                with open(path, "r+b") as file:
                    file.truncate(chance.randrange(200))
            elif os.path.lexists(path):
                os.rename(path, kept)
            if what == 2:
                os.symlink(secret, path)
            elif what == 3:
                os.mkfifo(path)
            elif what == 4:
                with open(path, "wb") as file:
                    file.write(b"x" * 84 * chance.randrange(2) + program)
            elif what == 5:
                os.makedirs(os.path.join(path, "1", "last"))
                with open(os.path.join(path, "1", "last", "rest.pt"), "wb") as file:
                    file.write(program)
            done += 1
        except OSError:
            done += 1
print(done, flush=True)
"""
"""Whatever he can do to what is in a folder that he may write to, until he is told to stop."""


@pytest.mark.usefixtures("forked_ranks")
@pytest.mark.parametrize("steps", [60, pytest.param(5_000, marks=pytest.mark.fuzz)])
def test_a_run_survives_whatever_is_done_to_its_folder(steps: int, project: Path) -> None:
    """He may write to the run directory, and does, while it trains on ranks and is listed."""
    marker, secret = project / "he-ran-it", project / "secret"
    secret.write_bytes(b"mine")
    experiment = made(project / "runs", Net, modes="ddp:2", name="run")
    run, lister = under_way(experiment), Lister()
    experiment.path.chmod(0o777)
    (project / "runs").chmod(0o777)
    for path in experiment.path.iterdir():
        if path.name != "parallel":
            path.chmod(0o777)
    with begin_as_stranger(EVERYTHING, experiment.path, secret, marker, 7) as attack:
        assert attack.stdout is not None
        assert attack.stdout.readline() == "begun\n"
        reached, listed = experiment.step_count, list[str]()

        def has_gone_on() -> bool:
            listed.extend(one.status for one in lister.list(project / "runs", project).runs)
            return experiment.step_count > reached + steps

        wait_until(has_gone_on, "steps under attack")
        (project / "runs" / "spare" / "stop").touch()
        done = int(attack.stdout.readline())
    run.pause()
    experiment.wait(120)
    assert experiment.status == "paused", experiment.failure
    assert not marker.exists()
    assert secret.read_bytes() == b"mine"
    total = experiment.step_count
    stayed = made(project / "stayed", Net)
    stayed.run(steps=total, wait=True)
    torch.testing.assert_close(losses(experiment), losses(stayed), rtol=1e-4, atol=1e-5)
    assert len(losses(experiment)) == total, "no step is lost"
    experiment.close()
    print(f"{done:,} attacks in {total - reached} steps, {len(listed):,} listings")
    assert done > 100


@pytest.mark.parametrize("tries", [30, pytest.param(2_000, marks=pytest.mark.fuzz)])
def test_attaching_to_what_he_changes_meanwhile_runs_nothing_of_his(
    tries: int, left_behind: Path, project: Path
) -> None:
    """Every file of the run is cut, linked, swapped and moved while it is attached to."""
    marker, secret = project / "he-ran-it", project / "secret"
    secret.write_bytes(b"mine")
    run, spare = project / "runs" / "run", project / "whole"
    shutil.copytree(left_behind, spare)
    inside = [str(one.relative_to(spare)) for one in spare.rglob("*") if one.is_file()]

    def whole() -> None:
        shutil.rmtree(project / "runs", ignore_errors=True)
        shutil.copytree(spare, run)
        for folder in (project / "runs", run, *(one for one in run.rglob("*") if one.is_dir())):
            folder.chmod(0o777)

    def weights(experiment: Experiment) -> list[torch.Tensor] | None:
        with contextlib.suppress(RunError):
            experiment.wait(120)
        experiment.close()
        trained = list(experiment.model.state_dict().values())
        return trained if experiment.status == "finished" else None

    whole()
    expected = weights(wb.attach(run))
    assert expected is not None, "it is attached to where nobody disturbs it"
    met = dict[str, int]()
    for number in range(tries):
        whole()
        with begin_as_stranger(EVERYTHING, run, secret, marker, number, *inside) as attack:
            try:
                assert attack.stdout is not None
                assert attack.stdout.readline() == "begun\n"
                found = weights(wb.attach(run))
                what = "as it was written" if found else "attached, and its end refused"
            except (OSError, RuntimeError, ValueError) as error:
                found, what = None, type(error).__name__
            finally:
                (project / "runs" / "spare" / "stop").touch()
                done, _ = attack.communicate()
        met[what] = met.get(what, 0) + 1
        assert int(done) > 0
        assert found is None or all(map(torch.equal, found, expected))
        assert not marker.exists()
    print(f"{tries:,} tries: {met}")
    assert secret.read_bytes() == b"mine"
