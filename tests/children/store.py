"""A process that has the daemon's database open: `store.py write|hold|fill|refuse FILE`."""

import os
import sys
import time
from pathlib import Path

from gpusched.errors import HostFault
from gpusched.storage.store import Store
from tests.storage.records import ended, queued


def write(path: Path) -> None:
    """Add jobs for ever, and tell of each that is on disk; every other one ends at once."""
    store = Store.open(path)
    while True:
        number = store.last_number("run") + 1
        store.add(queued(number, HOME="/home/ada", NUMBER=str(number % 3)))
        told = f"added run-{number}\n"
        if number % 2:
            store.save(ended(number))
            told += f"ended run-{number}\n"
        os.write(1, told.encode())


def hold(path: Path) -> None:
    """Keep it open."""
    store = Store.open(path)
    store.add(queued(1))
    print("open", flush=True)
    time.sleep(600)


def fill(path: Path) -> None:
    """Write until the disk is full, make room, and write again."""
    filler = path.with_name("filler")
    store, number = Store.open(path), 0
    try:
        while True:
            with store.transaction():
                for _ in range(10):
                    number += 1
                    store.add(queued(number, LONG=os.urandom(2000).hex()))
    except HostFault as error:
        print(error)
    whole = len(store.live())
    print(whole % 10, store.last_number("run") - whole)
    filler.unlink()
    store.add(queued(1_000_000))
    store.close()
    print(len(Store.open(path).live()) - whole)


def refuse(path: Path) -> None:
    """Open it, which must fail."""
    try:
        Store.open(path)
    except HostFault as error:
        print(error)


if __name__ == "__main__":
    {"write": write, "hold": hold, "fill": fill, "refuse": refuse}[sys.argv[1]](Path(sys.argv[2]))
