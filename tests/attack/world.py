"""The world that is attacked: a finished search, a model, an index; and a secret, a victim folder, a listening port."""

import json
import os
import shutil
import sys
from contextlib import closing
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

from support.small_search import draw_folder, small_search

LOSSES = ("proxy_anchor", "pnp")


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
    def runs(self) -> Path:
        """The runs folder of the finished search ``small``."""
        return self.folder / "runs"

    @property
    def model(self) -> Path:
        return self.runs / "small" / "models" / LOSSES[0]

    @property
    def index(self) -> Path:
        return self.folder / "index"

    @property
    def images(self) -> Path:
        return self.folder / "images"

    def begin(self) -> None:
        """Make everything; the search is trained in another process, since a fork needs a process without threads."""
        self.set_traps()
        draw_folder(self.images)
        if (child := os.fork()) == 0:
            try:
                self._train()
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

    def _train(self) -> None:
        from support.finished_search import run_here

        from search.driver.stages import recorded_outcome
        from search.driver.synchronise import make_projection, synchronise
        from search.report.document import write_search_report
        from trainables.inference.embedder import load_model
        from trainables.inference.index import ImageIndex

        self.enter(self.folder, own=True)
        training = {"epochs": 2, "batch_size": 20, "images_per_class": 5, "image_size": 16}
        few = {"search": {"trials": 2}, "selection": {"finalists": 1, "seeds": 1}, "final": {"seeds": 1}}
        content = small_search(self.images, training=training, losses=list(LOSSES), **few)
        for search in run_here(self.runs, [content]):
            with closing(search):
                synchronise(recorded_outcome(search), make_projection(search.plan))
        write_search_report(self.runs, ["small"])
        model = load_model(str(self.model), device="cpu")
        paths = sorted(map(str, self.images.glob("*/*.png")))
        ImageIndex.of(model.embed(paths), paths, model).save(str(self.index))

    def enter(self, folder: Path, *, own: bool = False) -> None:
        """Set the environment of a process: the user who made the search, or by default one who got it."""
        os.environ |= {
            "ATTACK_SECRET": self.variable,
            "XDG_STATE_HOME": str(self.folder / "own-state" if own else folder / ".state"),
            "XDG_CONFIG_HOME": str(folder / ".config"),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            "HOME": str(folder),
        }

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
