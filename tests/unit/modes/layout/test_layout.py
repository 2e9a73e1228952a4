from __future__ import annotations

import pytest

from workbench.modes.layout.layout import Layout


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("ddp:2", "ddp:2"),
        (" FSDP:4 , bf16, hsdp=2,keep ", "fsdp:4,hsdp=2,keep,bf16"),
        ("fsdp:1", "fsdp:1"),
        ("fsdp:8,hsdp=8,offload", "fsdp:8,hsdp=8,offload"),
        ("fsdp:2,hsdp=1", "fsdp:2"),
    ],
)
def test_a_layout_is_read_in_any_order_and_printed_in_one(text: str, canonical: str) -> None:
    layout = Layout.parse(text)
    assert str(layout) == canonical
    assert Layout.parse(canonical) == layout


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "valid: ddp:N or fsdp:N"),
        ("ddp", "valid: ddp:N or fsdp:N"),
        ("ddp:0", "valid: ddp:N or fsdp:N"),
        ("ddp:-1", "valid: ddp:N or fsdp:N"),
        ("ddp:²", "valid: ddp:N or fsdp:N"),
        ("tp:2", "valid: ddp:N or fsdp:N"),
        ("ddp:2,keep", "unknown option 'keep' in 'ddp:2,keep'; ddp has: none"),
        ("fsdp:2,fp8", "fsdp has: keep, bf16, fp16, offload, hsdp=N"),
        ("fsdp:2,hsdp", "unknown option 'hsdp'"),
        ("fsdp:2,hsdp=0", "unknown option 'hsdp=0'"),
        ("fsdp:3,hsdp=2", "divides 3 ranks into 2 replicas"),
        ("fsdp:2,bf16,fp16", "gives dtype twice"),
        ("fsdp:2,", "unknown option ''"),
    ],
)
def test_what_is_no_layout_is_refused_with_what_is(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said.replace("(", r"\(")):
        Layout.parse(text)
