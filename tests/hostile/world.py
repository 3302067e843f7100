"""The world that is attacked: a finished search, a model, an index; and a secret, a victim folder, a listening port."""

import json
import os
import shutil
import sys
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

from support.refusals import NOWHERE
from support.small_search import draw_folder, small_search

LOSSES = ("proxy_anchor", "pnp")
CAMPAIGN = """\
name: camp
study: what is varied
base: {dataset: {name: glyphs}, losses: [pnp]}
vary: {dim: {small: {model.embedding_dim: 8}, large: {model.embedding_dim: 16}}}
table: {rows: [loss]}
"""
"""A correct campaign file."""


def make_origin(folder: Path) -> Path:
    """Write the finished search ``small`` below ``runs``, an index, and a file of every kind that commands read."""
    from contextlib import closing

    import numpy as np
    import pyarrow
    import torch
    from pyarrow.parquet import write_table
    from safetensors.numpy import save_file
    from support.finished_search import run_here
    from support.refusals import GOOD
    from support.trees import WRITERS, make_tree

    from search.driver.stages import recorded_outcome
    from search.driver.synchronise import make_projection, synchronise
    from search.report.document import write_search_report
    from trainables.inference.embedder import load_model
    from trainables.inference.index import ImageIndex

    images, runs = draw_folder(folder / "images", images=6), folder / "runs"
    training = {"epochs": 2, "batch_size": 20, "images_per_class": 5, "image_size": 16}
    few = {"search": {"trials": 2}, "selection": {"finalists": 1, "seeds": 1}, "final": {"seeds": 1}}
    for search in run_here(runs, [small_search(images, training=training, losses=list(LOSSES), **few)]):
        with closing(search):
            synchronise(recorded_outcome(search), make_projection(search.plan))
    write_search_report(runs, ["small"])
    paths = sorted(images.glob("*/*.png"))
    model = load_model(str(runs / "small" / "models" / LOSSES[0]), device="cpu")
    ImageIndex.of(model.embed(paths), [*map(str, paths)], model).save(str(folder / "index"))
    shutil.copy(paths[0], folder / "image.png")
    (folder / "row.yaml").write_text(GOOD)
    (folder / "camp.yaml").write_text(CAMPAIGN)
    rows = [f"{path.relative_to(folder)},{path.parent.name}" for path in paths]
    (folder / "list.csv").write_text("\n".join(["path,class", *rows]))
    vectors, labels = np.eye(40, dtype="f4"), [f"c{row // 5}" for row in range(40)]
    np.savez(folder / "own.npz", embeddings=vectors, labels=labels)
    write_table(pyarrow.table({"embeddings": [*vectors], "labels": labels}), folder / "own.parquet")
    save_file({"embeddings": vectors}, folder / "own.safetensors", {"labels": json.dumps(labels)})
    torch.save({"conv1.weight": torch.zeros(2)}, folder / "weights.pth")
    for name in WRITERS:
        make_tree(name, folder / name)
    return folder


@dataclass
class World:
    """Everything below ``folder``.

    Attributes:
        secret: a file that no command may open.
        secret_word: its content.
        variable: the value of the environment variable ``ATTACK_SECRET``, which no command may tell.
        victim: a folder that no command may change.
        module: a module that no command may import.
        canary: the file that the module, or a shell, creates.
    """

    folder: Path
    secret_word: str = "the-content-of-a-private-file"
    variable: str = "the-value-of-a-variable"
    module: str = "attack_canary"
    port: int = 0
    dashboard_port: int = 0
    _servers: list[int] = field(default_factory=list)

    @property
    def secret(self) -> Path:
        return self.folder / "private" / "key.txt"

    @property
    def victim(self) -> Path:
        return self.folder / "victim"

    @property
    def canary(self) -> Path:
        return self.folder / "canary"

    @property
    def origin(self) -> Path:
        """The folder that is copied: a finished search and everything else that commands read."""
        return self.folder / "origin"

    def begin(self) -> None:
        """Make everything; the search is trained in another process, since a fork needs a process without threads."""
        self.set_traps()
        if (child := os.fork()) == 0:
            try:
                self.enter(self.folder, own=True)
                make_origin(self.origin)
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "the search cannot be made"
        self.dashboard_port = self._serve(_Dashboard)

    def set_traps(self) -> None:
        """Make what no command may touch."""
        self.secret.parent.mkdir(parents=True)
        self.secret.write_text(self.secret_word)
        self.restore_victim()
        modules = self.folder / "modules"
        modules.mkdir()
        (modules / f"{self.module}.py").write_text(
            f"import pathlib\npathlib.Path({str(self.canary)!r}).touch()\n\n\nclass Boom:\n    pass\n"
        )
        sys.path.append(str(modules))
        self.port = self._serve(_Counting)

    def enter(self, folder: Path, *, own: bool = False) -> None:
        """Set the environment of a process: the user who made the search, or by default one who got it."""
        os.environ |= {
            "ATTACK_SECRET": self.variable,
            "XDG_STATE_HOME": str(self.folder / "own-state" if own else folder / ".state"),
            "XDG_CONFIG_HOME": str(folder / ".config"),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            "HOME": str(folder),
        } | ({} if own else {"RAY_ADDRESS": NOWHERE})

    def _serve(self, handler: "type[_Quiet]") -> int:
        """Serve in another process, until :meth:`end`; return the port."""
        server = HTTPServer(("127.0.0.1", 0), handler)
        if (child := os.fork()) == 0:
            handler.log = self.folder / "contacts"
            server.serve_forever()
        self._servers.append(child)
        port = server.server_address[1]
        server.server_close()
        return port

    def end(self) -> None:
        """End the servers."""
        for child in self._servers:
            os.kill(child, 9)
            os.waitpid(child, 0)

    def contacts(self) -> int:
        """Return how many connections the listening port had."""
        log = self.folder / "contacts"
        return log.stat().st_size if log.exists() else 0

    def victim_state(self) -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in sorted(self.victim.rglob("*")) if path.is_file()}

    def restore_victim(self) -> None:
        shutil.rmtree(self.victim, ignore_errors=True)
        trials = self.victim / "small" / "trials" / "pnp" / "0000"
        trials.mkdir(parents=True)
        (trials / "precious.txt").write_text("years of work")


class _Quiet(BaseHTTPRequestHandler):
    """A handler that prints nothing; ``log`` is a file for what it counts."""

    log = Path()

    def log_message(self, format: str, *arguments: object) -> None:
        """Print nothing."""


class _Counting(_Quiet):
    """Counts connections, whatever they send."""

    def setup(self) -> None:
        with self.log.open("ab") as log:
            log.write(b"x")
        super().setup()


class _Dashboard(_Quiet):
    """A cluster's dashboard whose answers an attacker writes: the path begins with them as JSON in hexadecimal."""

    def do_GET(self) -> None:
        _, written, rest = self.path.split("/", 2)
        content = bytes.fromhex(written) if rest.startswith("api/jobs") else b'{"ray_version": "2.60.0"}'
        if rest.rstrip("/").endswith("logs"):
            content = json.dumps({"logs": content.decode(errors="replace")}).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(content)

    do_POST = do_DELETE = do_GET


def free_of_threads() -> bool:
    """Return True if this process may fork safely."""
    return len(os.listdir("/proc/self/task")) == 1
