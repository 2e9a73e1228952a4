"""A simulated card that training runs on, and what helps where it runs out of memory.

`card_player` is the card, `card_record` the record of work it refused, `remedies` tries what would
have let it fit.
"""
