"""Debian's Chromium, driven by Playwright; tests that need it are skipped without it."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

HERE = ("file:", "data:", "blob:", "http://127.0.0.1:", "http://localhost:")


@contextmanager
def browser_page(width: int, *, ours: bool = True, **options: Any) -> Iterator[Any]:
    """Open a browser page; if it is ``ours``, fail on console errors and on requests to other machines."""
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed.")
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("Chromium is not installed; `apt-get install chromium` installs it.")
    complaints: list[str] = []
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": width, "height": 900}, **options)
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: None if request.url.startswith(HERE) else complaints.append(request.url))
        yield page
        browser.close()
    assert not (ours and complaints), complaints


def seen(page: Any) -> None:
    for top in range(0, page.evaluate("document.documentElement.scrollHeight"), 500):
        page.evaluate(f"scrollTo(0, {top})")
        page.wait_for_timeout(120)
    page.wait_for_timeout(1500)
