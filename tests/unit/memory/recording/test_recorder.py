"""Every allocation and free is seen once, whoever makes it and whoever lets go of it."""

from __future__ import annotations

import gc
import threading
import weakref

import torch
from torch.testing._internal.two_tensor import TwoTensor

from workbench.memory.recording.recorder import Recorder, current_recorder
from workbench.memory.recording.storage_lifetimes import Block

KIB = 256  # float32 elements


def record(code) -> list[Block]:
    recorder = Recorder()
    with recorder:
        kept = code()  # noqa: F841 - what the code returns lives until the recording ends
    recorder.close()
    return [block for block in recorder.blocks if block.start >= 0]


def sizes(blocks: list[Block]) -> list[int]:
    return [block.num_bytes for block in blocks]


def test_an_operation_that_makes_a_tensor_is_one_allocation():
    (block,) = record(lambda: torch.zeros(KIB))
    assert (block.num_bytes, block.op, block.end) == (1024, "aten.zeros", -1)


def test_a_tensor_let_go_of_is_freed_at_that_moment():
    def code():
        first = torch.zeros(KIB)
        del first
        return torch.zeros(2 * KIB)

    first, second = record(code)
    assert first.end >= 0
    assert first.end < second.start


def test_views_and_in_place_operations_allocate_nothing():
    def code():
        base = torch.zeros(KIB)
        view = base[2:].view(-1).unsqueeze(0)
        base.add_(1).mul_(2)
        view.relu_()
        return view

    assert sizes(record(code)) == [1024]


def test_a_view_keeps_its_storage_alive():
    def code():
        view = torch.zeros(KIB)[:1]
        gc.collect()
        return view

    (block,) = record(code)
    assert block.end == -1


def test_lists_of_outputs_and_foreach_operations_are_seen():
    def code():
        parts = [torch.zeros(KIB), torch.zeros(KIB)]
        return parts, torch._foreach_add(parts, 1.0), torch.cat(parts)

    assert sizes(record(code)) == [1024, 1024, 1024, 1024, 2048]


def test_resizing_a_tensor_is_a_free_and_an_allocation():
    def code():
        tensor = torch.zeros(KIB)
        return tensor.resize_(3 * KIB)

    old, new = record(code)
    assert (old.num_bytes, new.num_bytes) == (1024, 3072)
    assert old.end < new.start
    assert new.op == "aten.resize_"


def test_an_out_argument_grown_by_its_operation_is_seen():
    def code():
        out = torch.empty(0)
        torch.add(torch.zeros(KIB), 1, out=out)
        return out

    assert sizes(record(code)) == [1024, 1024]


def test_a_storage_made_without_the_dispatcher_is_met_when_first_used():
    recorder = Recorder()
    with recorder:
        tensor = torch.empty(0, dtype=torch.uint8).set_(torch.UntypedStorage(1024))
    assert sum(sizes(recorder.blocks)) == tensor.untyped_storage().nbytes()
    recorder.close()


def test_tensors_from_python_data_are_allocations():
    (block,) = record(lambda: torch.tensor([1.0, 2.0]))
    assert (block.num_bytes, block.op) == (8, "torch.tensor")


def test_a_sparse_tensor_counts_indices_and_values():
    blocks = record(lambda: torch.eye(4).to_sparse())
    assert sum(b.num_bytes for b in blocks if b.end < 0) == 2 * 4 * 8 + 4 * 4


def test_a_layout_without_storages_is_named_not_guessed():
    recorder = Recorder()
    with recorder:
        torch.eye(4).to_sparse_csr()
    recorder.close()
    assert recorder.uncounted == {"torch.sparse_csr"}


def test_a_wrapper_subclass_is_seen_through_to_its_parts():
    recorder = Recorder()
    inner = TwoTensor(torch.zeros(KIB), torch.zeros(KIB))
    with recorder:
        made = inner * 2  # noqa: F841 - alive until the recording ends
    recorder.close()
    live = [block for block in recorder.blocks if block.start >= 0 and block.end < 0]
    assert sizes(live) == [1024, 1024]


def test_meta_tensors_take_no_memory():
    assert record(lambda: torch.zeros(KIB, device="meta") * 2) == []


