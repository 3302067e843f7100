"""One training on several devices of a machine: each process, a rank, embeds its share of every batch.

Rank 0 is the process that holds the training. It alone has the loss, the validation and the checkpoints; the others
have the network, and what is learned is what one process would learn.
"""
