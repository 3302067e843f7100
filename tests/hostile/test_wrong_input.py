"""Wrong search files, campaign files and arguments, one per row: the change to a good one, and the expected sentences.

Each row is one line; its sections replace those of a good file. Bounds, choices and unknown keys have a row a kind of
mistake: `tests/config/test_search_config.py` goes over those of all keys.
"""
# ruff: noqa: E501
# fmt: off

import json
import os
import shutil
import socket
import sqlite3
from pathlib import Path

import pytest
from support.refusals import GOOD, laid_over, refused

from hostile.world import CAMPAIGN, LOSSES, World

FOLDER_NAME = "name: a search's name names a folder: up to 100 letters, digits, '.', '_' and '-', beginning with a letter or digit; it is "

VALUES = [
    # Numbers: of another type, out of range, or not numbers.
    ("search: {trials: .nan}", "search.trials: must be finite; it is nan."),
    ("search: {epochs: 7}", "search.epochs gives each loss 7 and one training takes 8; give each a budget"),
    ("training: {images_per_class: 1000}", "batch_size must be at least 2 and images_per_class (1000), not 120"),
    ("training: {image_size: 1000000000}", "set dataset.store_size to 1142857143 or more."),
    ("split: {ratio: 0.01}", "At split.ratio 0.01, 48 of the training half validate and 0 are left to train."),
    # Values that YAML 1.1 reads differently.
    ("search: {trials: 1:30}", "search.trials: must be a whole number; it is '1:30'."),
]

NAMES = [
    ("name: ../up", FOLDER_NAME + "'../up'."),
    ('name: "a\\0b"', FOLDER_NAME + r"'a\x00b'."),
    ("name: mlflow.db", "name: mlflow.db is a file of the runs folder; give another name; it is 'mlflow.db'."),
]

PARTS = [
    ("losses: []", "losses: must have at least one entry; it is []."),
    ("losses: [pnp, pnp]", "losses: pnp is given more than once; keep one of each."),
    ("losses: [proxy anchor]", "it is 'proxy anchor' (did you mean proxy_anchor?)."),
    ("losses: [pr\u043exy_anchor]", r"(did you mean proxy_anchor? It is written 'pr\u043exy_anchor'.)"),
    ("losses: ['os:system']", "losses: The loss 'os:system' must be a class that derives from holdout.parts.Loss"),
    ("losses: ['nomodule:X']", "losses: The loss 'nomodule:X' does not exist: no module nomodule is found."),
    ("losses: [{name: ../x, part: 'os:system'}]", "losses: os:system would be called '../x', which cannot name a folder"),
    ("dataset: {}", "dataset.name: missing; this key is required."),
    ('dataset: {name: folder, root: "/tmp/a\\0b"}', r"dataset.root is '/tmp/a\x00b', which does not exist."),
    ("dataset: {name: glyphs, cache: /dev/null}", "dataset.cache: /dev/null cannot be written to; name a folder of your own."),
    ("model: {backbone: 'os:system'}", "The backbone 'os:system' must be a class or function that builds a module"),
    ("model: {weights: /etc/passwd}", "The weights in /etc/passwd cannot be read: "),
    ("search: {objective: loss}", "search.objective: loss is not known; choose one of recall_at_k, "),
    ("ship: ['../x']", "ship: '../x' is not a package's name; give it as Python imports it, such as mylab."),
    ("ship: [nopackage_x]", "ship: the package nopackage_x was not found; correct the name"),
    ("metrics: {validation: [nmi_super], test: [recall_at_1, f1_super]}", "metrics: nmi_super, f1_super need a data set that groups its classes into superclasses, as sop does, and"),
    ("metrics: {test: [recall_at_1-small, map_at_r]}", "metrics.test: recall_at_1-small is computed on a part of the test classes that glyphs does not have; it has none."),
    ("model: {backbone: resnet18, weights: imagenet}", "The ImageNet weights of resnet18 are not on this"),
    # Settings of a loss's own.
    ("training_by_loss: {pnp: {batch_size: 9995}}", "training_by_loss.pnp: A balanced batch of 9995"),
    ("training_by_loss: {proxy_anchor: {lr: -1, image_size: 8, clip_grad: 0}, pnp: {optimizer: sdg}}", "training_by_loss.proxy_anchor.clip_grad: must be more than 0; it is 0.", "training_by_loss.proxy_anchor.image_size: it must be the same for all", "training_by_loss.proxy_anchor.lr: must be more than 0; it is -1.", "training_by_loss.pnp.optimizer: must be one of"),
    ("space: {pnp: {training: {proxy_lr: 0.1}}}", "space.pnp.training.proxy_lr: there is no such hyperparameter to"),
    ("space: {pnp: {training: {lr: -1}}}", "space.pnp.training.lr must be more than 0; it is -1."),
    # Unknown keys, which are looked for in the whole file.
    ("epochs: 1", "epochs: no such key (did you mean training.epochs or search.epochs?); correct it, or remove it."),
    # Constraints.
    ("search: {constraints: {speed: '< 5'}}", "speed is not known"),
    # Several mistakes at once.
    ("nmae: x\nsearch: {trials: 0}\nlosses: [pnpp]", "nmae: no such key (did you mean name?)", "search.trials: must be at least 1; it is 0.", "it is 'pnpp' (did you mean pnp?)."),
]

