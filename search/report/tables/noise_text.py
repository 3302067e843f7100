"""What the noise stage came to, in a sentence or two."""

from search.report.results.noise_summary import NoiseSummary


def noise_text(noise: NoiseSummary, objective: str) -> str:
    """``noise`` in words; ``objective`` is the metric that its values are of."""
    if noise.std is None:
        return f"Noise of {noise.loss}: only one training finished, which has no deviation."
    lines = [
        f"Noise of {noise.loss}: {objective} {noise.mean:.4f}, deviation {noise.std:.4f} over "
        f"{len(noise.values)} seeds."
    ]
    if noise.split_std is not None:
        lines.append(f"Over {len(noise.split_values)} class splits with one seed it is {noise.split_std:.4f}.")
    found = noise.detectable
    if found.difference is None:
        lines.append(f"final.seeds = {found.seeds}: one seed cannot tell any difference.")
    else:
        lines.append(
            f"final.seeds = {found.seeds} can tell two rows of {found.pairs} pair{'s' * (found.pairs > 1)} apart that "
            f"differ by {found.difference:.4f} or more, beside the noise of the test classes (5 %, power 80 %)."
        )
    return " ".join([*lines, noise.covers])
