"""Process-wide settings of the user that change numbers or speed, for use in other processes.

A new process has torch's defaults: no deterministic algorithms, float32 as its dtype, all cores.
What a cell has set otherwise applies to the ranks of a run and to the processes of a comparison
too, so `ProcessSettings.current` is read where the run is started, is sent with the payload, and is
set in the other process before anything is unpacked (`ProcessSettings.apply`). Only what differs is
set, so a process whose settings are torch's own is not touched.

Not included are environment variables and the working directory, which a process inherits from the
one that starts it, whenever they were set. Settings of a thread (a default device, autocast) are in
`workbench.experiment.state.thread_state`, and settings of torch.compile, which belong to a thread
too, are found by `workbench.experiment.state.compile_settings`.
"""

# A setting has whatever type it has.
# pyright: reportUnknownLambdaType=false

from __future__ import annotations

import gc
import importlib
import logging
import multiprocessing
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import numpy as np
import torch

from workbench.experiment.state import compile_settings
from workbench.torch_private.settings import (
    dynamo_module,
    is_nnpack_enabled,
    sdp_priority,
    set_sdp_priority,
    stance,
)

_SUBNORMAL = 1e-310
"""Smaller than any normal float64: 0 if `torch.set_flush_denormal` is on, which torch does not
report."""
_PLUMBING = (
    {"module": r"torch\.(distributed|nn\.parallel|utils\.data)(\..*)?$"},
    {"message": r"find_unused_parameters=True was specified|Detected call of `lr_scheduler\.step"},
    {"message": r"(\[rank\d+\]|\[W).*"},
)
"""Warnings that a single process would not have raised: a filter that turns warnings into errors
does not apply to them."""


class _Switch(NamedTuple):
    """One setting: how it is read and how it is set."""

    name: str
    """Name under which the user would look it up."""
    read: Callable[[], Any]
    make: Callable[[Any], object]


def _attribute(path: str) -> _Switch:
    """An attribute of one of torch's modules, such as ``torch.backends.cudnn.benchmark``."""
    owner, _, name = path.rpartition(".")

    def found() -> Any:
        one: Any = torch
        for part in owner.split(".")[1:]:
            one = getattr(one, part)
        return one

    def make(value: Any) -> None:
        setattr(found(), name, value)

    return _Switch(path, lambda: getattr(found(), name), make)


def _library(name: str) -> _Switch:
    """The library that torch prefers for some kind of operation on a GPU."""
    which: Any = getattr(torch.backends.cuda, name)

    def read() -> str:
        return which().name.lower()

    return _Switch(f"torch.backends.cuda.{name}", read, which)


def _reduced_precision(dtype: str) -> _Switch:
    """Return the setting that allows reductions in ``dtype`` to be computed in it, and in parts."""
    name = f"allow_{dtype}_reduced_precision_reduction"
    matmul: Any = torch.backends.cuda.matmul

    def read() -> tuple[bool, bool]:
        return getattr(matmul, name), getattr(matmul, f"{name}_split_k", True)

    def make(value: tuple[bool, bool]) -> None:
        setattr(matmul, name, value)

    return _Switch(f"torch.backends.cuda.matmul.{name}", read, make)