SPACES = [
    ("space: {pnp: {temperature: {low: 0.01, high: 0.02, step: 1}}}", "space.pnp.temperature: steps of 1 from 0.01 do not end at 0.02, but at 0.01; set high to that, or give another step."),
    ("space: {pnp: {temperature: {low: 0.01, high: .inf}}}", "space.pnp.temperature.high: must be finite; it is inf."),
    ("space: {pnp: {temperature: {low: 0.01, hihg: 0.1}}}", "space.pnp.temperature: a range has the keys low, high, step, log, not hihg."),
    ("space: {pnp: {variant: Zz}}", "space.pnp.variant must be one of O, Iu, Ib, Ds, Dq; it is 'Zz'"),
    ("space: {pnp: {variant: {low: 1, high: 2}}}", "space.pnp.variant: a range needs numbers, and this is one of 'Ib', 'Ds', 'Dq'; give a list of choices."),
    ("space: {pnp: {variant: [[a]]}}", "space.pnp.variant: the choice ['a'] is of list; give finite numbers, texts, true, false or null"),
    ("space: {proxy_anchor: {scale: {low: 1, high: 9223372036854775806, step: 1}}}", "space.proxy_anchor.scale: it has more than 1,000,000 steps, from 1"),
    ("space: {mpa: {proxies_per_class: 1.5}}\nlosses: [mpa]", "space.mpa.proxies_per_class must be a whole number, at least 1; it is 1.5"),
    ("space: {mpa: {proxies_per_class: 1000000000000000}}\nlosses: [mpa]", "space.mpa.proxies_per_class: {'proxies_per_class': 1000000000000000} cannot be built"),
    ("search: {sampler: grid, pruner: none}\nlosses: [pnp]", "space.pnp.temperature is a range without steps", "space.pnp.alpha is a range", "space.pnp.bound is a range"),
]

OF_OWN = "name: row\ntrainable: examples.texts:LanguageTraining\ndataset: {name: 'examples.texts:Languages'}\n"
"""A correct search file of a user's own training."""
OWN = [
    ("losses: [mpa]", "losses: a search trains losses or a trainable, and trainable is examples.texts"),
    ("training: {lr: 0.1}\nmodel: {pooling: max}\nspace: {training: {lr: [0.1]}}", *(f"{key}: a setting of trainings with a loss" for key in ("training.lr", "model.pooling", "space.training"))),
    ("trainable: examples.texts:Languages", "must be a class that derives from"),
    ("trainable: support.own_trainings:Incomplete", *(f"has no method {name};" for name in ("train_epoch", "embed", "save", "load")), "has no default for lr", "has the range depth = 3", "has the name 'not a name'"),
    ("trainable: support.own_trainings:Impossible", "declares lr = 1 to 0.1: ", "declares margin = ", "declares depth = "),
    ("space: {languages: {rate: 1}}", "space.languages.rate: there is no such hyperparameter to search"),
    ("trainable: null\nlosses: [mpa]", "whose items are neither images nor embeddings"),
]

