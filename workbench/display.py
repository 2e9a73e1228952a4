"""Display of a view in a notebook: a widget where a user looks at it, text and picture always.

The only module that uses anywidget. A view provides its bundle (``graph``, built from
``extensions/anywidget/src/graph.ts``), the traits the widget carries to the browser, and its static
forms; `mime_bundle` decides what the output contains.
"""

from __future__ import annotations

import base64
import re
import sys
from collections.abc import Callable, Container, Mapping
from functools import cache
from html import escape, unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from workbench.html import fill

if TYPE_CHECKING:
    from anywidget import AnyWidget

STATIC = Path(__file__).parent / "static"

MimeBundle = tuple[dict[str, Any], dict[str, Any]]

_DRAWING = re.compile(r"<svg\b.*?</svg>", re.DOTALL)
_TITLE = re.compile(r"<title>(.*?)</title>", re.DOTALL)
_NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def mime_bundle(
    bundle: str,
    traits: Mapping[str, str | bytes | bool],
    *,
    text: str,
    html: str,
    options: Mapping[str, Any],
    on_message: Callable[[Any, Any], None] | None = None,
    extra: Mapping[str, Any] | None = None,
) -> MimeBundle:
    """Return the mime bundle of a view, and its metadata.

    Args:
        bundle: name of the front-end module, without ``.js``.
        traits: what the widget carries to the browser.
        text: the ``text/plain`` form.
        html: the ``text/html`` form, shown where widgets do not run (GitHub, nbconvert). Its
            drawings are converted to images (`with_images`).
        options: the arguments that Jupyter passed to ``_repr_mimebundle_``.
        extra: additional mime types, for front ends that draw the view themselves.
        on_message: called with (widget, content) for every custom message from the browser.
    """
    html = with_images(html)
    static = {"text/plain": text, "text/html": html}
    if not (STATIC / f"{bundle}.js").exists():
        hint = f"{bundle}.js is not built, so this picture is static: run `make lab`."
        return {**static, "text/html": html + fill("<p>{{ hint }}</p>", hint=hint)}, {}
    if not someone_is_looking():
        return static, {}
    kinds = tuple((name, type(value)) for name, value in traits.items())
    widget: Any = _widget_class(bundle, kinds)(**traits)
    if on_message is not None:

        def received(sender: Any, content: Any, _buffers: Any) -> None:
            on_message(sender, content)

        widget.on_msg(received)
    shown = widget._repr_mimebundle_(**options)
    if shown is None:
        return static, {}
    data, metadata = shown
    return {**data, **(extra or {}), **static}, metadata


def send_bundle(widget: Any, name: str, known: Container[str]) -> None:
    """Send a requested bundle (module and stylesheet) to a widget that does not carry it itself.

    Args:
        widget: the widget that requested the bundle.
        name: name of the requested bundle; the answer has no buffers unless ``known`` contains it
            and it is built. The stylesheet is empty where the bundle has none of its own.
        known: the bundles that may be requested.
    """
    module, stylesheet = (STATIC / f"{name}.{kind}" for kind in ("js", "css"))
    buffers = None
    if name in known and module.exists():
        css = stylesheet.read_bytes() if stylesheet.exists() else b""
        buffers = [module.read_bytes(), css]
    widget.send({"type": "module", "name": name}, buffers)


def with_images(html: str) -> str:
    """Return ``html`` with each inline ``<svg>`` as an ``<img>`` of the same drawing, on white.

    In a notebook that is not trusted yet, JupyterLab removes the tags of an inline drawing, which
    leaves only its labels as running text; it does show an image.
    """
    return _DRAWING.sub(lambda found: _image(found[0]), html)


def _image(drawing: str) -> str:
    opening, body = drawing.split(">", 1)
    named = "" if "xmlns=" in opening else ' xmlns="http://www.w3.org/2000/svg"'
    paper = '<rect width="100%" height="100%" fill="#fff"/>'
    alone = _NOT_XML.sub("\ufffd", f'{opening}{named} color="#1f1f1f">{paper}{body}')
    data = base64.b64encode(alone.encode("utf-8")).decode("ascii")
    title = _TITLE.search(drawing)
    alt = escape(unescape(title[1]) if title else "")
    return f'<img src="data:image/svg+xml;base64,{data}" alt="{alt}" style="max-width:100%">'


def someone_is_looking() -> bool:
    """Return whether this cell was run by a front end that a user is looking at.

    nbclient, nbconvert and papermill write the state of every widget into the notebook. They cannot
    ask a user for input, and state so in each request they send to the kernel.
    """
    ipython = sys.modules.get("IPython")
    kernel: Any = getattr(ipython.get_ipython(), "kernel", None) if ipython is not None else None
    if kernel is None:
        return False
    request = cast("dict[str, Any]", kernel.get_parent("shell") or {})
    return bool(request.get("content", {}).get("allow_stdin", True))


@cache
def _widget_class(bundle: str, kinds: tuple[tuple[str, type], ...]) -> type[AnyWidget]:
    """Return the widget that runs ``<bundle>.js`` with the stylesheet ``<bundle>.css``, if any.

    Created on first use, because anywidget reads the files at that time.
    """
    import anywidget
    import traitlets

    trait_of = {str: traitlets.Unicode, bytes: traitlets.Bytes, bool: traitlets.Bool}
    members: dict[str, Any] = {name: trait_of[kind]().tag(sync=True) for name, kind in kinds}
    members["_esm"] = STATIC / f"{bundle}.js"
    stylesheet = STATIC / f"{bundle}.css"
    if stylesheet.exists():
        members["_css"] = stylesheet
    return type(f"{bundle.title()}Widget", (anywidget.AnyWidget,), members)
