from pathlib import Path

from citer.training.job import last_checkpoint, losses, steps_done

STATE = '{"log_history": [{"loss": 3.0}, {"loss": 2.5}, {"train_runtime": 1.0}]}'


def checkpoint(folder: Path, step: int, state: str | None) -> Path:
    path = folder / f"checkpoint-{step}"
    path.mkdir(parents=True)
    if state is not None:
        (path / "trainer_state.json").write_text(state)
    return path


def test_the_newest_whole_checkpoint_is_chosen_and_torn_ones_are_removed(tmp_path: Path) -> None:
    assert last_checkpoint(tmp_path) is None
    assert steps_done(None) == 0
    checkpoint(tmp_path, 5, STATE)
    whole = checkpoint(tmp_path, 10, STATE)
    without_state = checkpoint(tmp_path, 15, None)
    half_a_state = checkpoint(tmp_path, 100, STATE[:20])
    assert last_checkpoint(tmp_path) == whole
    assert not without_state.exists()
    assert not half_a_state.exists()
    assert steps_done(whole) == 10
    assert losses(whole) == [3.0, 2.5]
