"""Memory files behind a real server: real processes that read them, few, and none left behind."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import psutil
import pytest
import requests

from tests.processes import children_of, children_running, command_of, is_alive
from tests.server.support import TOKEN, Server, start_server, stop_server, wait_until
from tests.unit.allocator.traces import path_of
from workbench.memory import open_file
from workbench.memory.files import selection
from workbench.records import MemoryRecord

MIB, BASE = 1 << 20, 0x7F0000000000
ROUND = [{"action": "alloc", "size": MIB}, {"action": "free_completed", "size": MIB}]


def trace(num_events: int, stride: int = 1) -> list[dict[str, Any]]:
    """Blocks that come and go, ``num_events`` of them, one microsecond apart."""
    return [
        {
            **ROUND[at % 2],
            "addr": BASE + (at // 2 * stride) % 20 * MIB,
            "stream": 0,
            "time_us": 1_000_000 + at,
        }
        for at in range(num_events)
    ]


def write(file: Path, *traces: list[dict[str, Any]]) -> Path:
    """A snapshot with one segment a device."""
    segments = [
        {
            "device": device, "address": BASE, "total_size": 20 * MIB, "stream": 0,
            "segment_type": "large", "segment_pool_id": (0, 0), "is_expandable": False,
            "blocks": [{"address": BASE, "size": 20 * MIB, "requested_size": 0,
                        "state": "inactive"}],
        }
        for device in range(len(traces) or 1)
    ]  # fmt: skip
    content = {"segments": segments, "device_traces": [list(one) for one in traces]}
    file.write_bytes(pickle.dumps(content, protocol=4))
    return file


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a snapshot of two thousand events, and one of two devices."""
    running = start_server(tmp_path_factory.mktemp("server"))
    write(running.root / "snapshot.pickle", trace(2000))
    write(running.root / "two.pickle", trace(400), trace(100, stride=3))
    write(running.root / "long.pickle", trace(selection.MOST_EVENTS + 1000))
    yield running
    stop_server(running)


def record_of(server: Server, path: str, **given: Any) -> MemoryRecord:
    answer = server.ask("POST", "api/memory/record", json={"path": path, **given})
    assert answer.status_code == 200, answer.text
    assert answer.headers["Content-Type"] == "application/octet-stream"
    return MemoryRecord.from_bytes(answer.content)


def overview_of(server: Server, path: str, **given: Any) -> dict[str, Any]:
    answer = server.ask("POST", "api/memory/record", json={"path": path, **given})
    assert answer.status_code == 200, answer.text
    return answer.json()["overview"]


def question(server: Server, path: str, asked: Any, **given: Any) -> requests.Response:
    return server.ask("POST", "api/memory/ask", json={"path": path, "question": asked, **given})


def refusal(server: Server, path: Any, what: str = "record", **given: Any) -> tuple[int, str]:
    answer = server.ask("POST", f"api/memory/{what}", json={"path": path, **given})
    message = answer.json()["message"]
    assert "\n" not in message
    assert "Traceback" not in message
    return answer.status_code, message


def readers(server: Server) -> list[psutil.Process]:
    """The processes of files, not what they start themselves."""
    program = "workbench.memory.files.file_process"
    return children_running(program, psutil.Process(server.process.pid), recursive=False)


def readers_of(server: Server, name: str) -> list[psutil.Process]:
    return [one for one in readers(server) if str(server.root / name) in command_of(one)]


def test_a_snapshot_is_the_record_that_python_makes_of_it(server: Server) -> None:
    found, expected = (
        record_of(server, "snapshot.pickle"),
        open_file(server.root / "snapshot.pickle"),
    )
    np.testing.assert_array_equal(found.series(), expected.series())
    assert found.title == "snapshot.pickle"
    assert found.certificate == expected.certificate


@pytest.mark.parametrize("name", ["transformer_training_step", "cnn_old_schema"])
def test_a_real_trace_is_opened_and_queried(server: Server, name: str) -> None:
    source = path_of(name)
    (server.root / f"{name}.pickle").write_bytes(source.read_bytes())
    found = record_of(server, f"{name}.pickle")
    assert found.certificate is not None
    assert found.certificate.exact
    asked = {
        "kind": "what_if",
        "rows": [{"settings": ""}, {"settings": "expandable_segments:True"}],
    }
    first = question(server, f"{name}.pickle", asked)
    assert first.status_code == 200, first.text
    reader = readers_of(server, f"{name}.pickle")
    again = question(server, f"{name}.pickle", {"kind": "cards"})
    assert len(reader) == 1
    assert readers_of(server, f"{name}.pickle") == reader, "it is not read once more"
    assert again.json()["answer"]
    recorded, _expandable = first.json()["answer"]["rows"]
    assert recorded["peak_bytes"] == int(found.reserved().max())


