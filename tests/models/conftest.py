"""A tiny pair to damage, and the message by which it is then refused."""

import json
from pathlib import Path

import pytest

from citer.errors import InputError
from citer.models.folder import PairFolder
from tests.tiny import TinyPair, make_tiny_pair


@pytest.fixture
def folders(tmp_path: Path) -> TinyPair:
    return make_tiny_pair(tmp_path)


def edit(path: Path, **changes: object) -> None:
    content = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))


def refusal(pair: TinyPair) -> str:
    with pytest.raises(InputError) as caught:
        PairFolder(pair.slm, pair.llm)
    assert "\n" not in str(caught.value)
    return str(caught.value)
