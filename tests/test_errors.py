import pytest

from citer import errors
from citer.errors import LONGEST, InputError, read_text


@pytest.mark.parametrize("letter", ["x", "\n", "\0", "\ud83d", "é", "🦊"])
def test_a_message_is_one_printable_line_whatever_it_quotes(letter):
    message = str(InputError(f"file: {letter * 5000}; expected less"))
    assert len(message) <= LONGEST
    assert message.isprintable()
    assert message.startswith("file: ")
    assert message.endswith("; expected less")


def test_a_short_message_is_not_changed():
    message = "τ: 'a  b'; expected less"
    assert str(InputError(message)) == message


def test_a_text_file_that_is_too_large_is_refused_without_reading_it(tmp_path, monkeypatch):
    monkeypatch.setattr(errors, "LARGEST", 2)
    (tmp_path / "text").write_text("123")
    with pytest.raises(InputError, match="3 bytes: expected at most 2, so split it"):
        read_text(tmp_path / "text")


def test_a_path_too_long_for_the_disk_is_refused(tmp_path):
    with pytest.raises(InputError, match="cannot be read: File name too long"):
        read_text(tmp_path / ("x" * 5000))
