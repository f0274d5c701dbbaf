"""Reads what a project says of its audits, in pyproject.toml or setup.cfg.

In pyproject.toml:

```toml
[tool.tf_amp_kit]
ignore = ["AMP402", "AMP403"]
fail_on = "error"

[tool.tf_amp_kit.severities]
AMP203 = "warning"

[tool.tf_amp_kit.per_layer_ignore]
"encoder/.*" = ["AMP101"]
```

In setup.cfg, with commas, blanks or new lines between codes:

```ini
[tf_amp_kit]
ignore = AMP402, AMP403
fail_on = error
severities = AMP203:warning
per_layer_ignore =
    encoder/.*: AMP101
```

The folders from the current one up to the repository's are searched, and the first
that holds one of the two sections is taken; where both files of a folder have one,
pyproject.toml is read, and a warning says that setup.cfg is not. The options of the
command line add to `ignore`, and win over `fail_on`.
"""

from __future__ import annotations

import configparser
import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tf_amp_kit.cli.project import project_folders
from tf_amp_kit.errors import SettingsError, SettingsWarning
from tf_amp_kit.inspection.strictness import Strictness

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["read_settings"]

_KEYS: Final = ("ignore", "fail_on", "severities", "per_layer_ignore")


def read_settings(folder: Path | None = None) -> Strictness:
    """Reads the settings of the project that a folder belongs to.

    The command line does so by itself. Use it in a test that audits a model which no
    builder makes.

    Args:
        folder: Where the search begins; None means the current directory.

    Returns:
        The settings, or the defaults where there are none.

    Raises:
        SettingsError: If a file cannot be read, or a key, a code, a severity or a
            type is wrong. The message names the file and the key.

    Example:

    >>> read_settings(Path("/")).fail_on
    'warning'
    """
    for one in project_folders(folder or Path.cwd()):
        found = [
            (path, title, section)
            for name, title, read in _FILES
            if (path := one / name).is_file() and (section := _section(path, read)) is not None
        ]
        if found:
            for path, title, _ in found[1:]:
                warnings.warn(
                    f"[{title}] of {path} is not read: {found[0][0].name} beside it has settings.",
                    SettingsWarning,
                    stacklevel=2,
                )
            return _strictness(*found[0])
    return Strictness()


def _strictness(path: Path, title: str, section: Any) -> Strictness:
    try:
        unknown = [key for key in section if key not in _KEYS]
        if unknown:
            raise SettingsError(
                f"Unknown key. Expected some of {list(_KEYS)}. Received: {unknown[0]!r}."
            )
        return Strictness(**section)
    except SettingsError as error:
        raise SettingsError(f"{path}, [{title}]: {error}") from None


def _section(path: Path, read: Callable[[str], Any]) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
        # What is wrong with a file that is about others only is no concern of an audit.
        return read(text) if "tf_amp_kit" in text else None
    except SettingsError as error:
        raise SettingsError(f"{path}: {error}") from None
    # Both parsers' errors, and what is no UTF-8, are ValueErrors or configparser's own.
    except (OSError, ValueError, configparser.Error) as error:
        raise SettingsError(f"{path} cannot be read: {error}.") from error


def _read_toml(text: str) -> Any:
    tool = tomllib.loads(text).get("tool", {})
    section = tool.get("tf_amp_kit") if isinstance(tool, dict) else None
    if section is not None and not isinstance(section, dict):
        raise SettingsError(f"`tool.tf_amp_kit` is no table. Received: {section!r}.")
    return section


def _read_ini(text: str) -> Any:
    # A pattern may hold a lone %.
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(text)
    if not parser.has_section("tf_amp_kit"):
        return None
    return {
        key: _INI_VALUES.get(key, str.strip)(value) for key, value in parser["tf_amp_kit"].items()
    }


def _codes(text: str) -> list[str]:
    return [code for code in re.split(r"[\s,]+", text) if code]


def _severities(text: str) -> dict[str, str]:
    pairs = re.sub(r"\s*:\s*", ":", text)
    return dict(_pair(pair, "severities", "AMP203:warning") for pair in _codes(pairs))


def _codes_by_layer(text: str) -> dict[str, list[str]]:
    lines = [line for line in text.splitlines() if line.strip()]
    pairs = [_pair(line, "per_layer_ignore", "encoder/.*: AMP203") for line in lines]
    return {pattern: _codes(codes) for pattern, codes in pairs}


def _pair(text: str, key: str, example: str) -> tuple[str, str]:
    # The last colon: a pattern may hold one, codes and severities do not.
    name, colon, value = text.rpartition(":")
    if not colon:
        raise SettingsError(
            f"`{key}` lacks a colon. Expected {example}, for example. Received: {text.strip()!r}."
        )
    return name.strip(), value.strip()


_INI_VALUES: Final[dict[str, Callable[[str], Any]]] = {
    "ignore": _codes,
    "severities": _severities,
    "per_layer_ignore": _codes_by_layer,
}

# The first one wins.
_FILES: Final[tuple[tuple[str, str, Callable[[str], Any]], ...]] = (
    ("pyproject.toml", "tool.tf_amp_kit", _read_toml),
    ("setup.cfg", "tf_amp_kit", _read_ini),
)
