"""The bytes of a tensor, without leaving a mark on it.

`torch.Tensor.numpy` forbids the tensor's storage to be resized for as long as it lives, also where
the array is gone at once: a module that calls ``resize_`` on a buffer of its own fails from then
on, and so does ``fully_shard``, which frees by it what it has gathered. DLPack does not.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch.nn.parameter import is_lazy


def host_bytes(tensor: torch.Tensor) -> npt.NDArray[np.uint8]:
    """Bytes of ``tensor``, [elements * bytes of one], in the order of its dimensions.

    They are its own where it is contiguous and in the host's memory, to be read and not kept, and a
    copy of them where it is not. Of a quantized tensor it is the integers alone.

    Raises:
        RuntimeError: it is sparse or nested, has no values, or is of a class that keeps them in
            another way.
    """
    kind, plain_kind = cast("tuple[Any, Any]", (type(tensor), torch.Tensor))
    if kind.__torch_dispatch__ is not plain_kind.__torch_dispatch__:
        raise RuntimeError(f"a {kind.__name__} keeps its values in another way")
    if is_lazy(tensor):
        raise RuntimeError("it has no values yet")
    plain: Any = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
    found: Any = np.from_dlpack(plain.view(torch.uint8))
    return found
