"""Words that a colleague would stumble over are counted, and their number only falls.

In identifiers of gpusched/, and in its texts (docstrings, comments, messages) and documents. After a change that has
fewer of them: `python -m tests.test_plain_words`, which refuses to write more.
"""

import io
import json
import re
import sys
import tokenize
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
GOLDEN: Final = Path(__file__).parent / "golden" / "words.json"
IDENTIFIERS: Final = frozenset(
    {"told", "tell", "tells", "say", "says", "said", "hear", "hears", "heard", "look", "looks", "words"}
    | {"whoever", "nobody", "anew"}
)
TEXT: Final = re.compile(
    r"\b(told|tells?|says?|said|hears?|heard|looks?|looked|whoever|nobody|anew|in vain|as good as|so many"
    r"|words? for)\b",
    re.IGNORECASE,
)
DOCUMENTS: Final = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "docs/*.md")
_PART: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def counts() -> dict[str, int]:
    """Return how often identifiers, texts of the source, and documents have a word of the list."""
    identifiers = text = 0
    for path in sorted((ROOT / "gpusched").rglob("*.py")):
        for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
            if token.type == tokenize.NAME:
                identifiers += any(part.lower() in IDENTIFIERS for part in _PART.findall(token.string))
            elif token.type in {tokenize.STRING, tokenize.COMMENT}:
                text += len(TEXT.findall(token.string))
    documents = sum(len(TEXT.findall(path.read_text())) for glob in DOCUMENTS for path in ROOT.glob(glob))
    return {"identifiers": identifiers, "text": text, "documents": documents}


def test_the_number_of_these_words_only_falls() -> None:
    allowed = json.loads(GOLDEN.read_text())
    now = counts()
    assert all(now[kind] <= allowed[kind] for kind in now), f"{now} is more than {allowed}: find plainer words"


if __name__ == "__main__":
    found = counts()
    if GOLDEN.exists() and any(found[kind] > number for kind, number in json.loads(GOLDEN.read_text()).items()):
        sys.exit(f"{found} is more than before")
    GOLDEN.write_text(json.dumps(found, indent=2) + "\n")
