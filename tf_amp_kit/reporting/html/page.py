"""From sections to one page that needs nothing beside it."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib import resources
from typing import Any, Final

from tf_amp_kit.errors import MissingExtraError
from tf_amp_kit.reporting.html.views import FINE, LOOK, NEUTRAL, PROBLEM, Section, sort_key

__all__ = ["render_page"]

_FOLDER: Final = "templates"
_NOTHING_ELSE: Final = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
_WORDS: Final = {PROBLEM: "Problem", LOOK: "Look", FINE: "Fine", NEUTRAL: "For your information"}


def render_page(sections: Sequence[Section]) -> str:
    """Returns the page as text.

    Args:
        sections: What it shows, in this order.

    Raises:
        MissingExtraError: If jinja2 cannot be imported.
    """
    script = _text("page.js")
    # Nothing but this very script may run, and nothing may be loaded.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    template = _environment().get_template("page.html")
    return str(
        template.render(
            sections=sections,
            headline=_headline(sections),
            status=_worst(sections),
            words=_WORDS,
            style=_text("page.css"),
            script=script,
            policy=f"{_NOTHING_ELSE}; script-src 'sha256-{digest}'",
        )
    )


def _environment() -> Any:
    try:
        import jinja2
    except ImportError as error:
        raise MissingExtraError(
            "jinja2 is not installed. Expected it for HTML reports. "
            'Install it: pip install "tf_amp_kit[html]".'
        ) from error
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_text),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["sort_key"] = sort_key
    return environment


def _text(name: str) -> str:
    here = resources.files("tf_amp_kit.reporting.html")
    return here.joinpath(_FOLDER, name).read_text(encoding="utf-8")


def _worst(sections: Sequence[Section]) -> str:
    found = {one.status for one in sections}
    return next((one for one in (PROBLEM, LOOK, FINE) if one in found), NEUTRAL)


def _headline(sections: Sequence[Section]) -> str:
    """Says in one sentence whether the model is fine."""
    status = _worst(sections)
    first = next((one for one in sections if one.status == status), None)
    if first is None or status == NEUTRAL:
        return "Nothing here judges the model."
    if status == FINE:
        return "The model is fine: no record finds anything wrong."
    lead = "The model is not fine." if status == PROBLEM else "The model needs a look."
    return f"{lead} {first.title}: {first.verdict}"
