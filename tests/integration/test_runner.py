"""The runner as a person meets it: background runs, commands, interrupts, freeing, captures."""

from __future__ import annotations

import gc
import json
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from tests.integration.support import Drawn, Rows, batchless, net, our_threads, reach
from tests.interrupts import Interrupted, interrupted
from tests.saved_training import last_checkpoint, part
from tests.waiting import wait_until
from workbench.experiment import EpochSampler, Experiment, RunError, experiments
from workbench.experiment.report.events import Event, StatusChanged


def test_runs_in_the_background_and_finishes(exp: Experiment) -> None:
    run = exp.run(epochs=5)
    assert run.wait(120).status == "finished"
    assert exp.step_count == exp.total_steps == 50
    assert exp.epoch == 5
    assert run.metrics["train/loss"]["value"][-1] < run.metrics["train/loss"]["value"][0]
    assert not our_threads()


def test_a_second_run_is_refused_clearly(exp: Experiment) -> None:
    exp.run(epochs=10_000)
    with pytest.raises(RuntimeError, match=r"is training already \(step \d+ of 100,000\); pause"):
        exp.run()
    exp.stop()
    exp.wait(120)
    assert exp.status == "stopped"


def test_pause_resume_and_stop(exp: Experiment) -> None:
    run = exp.run(epochs=10_000)
    reach(exp, 5)
    run.pause()
    run.wait(120)
    at = exp.step_count
    assert exp.status == "paused"
    exp._runner.wait_for_checkpoint()
    assert not our_threads(), "nothing is left that could go on"
    assert exp.step_count == at
    run.resume()
    reach(exp, at + 1)
    run.stop()
    run.wait(120)
    assert exp.message == f"step {exp.step_count}: stopped"


def test_stop_while_paused(exp: Experiment) -> None:
    exp.step().wait()
    assert exp.status == "paused"
    exp.stop()
    assert exp.status == "stopped"
    with pytest.raises(RuntimeError, match="is stopped, not paused; start it with run"):
        exp.resume()


def test_settings_change_at_a_step_boundary_while_it_runs(exp: Experiment) -> None:
    exp.run(epochs=10_000)
    reach(exp, 3)
    exp.learning_rate = 0.25
    exp.modes = "bf16"
    wait_until(lambda: exp.modes == "bf16" and exp.timings.max_abs_delta_logit("bf16") is not None)
    exp.stop()
    exp.wait(120)
    assert exp.optimizer.param_groups[0]["lr"] == 0.25
    assert 0 < (exp.timings.max_abs_delta_logit("bf16") or 0) < 0.1
    texts = ", ".join(marker.text for marker in exp.markers)
    assert "lr 2.5e-1" in texts
    assert "bf16" in texts


def test_the_switch_is_told_with_its_first_step(exp: Experiment) -> None:
    said: list[str] = []
    exp.subscribe(lambda e: said.append(e.message) if isinstance(e, StatusChanged) else None)
    exp.run(steps=3, wait=True)
    exp.modes = "bf16"
    exp.run(steps=3, wait=True)
    told = [text for text in said if "switched" in text]
    assert len(told) == 1
    assert told[0].startswith("step 4: switched to bf16; first step took ")


def test_worker_processes_are_gone_after_the_run(tmp_path: Path) -> None:
    rows = Rows()
    rows.bad = False
    loader = DataLoader(
        rows, batch_size=8, shuffle=True, num_workers=1, multiprocessing_context="spawn"
    )
    exp = Experiment(net(), loader, runs=tmp_path, device="cpu")
    exp.run(epochs=1, wait=True)
    assert exp.step_count == 8
    exp.close()


def test_samples_that_draw_in_workers_draw_as_in_a_plain_loop_and_never_the_same_again(
    tmp_path: Path,
) -> None:
    def loader(**settings: Any) -> DataLoader[Any]:
        return DataLoader(
            Drawn(), batch_size=8, num_workers=1, multiprocessing_context="spawn", **settings
        )

    def seen(*runs: int) -> list[torch.Tensor]:
        exp = Experiment(net(), loader(), runs=tmp_path, device="cpu", seed=3)
        found: list[torch.Tensor] = []
        exp.model.register_forward_pre_hook(
            lambda module, inputs: found.append(inputs[0].clone()) if module.training else None
        )
        for steps in runs:
            exp.run(steps=steps, wait=True)
        exp.close()
        return found

    sampler, generator = EpochSampler(len(Drawn()), 3, shuffle=False), torch.Generator()
    generator.manual_seed(sampler.worker_seed)
    plain = [x for x, _ in loader(sampler=sampler, generator=generator)]
    twice = seen(2, 2)
    assert all(torch.equal(one, other) for one, other in zip(twice[:2], plain, strict=False))
    assert len({tuple(x.flatten().tolist()) for x in twice}) == 4


def test_to_wait_for_an_experiment_is_to_wait_for_its_run(exp: Experiment) -> None:
    exp.run(steps=2)
    exp.wait(120)
    exp.model[0].register_forward_hook(lambda *_: 1 / 0)
    run = exp.run(steps=2)
    with pytest.raises(RunError, match="ZeroDivisionError") as by_run:
        run.wait(120)
    with pytest.raises(RunError) as by_experiment:
        exp.wait(120)
    assert str(by_run.value) == str(by_experiment.value)
    exp.stop()
    exp.wait(120)
    assert exp.status == "stopped"