ADDRESSES = [
    ("tracking: {uri: 'postgresql://[::1/x'}", "tracking.uri is not a valid address (Invalid IPv6 URL); it is 'postgresql://[::1/x'."),
    ("tracking: {uri: 'sqlite:////nonexistent/x.db'}", "tracking.uri: the folder /nonexistent does not exist or cannot be written to; make it first."),
    ("tracking: {uri: 'sqlite:////etc/passwd'}", "tracking.uri: /etc/passwd is not a SQLite database (file is not a database); name another file."),
    ("tracking: {uri: 'postgresql://user:not-for-every-eye@127.0.0.1:9/x'}", "tracking.uri: it holds a password (postgresql://user:***@127.0.0.1:9/x); write it as a reference"),
    ("tracking: {uri: 'postgresql://u:${NO_SUCH_VARIABLE}@127.0.0.1:9/x'}", "needs the environment variable NO_SUCH_VARIABLE, which is not set; export it."),
    ("tracking: {uri: 'http://127.0.0.1:9'}", "tracking.uri: no MLflow server answers at http://127.0.0.1:9 "),
    ("checkpoints: {storage_path: 'nope://x'}", "checkpoints.storage_path: fsspec has no nope://"),
    ("checkpoints: {storage_path: 's3://user:not-for-every-eye@host/x'}", "checkpoints.storage_path: it names a user; leave that out"),
    ("checkpoints: {storage_path: /etc/passwd}", "checkpoints.storage_path: /etc/passwd cannot be written to; name a folder of your own."),
    ('checkpoints: {storage_path: "/tmp/a\\0b"}', r"checkpoints.storage_path: '/tmp/a\x00b' holds a zero byte"),
]

CAMPAIGNS = [
    ("vary: {}", "vary: must have at least one entry; it is {}."),
    ("vary: {a: {x: {}}, b: {y: {}}, c: {z: {}}}", "vary: must have at most 2 entries; it is {'a': "),
    ("vary: {loss: {x: {}}}", "vary: an axis cannot be called loss: the losses are always an axis"),
    ("vary: {dim: {../x: {}}}", "vary: the label '../x' of dim is part of the names of searches, and a search's name names a folder"),
    ("vary: {dim: {x: {name: y}}}", "vary: the label x of dim sets name, but searches are named after their labels"),
    ("vary: {dim: {x: {model.embedding_dim: 0}}}", "model.embedding_dim: must be at least 1, at most 65536; it is 0."),
    ("vary: {dim: {x: {resources.cpus_per_trial: 2}, y: {}}}", "vary: resources must be the same in all searches"),
    ("vary: {d: {a-b: {}, a: {}}, e: {c: {}, b-c: {}}}", "vary: several searches would be called camp-a-b-c; choose other labels."),
    (f"vary: {{dim: {{{', '.join(f'l{n}: {{}}' for n in range(2_000))}}}}}", "vary: it makes 2000 searches, and a campaign may have at most 500"),
    ("recipe: loss-benchmark-cub200", "loss-benchmark-cub200 is a campaign of several searches"),
    ("table: {rows: [zebra]}", "table.rows may name loss, dim; it names zebra; remove that."),
    ("final: {seeds: 5}", "final.seeds: no such key (did you mean base.final.seeds?)"),
]

LAUGHS = "a0: &a0 [l, l, l, l, l, l, l, l, l]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9))
NOT_YAML = "is not valid YAML: line"

FILES = [
    ("empty", b"", "must hold keys and values, such as `name: quickstart`; it is empty."),
    ("a list", b"- a\n- b\n", "must hold keys and values, such as `name: quickstart`; it holds a list."),
    ("two documents", f"{GOOD}---\n{GOOD}", f"{NOT_YAML} 4, column 1: a single document is expected; remove the others."),
    ("UTF-16", GOOD.encode("utf-16"), "is not UTF-8 text; save it as UTF-8, or name a search file."),
    ("a zero byte", f"{GOOD}# \0\n", "is not valid YAML: unacceptable character #x0000: "),
    ("an escape in a key", f'{GOOD}"\\e[31mred": 1\n', r"has the key '\x1b[31mred', which holds an invisible character; write the key plainly."),
    ("a key twice", f"{GOOD}name: other\n", f"{NOT_YAML} 4, column 1: the key 'name' is given twice; keep one of them."),
    ("a merge", f"{GOOD}search: {{<<: {{trials: 2}}}}\n", "search.<<: no such key; remove it."),
    ("a list as a key", f"{GOOD}? [a, b]\n: 3\n", "a key must be text; write it out."),
    ("an alias within itself", f"{GOOD}space: &a {{pnp: *a}}\n", "column 17: *a has no &a before it; write it out."),
    ("a billion laughs", GOOD + LAUGHS, "*a0 is part of a value with an anchor; write it out."),
    ("100,000 lists deep", f"{GOOD}x: {'[' * 100_000}{']' * 100_000}\n", "it has too many levels; flatten it."),
    ("a call of Python", f"{GOOD}x: !!python/object/apply:os.system ['touch pwned']\n", "python/object/apply:os.system is not supported; remove it."),
    ("5,000 digits", f"{GOOD}search: {{trials: {'1' * 5_000}}}\n", "the number is too long; write it out."),
]

