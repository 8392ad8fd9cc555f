"""A choice that is put in without hydra is what hydra composes."""

from __future__ import annotations

import json

import pytest
from omegaconf import OmegaConf

from commeff.experiments.config.schema import GROUPS, built_in
from commeff.experiments.config.selection import composed, select

SEVERAL = (
    ("method=gossip_pga", "compressor=int8", "topology=torus", "schedule=cosine"),
    ("method=psgd", "task=fashion_mnist"),
)
EACH = [(f"{group}={name}",) for group in GROUPS for name in built_in(group)]


def same(overrides: tuple[str, ...]) -> None:
    ours, theirs = select(overrides, ()), composed(overrides)
    assert ours.config == theirs.config
    assert OmegaConf.is_struct(ours.config) == OmegaConf.is_struct(theirs.config)
    assert json.dumps(ours.raw) == json.dumps(theirs.raw), "in the same order"
    assert (ours.places, ours.leaves, ours.used) == (theirs.places, theirs.leaves, theirs.used)


@pytest.mark.parametrize("overrides", [*SEVERAL, *EACH[::12]])
def test_a_choice_is_what_hydra_composes(overrides: tuple[str, ...]) -> None:
    same(overrides)


@pytest.mark.slow
@pytest.mark.parametrize("overrides", EACH)
def test_every_choice_is_what_hydra_composes(overrides: tuple[str, ...]) -> None:
    same(overrides)
