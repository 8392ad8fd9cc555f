"""What a run is, in one description."""

from __future__ import annotations

from inspect import signature

import pytest

from commeff import RunSettings, train
from commeff.training.participation import Participation


def test_train_takes_a_run_as_one_description() -> None:
    assert len(signature(train).parameters) <= 10


@pytest.mark.parametrize(("settings", "every"), [(RunSettings(400), 20), (RunSettings(7), 1), (RunSettings(400, 3), 3)])
def test_rows_come_twenty_times_unless_it_is_said(settings: RunSettings, every: int) -> None:
    assert settings.rows_every == every


def test_a_share_of_all_is_no_absence() -> None:
    assert RunSettings(1, participation=Participation(4)).absences is None
    assert RunSettings(1, participation=(half := Participation(4, share=0.5))).absences is half