def test_a_saved_record_is_queried_like_the_snapshot(server: Server) -> None:
    open_file(server.root / "snapshot.pickle").save(server.root / "saved.memory.safetensors")
    asked = {"kind": "what_if", "rows": [{"settings": ""}]}
    answers = [
        question(server, path, asked).json()["answer"]
        for path in ("snapshot.pickle", "saved.memory.safetensors")
    ]
    assert answers[0]["rows"][0]["peak_bytes"] == answers[1]["rows"][0]["peak_bytes"] == 20 * MIB


def test_a_long_file_is_shown_as_a_whole_before_a_range_is_opened(server: Server) -> None:
    seen = overview_of(server, "long.pickle")
    assert seen["num_events"] == selection.MOST_EVENTS + 1000
    assert len(seen["bytes"]) == 400
    assert max(seen["bytes"]) == seen["peak_bytes"] == MIB
    assert seen["devices"] == [0]
    part = record_of(server, "long.pickle", device=0, start=1000, end=3000)
    assert len(part.event_kind) == 2000
    assert part.notes[0].startswith("Events 1,000 to 3,000 of 2,001,000")
    assert part.event_time_us[-1] - part.event_time_us[0] == 1999
    status, message = refusal(server, "long.pickle", start=0, end=selection.MOST_EVENTS + 1)
    assert (status, "2,000,000 are shown at once" in message) == (422, True)


def test_a_file_of_several_devices_is_seen_from_afar_too(server: Server) -> None:
    seen = overview_of(server, "two.pickle")
    assert (seen["devices"], seen["device"], seen["num_events"]) == ([0, 1], "cuda:0", 400)
    other = overview_of(server, "two.pickle", device=1, overview=True)
    assert (other["devices"], other["device"], other["num_events"]) == ([0, 1], "cuda:1", 100)
    assert record_of(server, "two.pickle", device=1).device == "cuda:1"
    status, message = refusal(server, "two.pickle", device=7)
    assert (status, "holds cuda:0, cuda:1, not cuda:7" in message) == (422, True)


def test_a_file_that_was_written_anew_is_read_anew(server: Server) -> None:
    file = write(server.root / "growing.pickle", trace(10))
    assert len(record_of(server, "growing.pickle").event_kind) == 10
    write(file, trace(30))
    assert len(record_of(server, "growing.pickle").event_kind) == 30


class Bomb:
    def __reduce__(self) -> Any:
        return (os.system, ("touch /tmp/workbench-was-here",))


def test_what_is_no_snapshot_says_so_in_one_sentence(server: Server) -> None:
    root = server.root
    (root / "torn.pickle").write_bytes((root / "snapshot.pickle").read_bytes()[:5000])
    (root / "list.pickle").write_bytes(pickle.dumps([1, 2, 3], protocol=4))
    (root / "bomb.pickle").write_bytes(pickle.dumps(Bomb(), protocol=4))
    (root / "text.pickle").write_text("hello")
    (root / "torn.memory.safetensors").write_bytes(b"\x08\0\0\0")
    write(root / "silent.pickle")
    expected = {
        "torn.pickle": "no complete pickle",
        "list.pickle": "not a CUDA allocator snapshot",
        "bomb.pickle": "asks for the Python object posix.system. No code of it was run.",
        "text.pickle": "not a CUDA allocator snapshot",
        "torn.memory.safetensors": "no memory record",
        "silent.pickle": "recording was never started",
    }
    for name, words in expected.items():
        status, message = refusal(server, name)
        assert status == 422, name
        assert words in message
    assert not Path("/tmp/workbench-was-here").exists()


@pytest.mark.parametrize("what", ["record", "ask"])
def test_paths_lead_to_files_inside_the_root(server: Server, what: str) -> None:
    (server.root / "out.pickle").unlink(missing_ok=True)
    (server.root / "out.pickle").symlink_to("/etc/hostname")
    os.mkfifo(server.root / "pipe.pickle") if not (server.root / "pipe.pickle").exists() else None
    (server.root / ".hidden.pickle").write_bytes(b"\x80")
    for path, status in (
        ("../outside.pickle", 403),
        ("/etc/hostname", 403),
        ("out.pickle", 403),
        ("nowhere.pickle", 404),
        ("", 404),
        ("pipe.pickle", 404),
        (".hidden.pickle", 404),
        ("a\0b", 400),
        (None, 400),
        (["snapshot.pickle"], 400),
    ):
        assert refusal(server, path, what)[0] == status, path


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ({"start": -1}, 400),
        ({"start": "0", "end": 5}, 400),
        ({"start": 5, "end": 5}, 422),
        ({"start": 0, "end": 10**6}, 422),
        ({"device": 1.5}, 400),
        ({"device": True}, 400),
    ],
)
def test_numbers_are_checked(server: Server, given: dict[str, Any], status: int) -> None:
    assert refusal(server, "snapshot.pickle", **given)[0] == status


