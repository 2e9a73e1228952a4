"""Parts of Dynamo and Inductor for which `torch.compile` has no public name.

Each function imports what it needs, which takes seconds the first time; the compiler is loaded when
a step compiles, and not before.
"""

# pyright: reportPrivateUsage=false, reportPrivateImportUsage=false

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, cast

from workbench.torch_private.lookup import Check, expect, private, resolve

OPTIMIZED_MODULE = ("torch._dynamo.eval_frame", "OptimizedModule")
"""Module and name of the class that ``torch.compile(model)`` returns."""


def recompile_limit() -> int:
    """Return how many variants of one piece of code Dynamo keeps."""
    from torch._dynamo import config

    return config.recompile_limit


def inductor() -> Callable[..., Any]:
    """Return the backend ``inductor``: takes a graph, inputs and ``config_patches``."""
    from torch._dynamo import lookup_backend

    return cast("Callable[..., Any]", lookup_backend("inductor"))


def graph_break_errors() -> tuple[type[BaseException], ...]:
    """Return the errors that are raised for a graph break where none is allowed."""
    from torch._dynamo.exc import Unsupported, UserError

    return Unsupported, UserError


def recompile_limit_error() -> type[BaseException]:
    """Return the error that is raised when a call fits none of the maximum number of variants."""
    from torch._dynamo.exc import FailOnRecompileLimitHit

    return FailOnRecompileLimitHit


def mode_settings() -> dict[str, dict[str, Any]]:
    """Return a mapping from each mode of ``torch.compile`` to what it sets in Inductor."""
    from torch._inductor import list_mode_options

    return list_mode_options()


def missing_cpp_compiler() -> tuple[BaseException, tuple[str, ...]] | None:
    """Return what Inductor raises if it finds no C++ compiler, and the names that it looks for."""
    from torch._inductor import config
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except (InvalidCxxCompiler, RuntimeError, OSError) as error:
        tried: Any = getattr(getattr(config, "cpp", None), "cxx", ())
        names = tried if isinstance(tried, (tuple, list)) else ("g++",)
        return error, tuple(str(name) for name in cast("tuple[Any, ...]", names) if name)
    return None


def has_triton_package() -> bool:
    """Return whether Triton is installed; torch keeps its answer, which is asked for anew."""
    _triton_package.cache_clear()
    return _triton_package()


def triton_supports_device() -> bool:
    """Return whether Triton is installed and supports this machine's GPU, asked for anew."""
    _triton_support.cache_clear()
    return _triton_support()


def is_inductor(backend: object) -> bool:
    """Return whether it is what ``torch.compile`` made of the name ``inductor``."""
    return isinstance(backend, _inductor_wrapper)


def is_named_backend(backend: object) -> bool:
    """Return whether it is what ``torch.compile`` made of another backend."""
    return isinstance(backend, _wrapper)


_inductor_wrapper: type = private("torch._TorchCompileInductorWrapper")
_wrapper: type = private("torch._TorchCompileWrapper")
_triton_package: Any = private("torch.utils._triton.has_triton_package")
_triton_support: Any = private("torch.utils._triton.has_triton")


# -- checks ---------------------------------------------------------------------------------


def _check_module() -> None:
    expect(isinstance(resolve(".".join(OPTIMIZED_MODULE)), type), "a compiled model has no class")


def _check_backends() -> None:
    expect(callable(inductor()), "the backend inductor cannot be called")
    expect(not is_inductor("eager") and not is_named_backend("eager"), "a name is a backend")


def _check_limits() -> None:
    expect(recompile_limit() >= 1, "there is no limit of variants")
    kinds: tuple[Any, ...] = (*graph_break_errors(), recompile_limit_error())
    for kind in kinds:
        expect(issubclass(kind, BaseException), f"{kind} is no error")


def _check_modes() -> None:
    expect({"default", "max-autotune"} <= set(mode_settings()), f"modes are {[*mode_settings()]}")


def _check_toolchain() -> None:
    missing_cpp_compiler()  # whether there is one is not checked here
    tried: Any = resolve("torch._inductor.config").cpp.cxx
    expect(isinstance(tried, (tuple, list)), "the names of C++ compilers are elsewhere")


def _check_triton() -> None:
    installed = find_spec("triton") is not None
    expect(has_triton_package() is installed, "an installed Triton is not found")
    expect(callable(_triton_support.cache_clear), "whether Triton supports a GPU is asked once")


CHECKS = (
    Check((".".join(OPTIMIZED_MODULE),), "compiled models", _check_module),
    Check(
        (
            "torch._dynamo.lookup_backend",
            "torch._TorchCompileInductorWrapper",
            "torch._TorchCompileWrapper",
        ),
        "backends of the compiler",
        _check_backends,
    ),
    Check(
        (
            "torch._dynamo.config.recompile_limit",
            "torch._dynamo.exc.Unsupported",
            "torch._dynamo.exc.UserError",
            "torch._dynamo.exc.FailOnRecompileLimitHit",
        ),
        "graph breaks and recompilations",
        _check_limits,
    ),
    Check(("torch._inductor.list_mode_options",), "the modes of torch.compile", _check_modes),
    Check(
        (
            "torch._inductor.cpp_builder.get_cpp_compiler",
            "torch._inductor.exc.InvalidCxxCompiler",
            "torch._inductor.config.cpp",
        ),
        "whether there is a C++ compiler",
        _check_toolchain,
    ),
    Check(
        ("torch.utils._triton.has_triton_package", "torch.utils._triton.has_triton"),
        "whether Triton can be used",
        _check_triton,
    ),
)
