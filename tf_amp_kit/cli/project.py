"""The project that a command is run in: its folders, and where it ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

__all__ = ["project_folders", "source_root"]


def project_folders(folder: Path) -> Iterator[Path]:
    """Yields a folder and those above it, up to the repository that holds it.

    Args:
        folder: Where to begin. Outside of any repository, the file system's root is
            the last.
    """
    for one in (folder, *folder.parents):
        yield one
        if _is_repository(one):
            return


def source_root(folder: Path) -> Path:
    """Returns what files are told relative to: the repository, else the folder itself."""
    top = [*project_folders(folder)][-1]
    return top if _is_repository(top) else folder


def _is_repository(folder: Path) -> bool:
    # A file in worktrees and submodules.
    return folder.joinpath(".git").exists()
