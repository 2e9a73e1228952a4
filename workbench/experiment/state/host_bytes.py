"""Read the bytes of a tensor without a lasting effect on it.

`torch.Tensor.numpy` prevents the tensor's storage from being resized for as long as it lives, even
if the array is released at once: a module that calls ``resize_`` on a buffer of its own fails from
then on, and so does ``fully_shard``, which frees in this way what it has gathered. DLPack does not.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch.nn.parameter import is_lazy


def host_bytes(tensor: torch.Tensor) -> npt.NDArray[np.uint8]:
    """Return the bytes of ``tensor``, [elements * bytes of one], in the order of its dimensions.

    If the tensor is contiguous and in host memory, the result shares its memory and must only be
    read and not kept; otherwise it is a copy. For a quantized tensor it holds the integers only.

    Raises:
        RuntimeError: it is sparse or nested, has no values, or is of a class that stores them in
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
