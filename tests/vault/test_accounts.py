"""A vault of another account: by sshd with a forced command, and by files that the searching account cannot reach.

Two accounts and an sshd on a port of loopback are made for these tests, and removed.
"""

import ctypes
import io
import json
import os
import secrets
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml
from support.commands import ROOT
from support.small_search import SHORTEST, draw_folder, small_search
from support.vault_requests import IMAGES, message, model_of, opening_of

from search.vault.protocol import FORMAT, content_of, public_key, receive

pytestmark = pytest.mark.accounts
HOLDOUT = [sys.executable, "-m", "holdout"]
PLANTED = ("opt_einsum", "pydot", "monkeytype", "cutlass", "pynvml", "holdout", "search", "trainables", "torch", "json")
"""Modules that PyTorch imports if there are any, and others that the vault's account imports."""


@dataclass(frozen=True)
class Account:
    name: str
    home: Path

    def run(
        self, *command: str | Path, code: int | None = 0, given: bytes = b"", cwd: Path | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a command on this account with an environment of its own."""
        environment = {
            "HOME": str(self.home), "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "1", "PYTHONSAFEPATH": "1",
        }  # fmt: skip
        if cwd is not None:  # as a console script, which does not look for modules beside it
            del environment["PYTHONSAFEPATH"]
        done = subprocess.run(
            ["runuser", "-u", self.name, "--", *map(str, command)],
            input=given, env=environment, cwd=cwd or self.home, capture_output=True, timeout=600, check=False,
        )  # fmt: skip
        assert code is None or done.returncode == code, (done.stdout + done.stderr).decode()
        return done


Accounts = tuple[Account, Account]


def show(place: Path, through: Path) -> None:
    """Show ``place`` to other accounts, in mounts that only this process and its children see.

    Root's own Python is often below its home, which nobody else may enter. It is mounted ``through`` another folder.
    """
    closed = next((parent for parent in reversed(place.parents) if not parent.stat().st_mode & 1), None)
    if closed is not None and not ctypes.CDLL(None).unshare(0x20000):
        subprocess.run(["mount", "--make-rprivate", "/"], check=True)
        subprocess.run(["mount", "--bind", place, through], check=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "none", closed], check=True)
        place.mkdir(parents=True)
        subprocess.run(["mount", "--bind", through, place], check=True)


@pytest.fixture(scope="module")
def accounts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Accounts]:
    """The account of a vault's owner, and that of a searcher."""
    if os.geteuid() or not all(map(shutil.which, ("useradd", "usermod", "userdel", "runuser"))):
        pytest.skip("accounts can only be made by root, with useradd")
    found = []
    try:
        for kind in ("keeper", "searcher"):
            name = f"vault-{kind}-{secrets.token_hex(3)}"
            subprocess.run(["useradd", "--create-home", "--shell", "/bin/sh", name], check=True)
            subprocess.run(["usermod", "--password", "*", name], check=True)  # unlocked, without a password
            found.append(Account(name, Path("/home", name)))
        show(Path(sys.base_prefix), tmp_path_factory.mktemp("python"))
        if found[0].run(sys.executable, "-c", "import torch", code=None).returncode:
            pytest.skip(f"other accounts cannot run {sys.executable}")
        yield found[0], found[1]
    finally:
        for account in found:
            subprocess.run(["userdel", "--remove", account.name], check=True, capture_output=True)


@pytest.fixture(scope="module")
def vault(accounts: Accounts) -> Path:
    """A vault in the home of its owner; the training half is in the searcher's."""
    keeper, searcher = accounts
    draw_folder(keeper.home / "all")
    subprocess.run(["chown", "-R", keeper.name, keeper.home], check=True)
    (keeper.home / "all").chmod(0o700)
    keeper.run(*HOLDOUT, "vault", "make", keeper.home / "all", "--to", keeper.home / "vault", "--openings", "3")
    shutil.copytree(keeper.home / "vault-training", searcher.home / "training")
    subprocess.run(["chown", "-R", searcher.name, searcher.home], check=True)
    return keeper.home / "vault"


DESCRIBE = message({"verb": "describe", "format": FORMAT, "nonce": "1", "metrics": ["map_at_r"]})


def test_the_searcher_cannot_list_open_or_link_the_vault(accounts: Accounts, vault: Path) -> None:
    keeper, searcher = accounts
    (item, *_) = sorted((vault / "test").iterdir())
    assert (vault.stat().st_mode & 0o777, (vault / "key").stat().st_mode & 0o777) == (0o700, 0o600)
    before = sorted(vault.rglob("*"))
    for command in (
        f"ls {vault}",
        f"ls {vault}/test",
        f"cat {vault}/key",
        f"cat {item}",
        f"ln -s {item} {searcher.home}/pointer && cat {searcher.home}/pointer",
        f"ln -s {vault} {searcher.home}/folder && ls {searcher.home}/folder/",
        f"touch {vault}/ledger.jsonl",
        f"rm -r {vault}",
        f"{sys.executable} -m holdout vault verify {vault}",
        f"{sys.executable} -m holdout vault make {keeper.home}/all --to {searcher.home}/again",
        f"ls {keeper.home}/all",
    ):
        done = searcher.run("sh", "-c", command, code=None)
        assert done.returncode, command
        assert b"class" not in done.stdout, command
        assert b"Traceback" not in done.stderr, done.stderr.decode()
    assert sorted(vault.rglob("*")) == before


def test_no_module_of_the_searcher_runs_on_the_account_of_the_vault(accounts: Accounts, vault: Path) -> None:
    """As ``sudo -u keeper holdout vault answer DIR``, which runs in the searcher's folder."""
    keeper, searcher = accounts
    here = searcher.home / "here"
    here.mkdir()
    here.chmod(0o755)
    searcher.home.chmod(0o755)
    proof = Path(tempfile.gettempdir(), f"vault-{secrets.token_hex(4)}")
    for name in PLANTED:
        (here / f"{name}.py").write_text(f"open({str(proof)!r}, 'a').write({name!r})\nraise ImportError\n")
    script = keeper.home / "holdout"  # the console script, which has its own folder in place of the current one
    script.write_text("from holdout.__main__ import main\n\nmain()\n")
    script.chmod(0o755)
    done = keeper.run(sys.executable, script, "vault", "answer", vault, given=DESCRIBE, cwd=here)
    head, _ = receive(io.BytesIO(done.stdout), 1 << 20)
    assert content_of(head)["openings"] == 3
    networks = [model_of(replace(IMAGES, backbone=name)) for name in ("convnet", "resnet18")]
    opening = message(*opening_of(vault, *networks))  # which imports PyTorch and torchvision
    done = keeper.run(sys.executable, script, "vault", "answer", vault, given=opening, cwd=here)
    head, _ = receive(io.BytesIO(done.stdout), 1 << 20)
    scores = content_of(head, public_key((vault / "key").read_bytes()))["scores"]
    assert [score.keys() for score in scores] == [{"metrics"}, {"metrics"}]
    assert not proof.exists(), proof.read_text()


# sshd


@pytest.fixture(scope="module")
def ssh(accounts: Accounts, vault: Path) -> Iterator[list[str]]:
    """The command that asks the vault of an sshd whose forced command answers for it."""
    sshd = shutil.which("sshd", path=f"/usr/sbin:{os.environ['PATH']}")
    if sshd is None or not shutil.which("ssh"):
        pytest.skip("there is no sshd; Debian's package is openssh-server")
    keeper, searcher = accounts
    folder = Path(tempfile.mkdtemp(prefix="vault-sshd-"))
    folder.chmod(0o755)
    for key in (folder / "host", searcher.home / "identity"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    forced = shlex.join(["env", f"PYTHONPATH={ROOT}", "PYTHONSAFEPATH=1", *HOLDOUT, "vault", "answer", str(vault)])
    public = (searcher.home / "identity.pub").read_text()
    (folder / "authorized").write_text(f'restrict,command="{forced}" {public}')
    subprocess.run(["chown", searcher.name, searcher.home / "identity"], check=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nPidFile {folder}/pid\nUsePAM no\n"
        f"AuthorizedKeysFile {folder}/authorized\nStrictModes no\nPasswordAuthentication no\n"
    )
    separated = Path("/run/sshd")
    had_separated = separated.exists()
    separated.mkdir(mode=0o755, exist_ok=True)
    process = subprocess.Popen([sshd, "-D", "-e", "-f", folder / "config"], stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            with closing(socket.socket()) as client:
                if not client.connect_ex(("127.0.0.1", port)):
                    break
            time.sleep(0.1)
        identity = searcher.home / "identity"
        options = ("BatchMode=yes", "StrictHostKeyChecking=no", f"UserKnownHostsFile={identity}.known")
        given = [word for option in options for word in ("-o", option)]
        yield ["ssh", "-q", *given, "-p", str(port), "-i", str(identity), f"{keeper.name}@127.0.0.1"]
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(folder)
        if not had_separated:
            separated.rmdir()


def test_no_command_but_the_forced_one_runs(accounts: Accounts, vault: Path, ssh: list[str], tmp_path: Path) -> None:
    _, searcher = accounts

    def asked(*words: str, given: bytes = b"") -> bytes:
        return searcher.run(*ssh, *words, given=given, code=None).stdout

    head, _ = receive(io.BytesIO(asked(given=DESCRIBE)), 1 << 20)
    assert content_of(head)["items"] == 80
    secret = (vault / "key").read_bytes()
    for words in ([f"cat {vault}/key"], ["sh", "-i"], ["internal-sftp"], [f"scp -f {vault}/test.json"]):
        said = asked(*words)
        assert secret not in said
        assert json.loads(said)["error"][0].startswith("The message is no line of JSON")
    *options, host = ssh
    assert secret not in searcher.run(*options, "-s", host, "sftp", code=None).stdout
    forward = ("-N", "-o", "ExitOnForwardFailure=yes", "-R", "0:127.0.0.1:22", host)
    assert searcher.run(*options, *forward, code=None).returncode


def test_a_search_is_tested_by_ssh_and_verified(accounts: Accounts, vault: Path, ssh: list[str]) -> None:
    keeper, searcher = accounts
    content = small_search(
        searcher.home / "training",
        **SHORTEST | {"final": {"seeds": 1, "vault": shlex.join(ssh)}},
        dataset={"name": "manifest", "file": str(searcher.home / "training" / "data.csv")},
        resources={"engine": "local"},
        tracking={"uri": None},
    )
    (searcher.home / "birds.yaml").write_text(yaml.safe_dump(content))
    ran = searcher.run(*HOLDOUT, "run", searcher.home / "birds.yaml", "--runs", searcher.home / "runs")
    told = (ran.stdout + ran.stderr).decode()
    assert "has all of 80 test items of 8 classes" in " ".join(told.split())
    (opening,) = json.loads((searcher.home / "runs" / "small" / "test.json").read_text())["openings"]
    assert opening["vault"]["of"] == 3
    assert opening["scores"]
    verified = searcher.run(*HOLDOUT, "verify", "small", "--runs", searcher.home / "runs").stdout.decode()
    assert "as the vault signed them" in verified
    assert verified.splitlines()[-1].startswith("Verified")
    assert keeper.run(*HOLDOUT, "vault", "verify", vault).stderr.startswith(b"Verified: every opening")