ACCEPTED = [
    GOOD, f"---\n{GOOD}...\n", f"\ufeff{GOOD}", GOOD.replace("\n", "\r\n"), laid_over("search: {seed: -0}"), laid_over("training: {lr: 1e-3, weight_decay: 0}"),
    laid_over("training: {lr: 1.5}"), laid_over("training: {lr: &x 0.01, weight_decay: *x}"), '{"name": "row", "dataset": {"name": "glyphs"}, "losses": ["pnp"]}',
]


ROWS = [(GOOD, *row) for row in (*VALUES, *NAMES, *PARTS, *SPACES, *ADDRESSES)]
ROWS += [(OF_OWN, *row) for row in OWN] + [(CAMPAIGN, *row) for row in CAMPAIGNS]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[1][:60])
def test_a_wrong_entry_is_a_sentence(row: tuple[str, ...], here: Path) -> None:
    good, written, *sentences = row
    (here / "row.yaml").write_text(laid_over(written, good))
    refused(here, ["run", "row.yaml"], *sentences)


@pytest.mark.parametrize(("content", "sentence"), [row[1:] for row in FILES], ids=[row[0] for row in FILES])
def test_a_file_that_is_none_is_a_sentence(content: str | bytes, sentence: str, here: Path) -> None:
    (here / "row.yaml").write_bytes(content.encode() if isinstance(content, str) else content)
    refused(here, ["run", "row.yaml"], sentence)


@pytest.mark.parametrize("content", ACCEPTED)
def test_what_is_odd_and_right_is_accepted(content: str, here: Path) -> None:
    """It fails for the missing cluster alone: without this, the tables above would prove nothing."""
    (here / "row.yaml").write_bytes(content.encode())
    refused(here, ["run", "row.yaml"])


# Wrong arguments, options and ``--set``. ``row.yaml`` is a good search file; :func:`odd_files` makes the others.

SETTINGS = [
    (["trials"], "--set needs key.path=value, such as search.trials=20; it is 'trials'."),
    ([f"{'.'.join(['a'] * 5_000)}=1"], "--set needs key.path=value, such as search.trials=20; it is 'a.a.a."),
    (["search.trials=3", "search.trials=0"], "search.trials: must be at least 1; it is 0."),
    (["name.x=3"], "name: must be text; it is {'x': 3}."),
    (["search.trials=\x1b[31m"], r"--set search.trials=\x1b[31m is not valid YAML: unacceptable character #x001b"),
    (["a\x1bb=1"], r"--set a\x1bb=1 has the key 'a\x1bb', which holds an invisible character"),
]

COMMANDS = [
    (["run", "folder"], "folder cannot be read (Is a directory); name a search file."),
    (["run", "/dev/zero"], "/dev/zero has more than 1,000,000 characters, too many for a search file; shorten it."),
    (["run", "circle"], "circle cannot be read (Too many levels of symbolic links); name a search file."),
    (["run", "gone.yaml"], "There is no file 'gone.yaml' and no recipe or campaign of that name"),
    (["run", "x" * 300], "xxx…' cannot be used (File name too long); name another path, or change its permissions."),
    (["doctor", "loss-benchmark-cub200"], "loss-benchmark-cub200 is a campaign of several searches; `holdout run loss-benchmark-cub200` runs it."),
    (["run", "row.yaml", "--output", "x.pdf"], "--output x.pdf: the file's suffix sets the format and must be one of .csv, .md, .tex; it is '.pdf'."),
    (["vault", "verify", "nowhere"], "nowhere is not a vault: it has no vault.json; `holdout vault make` makes one."),
    (["run", "row.yaml", "--runs", "/dev/null/x"], "--runs: /dev/null cannot be written to; name a folder of your own."),
    (["run", "row.yaml", "--set", "tracking.uri=sqlite:///other.db"], "other.db is the database of another program (it has the tables bookmarks, but not experiments); name another file."),
    (["status", ".."], "There is no search '..' in "),
    (["embed", "folder", "folder", "--to", "e.npz"], "The folder 'folder' holds no image."),
    (["query", "future", "row.yaml"], "describes an index in the format 99, and this version reads 3; make the index again"),
    (["status", "--jobs", "--address", "http://127.0.0.1:9"], "No cluster answers at http://127.0.0.1:9 ([Errno 111] Connection refused)"),
    (["stop", "x", "--address", "http://user:not-for-every-eye@127.0.0.1:9"], "No cluster answers at http://user:***@127.0.0.1:9 "),
]

