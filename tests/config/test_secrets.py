"""Passwords stay out of all output and files."""

import base64
import html
import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import quote, quote_plus, unquote, urlsplit

import pytest
import sqlalchemy
import yaml
from hypothesis import example, given, settings, strategies as st
from support.commands import holdout_here, in_one_process, write_search
from support.mlflow_database import write_migrated
from support.serving import answering, asked
from support.small_search import GLYPHS, small_search

from search.addresses import expand, health_page, sqlite_address, sqlite_file, without_a_password
from search.config.search_config import parse_config
from search.records.runs import RunFolder
from search.show.live import live_app
from search.tracking import check_tracking
from search.tracking.client import open_client
from search.trust import addresses_in, own_code, remember
from trainables.common.errors import LEAST, Failure, InvalidInput, traced, without_password
from trainables.common.files import given_path
from trainables.training.train import failure_of


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://u:secret@h/x", "postgresql://u:***@h/x"),
        ("postgresql+psycopg://u:a/b:c@h:1/x", "postgresql+psycopg://u:***@h:1/x"),
        ("http://:secret@h", "http://:***@h"),
        ("postgresql:/u:secret@h/x", "postgresql:/u:***@h/x"),  # malformed
        ("postgresql//u:secret@h/x", "postgresql//u:***@h/x"),
        ("postgresql://h/x?user=u&password=secret&sslmode=on", "postgresql://h/x?user=u&password=***&sslmode=on"),
        ("(Error) no answer from [http://u:secret@h] [x", "(Error) no answer from [http://u:***@h] [x"),
        ("s3://b/x?aws_secret_access_key=Ab/+=&region=eu", "s3://b/x?aws_secret_access_key=***&region=eu"),
        ("abfs://c/x?sv=1&sig=zz%3D", "abfs://c/x?sv=1&sig=***"),
        ("no answer from 'http://h/?Token=abc', again", "no answer from 'http://h/?Token=***', again"),
    ],
)
def test_a_password_is_seen_and_not_shown(address: str, shown: str) -> None:
    assert without_password(address) == shown
    with pytest.raises(InvalidInput, match="it holds a password"):
        without_a_password(address)


def test_an_address_without_a_password_is_shown_as_it_is() -> None:
    for address in (
        "postgresql://u@h:5432/x", "http://h:5000", "postgresql://u:${PASSWORD}@h/x", "sqlite:////home/u/x.db",
        "sqlite:////u:x@y/x.db", "no address", "http://h/design=5",
    ):  # fmt: skip
        assert without_a_password(address) == address


class _Guarded(BaseHTTPRequestHandler):
    """A server like MLflow with users: everything needs the right user, but for a health page that may be public."""

    known = base64.b64encode(b"u:secret").decode()
    answer = (200, b"{}")
    public = (200, b"OK")

    def do_GET(self) -> None:
        health = self.path == "/health"
        allowed = health or self.headers["Authorization"] == f"Basic {self.known}"
        status, body = self.public if health else self.answer if allowed else (401, b"secret?")
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    for name in ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"):
        monkeypatch.delenv(name, raising=False)
    with answering(_Guarded) as port:
        yield port


@pytest.mark.parametrize("public", [(200, b"OK"), (401, b"secret?")])
def test_a_server_that_asks_for_a_user_is_answered_by_reference(
    public: tuple[int, bytes], port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_Guarded, "public", public)
    monkeypatch.setenv("WORD", "secret")
    check_tracking(f"http://u:${{WORD}}@127.0.0.1:{port}")
    monkeypatch.setenv("WORD", "wrong")
    with pytest.raises(InvalidInput, match=r"denies access \(HTTP status 401\)"):
        check_tracking(f"http://u:${{WORD}}@127.0.0.1:{port}")
    monkeypatch.setenv("WORD", "secret")
    for answer in ((200, b"<html>\nSign in</html>"), (302, b""), (503, b"busy"), (404, b"no such page"), (200, b"[")):
        monkeypatch.setattr(_Guarded, "answer", answer)
        with pytest.raises(
            InvalidInput, match=r"does not answer as MLflow \(.*\); correct the address, or set MLFLOW_TR"
        ):
            check_tracking(f"http://u:${{WORD}}@127.0.0.1:{port}")
    monkeypatch.setenv("WORD", "wrong")
    with pytest.raises(InvalidInput) as nobody:
        check_tracking("http://u:${WORD}@127.0.0.1:9")
    assert "wrong" not in str(nobody.value)


VALUE = "p@ss/w:rd?#%[ &x=1"


