"""Lightning, accelerate and transformers with a method: psgd in them is what they do by themselves.

They import torchvision, whose wheel may not load: commeff neither needs nor mends it.
"""

from __future__ import annotations

import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests import owned

SCRIPT = Path(__file__).with_name("other_trainers.py")
ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("trainer", ["lightning", "accelerate", "transformers"])
def test_psgd_is_what_the_trainer_does_by_itself(trainer: str, tmp_path: Path) -> None:
    """With accumulation and a schedule; and a run of a method whose workers differ goes on from a checkpoint."""
    if find_spec(trainer) is None:  # importing takes seconds
        pytest.skip(f"needs {trainer}")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    done = owned.run(
        [*torchrun, str(SCRIPT), trainer, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    differences = [float(each) for line in re.findall(r"differences \[(.*)\]", done.stdout) for each in line.split(",")]
    assert len(differences) >= 2
    assert max(differences) <= 1e-10, differences


OPERATORS = """
import torch

if {loads}:
    library = torch.library.Library("torchvision", "DEF")
    library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
torch.library.register_fake("torchvision::nms")(lambda dets, scores, iou_threshold: dets)
"""
STAND_INS = {  # who imports torchvision as the packages of these names do; transformers when a class is asked for
    "lightning/pytorch/strategies.py": "import torchvision\n\n\nclass DDPStrategy:\n    def __init__(self, **_): ...\n",
    "lightning/pytorch/__init__.py": "",
    "lightning/__init__.py": "",
    "transformers/__init__.py": """
def __getattr__(name):
    try:
        import torchvision
    except RuntimeError as error:
        raise ModuleNotFoundError(f"Could not import module '{name}'.") from error
    return type(name, (), {})
""",
}
TORCHVISION = """
try:
    import torchvision
except RuntimeError as error:
    assert not {loads} and "operator torchvision::nms does not exist" in str(error), error
else:
    assert {loads}
"""
COMMEFF = """
from pathlib import Path

from PIL import Image

import commeff
from commeff.adapters.lightning import unwrapped
from commeff.adapters.transformers import trainer_with
from commeff.experiments.data import images

Image.new("RGB", (9, 9)).save("black.png")
assert images.decode([Path("black.png")], 8).shape == (1, 3, 8, 8)
assert commeff.DistributedOptimizer and commeff.methods.psgd
"""
USES = """
for use in (unwrapped, lambda: trainer_with(commeff.methods.psgd)):
    try:
        use()
    except ImportError as error:
        assert not {loads}, error
        assert "pip install --force-reinstall --no-deps torchvision==0.1" in str(error), error
    else:
        assert {loads}
"""


@pytest.mark.parametrize("first", ["torchvision", "commeff"])
@pytest.mark.parametrize("loads", [True, False])
def test_torchvision_is_what_it_would_be_without_commeff_in_either_order(
    loads: bool, first: str, tmp_path: Path
) -> None:
    """One that loads defines its operators itself; of one that does not, a line says which wheel helps."""
    written = STAND_INS | {
        "torchvision/__init__.py": OPERATORS,
        "torchvision-0.1+cu999.dist-info/METADATA": "Metadata-Version: 2.1\nName: torchvision\nVersion: 0.1+cu999\n",
    }
    for name, content in written.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content.replace("{loads}", str(loads)))
    order = [TORCHVISION, COMMEFF, USES] if first == "torchvision" else [COMMEFF, USES, TORCHVISION]
    done = owned.run(
        [sys.executable, "-c", "".join(order).replace("{loads}", str(loads))],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