def _switches() -> Iterator[_Switch]:
    """Yield every setting that is one value, in the order in which they are set."""
    cuda: Any = torch.backends.cuda
    yield _Switch(
        "torch.use_deterministic_algorithms",
        lambda: (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        ),
        lambda value: torch.use_deterministic_algorithms(value[0], warn_only=value[1]),
    )
    yield _attribute("torch.utils.deterministic.fill_uninitialized_memory")
    yield _Switch("torch.set_default_dtype", torch.get_default_dtype, torch.set_default_dtype)
    yield _Switch(
        "torch.set_float32_matmul_precision",
        torch.get_float32_matmul_precision,
        torch.set_float32_matmul_precision,
    )
    # the newer interface after the older one, which writes into it
    for owner in (
        "", ".cuda.matmul", ".cudnn", ".cudnn.conv", ".cudnn.rnn", ".mkldnn", ".mkldnn.matmul",
        ".mkldnn.conv", ".mkldnn.rnn",
    ):  # fmt: skip
        yield _attribute(f"torch.backends{owner}.fp32_precision")
    for dtype in ("fp16", "bf16"):
        yield _reduced_precision(dtype)
    yield _attribute("torch.backends.cuda.matmul.allow_fp16_accumulation")
    for name in ("enabled", "benchmark", "benchmark_limit", "deterministic", "depthwise_kernel"):
        yield _attribute(f"torch.backends.cudnn.{name}")
    for name in ("enabled", "deterministic"):
        yield _attribute(f"torch.backends.mkldnn.{name}")
    yield _attribute("torch.backends.miopen.immediate")
    for name in ("flash", "mem_efficient", "math", "cudnn"):
        yield _Switch(
            f"torch.backends.cuda.enable_{name}_sdp",
            getattr(cuda, f"{name}_sdp_enabled"),
            getattr(cuda, f"enable_{name}_sdp"),
        )
    yield _Switch(
        "torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp",
        cuda.fp16_bf16_reduction_math_sdp_allowed,
        cuda.allow_fp16_bf16_reduction_math_sdp,
    )
    yield _Switch(
        "torch.nn.attention.sdpa_kernel(..., set_priority=True)",
        sdp_priority,
        set_sdp_priority,
    )
    for name in ("preferred_linalg_library", "preferred_blas_library"):
        yield _library(name)
    yield _Switch(
        "torch.backends.mha.set_fastpath_enabled",
        torch.backends.mha.get_fastpath_enabled,
        torch.backends.mha.set_fastpath_enabled,
    )
    yield _Switch(
        "torch.backends.nnpack.set_flags",
        is_nnpack_enabled,
        torch.backends.nnpack.set_flags,
    )
    yield _attribute("torch.backends.opt_einsum.enabled")
    yield _attribute("torch.backends.opt_einsum.strategy")
    yield _attribute("torch.backends.quantized.engine")
    yield _Switch(
        "torch.autograd.set_detect_anomaly",
        lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        lambda value: torch.autograd.set_detect_anomaly(value[0], check_nan=value[1]),
    )
    yield _Switch("torch.set_flush_denormal", _flushes, torch.set_flush_denormal)
    yield _Switch(
        "torch.set_num_interop_threads",
        torch.get_num_interop_threads,
        torch.set_num_interop_threads,
    )
    yield _Switch("torch.set_warn_always", torch.is_warn_always_enabled, torch.set_warn_always)
    invariants: Any = torch.sparse.check_sparse_tensor_invariants
    yield _Switch(
        "torch.sparse.check_sparse_tensor_invariants",
        invariants.is_enabled,
        lambda value: (invariants.enable if value else invariants.disable)(),
    )
    future: Any = torch.__future__
    for name in ("overwrite_module_params_on_conversion", "swap_module_params_on_conversion"):
        yield _Switch(
            f"torch.__future__.set_{name}",
            getattr(future, f"get_{name}"),
            getattr(future, f"set_{name}"),
        )
    distribution: Any = torch.distributions.Distribution
    yield _Switch(
        "torch.distributions.Distribution.set_default_validate_args",
        lambda: distribution._validate_args,
        distribution.set_default_validate_args,
    )
    yield _Switch("torch.compiler.set_stance", stance, _set_stance)
    yield _Switch("torch.compiler.set_default_backend", _default_backend, _set_default_backend)
    sharing: Any = torch.multiprocessing
    yield _Switch(
        "torch.multiprocessing.set_sharing_strategy",
        sharing.get_sharing_strategy,
        sharing.set_sharing_strategy,
    )
    yield _Switch(
        "multiprocessing.set_start_method",
        lambda: multiprocessing.get_start_method(allow_none=True),
        lambda value: multiprocessing.set_start_method(value, force=True),
    )
    yield _Switch("numpy.seterr", np.geterr, lambda value: np.seterr(**value))
    yield _Switch("sys.setrecursionlimit", sys.getrecursionlimit, sys.setrecursionlimit)
    yield _Switch("gc.enable", gc.isenabled, lambda value: (gc.enable if value else gc.disable)())
    yield _Switch("gc.set_threshold", gc.get_threshold, lambda value: gc.set_threshold(*value))