def test_an_interrupt_pauses_the_run_cleanly(
    exp: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_awaited = threading.Event()
    join = exp._runner.join

    def joined(timeout: float | None = None) -> bool:
        is_awaited.set()
        return join(timeout)

    monkeypatch.setattr(exp._runner, "join", joined)
    with pytest.raises(Interrupted):
        interrupted(
            lambda: is_awaited.is_set() and exp.step_count > 3,
            exp.run,
            epochs=1_000_000,
            wait=True,
        )
    monkeypatch.undo()
    assert exp.status == "paused"
    at = exp.step_count
    exp.step(2).wait(120)
    assert exp.step_count == at + 2


def test_an_experiment_that_is_deleted_frees_its_model(tmp_path: Path) -> None:
    exp = Experiment(net(), batchless(), runs=tmp_path, device="cpu")
    run = exp.run(epochs=1)
    run.wait(120)
    exp.step(2).wait(120)  # paused with an iterator at hand
    model, optimizer = weakref.ref(exp.model), weakref.ref(exp.optimizer)
    del exp, run
    gc.collect()
    assert model() is None
    assert optimizer() is None
    assert experiments() == []


def test_a_subscriber_that_knows_its_experiment_does_not_keep_it(tmp_path: Path) -> None:
    exp = Experiment(net(), batchless(), runs=tmp_path, device="cpu")
    seen: list[int] = []
    exp.subscribe(lambda _event, own=exp: seen.append(own.step_count))
    exp.run(steps=2, wait=True)
    assert seen
    model = weakref.ref(exp.model)
    del exp
    gc.collect()
    assert model() is None


def test_an_experiment_deleted_while_it_trains_stops(tmp_path: Path) -> None:
    exp = Experiment(net(), batchless(), runs=tmp_path, device="cpu")
    exp.run(epochs=1_000_000)
    model = weakref.ref(exp.model)
    del exp

    def is_freed() -> bool:
        gc.collect()
        return model() is None

    wait_until(is_freed, "the end of its training")


def test_two_experiments_of_one_name_at_once(tmp_path: Path) -> None:
    first, second = (
        Experiment(net(), batchless(), name="same", runs=tmp_path, device="cpu") for _ in range(2)
    )
    assert (first.name, second.name) == ("same", "same-2")
    runs = [first.run(epochs=3), second.run(epochs=3)]
    for run in runs:
        run.wait(120)
    for experiment in (first, second):
        facts = json.loads((experiment.path / "run.json").read_text())
        assert facts["schema"] == "workbench.run/1"
        assert (facts["name"], facts["status"]) == (experiment.name, "finished")
        assert facts["step"] == experiment.step_count
        experiment.close()


def test_a_folder_that_cannot_be_written_to_does_not_stop_the_training(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    exp = Experiment(net(), batchless(), runs=blocked, device="cpu")
    assert "nothing is written to disk" in exp.message
    exp.run(wait=True)
    assert exp.status == "finished"
    exp.close()


def test_the_checkpoint_holds_the_last_step(exp: Experiment) -> None:
    exp.run(steps=7, wait=True)
    state = last_checkpoint(exp.path)
    assert state["step"] == 7
    assert torch.equal(part(state, "model")["0.weight"], exp.model.state_dict()["0.weight"])


def test_events_come_in_order(exp: Experiment) -> None:
    seen: list[Event] = []
    exp.subscribe(seen.append)
    exp.run(epochs=1, wait=True)
    names = [type(event).__name__ for event in seen]
    assert names == ["StatusChanged", "RunStarted", "EpochDone", "StatusChanged"]


def test_a_faulty_observer_does_not_end_the_run(exp: Experiment) -> None:
    def faulty(event: Event) -> None:
        raise ValueError("observer")

    exp.subscribe(faulty, every_step=True)
    exp.run(steps=3, wait=True)
    assert exp.status == "finished"


def test_steps_asked_for_in_quick_succession_are_all_done(exp: Experiment) -> None:
    for _ in range(200):
        exp.step()
    exp.wait(120)
    assert exp.step_count == 200
    assert exp.status in ("paused", "finished")


def test_a_resume_right_after_a_pause_wins(exp: Experiment) -> None:
    exp.run(epochs=1_000_000)
    for _ in range(300):
        exp.pause()
        exp.resume()
    at = exp.step_count
    reach(exp, at + 20)
    exp.stop()


def test_a_run_right_after_a_step_or_a_pause_waits_for_it(exp: Experiment) -> None:
    for _ in range(20):
        exp.step()
        exp.run(epochs=1_000_000)
        exp.pause()
        exp.run(steps=3, wait=True)
    assert exp.status == "finished"


def test_epochs_changed_under_way_move_the_end_of_the_run(exp: Experiment) -> None:
    exp.run(epochs=1000)
    exp.pause()
    exp.wait(120)
    exp.epochs = exp.epoch + 1
    assert exp.total_steps == (exp.epoch + 1) * exp.steps_per_epoch
    exp.resume().wait(120)
    assert exp.status == "finished"
    assert exp.step_count == exp.total_steps
    exp.run(epochs=2).wait(120)
    assert exp.step_count == exp.total_steps
