"""Programs that tests run: those of the environment the tests run in come first, whether or not it is on the path."""

import os
import shutil
import sys
from pathlib import Path


def find_program(name: str) -> str | None:
    return shutil.which(name, path=os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])))