def _flushes() -> bool:
    tiny = torch.tensor(_SUBNORMAL, dtype=torch.float64, device="cpu")
    return not bool(tiny * 1 > 0)


def _set_stance(value: tuple[Any, ...]) -> None:
    stance, skip, backend = value
    torch.compiler.set_stance(stance, skip_guard_eval_unsafe=skip, force_backend=backend)


def _default_backend() -> Any:
    if dynamo_module("backends.registry") is None:
        return "inductor"
    return cast("Any", torch.compiler).get_default_backend()


def _set_default_backend(value: Any) -> None:
    cast("Any", torch.compiler).set_default_backend(value)


@dataclass(frozen=True)
class ProcessSettings:
    """Settings of a process, as plain values that can be pickled."""

    switches: dict[str, Any] = field(default_factory=dict[str, Any])
    """Values by name; settings that this version of torch cannot report are missing."""
    compile_settings: tuple[tuple[str, str, Any], ...] = ()
    """(module, name, value) of what was set in ``torch._dynamo.config`` and its siblings."""
    warning_filters: tuple[Any, ...] = ()
    log_levels: dict[str, int] = field(default_factory=dict[str, int])
    """Levels of loggers that have one of their own; ``""`` is the root's."""
    logging_disabled: int = 0

    @classmethod
    def current(cls) -> ProcessSettings:
        """Return this process's settings, with the calling thread's settings of torch.compile."""
        loggers = logging.root.manager.loggerDict
        levels = {
            name: one.level
            for name, one in list(loggers.items())
            if isinstance(one, logging.Logger) and one.level
        }
        return cls(
            switches=dict(_read()),
            compile_settings=tuple(compile_settings.made()),
            warning_filters=tuple(warnings.filters),
            log_levels={"": logging.root.level, **levels},
            logging_disabled=logging.root.manager.disable,
        )

    def apply(self) -> list[str]:
        """Set in this process what differs; return sentences about what could not be set."""
        problems: list[str] = []
        here = dict(_read())
        for switch in _switches():
            value = self.switches.get(switch.name)
            if switch.name not in self.switches or here.get(switch.name) == value:
                continue
            try:
                switch.make(value)
            except Exception as error:  # noqa: BLE001 - torch raises what it likes where it has no such device
                problems.append(f"{switch.name} could not be set to {value!r} there: {error}")
        for module, name, value in self.compile_settings:
            try:
                setattr(importlib.import_module(module), name, value)
            except (ImportError, AttributeError) as error:
                problems.append(f"{module}.{name} could not be set there: {error}")
        for name, level in self.log_levels.items():
            logging.getLogger(name or None).setLevel(level)
        logging.disable(self.logging_disabled)
        self._filter_warnings()
        return problems

    def _filter_warnings(self) -> None:
        cast("list[Any]", warnings.filters)[:] = self.warning_filters
        for these in _PLUMBING:
            warnings.filterwarnings("ignore", **cast("Any", these))
        # `filterwarnings` has invalidated the versions that modules remember


def _read() -> Iterator[tuple[str, Any]]:
    for switch in _switches():
        try:
            yield switch.name, switch.read()
        except (RuntimeError, AttributeError):
            continue  # the older interface to float32 where the newer ones disagree, another torch


def threads_of_a_rank(num_threads: int, world_size: int) -> int:
    """Return the number of threads of a CPU operation in each of ``world_size`` processes.

    It is the number where the run was started, but never more than the process's share of the
    cores: ranks that use each other's cores wait for each other at every step.

    Args:
        num_threads: `torch.get_num_threads` where the run was started.
        world_size: number of processes on this machine; a single one has what was set.
    """
    if world_size <= 1:
        return max(1, num_threads)
    return max(1, min(num_threads, num_cores() // world_size))


def num_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