def test_what_autograd_lets_go_of_during_backward_is_freed_there():
    weight = torch.ones(KIB, requires_grad=True)
    recorder = Recorder()
    with recorder:
        loss = (weight * 2).exp().exp().sum()
        torch.zeros(1)
        before = len([block for block in recorder.blocks if block.end >= 0])
        loss.backward()
    recorder.close()
    freed = [b for b in recorder.blocks if b.op == "aten.exp"]
    assert before == 1  # the product: exp saves its result, not its argument
    assert len(freed) == 2
    backward = next(mark.tick for mark in recorder.marks if mark.phase == "backward")
    assert all(block.end > backward for block in freed)


def test_the_gradient_is_the_leafs_and_what_is_no_leafs_is_not():
    weight = torch.ones(KIB, requires_grad=True)
    recorder = Recorder()
    with recorder:
        (weight * 2).sum().backward()
    gradients = [b for b in recorder.blocks if b.category == "gradients"]
    assert sizes(gradients) == [1024]
    assert weight.grad is not None
    assert gradients[0].address == weight.grad.untyped_storage().data_ptr()
    recorder.close()


def test_a_free_on_another_thread_is_seen():
    recorder = Recorder()
    held = []
    with recorder:
        held.append(torch.zeros(KIB))
        worker = threading.Thread(target=held.clear)
        worker.start()
        worker.join()
    recorder.close()
    (block,) = recorder.blocks
    assert block.end > block.start


def test_another_threads_allocations_are_not_taken_for_ours():
    recorder = Recorder()
    with recorder:
        worker = threading.Thread(target=lambda: torch.zeros(KIB))
        worker.start()
        worker.join()
    recorder.close()
    assert recorder.blocks == []


def test_two_threads_record_side_by_side():
    found: dict[int, list[int]] = {}
    ready = threading.Barrier(2)

    def work(count: int) -> None:
        def code():
            ready.wait(timeout=120)
            return [torch.zeros(KIB) for _ in range(count)]

        found[count] = sizes(record(code))

    workers = [threading.Thread(target=work, args=(count,)) for count in (3, 5)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert found == {3: [1024] * 3, 5: [1024] * 5}


def test_nothing_is_held_while_or_after_recording():
    recorder = Recorder()
    with recorder:
        tensor = torch.zeros(KIB)
        alive = weakref.ref(tensor.untyped_storage())
        del tensor
        assert alive() is None
    module = torch.nn.Linear(2, 2)
    with recorder:
        module(torch.zeros(1, 2))
    recorder.close()
    gone = weakref.ref(module)
    del module
    gc.collect()
    assert gone() is None


def test_no_weak_reference_outlives_the_recording():
    tensor = torch.zeros(KIB)
    before = weakref.getweakrefcount(tensor.untyped_storage())
    for _ in range(200):
        recorder = Recorder()
        with recorder:
            tensor + 1
        recorder.close()
    assert weakref.getweakrefcount(tensor.untyped_storage()) == before


def test_the_current_recorder_is_the_one_of_this_thread():
    recorder = Recorder()
    assert current_recorder() is None
    with recorder:
        assert current_recorder() is recorder
    assert current_recorder() is None


def test_a_storage_resized_by_hand_is_seen_when_an_operation_touches_it():
    def code():
        tensor = torch.zeros(KIB)
        tensor.untyped_storage().resize_(4096)
        return tensor.add_(1)

    old, new = record(code)
    assert (old.num_bytes, new.num_bytes) == (1024, 4096)


def test_scripted_modules_run_and_are_seen():
    model = torch.jit.script(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()))
    blocks = record(lambda: model(torch.ones(2, 4)))
    assert "aten.relu" in {block.op for block in blocks}


def test_a_fault_of_ours_never_reaches_the_users_code(monkeypatch):
    def fails(*_args):
        raise LookupError("moved in torch 9")

    monkeypatch.setattr(Recorder, "_note", fails)
    recorder = Recorder()
    with recorder:
        assert torch.ones(2).add_(1).tolist() == [2.0, 2.0]
    recorder.close()
    assert recorder.failure == "LookupError: moved in torch 9"
