"""Do all parts on this machine's first GPU, one after the other, and write what they saw: `python -m bench.gpu [FILE]`.

The page is written after each part, so that what was seen stays if a later one does not end. A part that saw something
wrong, or broke, is named so in the page, the others go on, and the exit code is 1. `--learn MINUTES` is a part that
takes long, and is done alone; its page goes to standard output without a FILE.
"""

import argparse
import datetime as dt
import platform
import sys
import time
import traceback
from pathlib import Path
from typing import Final

from bench.fresh import ROOT
from bench.gpu.ground import FRAMEWORKS, Ground, ground, versions
from bench.gpu.parts import PARTS, Part, Wrong, learning
from gpusched.probe.nvml import NvmlProbe

_PAGE: Final = ROOT / "docs" / "gpu-verification.md"
_ABOUT: Final = """\
# Seen on a real GPU

<!-- Made by `scripts/verify-gpu` on a machine with a GPU: what is changed here by hand goes with the next run. -->

`scripts/verify-gpu` does all of this. It needs no network, only a Python that has PyTorch, JAX, CuPy or
TensorFlow, and gpusched's own dependencies (or `wheels/`, which `scripts/verify-gpu --wheels` fills
where there is a network). It changes no setting of the GPU.
"""
_ABOUT_LEARNING: Final = """\
# Learnt on a real GPU, and beside it on the CPU

`scripts/verify-gpu --learn MINUTES`
"""


def main() -> int:
    """Do all parts; return 1 if one was wrong."""
    parser = argparse.ArgumentParser("scripts/verify-gpu")
    parser.add_argument("file", nargs="?", type=Path, help="where the page goes")
    parser.add_argument("--learn", type=float, metavar="MINUTES", help="only learn Snake, beside the CPU")
    typed = parser.parse_args()
    page = typed.file or (None if typed.learn else _PAGE)
    parts = [(f"Snake for {typed.learn:g} minutes", learning(typed.learn))] if typed.learn else PARTS
    about = _ABOUT_LEARNING if typed.learn else _ABOUT
    wrong = 0
    with ground() as here:
        if not here.frameworks:
            print(f"None of {', '.join(FRAMEWORKS)} can be imported by {sys.executable}", file=sys.stderr)
            return 1
        written = [about, _place(here)]
        for title, part in parts:
            began = time.monotonic()
            print(f"{title} ...", file=sys.stderr, flush=True)
            text, ok = _tried(part, here)
            wrong += not ok
            taken = time.monotonic() - began
            print(f"{title}: {'well' if ok else 'WRONG'}, {taken:.0f} s", file=sys.stderr, flush=True)
            written.append(f"## {title}\n\n{text}")
            if page is not None:
                page.write_text("\n".join(written))
    if page is None:
        print("\n".join(written))
    print(f"{page or 'above'}: {len(parts) - wrong} of {len(parts)} parts are well", file=sys.stderr)
    return min(wrong, 1)


def _tried(part: Part, here: Ground) -> tuple[str, bool]:
    try:
        return part(here), True
    except Wrong as wrong:
        print(wrong, file=sys.stderr, flush=True)
        return f"**Wrong:** {wrong}\n", False
    except (Exception, SystemExit):  # noqa: BLE001 (the other parts go on)
        told = traceback.format_exc()
        print(told, file=sys.stderr, flush=True)
        return f"**Broken:**\n\n```\n{told}```\n", False


def _place(here: Ground) -> str:
    probe = NvmlProbe()
    found = probe.read()
    probe.close()
    device = found.devices[0]
    today = dt.datetime.now(dt.UTC).date()
    return (
        f"{today}: {device.name}, {device.memory_total_mib:,} MiB, driver {found.driver_version}, "
        f"CUDA {found.cuda_version}; {len(found.cpus)} CPUs, Linux {platform.release()}, "
        f"Python {platform.python_version()}; {versions(here.frameworks)}.\n"
    )


if __name__ == "__main__":
    sys.exit(main())
