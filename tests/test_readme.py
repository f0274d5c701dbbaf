"""What the README shows is what happens."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def test_the_sessions_print_what_the_readme_shows() -> None:
    result = doctest.testfile(str(README), module_relative=False)
    assert result.attempted > 0
    assert result.failed == 0


def test_two_commands_do_all_the_setting_up() -> None:
    commands = re.findall(r"^<!-- command: (\w+) -->\n```bash\n.+\n```$", README.read_text(), re.M)
    assert commands == ["demo", "test"]


def test_the_readme_is_short_enough_to_read() -> None:
    assert len(README.read_text().splitlines()) <= 200
