"""The pages and messages: links lead somewhere, and the commands, options, keys and targets that they name exist."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import typer
import yaml

from benchmarks.__main__ import BENCHMARKS
from holdout.cli.main import program
from search import __version__
from search.config.keys import SECTION, keys_of
from search.config.search_config import SearchConfig, parse_config
from search.config.yaml_file import parse_yaml
from search.records.campaign import CampaignConfig

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("[A-Z]*.md")), *sorted(DOCS.rglob("*.md"))]
COMMANDS = typer.main.get_command(program()).commands  # type: ignore[attr-defined]
EVERYWHERE = {"--help", "--version", "--install-completion"}
FENCE = re.compile(r"^```(?P<language>[^\n]*)\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE)


def prose(text: str) -> str:
    """The text without its blocks of code."""
    return FENCE.sub("", text)


def code(text: str) -> Iterator[str]:
    """Every line of a block of code, and what stands between backticks, with line breaks as spaces."""
    for block in FENCE.finditer(text):
        yield from block["code"].splitlines()
    for found in re.finditer(r"(?<!`)`([^`]+)`(?!`)", prose(text)):
        yield " ".join(found[1].split())


def commands(text: str) -> Iterator[tuple[str, list[str]]]:
    """Each ``holdout COMMAND`` with the options that follow it, up to the next command or a comment."""
    for line in code(text):
        for command, rest in re.findall(r"(?:^|[\s/])holdout ([a-z-]+)([^#;|&]*)", line):
            yield command, re.findall(r"(?<![\w-])--?[a-z][a-z-]*", rest)


def headings(page: Path) -> set[str]:
    """The names by which GitHub and MyST link to a page's headings."""
    text = page.read_text()
    for included in re.findall(r"^```\{include\} (\S+)$", text, re.MULTILINE):
        text += (page.parent / included).read_text()
    found = re.findall(r"^#+ +(.+)$", prose(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


def links(page: Path) -> Iterator[tuple[Path, str]]:
    """The file and the heading of each relative link and picture; an include and a table of contents are links too."""
    text = page.read_text()
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(text)) + re.findall(r'(?:src|href)="([^"]+)"', prose(text)):
        if not re.match(r"[a-z]+:", target):
            path, _, heading = target.partition("#")
            yield (page.parent / path if path else page).resolve(), heading
    for block in FENCE.finditer(text):
        directive, _, argument = block["language"].partition(" ")
        if directive == "{include}":
            yield (page.parent / argument).resolve(), ""
        elif directive == "{toctree}":
            for entry in block["code"].split("\n"):
                if entry and not entry.startswith(":"):
                    yield (page.parent / f"{entry}.md").resolve(), ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_names_exists(page: Path) -> None:
    for file, heading in links(page):
        assert file.exists(), f"there is no {file}"
        assert file.is_relative_to(ROOT), f"{file} is outside"
        assert not heading or heading in headings(file), f"{file.name} has no heading #{heading}"
    text = page.read_text()
    for command, options in commands(text):
        if command.startswith("-"):
            assert command in EVERYWHERE, f"holdout {command}"
            continue
        assert command in COMMANDS, f"there is no command {command}"
        known = {name for parameter in COMMANDS[command].params for name in parameter.opts} | EVERYWHERE
        assert set(options) <= known, f"holdout {command} has no {set(options) - known}"
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {target for line in code(text) for target in re.findall(r"(?:^|\s)make ([a-z-]+)", line)}
    assert named <= targets, f"the Makefile has no {named - targets}"
    run = {name for line in code(text) for name in re.findall(r"python -m benchmarks ([a-z-]+)", line)}
    assert run <= BENCHMARKS.keys(), f"there is no benchmark {run - BENCHMARKS.keys()}"
    for file, _, name in re.findall(r"`(tests/[\w/]+\.py)(::(\w+))?`", text):
        assert (ROOT / file).exists(), f"there is no {file}"
        assert not name or f"def {name}(" in (ROOT / file).read_text(), f"{file} has no {name}"


@pytest.mark.parametrize(
    "page", [page for page in PAGES if "\n```yaml\nname: birds\n" in page.read_text()], ids=lambda page: page.name
)
def test_search_files_are_accepted(page: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    for text in re.findall(r"^```yaml\n(name: birds\n.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE):
        content = parse_yaml(text, page.name)
        assert parse_config({**content, "dataset": {**content["dataset"], "root": str(tmp_path)}}).name == "birds"


def test_every_command_has_its_line() -> None:
    page = DOCS / "commands.md"
    assert {command for command, _ in commands(page.read_text()) if command in COMMANDS} == set(COMMANDS)


def test_every_page_is_found_from_the_readme() -> None:
    found, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page not in found and page.suffix == ".md" and page.exists():
            found.add(page)
            waiting += [file for file, _ in links(page)]
    assert set(PAGES) <= found, f"nothing leads to {sorted(map(str, set(PAGES) - found))}"


def test_what_programs_read_leads_somewhere() -> None:
    found = [file for file, _ in links(ROOT / "llms.txt")]
    assert {ROOT / "AGENTS.md", DOCS / "keys.md"} <= set(found)
    assert all(file.exists() for file in found)


def test_the_citation_and_the_changes_name_the_version() -> None:
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == __version__
    assert f"\n## {__version__}\n" in (ROOT / "CHANGELOG.md").read_text()


# The messages of the product: what they name exists.

KEYS = {key.name: key for target in (SearchConfig, CampaignConfig) for key in keys_of(target)}
SECTIONS = {key.name for key in KEYS.values() if key.type == SECTION}
OPEN = ("model.name", "dataset.", "space.", "losses.", "search.constraints", "trainables.", "search.trials")
"""Prefixes whose next part is the user's, or is a module of ours, and a common mistake that is corrected."""
FILES = (".json", ".yaml", ".csv", ".md", ".safetensors", ".onnx")


@cache
def messages() -> list[tuple[str, str]]:
    """Return every string of the product but docstrings, with its place; what a template inserts is ``…``."""
    found = []
    for room in ("holdout", "search", "spaces", "trainables"):
        for path in sorted((ROOT / room).rglob("*.py")):
            nodes = [*ast.walk(ast.parse(path.read_text()))]
            statements = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
            inside = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
            for node in nodes:
                text = node.value if isinstance(node, ast.Constant) else None
                if isinstance(node, ast.JoinedStr):
                    text = "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
                if isinstance(text, str) and id(node) not in statements | inside:
                    found.append((f"{path.relative_to(ROOT)}:{node.lineno}", text))  # type: ignore[attr-defined]
    return found


def test_commands_and_options_of_messages_exist() -> None:
    found = 0
    for place, text in messages():
        for command, rest in re.findall(r"(?:^|[\s/`])holdout ([a-z-]+)([^#;|&`]*)", text):
            if command not in COMMANDS:
                assert f"`holdout {command}" not in text, f"{place} names `holdout {command}`"
                continue
            found += 1
            known = {option for parameter in COMMANDS[command].params for option in parameter.opts} | EVERYWHERE
            unknown = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", rest)) - known
            assert not unknown, f"{place} names `holdout {command} {unknown.pop()}`"
    assert found > 50


def test_keys_of_messages_exist() -> None:
    found = 0
    for place, text in messages():
        for name in re.findall(rf"(?<![\w./])((?:{'|'.join(SECTIONS)})\.[a-z_]+)(?![\w./(])", text):
            if not name.startswith(OPEN) and not name.endswith(FILES):
                found += 1
                assert name in KEYS, f"{place} names {name}"
    assert found > 100
