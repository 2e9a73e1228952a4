from __future__ import annotations

from workbench.modes.effects.step_times import MIN_STEPS, WINDOW, StepTimings


def test_only_steady_steps_make_the_median() -> None:
    timings = StepTimings()
    timings.first_step("compile", 14.0)
    for _ in range(MIN_STEPS):
        timings.add("compile", 0.01)
    assert timings.spread("compile").median == 0.01
    assert timings.first_step_seconds("compile") == 14.0
    assert timings.count("compile") == MIN_STEPS


def test_steps_during_other_work_of_ours_are_left_out() -> None:
    timings = StepTimings()
    for _ in range(MIN_STEPS):
        timings.add("fp32", 0.01)
    with timings.disturbed():
        timings.add("fp32", 9.0)
        with timings.disturbed():
            timings.add("bf16", 9.0)
        timings.add("fp32", 9.0)
    assert timings.count("bf16") == 0
    assert timings.spread("fp32").high == 0.01
    timings.add("fp32", 0.01)
    assert timings.count("fp32") == MIN_STEPS + 1


def test_too_few_steps_say_nothing() -> None:
    timings = StepTimings()
    for _ in range(MIN_STEPS - 1):
        timings.add("fp32", 0.01)
    assert timings.spread("fp32") is None
    assert timings.spread("bf16") is None
    assert timings.count("bf16") == 0


def test_sets_are_kept_apart_and_the_latest_is_known() -> None:
    timings = StepTimings()
    for modes in ("fp32", "bf16", "fp16", "bf16"):
        for _ in range(MIN_STEPS):
            timings.add(modes, {"fp32": 3.0, "bf16": 1.0, "fp16": 2.0}[modes])
    assert timings.latest(["fp32", "fp16"]) == "fp16"
    assert timings.latest(["fp32", "fp16", "bf16"]) == "bf16"
    assert timings.latest(["compile"]) is None
    assert timings.spread("fp32").median == 3.0
    assert timings.count("bf16") == MIN_STEPS, "those of its second stretch"


def test_what_is_compared_is_on_both_sides_of_the_switch() -> None:
    timings = StepTimings()
    for step in range(10 * WINDOW):
        timings.add("fp32", float(step))
    for step in range(10 * WINDOW):
        timings.add("bf16", float(step))
    assert timings.count("fp32") == timings.count("bf16") == WINDOW
    assert timings.spread("fp32").low >= 9 * WINDOW, "its last steps"
    assert timings.spread("bf16").high < WINDOW, "its first ones"


def test_a_comparison_does_not_move_when_the_machine_gets_busy() -> None:
    timings = StepTimings()
    for modes in ("fp32", "bf16"):
        for _ in range(WINDOW):
            timings.add(modes, 1.0)
    before = timings.spread("fp32"), timings.spread("bf16")
    for _ in range(10 * WINDOW):
        timings.add("bf16", 20.0)
    assert (timings.spread("fp32"), timings.spread("bf16")) == before


def test_few_late_steps_are_filled_up_with_early_ones() -> None:
    timings = StepTimings()
    for _ in range(WINDOW + MIN_STEPS // 2):
        timings.add("fp32", 1.0)
    timings.add("bf16", 1.0)
    assert timings.count("fp32") == WINDOW


def test_parity_belongs_to_the_switch_it_was_measured_at() -> None:
    timings = StepTimings()
    timings.first_step("fp32", 0.1)
    timings.first_step("bf16", 0.1)
    timings.parity("bf16", 3e-3)
    assert timings.max_abs_delta_logit("bf16", "fp32") == 3e-3
    assert timings.max_abs_delta_logit("bf16", "compile+bf16") is None
    timings.first_step("compile", 9.0)
    timings.first_step("bf16", 0.1)
    assert timings.max_abs_delta_logit("bf16", "fp32") is None
    assert timings.latest(["bf16", "fp32"]) is None


def test_a_short_visit_leaves_what_was_known_before() -> None:
    timings = StepTimings()
    for modes, seconds, steps in (("fp32", 3.0, 50), ("bf16", 1.0, 50), ("fp32", 5.0, 4)):
        for _ in range(steps):
            timings.add(modes, seconds)
    assert timings.spread("fp32").median == 3.0, "in use, and too few so far"
    timings.add("bf16", 2.0)
    assert (timings.spread("fp32").median, timings.count("fp32")) == (3.0, 50)
    assert (timings.spread("bf16").median, timings.count("bf16")) == (1.0, 50)
    for _ in range(MIN_STEPS):
        timings.add("fp32", 7.0)
    assert (timings.spread("fp32").median, timings.count("fp32")) == (7.0, MIN_STEPS)
