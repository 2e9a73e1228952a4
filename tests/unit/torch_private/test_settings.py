"""Settings of the compiler's modules, and those of the process by torch's C++."""

import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from workbench.torch_private import settings


def test_a_module_of_settings_lists_what_was_set() -> None:
    import torch._dynamo.config as config

    assert isinstance(config, settings.ConfigModule)
    found = settings.entries(config)
    assert {"recompile_limit", "suppress_errors"} <= set(found)
    assert hasattr(found["recompile_limit"], "user_override")
    assert hasattr(found["recompile_limit"], "alias")


def test_settings_within_settings() -> None:
    import torch._inductor.config as config

    assert isinstance(config.cpp, settings.SubConfigProxy)


def test_the_process_by_native_names() -> None:
    with torch.backends.nnpack.flags(enabled=False):
        assert settings.is_nnpack_enabled() is False
    before = settings.sdp_priority()
    chosen = [SDPBackend.MATH, SDPBackend.EFFICIENT_ATTENTION]
    with sdpa_kernel(chosen, set_priority=True):
        assert settings.sdp_priority()[:2] == [int(one) for one in chosen]
    settings.set_sdp_priority(before)
    assert settings.sdp_priority() == before


def test_the_stance_of_the_compiler() -> None:
    import torch._dynamo.eval_frame

    with torch.compiler.set_stance("force_eager"):
        assert settings.stance()[:2] == ("force_eager", False)
    assert settings.stance()[0] == "default"


def test_a_module_of_dynamo_is_not_imported_by_looking() -> None:
    assert settings.dynamo_module("no_such_module") is None
    import torch._dynamo.eval_frame as frames

    assert settings.dynamo_module("eval_frame") is frames is sys.modules["torch._dynamo.eval_frame"]
    assert torch.compiler.is_compiling() is False
