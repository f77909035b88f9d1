"""The page in a real browser, as a person opens it: from a file, on a desk, on a phone and on paper."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import coterie
from tests.report.browser import browser, found

pytestmark = pytest.mark.skipif(
    found() is None, reason="no browser: install chromium and chromium-driver (Debian's package names)"
)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("browser")
    data = coterie.load("synthetic:users=60,items=80")
    runs = [
        coterie.run(name, data, protocol=protocol, rounds=rounds, out=root / f"{name}-{protocol}", threads=1)
        for name, protocol, rounds in (("fedrap", "clean", 4), ("fedmf", "clean", 4), ("mostpop", "clean", 1),
                                       ("fedrap", "paper", 4))
    ]  # fmt: skip
    return coterie.report(runs, root / "report.html")


@pytest.mark.parametrize("width", [360, 1200])
def test_it_opens_without_errors_requests_or_sideways_scrolling(report: Path, tmp_path: Path, width: int) -> None:
    with browser(tmp_path, width) as window:
        window.open(report)
        asked = window.requests()
        assert asked == [report.resolve().as_uri()], "the page and nothing else"
        assert window.log("browser") == []
        assert window.ask("return innerWidth") == width
        assert window.ask("return document.documentElement.scrollWidth") <= width
        # Unfolded as well: tables scroll inside their own box.
        window.ask("document.querySelectorAll('details').forEach(one => { one.open = true })")
        assert window.ask("return document.documentElement.scrollWidth") <= width
        wide = window.ask(
            "return [...document.querySelectorAll('body *')].filter(one => !one.closest('.scroll') && "
            f"!one.closest('svg') && one.getBoundingClientRect().right > {width} + 1).map(one => one.outerHTML)"
        )
        assert wide == []
        _alternatives(window)
        letters = window.ask(
            "return Math.min(...[...document.querySelectorAll('svg.plot text')].map(one => "
            "12 * one.ownerSVGElement.getBoundingClientRect().width / 360))"
        )
        assert letters >= 9.5, "lettering one can read"
        outside = window.ask(
            "return [...document.querySelectorAll('svg.plot')].flatMap(plot => { const all = "
            "plot.getBoundingClientRect(); return [...plot.querySelectorAll('text')].filter(one => { const me = "
            "one.getBoundingClientRect(); return me.left < all.left - 1 || me.right > all.right + 1 || "
            "me.bottom > all.bottom + 1 }).map(one => one.textContent) })"
        )
        assert outside == [], "no words are cut off"


def _alternatives(window: Any) -> None:
    """As a screen reader is told: each plot an image with a name, its numbers in a table beside it."""
    plots = window.ask(
        "return [...document.querySelectorAll('svg.plot')].map(one => [one.getAttribute('role'), "
        "one.querySelector('title').textContent, one.querySelector('desc').textContent, "
        "one.closest('figure').querySelectorAll('details table tbody tr').length])"
    )
    assert len(plots) > 20
    for role, title, about, rows in plots:
        assert role == "img" and title and len(about) > 20 and rows > 0, title
    tree = window.devtools("Accessibility.getFullAXTree")["nodes"]
    named = [one for one in tree if one.get("role", {}).get("value") in ("image", "img") and not one["ignored"]]
    assert len(named) == len(plots) and all(one["name"]["value"] for one in named)
    bare = window.ask("return document.querySelectorAll('svg:not(.plot):not([aria-hidden=true])').length")
    assert bare == 0


def test_it_prints(report: Path, tmp_path: Path) -> None:
    with browser(tmp_path, 800) as window:
        window.open(report)
        paper = window.printed()
        assert paper.startswith(b"%PDF") and len(paper) > 20_000
        window.devtools("Emulation.setEmulatedMedia", media="print")
        assert window.ask("return getComputedStyle(document.body).maxWidth") == "none"


def test_it_does_hold_the_browser_to_its_policy(report: Path, tmp_path: Path) -> None:
    """The check above can fail: a page that fetches and runs something is seen to do so."""
    bad = tmp_path / "bad.html"
    bad.write_text(report.read_text().replace("</body>", '<img src="https://example.invalid/a.png"></body>'))
    with browser(tmp_path, 360) as window:
        window.open(bad)
        assert any("Content Security Policy" in one["message"] for one in window.log("browser"))
    loose = tmp_path / "loose.html"
    loose.write_text('<!doctype html><p style="width:900px">wide</p><img src="missing.png"><script>nothere()</script>')
    with browser(tmp_path, 360) as window:
        window.open(loose)
        assert len(window.requests()) > 1 and len(window.log("browser")) >= 2
        assert window.ask("return document.documentElement.scrollWidth") > 360
