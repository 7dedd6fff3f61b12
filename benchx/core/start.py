"""Run a module with our packages taken from given folders: `start.py FOLDERS MODULE ARGUMENT...`.

FOLDERS is a JSON object, package -> folder. A program of its own that imports nothing of benchx:
it decides which benchx is imported. `PYTHONPATH` can't do this: a checkout on it would offer its
`kernels` under that name too, and every process that the module starts would inherit it.
"""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType


class GivenFolders(MetaPathFinder):
    """Finds the packages that it was given, before anything else looks for them.

    Args:
        folders: Package -> its folder.
    """

    def __init__(self, folders: Mapping[str, str]) -> None:
        self._folders = dict(folders)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The package's spec; None leaves the name to the other finders."""
        folder = self._folders.get(fullname)
        if folder is None:
            return None
        init = Path(folder, "__init__.py")
        return spec_from_file_location(fullname, init, submodule_search_locations=[folder])


if __name__ == "__main__":
    _, given, module, *arguments = sys.argv
    sys.meta_path.insert(0, GivenFolders(json.loads(given)))
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
