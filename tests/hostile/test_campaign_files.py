"""Wrong campaign files, one per row: the change to a good one, and the expected sentences."""
# ruff: noqa: E501
# fmt: off

from pathlib import Path

import pytest
from support.refusals import laid_over, refused

GOOD = """\
name: camp
study: what is varied
base: {dataset: {name: glyphs}, losses: [pnp]}
vary: {dim: {small: {model.embedding_dim: 8}, large: {model.embedding_dim: 16}}}
table: {rows: [loss]}
"""

ROWS = [
    ("vary: {}", "vary: must have at least one entry; it is {}."),
    ("vary: {dim: {}}", "vary: the axis dim has no label; it is {'dim': {}}."),
    ("vary: {a: {x: {}}, b: {y: {}}, c: {z: {}}}", "vary: must have at most 2 entries; it is {'a': "),
    ("vary: {loss: {x: {}}}", "vary: an axis cannot be called loss: the losses are always an axis"),
    ("vary: {dim: {../x: {}}}", "vary: the label '../x' of dim is part of the names of searches, and a search's name names a folder"),
    ("vary: {dim: {x: {}, x: {}}}", "line 5, column 21: the key 'x' is given twice; keep one of them."),
    ("vary: {dim: {x: 3}}", "vary.dim.x: must be keys and values; it is 3."),
    ("vary: {dim: {x: {'': 0}}}", "vary: the label x of dim sets '', which is not a key such as search.trials"),
    ("vary: {dim: {x: {name: y}}}", "vary: the label x of dim sets name, but searches are named after their labels"),
    ("vary: {dim: {x: {training.lr: .nan}}}", "vary.dim.x.training.lr: must be finite; it is nan."),
    ("vary: {dim: {x: {model.embedding_dim: 0}}}", "model.embedding_dim: must be at least 1, at most 65536; it is 0."),
    ("vary: {dim: {x: {resources.cpus_per_trial: 2}, y: {}}}", "vary: resources must be the same in all searches"),
    ("vary: {d: {a-b: {}, a: {}}, e: {c: {}, b-c: {}}}", "vary: several searches would be called camp-a-b-c; choose other labels."),
    (f"vary: {{dim: {{{', '.join(f'l{n}: {{}}' for n in range(2_000))}}}}}", "vary: it makes 2000 searches, and a campaign may have at most 500"),
    ("recipe: nope", "There is no file 'nope' and no recipe or campaign of that name"),
    ("recipe: loss-benchmark-cub200", "loss-benchmark-cub200 is a campaign of several searches"),
    ("base: {}", "dataset: missing; this key is required.", "losses: missing; this key is required."),
    ("base: {name: x}", "base: base cannot have a name"),
    ("base: {dataset: {name: glyphs}, losses: [pnpp]}", "it is 'pnpp' (did you mean pnp?)."),
    ("name: ../x", "name: a search's name names a folder"),
    ("table: {}", "table.rows: missing; this key is required."),
    ("table: {rows: [zebra]}", "table.rows may name loss, dim; it names zebra."),
    ("table: {rows: [loss, loss]}", "table.rows: loss is given more than once; keep one of each."),
    ("table: {rows: [loss], metrics: [zebra]}", "table.metrics: zebra is not known; choose one of recall_at_k"),
    ("table: {rows: [loss], roles: [zebra]}", "table.roles: must be 'default' or 'tuned'; it is 'zebra'."),
    ("nope: 3", "nope: no such section; remove it."),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:60])
def test_a_wrong_entry_is_a_sentence(row: tuple[str, ...], here: Path) -> None:
    written, *sentences = row
    (here / "camp.yaml").write_text(laid_over(written, GOOD))
    refused(here, ["run", "camp.yaml"], *sentences)


def test_a_good_campaign_is_refused_for_its_cluster_alone(here: Path) -> None:
    (here / "camp.yaml").write_text(GOOD)
    refused(here, ["run", "camp.yaml"])
