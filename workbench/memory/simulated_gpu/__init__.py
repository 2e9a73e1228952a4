"""A simulated GPU that training runs on, and what helps if it runs out of memory.

`simulated_gpu` is the GPU, `work_record` the record of a step on it, `remedies` tries what would
have let a refused step fit.
"""
