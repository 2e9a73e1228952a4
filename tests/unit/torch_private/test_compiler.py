"""What Dynamo and Inductor say of themselves."""

import pytest
import torch

from workbench.torch_private import compiler


def test_the_class_of_a_compiled_model() -> None:
    kind = type(torch.compile(torch.nn.Linear(1, 1)))
    assert (kind.__module__, kind.__name__) == compiler.OPTIMIZED_MODULE


def test_the_limit_of_variants() -> None:
    assert compiler.recompile_limit() == torch._dynamo.config.recompile_limit >= 1


def test_a_break_is_one_of_the_errors() -> None:
    def breaks(x):
        torch._dynamo.graph_break()
        return x

    with pytest.raises(compiler.graph_break_errors()):
        torch.compile(breaks, fullgraph=True, backend="eager")(torch.ones(1))


def test_past_the_limit_is_the_other() -> None:
    function = torch.compile(lambda x, n: x + n, backend="eager", fullgraph=True, dynamic=False)
    with torch._dynamo.config.patch(recompile_limit=1):
        function(torch.ones(1), 0)
        with pytest.raises(compiler.recompile_limit_error()):
            function(torch.ones(2), 1)


def test_modes_are_those_that_torch_lists() -> None:
    assert {"default", "reduce-overhead", "max-autotune"} <= set(compiler.mode_settings())


def test_the_backend_inductor_takes_settings() -> None:
    graph = torch.fx.symbolic_trace(lambda x: x + 1)
    made = compiler.inductor()(graph, [torch.ones(2)], config_patches={})
    assert made(torch.ones(2)).tolist() == [2.0, 2.0]


def test_a_compiler_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor import config
    from torch._inductor.cpp_builder import cpp_compiler_search

    assert compiler.missing_cpp_compiler() is None
    monkeypatch.delenv("CXX", raising=False)
    with config.patch({"cpp.cxx": ("no-such-compiler",)}):
        cpp_compiler_search.cache_clear()
        found = compiler.missing_cpp_compiler()
    cpp_compiler_search.cache_clear()
    assert found is not None
    assert found[1] == ("no-such-compiler",)


def test_what_torch_makes_of_a_backend() -> None:
    seen = []

    def kept(backend):
        seen.append(backend)

    original = torch._dynamo.optimize
    try:
        torch._dynamo.optimize = lambda backend, **_: kept(backend) or (lambda model: model)
        torch.compile(torch.nn.Linear(1, 1).forward)
        torch.compile(torch.nn.Linear(1, 1).forward, backend="eager")
    finally:
        torch._dynamo.optimize = original
    assert [compiler.is_inductor(one) for one in seen] == [True, False]
    assert [compiler.is_named_backend(one) for one in seen] == [False, True]
