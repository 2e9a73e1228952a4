"""Recording what live code allocates: on the CPU by dispatch, on CUDA by the allocator's history.

`recorder.Recorder` watches, `ledger.Ledger` maps storages to blocks, `categories` and `attribution`
determine what a block is for and which module it belongs to, `build` packs the record.
"""
