"""A checkpoint is whole or is not there, and reading one runs nothing of it."""

from __future__ import annotations

import json
import pickle
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

from workbench.experiment.checkpoint import folder
from workbench.experiment.checkpoint.folder import Checkpoint, CheckpointError, Contents
from workbench.torch_private import tensor_files
from workbench.trust import Seal


def tensors() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return {
        "model.weight": torch.randn(3, 4),
        "model.empty": torch.zeros(0, 2),
        "model.half": torch.randn(5).bfloat16(),
        "model.turned": torch.randn(4, 5).t(),
        "optimizer.weight.step": torch.tensor(3.0),
        "model.images": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    }


def contents(step: int = 5, **rest: Any) -> Contents:
    metrics = {"train/loss": 0.5, "val/loss": float("nan")}
    return Contents.of(tensors(), rest or {"lr": 0.1}, step=step, epoch=1, metrics=metrics)


@pytest.fixture
def one(tmp_path: Path) -> Checkpoint:
    return folder.write(tmp_path / "checkpoints", contents(), 1)


def loaded(checkpoint: Checkpoint) -> dict[str, torch.Tensor]:
    found = {name: torch.full_like(tensor, 7) for name, tensor in tensors().items()}
    checkpoint.load(found)
    return found


def everything(checkpoint: Checkpoint) -> None:
    checkpoint.read()
    loaded(checkpoint)


def test_it_holds_what_was_written(one: Checkpoint) -> None:
    found = folder.at(one.path)
    assert found == one
    assert (one.step, one.epoch, one.metrics) == (5, 1, {"train/loss": 0.5})
    for name, tensor in tensors().items():
        assert torch.equal(loaded(one)[name], tensor), name
    assert one.read() == {"lr": 0.1}
    assert not list(one.path.parent.glob(".*"))


def test_torch_alone_reads_it(one: Checkpoint, tmp_path: Path) -> None:
    dcp_to_torch_save(one.path, tmp_path / "plain.pt")
    found = torch.load(tmp_path / "plain.pt", weights_only=True)
    for name, tensor in tensors().items():
        assert torch.equal(found[name], tensor), name
    assert json.loads((one.path / folder.REST).read_text())["values"] == {"lr": 0.1}


def test_a_copy_does_not_follow_the_training(tmp_path: Path) -> None:
    live, lists = {"model.weight": torch.zeros(2)}, {"rates": [0.1]}
    found = Contents.of(live, lists, step=1, epoch=0, metrics={})
    live["model.weight"].fill_(1)
    lists["rates"].append(0.2)
    written = folder.write(tmp_path, found, 1)
    assert written.read() == {"rates": [0.1]}
    into = {"model.weight": torch.ones(2)}
    written.load(into)
    assert into["model.weight"].tolist() == [0, 0]


def test_the_newest_is_found_by_its_number_and_not_by_its_name_or_time(tmp_path: Path) -> None:
    first = folder.write(tmp_path, contents(5), 1)
    second = folder.write(tmp_path, contents(5), 2)
    third = folder.write(tmp_path, contents(3), 3)  # after a fork from an older one
    assert len({first.path, second.path, third.path}) == 3
    renamed = first.path.with_name("zzz")
    first.path.rename(renamed)
    facts = json.loads((third.path / folder.MANIFEST).read_text())
    (third.path / folder.MANIFEST).write_text(json.dumps({**facts, "created_at": 0.0}))
    assert [found.serial for found in folder.found_in(tmp_path)] == [3, 2, 1]


def test_of_one_that_is_cut_short_anywhere_nothing_is_taken(one: Checkpoint) -> None:
    draws = random.Random(0)
    for path in sorted(one.path.iterdir()):
        whole = path.read_bytes()
        for size in {0, len(whole) - 1, *(draws.randrange(len(whole)) for _ in range(20))}:
            path.write_bytes(whole[:size])
            assert folder.at(one.path) is None, (path.name, size)
        path.unlink()
        assert folder.at(one.path) is None, path.name
        path.write_bytes(whole)
    assert folder.at(one.path) == one