@pytest.mark.parametrize(
    "address", ["postgresql+psycopg://u:${WORD}@h:5/x", "postgresql://h:5/x?user=u&password=${WORD}&sslmode=require"]
)
def test_a_value_cannot_end_the_part_in_which_it_stands(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORD", VALUE)
    found = sqlalchemy.make_url(expand(address))
    assert VALUE in (found.password, found.query.get("password"))
    assert (found.host, found.port, found.database) == ("h", 5, "x")
    page = urlsplit(health_page(expand("http://u:${WORD}@h:5/${WORD}/x")))
    assert (page.netloc, unquote(page.path), page.query) == ("h:5", f"/{VALUE}/x/health", "")


@pytest.mark.parametrize("value", [VALUE, "line\nbreak"])
@pytest.mark.parametrize(
    "address",
    [
        "http://127.0.0.1:9/${WORD}", "http://u:${WORD}@127.0.0.1:9", "postgresql+psycopg://u:${WORD}@127.0.0.1:9/x",
        "postgresql+psycopg://${WORD}@127.0.0.1:9/x", "postgresql+psycopg://u@127.0.0.1:${WORD}/x",
    ],
)  # fmt: skip
def test_no_piece_of_a_value_is_in_a_message(
    address: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORD", value)
    with pytest.raises(InvalidInput) as refused:
        check_tracking(address)
    assert "${WORD}" in str(refused.value)
    for piece in re.findall(r"\w\w\w+", value):
        assert piece not in without_password(str(refused.value))


@pytest.mark.parametrize("address", ["s3://bucket/x?secret=hush", "abfs://c/x?sig=hush", "sftp://me:hush@host/x"])
def test_a_store_s_address_with_a_password_is_refused_and_not_shown(address: str, image_folder: Path) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_config(small_search(image_folder, checkpoints={"storage_path": address}))
    assert "hush" not in str(refused.value)
    with pytest.raises(InvalidInput, match="The address at host:21 holds a password; leave it out") as refused:
        given_path("ftp://me:hush@host:21/x")
    assert "hush" not in str(refused.value), "nor on the command line"


# Errors of a user's code.

SECRET = "HOLDOUT_TEST_TOKEN"
WRITTEN: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "in a repr": repr,
    "in a list's repr in a repr": lambda secret: repr(repr([secret])),
    "in ASCII": ascii,
    "in JSON in JSON": lambda secret: json.dumps(json.dumps({"x": secret})),
    "in a database's address": lambda secret: f"postgresql://u:{quote(secret, safe='')}@h/x",
    "in a path": lambda secret: f"https://hooks/x/{quote(secret)}/",
    "in a form": lambda secret: f"?x={quote_plus(secret)}&y",
    "in HTML": html.escape,
}
secrets = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=LEAST, max_size=30).filter(
    lambda text: len(set(text.split())) == 1 and text not in f"${{{SECRET}}}" and not text.isalpha()
)


def raised(secret: str, written: str, where: str) -> Exception:
    """Return an error with a secret that was caught and raised again."""
    cause = KeyError(written) if where == "cause" else ValueError("x")
    try:
        try:
            raise cause
        except Exception as error:
            if where == "group":
                raise ExceptionGroup("several", [RuntimeError(written)]) from error
            raise RuntimeError(*((written, {"key": secret}) if where == "arguments" else ("y",))) from error
    except Exception as error:
        if where == "note":
            error.add_note(written)
        return error


@settings(max_examples=30)
@given(secrets, st.sampled_from(sorted(WRITTEN)), st.sampled_from(["arguments", "cause", "group", "note"]))
@example(VALUE, "in a list's repr in a repr", "arguments")
@example('it\'s "a" \\ b\N{LATIN SMALL LETTER E WITH ACUTE}\ud7ff', "in JSON in JSON", "cause")
def test_no_error_tells_a_secret_however_it_is_written(secret: str, way: str, where: str) -> None:
    written = WRITTEN[way](secret)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SECRET, secret)
        error = raised(secret, f"<{written}>", where)
        sentence = str(InvalidInput(f"{error} at <{written}>."))
        told = [traced(error), failure_of(error).reason, sentence, str(Failure(sentence))]
        assert all(without_password(text) == text for text in told)
    assert f"<{written}>" not in "".join(told)
    assert not [text for text in told if secret in text or repr(secret)[1:-1] in text]
    assert SECRET in sentence


