"""Files of rows for the tests of the importer."""

import pytest


@pytest.fixture
def written(tmp_path):
    def write(text, name="rows.json"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write
