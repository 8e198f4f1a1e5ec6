"""Starts two programs with multiprocessing's `spawn`, as torch.multiprocessing.spawn does: `spawner.py COMMAND...`."""

import multiprocessing
import os
import sys


def become(command: list[str], number: int) -> None:
    os.execv(command[0], [*command, str(number)])  # noqa: S606


if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    children = [context.Process(target=become, args=(sys.argv[1:], number)) for number in (1, 2)]
    for child in children:
        child.start()
    for child in children:
        child.join()