@pytest.mark.parametrize("asked", [None, 3, {}, {"kind": "nothing"}, {"kind": "what_if"}])
def test_what_is_no_question_is_refused(server: Server, asked: Any) -> None:
    assert refusal(server, "snapshot.pickle", "ask", question=asked)[0] == 400


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'"x"'])
def test_a_malformed_body(server: Server, body: bytes) -> None:
    answer = server.ask("POST", "api/memory/record", data=body)
    assert answer.status_code == 400
    assert "path" in answer.json()["message"]


def test_few_run_at_a_time_and_idle_ones_end(tmp_path: Path) -> None:
    server = start_server(tmp_path, "--WorkbenchServer.memory_idle_stop_s=4")
    names = [f"file-{number}.pickle" for number in range(5)]
    for name in names:
        write(server.root / name, trace(50))
    most = []
    done = threading.Event()

    def count() -> None:
        while not done.is_set():
            most.append(len(readers(server)))
            time.sleep(0.02)

    counter = threading.Thread(target=count)
    asked = [threading.Thread(target=record_of, args=(server, name)) for name in names]
    for thread in (counter, *asked):
        thread.start()
    for thread in asked:
        thread.join()
    done.set()
    counter.join()
    assert 1 <= max(most) <= 2
    wait_until(lambda: not readers(server))
    stop_server(server)


def begin(server: Server, path: str) -> threading.Thread:
    """Ask for a record; the thread ends with the connection."""

    def ask() -> None:
        with contextlib.suppress(requests.ConnectionError):
            server.ask("POST", "api/memory/record", json={"path": path})

    thread = threading.Thread(target=ask)
    thread.start()
    return thread


def working(server: Server) -> list[psutil.Process]:
    """A process that reads a file, and the one that unpickles it for it."""
    families = [(one, *children_of(one, recursive=False)) for one in readers(server)]
    return [process for family in families if len(family) > 1 for process in family]


def test_a_closed_tab_ends_the_work_for_it(server: Server) -> None:
    address = urlsplit(server.base)
    tab = HTTPConnection(address.netloc, timeout=120)
    headers = {"Authorization": f"token {TOKEN}", "Content-Type": "application/json"}
    given = json.dumps({"path": "long.pickle"})
    tab.request("POST", f"{address.path}api/memory/record", given, headers)
    (reader,) = wait_until(lambda: readers_of(server, "long.pickle"))
    reader.suspend()  # it ends, but not by itself
    tab.close()
    wait_until(lambda: not is_alive(reader))
    assert len(record_of(server, "snapshot.pickle").event_kind) == 2000


def test_nothing_outlives_the_server(tmp_path: Path) -> None:
    """Killed in the middle of a reading, with no chance to clean up."""
    server = start_server(tmp_path)
    try:
        write(server.root / "long.pickle", trace(600_000))
        thread = begin(server, "long.pickle")
        found = wait_until(lambda: working(server))
        assert len(found) == 2
        server.process.kill()
        thread.join(120)
        wait_until(lambda: not any(map(is_alive, found)))
    finally:
        server.process.kill()
        server.process.wait()


def test_an_orderly_end_leaves_nothing(tmp_path: Path) -> None:
    server = start_server(tmp_path)
    write(server.root / "snapshot.pickle", trace(50))
    record_of(server, "snapshot.pickle")
    found = readers(server)
    assert len(found) == 1
    stop_server(server)
    wait_until(lambda: not is_alive(found[0]))


def test_a_server_without_local_files_says_so(tmp_path: Path) -> None:
    elsewhere = "jupyter_server.services.contents.manager.ContentsManager"
    server = start_server(tmp_path, f"--ServerApp.contents_manager_class={elsewhere}")
    write(server.root / "snapshot.pickle", trace(50))
    status, message = refusal(server, "snapshot.pickle")
    assert (status, "download the file" in message) == (501, True)
    stop_server(server)


def test_json_of_an_answer_has_no_numbers_that_json_does_not_know(server: Server) -> None:
    asked = {"kind": "what_if", "rows": [{"settings": "", "card": "no such card"}]}
    text = question(server, "snapshot.pickle", asked).text
    row = json.loads(text, parse_constant=pytest.fail)["answer"]["rows"][0]
    assert row["error"]
