"""HTML for cell outputs, rendered from templates that escape every value.

A template is a file next to the code that fills it, or a line in that code.

Outputs contain no script and no style sheet: notebooks drop both in untrusted outputs.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment, Template
    from markupsafe import Markup


def render(template: str, **values: Any) -> str:
    """Fill a template.

    Args:
        template: path of the template within the package: ``dtypes/types.html``.
        values: the variables of the template; plain text is escaped, the output of `markup` is not.

    Raises:
        jinja2.UndefinedError: the template uses a variable that is not given.
    """
    return _environment().get_template(template).render(values).strip()


def fill(line: str, **values: Any) -> str:
    """Fill a template that is a single line, ``<p>{{ text }}</p>``, like `render`."""
    return _compiled(line).render(values)


def markup(text: str) -> Markup:
    """Mark text as HTML or SVG in which everything that came from outside is already escaped."""
    from markupsafe import Markup

    return Markup(text)  # noqa: S704 - callers have escaped it


@cache
def _compiled(line: str) -> Template:
    return _environment().from_string(line)


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
