"""What is set for a process holds in another one that takes it over."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from workbench.experiment.state import process_settings
from workbench.experiment.state.process_settings import ProcessSettings, threads_of_a_rank

SENDER = """import gc, logging, multiprocessing, os, pickle, sys, warnings
import numpy, torch, torch._dynamo, torch._inductor.config
from workbench.experiment.state import compile_settings
from workbench.experiment.state.process_settings import ProcessSettings
compile_settings.watch()
before = ProcessSettings.current()
torch.use_deterministic_algorithms(True, warn_only=True)
torch.utils.deterministic.fill_uninitialized_memory = False
torch.set_default_dtype(torch.float64)
torch.set_float32_matmul_precision("high")
torch.backends.cudnn.rnn.fp32_precision = "ieee"
torch.backends.mkldnn.conv.fp32_precision = "bf16"
torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = (False, False)
torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
torch.backends.cuda.matmul.allow_fp16_accumulation = True
for name, value in dict(benchmark=True, deterministic=True, enabled=False).items():
    setattr(torch.backends.cudnn, name, value)
torch.backends.mkldnn.deterministic = True
torch.backends.mkldnn.enabled = False
for name in ("flash", "mem_efficient", "cudnn"):
    getattr(torch.backends.cuda, f"enable_{name}_sdp")(False)
torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True)
torch._C._set_sdp_priority_order([2, 1, 0, 3, 4])
torch.backends.mha.set_fastpath_enabled(False)
torch.backends.nnpack.set_flags(False)
torch.autograd.set_detect_anomaly(True, check_nan=False)
torch.set_flush_denormal(True)
torch.set_warn_always(True)
torch.sparse.check_sparse_tensor_invariants.enable()
torch.__future__.set_swap_module_params_on_conversion(True)
torch.__future__.set_overwrite_module_params_on_conversion(True)
torch.distributions.Distribution.set_default_validate_args(False)
torch.compiler.set_stance("force_eager")
torch.compiler.set_default_backend("eager")
torch.multiprocessing.set_sharing_strategy("file_system")
multiprocessing.set_start_method("spawn")
numpy.seterr(divide="raise")
sys.setrecursionlimit(4321)
gc.disable(); gc.set_threshold(701, 11, 12)
torch._dynamo.config.recompile_limit = 3
torch._inductor.config.triton.cudagraphs = True
warnings.filterwarnings("error", "mine", RuntimeWarning)
logging.getLogger("mine").setLevel(logging.ERROR)
logging.disable(logging.DEBUG)
found = ProcessSettings.current()
print([name for name, value in found.switches.items() if before.switches.get(name) == value])
with open(sys.argv[1], "wb") as stream:
    pickle.dump(found, stream)
"""
RECEIVER = """import logging, pickle, sys, warnings
import torch, torch._dynamo, torch._inductor.config
from workbench.experiment.state import compile_settings
from workbench.experiment.state.process_settings import ProcessSettings
with open(sys.argv[1], "rb") as stream:
    wanted = pickle.load(stream)
problems = wanted.apply()
assert not problems, problems
found = ProcessSettings.current()
print([name for name, value in wanted.switches.items() if found.switches.get(name) != value])
print(torch._dynamo.config.recompile_limit, torch._inductor.config.triton.cudagraphs)
print(logging.getLogger("mine").level, logging.root.manager.disable)
with warnings.catch_warnings(record=True):
    try:
        warnings.warn("mine", RuntimeWarning)
    except RuntimeWarning:
        print("an error")
assert set(wanted.compile_settings) <= set(found.compile_settings)
"""
NOT_ON_A_CPU = [
    "torch.backends.cudnn.benchmark_limit",
    "torch.backends.cudnn.depthwise_kernel",
    "torch.backends.miopen.immediate",
    "torch.backends.cuda.preferred_linalg_library",
    "torch.backends.cuda.preferred_blas_library",
]
"""Without a GPU torch refuses other values."""
LEFT_ALONE = [
    "torch.backends.fp32_precision",
    "torch.backends.cudnn.fp32_precision",
    "torch.backends.cudnn.conv.fp32_precision",
    "torch.backends.mkldnn.fp32_precision",
    "torch.backends.mkldnn.rnn.fp32_precision",
    "torch.backends.cuda.enable_math_sdp",
    "torch.backends.opt_einsum.enabled",
    "torch.backends.opt_einsum.strategy",
    "torch.backends.quantized.engine",
    "torch.set_num_interop_threads",
]
"""Others of their kind are set, or this machine has one value alone."""


def test_everything_that_is_set_is_set_in_another_process(
    ran: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    path = str(tmp_path / "settings")
    sent = ran(SENDER, path)
    assert not sent.returncode, sent.stderr
    assert set(eval(sent.stdout)) <= {*NOT_ON_A_CPU, *LEFT_ALONE}
    received = ran(RECEIVER, path)
    assert not received.returncode, received.stderr
    assert received.stdout.splitlines() == ["[]", "3 True", "40 10", "an error"]


def test_taking_them_is_no_change_and_costs_little() -> None:
    found = ProcessSettings.current()
    assert pickle.loads(pickle.dumps(found)) == found
    names = [switch.name for switch in process_settings._switches()]
    assert len(names) == len(set(names))


NO_SETTING = {
    *("autocast_cache_enabled", "autocast_cpu_dtype", "autocast_cpu_enabled", "autocast_dtype"),
    *("autocast_enabled", "autocast_gpu_dtype", "autocast_ipu_dtype", "autocast_ipu_enabled"),
    *("autocast_xla_dtype", "autocast_xla_enabled", "default_device", "num_threads"),
    "grad_enabled",
    *("rng_state", "printoptions"),
    *("anomaly_enabled", "default_tensor_type", "deterministic_debug_mode"),
}
"""A thread's (`workbench.experiment.state.thread_state`), no number's, or another word for one."""


def test_no_setting_of_this_torch_is_forgotten() -> None:
    named = " ".join(switch.name for switch in process_settings._switches())
    missing = [
        name
        for name in dir(torch)
        if name.startswith("set_") and name.removeprefix("set_") not in NO_SETTING
        if name not in named
    ]
    assert not missing
    for name, module in sys.modules.items():
        if not name.startswith("torch.backends.cud") and name != "torch.backends.mkldnn":
            continue
        for attribute, value in vars(type(module)).items():
            if type(value).__name__ == "ContextProp" and attribute != "allow_tf32":
                assert f"{name}.{attribute}" in named
        for attribute in dir(module):
            if attribute.startswith("enable_") and not attribute.startswith("enable_dispatch"):
                assert f"{name}.{attribute}" in named


@pytest.mark.parametrize(
    ("here", "ranks", "each"), [(1, 2, 1), (8, 2, 4), (8, 3, 2), (8, 16, 1), (3, 2, 3), (16, 1, 16)]
)
def test_ranks_share_the_cores(
    here: int, ranks: int, each: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_settings, "num_cores", lambda: 8)
    assert threads_of_a_rank(here, ranks) == each