MODELS = [
    (["embed", "model", "nothing", "--to", "a.npz"], "There is no image and no folder "),
    (["embed", "model", "image.png", "--to", "a.csv"], "--to a.csv: the file's suffix sets the format and must be one of .npz, .parquet; it is '.csv'."),
    (["embed", "model", "image.png", "--to", "b.npz"], "it is a folder; name a file."),
    (["embed", "model", "image.png", "--to", "row.yaml/c.npz"], "is not writable"),
    (["embed", "model", "image.png", "--to", "a.npz", "--batch-size", "0"], "batch_size is 0; give 1 or more."),
    (["embed", "birds", "image.png", "--to", "a.npz"], "is the folder of a search, not a model"),
    (["embed", "nowhere://birds", "image.png", "--to", "a.npz"], "cannot be accessed (ValueError: Unsupported filesystem: 'nowhere'); install"),
    (["embed", "own", "image.png", "--to", "a.npz"], "has a user-defined network, lab:Net, whose code would be imported and run"),
    (["embed", "weights.pt", "image.png", "--to", "a.npz"], "other formats, which would have to be unpickled, are not read"),
    (["index", "model", "image.png", "--to", "birds"], "holds files that are not an index's (search.yaml)"),
    (["query", "index", "image.png", "--model", "model", "-k", "97"], "k is 97, and the index holds 96 images; give 1 to 96."),
    (["query", "index", "image.png", "--model", "other"], "The index index was made by the model "),
    (["query", "nameless", "image.png"], "nameless does not name its model; add --model."),
]

USAGE = [
    (["run", "row.yaml", "--runs", "row.yaml"], "dir 'row.yaml' is a file"),
    (["run", "a\0b"], "embedded null byte"),
    (["run", "row.yaml", "--nope"], "No such option: --nope"),
    (["serve", "--port", "99999"], "Invalid value for '--port': it must be less than or equal to 65535"),
]


@pytest.fixture
def odd_files(here: Path) -> Path:
    """The current folder of the commands, with files of all kinds."""
    (here / "row.yaml").write_text(GOOD)
    for name in ("folder", "future"):
        (here / name).mkdir()
    (here / "future" / "index.json").write_text('{"format": 99}')
    os.mkfifo(here / "pipe")
    (here / "circle").symlink_to("circle")
    database = sqlite3.connect(here / "other.db")
    database.execute("CREATE TABLE bookmarks (address)")
    database.close()
    return here


@pytest.fixture
def models(odd_files: Path, world: World) -> Path:
    """The folder with two models, an index and more that is none."""
    for name, loss in (("model", LOSSES[0]), ("own", LOSSES[0]), ("other", LOSSES[1])):
        shutil.copytree(world.origin / "runs" / "small" / "models" / loss, odd_files / name)
    for name in ("index", "nameless"):
        shutil.copytree(world.origin / "index", odd_files / name)
    for file, section, key, value in (("own/model.json", "model", "backbone", "lab:Net"), ("nameless/index.json", "", "model", None)):
        content = json.loads((odd_files / file).read_text())
        (content[section] if section else content)[key] = value
        (odd_files / file).write_text(json.dumps(content))
    for name in ("birds", "b.npz"):
        (odd_files / name).mkdir()
    (odd_files / "birds" / "search.yaml").write_text("name: birds\n")
    (odd_files / "weights.pt").write_bytes(b"\x80\x04N.")
    shutil.copy(world.origin / "image.png", odd_files)
    return odd_files


@pytest.mark.parametrize(("arguments", "sentence"), MODELS, ids=lambda value: str(value)[:60])
def test_a_wrong_model_index_or_image_is_a_sentence(arguments: list[str], sentence: str, models: Path) -> None:
    refused(models, arguments, sentence)


SET = [(["run", "row.yaml", *(word for setting in settings for word in ("--set", setting))], said) for settings, said in SETTINGS]


@pytest.mark.parametrize(("arguments", "sentence"), [*SET, *COMMANDS, *USAGE], ids=lambda value: str(value)[:60])
def test_a_wrong_argument_is_a_sentence(arguments: list[str], sentence: str, odd_files: Path) -> None:
    refused(odd_files, arguments, sentence)


def test_runs_from_the_environment_may_be_no_file(odd_files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDOUT_RUNS", "row.yaml")
    refused(odd_files, ["status"], "dir 'row.yaml' is a file")


def test_a_port_that_is_taken_is_a_sentence(odd_files: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused(odd_files, ["serve", "--runs", "folder", "--port", str(port)], f"127.0.0.1:{port} (Address already in use); choose")
