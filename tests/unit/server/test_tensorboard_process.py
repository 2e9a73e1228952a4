"""TensorBoard's private API, its command line, and the process that wraps them."""

from __future__ import annotations

import http.client
import inspect
import os
import signal
import socket
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
from tensorboard import program
from tensorboard.assets import get_default_assets_zip_provider

from workbench.metrics.writer import EventWriter
from workbench.server.tensorboard_process import (
    _RELATIVE,
    Options,
    assets,
    make_server,
    parse,
    tensorboard_flags,
)


def test_the_private_api_is_where_we_think_it_is() -> None:
    """When this fails, TensorBoard moved: adapt `make_server` and the pin in pyproject.toml."""
    assert list(inspect.signature(program.TensorBoard._make_server).parameters) == ["self"]
    source = inspect.getsource(program.TensorBoard._make_server)
    assert "self.server_class(app, self.flags)" in source
    assert "server_class" in inspect.signature(program.TensorBoard.__init__).parameters


def test_the_addresses_that_are_made_relative_are_where_we_think_they_are() -> None:
    """When this fails, TensorBoard's pages changed: adapt `_RELATIVE`."""
    own = zipfile.ZipFile(get_default_assets_zip_provider()())
    ours = zipfile.ZipFile(assets())
    assert ours.namelist() == own.namelist()
    for name, (absolute, relative) in _RELATIVE.items():
        assert absolute in own.read(name)
        assert absolute not in ours.read(name)
        assert relative in ours.read(name)
    others = set(own.namelist()) - set(_RELATIVE)
    assert all(ours.read(name) == own.read(name) for name in others)


def test_another_tensorboard_is_refused_with_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(program.TensorBoard, "_make_server", None)
    options = parse(["--socket", str(tmp_path / "s"), "--logdir", "x", "--path-prefix", "/p"])
    with pytest.raises(SystemExit, match=r"no TensorBoard._make_server.*install tensorboard>="):
        make_server(options)


def test_flags() -> None:
    options = parse(
        ["--socket=/s", "--logdir=-odd dir", "--path-prefix=/p", "--", "--samples_per_plugin=a=1"]
    )
    assert options == Options(
        socket=Path("/s"),
        logdir="-odd dir",
        path_prefix="/p",
        data_server=False,
        extra=("--samples_per_plugin=a=1",),
    )
    flags = tensorboard_flags(options)
    assert "--logdir=-odd dir" in flags
    assert "--load_fast=false" in flags
    assert flags[-1] == "--samples_per_plugin=a=1"
    fast = parse(["--socket=/s", "--logdir=x", "--path-prefix=/p", "--data-server"])
    assert "--load_fast=auto" in tensorboard_flags(fast)


class Unix(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("tensorboard")
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self.path))


def listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


@pytest.fixture
def process(tmp_path: Path):
    folder = tmp_path / "private"
    folder.mkdir(mode=0o700)
    path = folder / "socket"
    command = [sys.executable, "-P", "-m", "workbench.server.tensorboard_process"]
    command += ["--socket", str(path), "--logdir", str(tmp_path), "--path-prefix", "/a b/x"]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 120
    while not listens(path) and child.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert listens(path), child.stderr.read()
    yield child, path
    child.kill()
    child.wait()
    child.stdin.close()
    child.stderr.close()


def test_it_answers_under_its_prefix(process, tmp_path: Path) -> None:
    _child, path = process
    connection = Unix(path)
    connection.request("GET", "/a%20b/x/data/environment")
    answer = connection.getresponse()
    assert answer.status == 200
    assert str(tmp_path) in answer.read().decode()
    connection.close()
    outside = Unix(path)
    outside.request("GET", "/data/environment")
    assert outside.getresponse().status == 404
    outside.close()


@pytest.mark.parametrize("end", ["stdin", "SIGTERM"])
def test_it_ends_by_itself_and_cleans_up(process, end: str) -> None:
    """With status 0: where it does not come to its end soon, it is ended with another one."""
    child, path = process
    if end == "stdin":
        child.stdin.close()
    else:
        child.send_signal(signal.SIGTERM)
    assert child.wait(120) == 0
    assert not path.parent.exists()


def test_ctrl_c_in_the_terminal_is_the_servers_to_handle(process) -> None:
    child, path = process
    child.send_signal(signal.SIGINT)
    connection = Unix(path)
    connection.request("GET", "/a%20b/x/data/environment")
    assert connection.getresponse().status == 200, "it serves as before"
    connection.close()
    assert child.poll() is None


READ = """
import sys
from workbench.server.tensorboard_process import _skip_what_is_no_run
_skip_what_is_no_run()
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
read = EventMultiplexer().AddRunsFromDirectory(sys.argv[1])
read.Reload()
print({name: sorted(tags["tensors"]) for name, tags in read.Runs().items()})
"""


def test_a_pipe_with_the_name_of_an_event_file_is_not_waited_for(tmp_path: Path) -> None:
    """Whoever may write to a run's folder held TensorBoard up with one."""
    for name in ("one", "two"):
        writer = EventWriter(tmp_path / name)
        writer.write([("loss", *map(np.array, ([1], [0.5], [1e9])))])
        writer.close()
    os.mkfifo(tmp_path / "one" / "events.out.tfevents.9999999999.host.1.0")
    (tmp_path / "pipe alone").mkdir()
    os.mkfifo(tmp_path / "pipe alone" / "events.out.tfevents.1")
    done = subprocess.run(
        [sys.executable, "-c", READ, str(tmp_path)],
        capture_output=True, text=True, timeout=300, check=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )  # fmt: skip
    assert done.stdout.strip() == "{'one': ['loss'], 'two': ['loss']}"
