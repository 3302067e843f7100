"""What a loss's parent run in MLflow shows."""


def _parent_facts(
    comparison: Mapping[str, Any], loss: str, stage: str
) -> tuple[dict[str, float], dict[str, str], dict[str, Any], dict[str, str]]:
    """What a loss's parent run shows: its statistics at each stage, by role; tags; the chosen parameters; files."""
    tags = {"holdout.loss": loss, "holdout.stage": stage}
    if stage != Stage.SEARCH:
        return {}, tags, {}, {}
    (summary,) = comparison["searches"]
    entry = summary["losses"][loss]
    metrics: dict[str, float | None] = {
        "search_value": entry["best"]["value"] if entry["best"] else None,
        "default_search_value": entry["default"]["value"],
        **{f"trials_{state}": float(count) for state, count in entry["trials"].items()},
    }
    for role, found in (("", entry), ("default_", entry["default"])):
        for stage in ("confirmed", "final"):
            values = found[stage] or {}
            metrics |= {f"{role}{stage}_{key}": values.get(key) for key in ("mean", "std")}
        for name, values in (found["test"] or {}).items():
            low, high = values["ci95"] or (None, None)
            spread = {"_std": values["std"], "_ci95_low": low, "_ci95_high": high}
            metrics |= {f"{role}test_{name}{key}": value for key, value in {"": values["mean"], **spread}.items()}
    tags["holdout.openings"] = comparison["openings"]
    for pair in comparison["pairs"]:
        if loss in (pair["first"][1], pair["second"][1]):
            tags[f"holdout.pair.{'.'.join((*pair['first'][1:], *pair['second'][1:]))}"] = (
                f"{pair['difference']:+.4f} {interval(pair['ci95'])}, p {pair['p_holm']:.4f} (Holm): {verdict(pair)}"
            )
    if entry["diagnostics"]:
        tags["holdout.diagnostics"] = "; ".join(finding["sentence"] for finding in entry["diagnostics"])
    chosen = entry["confirmed"]["params"] if entry["confirmed"] else {}
    files = {"comparison.md": as_markdown(text_tables(comparison)), "comparison.csv": as_csv(comparison)}
    return {name: value for name, value in metrics.items() if value is not None}, tags, chosen, files
