"""Recording what live code allocates: on the CPU by dispatch, on CUDA by the allocator's history.

`recorder.Recorder` watches, `ledger.Ledger` knows which storage is which block, `categories` and
`attribution` say what a block is for and whose it is, `build` packs the record.
"""
