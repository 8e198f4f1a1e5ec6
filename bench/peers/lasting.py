"""What needs no quiet host, all at the same time: two ways of starting that train for long, and forks that are checked.

`python -m bench.peers.lasting COUNT SECONDS ROUNDS CHECKED`: prints an object with the figures of each.
"""

import json
import subprocess
import sys
from typing import Any

__all__: list[str] = []


def main(count: str, seconds: str, rounds: str, checked: str) -> None:
    """Run all, each in a process of its own, and print what they print."""
    commands = {
        "ours": ("bench.peers.training", "command", count, seconds),
        "forkserver": ("bench.peers.training", "forkserver", count, seconds),
        "forks": ("bench.peers.check_forks", rounds, checked),
    }
    started = {
        name: subprocess.Popen([sys.executable, "-m", *words], stdout=subprocess.PIPE, text=True)
        for name, words in commands.items()
    }
    figures: dict[str, Any] = {}
    for name, process in started.items():
        told, _ = process.communicate()
        if process.returncode != 0:
            sys.exit(f"{name}: ended with code {process.returncode}: {told}")
        figures[name] = json.loads(told.strip().splitlines()[-1])
    print(json.dumps(figures))


if __name__ == "__main__":
    main(*sys.argv[1:])