def test_a_bit_that_has_turned_anywhere_is_noticed(one: Checkpoint) -> None:
    draws = random.Random(1)
    for path in sorted(one.path.iterdir()):
        whole = path.read_bytes()
        for _ in range(30):
            at = draws.randrange(len(whole))
            changed = bytearray(whole)
            changed[at] ^= 1 << draws.randrange(8)
            path.write_bytes(changed)
            found = folder.at(one.path)
            if found is None or path.name == folder.MANIFEST:
                continue
            assert not found.is_intact()
            if path.name == ".metadata":
                continue
            with pytest.raises(CheckpointError, match="is not as it was written"):
                everything(found)
        path.write_bytes(whole)


def full(*_: Any) -> None:
    raise OSError(28, "No space left on device")


def test_on_a_full_disk_nothing_is_left_and_those_before_stay(
    one: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    for where, name in (
        (tensor_files, "write_tensors"),
        (Path, "write_text"),
        (folder, "_to_disk"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(where, name, full)
            with pytest.raises(CheckpointError, match="No space left on device"):
                folder.write(one.path.parent, contents(6), 2)
        assert [path.name for path in one.path.parent.iterdir()] == [one.path.name]
    assert folder.found_in(one.path.parent) == [one]


def test_what_a_killed_writer_leaves_is_no_checkpoint_and_is_removed(one: Checkpoint) -> None:
    part = one.path.with_name(".0123.part")
    shutil.copytree(one.path, part)
    assert folder.found_in(one.path.parent) == [one]
    folder.remove_parts(one.path.parent)
    assert not part.exists()
    assert folder.found_in(one.path.parent) == [one]


def test_one_of_another_version_is_not_read(one: Checkpoint) -> None:
    file = one.path / folder.MANIFEST
    file.write_text(file.read_text().replace(folder.SCHEMA, "workbench.checkpoint/9"))
    assert folder.at(one.path) is None
    assert folder.schema_of(one.path) == "workbench.checkpoint/9"


def test_another_shape_or_a_name_that_is_missing_is_an_error(one: Checkpoint) -> None:
    for into in ({"model.weight": torch.zeros(4, 3)}, {"model.other": torch.zeros(1)}):
        with pytest.raises(CheckpointError, match=r"is missing|has shape"):
            one.load(into)


# -- what another user may have written --------------------------------------------------------


class Payload:
    """Runs a command wherever it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self._marker = marker

    def __reduce__(self) -> Any:
        return Path.touch, (self._marker,)


def resealed(checkpoint: Checkpoint) -> Checkpoint:
    """With sizes and checksums of what was put in: anybody can write those."""
    file = checkpoint.path / folder.MANIFEST
    facts = json.loads(file.read_text())
    facts["files"] = {
        path.name: list(folder._sum_of(path))
        for path in checkpoint.path.iterdir()
        if path.name != folder.MANIFEST
    }
    file.write_text(json.dumps(facts))
    found = folder.at(checkpoint.path)
    assert found is not None
    return found


def in_rest(change: Callable[[Any], None]) -> Callable[[Path, Path], None]:
    def put(path: Path, marker: Path) -> None:
        del marker
        found = json.loads((path / folder.REST).read_text())
        change(found)
        (path / folder.REST).write_text(json.dumps(found))

    return put


def of_all_chunks(at: int, value: Any) -> Callable[[Any], None]:
    def change(rest: Any) -> None:
        for _, _, chunks in rest["tensors"].values():
            for chunk in chunks:
                chunk[at] = value

    return change


HOSTILE: dict[str, Callable[[Path, Path], None]] = {
    "a file elsewhere": in_rest(of_all_chunks(2, "../../../secret")),
    "before the file": in_rest(of_all_chunks(3, -1)),
    "behind the file": in_rest(of_all_chunks(3, 1 << 40)),
    "fewer bytes": in_rest(of_all_chunks(4, 1)),
    "no number": in_rest(of_all_chunks(4, "1")),
    "more than there is": in_rest(
        lambda rest: rest["tensors"]["model.weight"].__setitem__(1, [1 << 40, 1 << 20])
    ),
    "another type": in_rest(lambda rest: rest["tensors"]["model.weight"].__setitem__(0, "load")),
    "no table": in_rest(lambda rest: rest.pop("tensors")),
    "a kind": in_rest(lambda rest: rest["values"].update(lr={"$": "eval", "v": "1"})),
    "tensors": lambda path, marker: (path / "__0_0.distcp").write_bytes(
        pickle.dumps(Payload(marker)) * 200
    ),
    "rest": lambda path, marker: (path / folder.REST).write_bytes(pickle.dumps(Payload(marker))),
    "objects": lambda path, marker: (path / folder.OBJECTS).write_bytes(
        pickle.dumps(Payload(marker))
    ),
    "objects, sealed": lambda path, marker: Seal(b"another key", "").write(
        path / folder.OBJECTS, pickle.dumps(Payload(marker)), purpose(path)
    ),
}


def purpose(path: Path) -> str:
    return folder._purpose(folder._sum_of(path / folder.REST))


def test_torchs_own_table_is_not_read(one: Checkpoint, tmp_path: Path) -> None:
    marker = tmp_path / "it ran"
    (one.path / ".metadata").write_bytes(pickle.dumps(Payload(marker)))
    everything(resealed(one))
    assert not marker.exists()


def test_own_objects_of_another_checkpoint_are_not_taken(tmp_path: Path) -> None:
    first = folder.write(tmp_path, contents(rate=lambda: 1), 1)
    second = folder.write(tmp_path, contents(rate=lambda: 2, more=1), 2)
    shutil.copyfile(first.path / folder.OBJECTS, second.path / folder.OBJECTS)
    with pytest.raises(CheckpointError, match="was not written by you"):
        resealed(second).read()


@pytest.mark.parametrize("where", HOSTILE)
def test_of_what_another_user_put_there_nothing_runs(
    one: Checkpoint, tmp_path: Path, where: str
) -> None:
    marker = tmp_path / "it ran"
    HOSTILE[where](one.path, marker)
    found = resealed(one)
    with pytest.raises(CheckpointError):
        everything(found)
    assert not marker.exists()


def test_objects_of_another_user_are_unpickled_if_they_are_trusted(one: Checkpoint) -> None:
    sealed = Seal(b"another key", "").sealed(pickle.dumps({"who": "she"}), purpose(one.path))
    (one.path / folder.OBJECTS).write_bytes(sealed)
    found = resealed(one)
    with pytest.raises(CheckpointError, match="trust=True"):
        found.read()
    assert found.read(trust=True) == {"lr": 0.1, "who": "she"}


def test_own_objects_need_no_trust(tmp_path: Path) -> None:
    one = folder.write(tmp_path, contents(schedule=lambda step: 0.5**step), 1)
    assert folder.OBJECTS in one.files
    assert one.read()["schedule"](2) == 0.25


@pytest.mark.parametrize("name", ["../elsewhere", "/etc/passwd", "..", folder.MANIFEST])
def test_a_list_of_files_elsewhere_is_no_checkpoint(one: Checkpoint, name: str) -> None:
    file = one.path / folder.MANIFEST
    facts = json.loads(file.read_text())
    facts["files"][name] = [0, 0]
    file.write_text(json.dumps(facts))
    assert folder.at(one.path) is None


@pytest.mark.parametrize(
    "facts",
    [
        "",
        "[]",
        "{}",
        "null",
        '{"schema": 3}',
        "[" * 100_000,
        '{"schema": "workbench.checkpoint/1"}',
    ],
)
def test_a_damaged_list_is_no_checkpoint(one: Checkpoint, facts: str) -> None:
    (one.path / folder.MANIFEST).write_text(facts)
    assert folder.at(one.path) is None
    assert folder.found_in(one.path.parent) == []
