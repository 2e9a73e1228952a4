"""A simulated GPU that training runs on, and what helps if it runs out of memory.

`card_player` is the GPU, `card_record` the record of work it refused, `remedies` tries what would
have let it fit.
"""
