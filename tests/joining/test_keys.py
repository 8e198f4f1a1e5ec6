"""Keys are their user's alone and never shown; one at a time changes the list, and it is read when it changed."""

import io
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from rich.console import Console

from gpusched.errors import HostFault, NotFound, UsageError
from gpusched.joining.keys import (
    ALLOWED,
    SERVER,
    AllowList,
    listed,
    make_server_key,
    new_key,
    read_join_key,
    read_server_key,
    revoke,
)


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    make_server_key(tmp_path / "keys", "snake-4")
    return tmp_path / "keys"


def test_a_server_key_is_made_once_and_is_its_users_alone(keys: Path) -> None:
    first = (keys / SERVER).read_bytes()
    assert make_server_key(keys, "snake-4").read_bytes() == first
    assert keys.stat().st_mode & 0o777 == 0o700
    assert (keys / SERVER).stat().st_mode & 0o777 == 0o600
    assert read_server_key(keys / SERVER).job == "snake-4"


def test_a_new_key_knows_its_server_and_is_listed(keys: Path) -> None:
    path = new_key(keys, "lab2")
    assert path.stat().st_mode & 0o777 == 0o600
    key = read_join_key(path)
    assert (key.job, key.name, key.server) == ("snake-4", "lab2", read_server_key(keys / SERVER).public)
    assert [(each.name, each.public, each.revoked) for each in listed(keys)] == [("lab2", key.public, None)]
    assert AllowList(keys / SERVER).name_of(key.public) == "lab2"


@pytest.mark.parametrize("name", ["", "a/b", ".hidden", "server", "x" * 65, "a b", "../x"])
def test_a_name_that_could_be_another_file_is_refused(name: str, keys: Path) -> None:
    with pytest.raises(UsageError, match="cannot be a key's name"):
        new_key(keys, name)
    assert listed(keys) == ()


def test_a_name_is_used_once_even_after_it_was_revoked(keys: Path) -> None:
    new_key(keys, "lab2")
    revoke(keys, "lab2")
    with pytest.raises(UsageError, match="already"):
        new_key(keys, "lab2")


def test_a_revoked_key_is_not_let_in_and_its_file_is_gone(keys: Path) -> None:
    key = read_join_key(new_key(keys, "lab2"))
    allowed = AllowList(keys / SERVER)
    assert allowed.name_of(key.public) == "lab2"
    revoke(keys, "lab2")
    first = listed(keys)[0].revoked
    revoke(keys, "lab2")
    assert listed(keys)[0].revoked == first is not None
    assert allowed.name_of(key.public) is None
    assert allowed.why_not(key.public) == "its key 'lab2' was revoked"
    assert allowed.why_not("another") == "its key is not listed"
    assert not (keys / "lab2.key").exists()


def test_what_is_not_there_is_told(keys: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no key 'lab3'"):
        revoke(keys, "lab3")
    with pytest.raises(NotFound, match="no keys in"):
        revoke(tmp_path / "none", "lab3")
    with pytest.raises(NotFound, match="no key file"):
        new_key(tmp_path / "none", "lab3")
    with pytest.raises(NotFound, match="no key file"):
        read_join_key(keys / "lab3.key")


@pytest.mark.parametrize("broken", [b"", b"[", b'[{"name": 1}]', b'["\xff"]'])
def test_with_a_list_that_cannot_be_read_nobody_is_let_in(broken: bytes, keys: Path) -> None:
    key = read_join_key(new_key(keys, "lab2"))
    allowed = AllowList(keys / SERVER)
    assert allowed.name_of(key.public) == "lab2"
    good = (keys / ALLOWED).read_bytes()
    (keys / ALLOWED).write_bytes(broken)
    assert allowed.name_of(key.public) is None
    assert "no list" in allowed.why_not(key.public)
    with pytest.raises(HostFault, match="no host can join"):
        listed(keys)
    (keys / ALLOWED).write_bytes(good)
    assert allowed.name_of(key.public) == "lab2"
    (keys / ALLOWED).unlink()
    assert allowed.name_of(key.public) is None


def test_a_key_that_others_may_read_is_refused(keys: Path) -> None:
    path = new_key(keys, "lab2")
    path.chmod(0o640)
    with pytest.raises(UsageError, match=r"others may read this key .*chmod 600"):
        read_join_key(path)


@pytest.mark.parametrize(
    "content", ["", "{}", '{"job": "a", "name": "b", "server": "c", "public": "d", "secret": "e"}']
)
def test_what_is_no_key_is_told_without_a_word_of_it(content: str, keys: Path) -> None:
    path = keys / "bad.key"
    path.touch(mode=0o600)
    path.write_text(content)
    with pytest.raises(UsageError, match=r"bad\.key"):
        read_join_key(path)
    secret = read_join_key(new_key(keys, "lab2")).secret
    path.write_text((keys / "lab2.key").read_text().replace(secret, f"{secret}!"))
    with pytest.raises(UsageError) as raised:
        read_join_key(path)
    assert secret not in str(raised.value)


def test_a_key_shows_its_secret_nowhere(keys: Path) -> None:
    shown = io.StringIO()
    for key in (read_server_key(keys / SERVER), read_join_key(new_key(keys, "lab2"))):
        Console(file=shown).print(key, [key])
        for text in (repr(key), str(key), f"{key!r}", shown.getvalue()):
            assert key.public in text.replace("\n", "")
            assert key.secret not in text.replace("\n", "")


def test_keys_made_side_by_side_are_all_listed(keys: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: new_key(keys, f"lab{number}"), range(24)))
    assert {key.name for key in listed(keys)} == {f"lab{number}" for number in range(24)}