@pytest.mark.parametrize(
    ("name", "value", "masked"),
    [
        ("PGPASSWORD", "hunter22", True), ("aws_secret_access_key", "hunter22", True), ("MYSQL_PWD", "hunter22", True),
        ("API_KEYS", "hunter22", True), ("APP_CREDENTIALS", "hunter22", True), ("TOKEN2", "hunter22", True),
        ("TOKEN", "a", False), ("TOKEN", "false", False), ("TOKENIZERS_PARALLELISM", "hunter22", False),
        ("PWD", "/hunter22", False), ("KEYBOARD", "hunter22", False), ("SSL_KEY_FILE", "/hunter22", False),
    ],
)  # fmt: skip
def test_a_variable_is_secret_by_its_name(name: str, value: str, masked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    text = f"a false {value} is a value"
    assert without_password(text) == (f"a false ${{{name}}} is a value" if masked else text)


TELLS = """
import argparse, logging, os, subprocess
from pathlib import Path
from support.own_trainings import Records, Scales

argparse.ArgumentParser().parse_args()  # code may parse the command line, and gets its defaults

class Tells(Scales):
    def train_epoch(self):
        argparse.ArgumentParser().parse_args()
        Path(__file__).with_name("processes").write_bytes(subprocess.check_output(["ps", "-eo", "args"]))
        if self.lr != 0.1:
            secret = os.environ["LAB_TOKEN"]
            logging.getLogger(__name__).warning("with %s", secret)
            try:
                raise KeyError(secret)
            except KeyError as error:
                raise ValueError(f"no answer from https://hooks/{secret}", [f"postgresql://u:{secret}@h"]) from error
        return super().train_epoch()
"""
FROM_PYTHON = """
import holdout, sys

content = {content!r}
holdout.run(content, runs={runs!r}, quiet=True)
print("it said nothing", file=sys.stderr)
"""
STRICT = {
    **GLYPHS, "name": "strict", "losses": ["pnp"], "stages": ["search"], "search": {"trials": 1, "pruner": "none"},
    "resources": {"engine": "in_process"},
}  # fmt: skip
KNOWN = {"LAB_TOKEN": "it's=a/b%20\\c", "WORD": "secret", "AWS_SECRET_ACCESS_KEY": "not-for-every-eye"}
TOLD = re.compile(rb"it(\\*'|%27|&#x27;)s(=|%3D)a|u:secret@|not-for-every-eye")


def test_no_secret_is_told(tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in any file, output, page, MLflow run or process list; nor if a training fails, or a service is down.

    Warnings are errors, which concerns a user's code alone, and not ours or a library's, in commands and from Python.
    """
    runs, told = tmp_path / "runs", list[str]()

    def say(words: str, code: int = 0) -> str:
        done = holdout_here(*words.split(), "--runs", runs, code=code)
        told.append(done.stdout + done.stderr)
        return told[-1]

    (tmp_path / "tells.py").write_text(TELLS)
    for name, value in KNOWN.items():
        monkeypatch.setenv(name, value)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (tmp_path, *Path(__file__).parents[1:3]))))
    content = {
        "name": "small", "trainable": "tells:Tells", "dataset": {"name": "tells:Records"}, "training": {"epochs": 1},
        "search": {"trials": 2, "max_concurrent": 1}, "stages": ["search"], "resources": {"engine": "local"},
    }  # fmt: skip
    write_migrated(runs / "mlflow.db")
    monkeypatch.setenv("PYTHONWARNINGS", "error")
    run = in_one_process(["run", write_search(tmp_path / "search.yaml", content), "--runs", runs])
    run[-1] = FROM_PYTHON.format(content=STRICT, runs=str(runs)) + run[-1]  # first, as commands change the filters
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.stderr.startswith("it said nothing\n"), done.stderr
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stdout + done.stderr
    told += [done.stdout + done.stderr, (tmp_path / "processes").read_text()]
    assert "holdout" in told[-1]
    for words in ("status small --json", "trials small", "disk --json", "verify small --json"):
        say(words)
    assert "https://hooks/${LAB_TOKEN}" in say("trials small tells 1 --json")
    assert "MLflow holds all" in say("sync small")
    file = runs / "small" / "search.yaml"

    def track(uri: str) -> None:
        changed = {**yaml.safe_load(file.read_text()), "tracking": {"uri": uri}}
        write_search(file, changed)
        # as if it had been started with this file
        remember(file.parent, addresses_in(file.parent, changed) | own_code(changed))

    track(f"http://u:${{WORD}}@127.0.0.1:{port}")
    assert "MLflow lacks" in say("sync small", code=1)  # it is none after all
    app = live_app(runs)
    for page in ("/api/searches", "/api/searches/small", "/api/searches/small/report"):
        told.append(asked(app, page, "", (b"host", b"localhost"))[2])
    assert not [place for place, text in enumerate(told) if TOLD.search(text.encode())]
    folders = (runs, Path(os.environ["XDG_STATE_HOME"]))
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    assert {"study.journal", "mlflow.db", "report.html"} <= {path.name for path in files}
    assert not [path for path in files if TOLD.search(path.read_bytes())]


@given(st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1))
@example("a?b#c%20d 'e\"&+<i>:@[")
def test_a_database_is_in_the_folder_of_any_name(name: str) -> None:
    file = Path("/runs", name, "mlflow.db")
    assert sqlite_file(sqlite_address(file)) == file
    assert sqlalchemy.create_engine(sqlite_address(file)).url.database == str(file)


def test_mlflow_is_written_in_the_folder_of_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = 'a?b#c%20d it\'s "a" b:c <img>'
    folder = RunFolder(tmp_path / name / "runs", "birds")
    folder.path.mkdir(parents=True)
    monkeypatch.chdir(tmp_path / name)
    open_client(folder.tracking).create_experiment("birds")
    assert (folder.runs / "mlflow.db").is_file()
    assert [path.name for path in tmp_path.iterdir()] == [name]
