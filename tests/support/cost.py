"""What a search costs at most, so that small ones stay small."""

from search.config.search_config import SearchConfig

AFFORDABLE = 1_000_000  # images seen in all trainings of a small campaign


def images_seen(config: SearchConfig) -> float:
    """An upper bound: nothing is pruned, and every default is confirmed and tested too."""
    classes = config.dataset.source.classes()
    images = sum(len(keys) for keys in classes.values()) / 2
    seeds = config.selection.seeds or 2
    each = config.search.trials + (config.selection.finalists + 1) * seeds + 2 * config.final.seeds
    return len(config.loss_names) * each * config.training.epochs * images
