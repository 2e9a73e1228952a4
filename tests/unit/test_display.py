from __future__ import annotations

import base64
import re
import sys
from html import unescape
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree as ET

import anywidget  # pyright: ignore[reportUnusedImport]  # noqa: F401 - before IPython is replaced
import pytest

from workbench import display

WIDGET = "application/vnd.jupyter.widget-view+json"


def bundle_of(traits: dict[str, Any]) -> dict[str, Any]:
    return display.mime_bundle("view", traits, text="in words", html="<svg/>", options={})[0]


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "view.js").write_text("export default {}")
    monkeypatch.setattr(display, "STATIC", tmp_path)
    monkeypatch.setattr(display, "_widget_class", display._widget_class.__wrapped__)


def remember_widgets(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The widgets made from now on."""
    made: list[Any] = []
    original = display._widget_class

    def remember(*args: Any) -> Any:
        def make(**traits: Any) -> Any:
            made.append(original(*args)(**traits))
            return made[-1]

        return make

    monkeypatch.setattr(display, "_widget_class", remember)
    return made


def kernel_that_answers(allow_stdin: bool) -> Any:
    request = {"content": {"allow_stdin": allow_stdin}}
    kernel = SimpleNamespace(get_parent=lambda _channel: request)
    return SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=kernel))


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("looking", [True, False])
def test_only_a_front_end_with_a_person_gets_a_widget(
    looking: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "IPython", kernel_that_answers(looking))
    data = bundle_of({"record": b"x", "name": "n", "opened": False})
    assert (WIDGET in data) is looking
    assert data["text/plain"] == "in words"
    assert data["text/html"] == "<svg/>"


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("style", ["", ".wv-view{color:red}"])
def test_a_widget_brings_its_stylesheet_where_its_view_has_one(
    style: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if style:
        (tmp_path / "view.css").write_text(style)
    made = remember_widgets(monkeypatch)
    monkeypatch.setattr(display, "someone_is_looking", lambda: True)
    bundle_of({"record": b"x"})
    assert getattr(made[0], "_css", "") == style


def test_without_the_built_module_the_picture_says_how_to_build_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(display, "STATIC", tmp_path)
    data = bundle_of({})
    assert data["text/html"].startswith("<svg/>")
    assert "run `make lab`" in data["text/html"]


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("looking", [True, False])
def test_other_mime_types_come_with_the_widget_and_only_then(
    looking: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(display, "someone_is_looking", lambda: looking)
    data, _ = display.mime_bundle(
        "view", {}, text="t", html="<svg/>", options={}, extra={"a/b": {"c": 1}}
    )
    assert ("a/b" in data) is looking
    assert data["text/html"] == "<svg/>"


@pytest.mark.usefixtures("built")
def test_messages_of_the_browser_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display, "someone_is_looking", lambda: True)
    heard: list[Any] = []
    made = remember_widgets(monkeypatch)
    display.mime_bundle(
        "view",
        {"name": "n"},
        text="",
        html="",
        options={},
        on_message=lambda sender, content: heard.append((sender, content)),
    )
    made[0]._handle_custom_msg({"type": "connect"}, [])
    assert heard == [(made[0], {"type": "connect"})]


def image_in(html: str) -> tuple[ET.Element, str]:
    """The one drawing in ``html``, parsed, and its alternative text."""
    found = re.fullmatch(
        r'<p><img src="data:image/svg\+xml;base64,([^"]*)" alt="([^"]*)"[^>]*></p>', html
    )
    assert found, html
    return ET.fromstring(base64.b64decode(found[1])), unescape(found[2])


@pytest.mark.parametrize("named", ["", ' xmlns="http://www.w3.org/2000/svg"'])
def test_a_drawing_becomes_an_image_that_stands_alone(named: str) -> None:
    drawing = (
        f'<svg{named} viewBox="0 0 9 4" width="9"><title>a &lt;b&gt;</title><path d="M0"/></svg>'
    )
    root, alt = image_in(display.with_images(f"<p>{drawing}</p>"))
    assert alt == "a <b>"
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert (root.get("width"), root.get("color")) == ("9", "#1f1f1f")
    assert [child.tag.split("}")[1] for child in root] == ["rect", "title", "path"]


def test_what_no_image_may_hold_is_replaced() -> None:
    root, _ = image_in(display.with_images("<p><svg><text>a\x00b\ud800c\x1b</text></svg></p>"))
    assert "".join(root.itertext()) == "a\ufffdb\ufffdc\ufffd"


def test_several_drawings_stay_apart() -> None:
    html = display.with_images("<svg><g/></svg> and <svg><g/></svg>")
    assert html.count("<img ") == 2
    assert "> and <" in html


@pytest.mark.usefixtures("built")
def test_a_requested_bundle_comes_with_its_stylesheet_if_it_has_one() -> None:
    sent: list[Any] = []
    widget = SimpleNamespace(send=lambda content, buffers: sent.append((content, buffers)))
    (display.STATIC / "row.js").write_text("row")
    for name in ("row", "gone", "view"):
        display.send_bundle(widget, name, {"row", "gone"})
    assert sent == [
        ({"type": "module", "name": "row"}, [b"row", b""]),
        ({"type": "module", "name": "gone"}, None),
        ({"type": "module", "name": "view"}, None),
    ]
