"""HTML of cells, from templates: whatever they are given is escaped.

A template is a file beside the code that fills it, or a line in that code.

No script and no style sheet: notebooks drop both where they do not trust an output.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


def render(template: str, **values: Any) -> str:
    """Fill a template.

    Args:
        template: its path within the package: ``dtypes/types.html``.
        values: what it names; plain text is escaped, what `markup` gave is not.

    Raises:
        jinja2.UndefinedError: it names something else.
    """
    return _environment().get_template(template).render(values).strip()


def fill(line: str, **values: Any) -> str:
    """As `render`, of a template that is one line: ``<p>{{ text }}</p>``."""
    return _environment().from_string(line).render(values)


def markup(text: str) -> Markup:
    """Text that is HTML or SVG already, every foreign part of it escaped."""
    from markupsafe import Markup

    return Markup(text)  # noqa: S704 - callers have escaped it


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
