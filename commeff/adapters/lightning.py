"""Lightning with a method: its DDP strategy, which leaves the model unwrapped. The package is imported when used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from commeff.adapters.imports import explain_torchvision
from commeff.adapters.optimizer import DistributedOptimizer
from commeff.communicator.wire.records import gather_states

if TYPE_CHECKING:
    from lightning.pytorch.strategies import DDPStrategy


def unwrapped(
    backend: str | None = None, start_method: Literal["popen", "spawn", "fork", "forkserver"] = "popen"
) -> DDPStrategy:
    """A Lightning strategy for modules whose `configure_optimizers` gives DistributedOptimizers.

        class Net(LightningModule):
            def configure_optimizers(self):
                return DistributedOptimizer(self, methods.diloco(ADAMW, period=25), clip=1.0)

        Trainer(strategy=unwrapped(), devices=4).fit(net, loader)

    It is Lightning's `DDPStrategy`, but for the wrapping: launching, samplers and devices are its own. A checkpoint has
    the optimizer states of all workers, and the parameters of the first one.

    Parameters
    ----------
    backend : str, optional
        The backend of the process group, such as "gloo"; that of the device unless given.
    start_method : {"popen", "spawn", "fork", "forkserver"}
        How processes are made, where torchrun or a cluster has not.
    """
    with explain_torchvision():
        from lightning.pytorch.strategies import DDPStrategy

    class Unwrapped(DDPStrategy):  # type: ignore[misc, unused-ignore]
        """`DDPStrategy` without DistributedDataParallel."""

        def configure_ddp(self) -> None:
            """The model stays as it is."""

        def setup_optimizers(self, trainer: Any) -> None:
            """Set up the module's optimizers, if they average anything."""
            super().setup_optimizers(trainer)
            if other := [type(opt).__name__ for opt in self.optimizers if not isinstance(opt, DistributedOptimizer)]:
                raise ValueError(
                    f"configure_optimizers must give DistributedOptimizers here, got {', '.join(other)}: nothing would "
                    "keep the workers together; give commeff.DistributedOptimizer(self, strategy)"
                )

        def optimizer_state(self, optimizer: Any) -> dict[str, Any]:
            """The states of all workers, at the process that saves them."""
            return {"workers": gather_states(super().optimizer_state(optimizer))}

        def load_optimizer_state_dict(self, checkpoint: Any) -> None:
            """This worker's own."""
            for optimizer, state in zip(self.optimizers, checkpoint["optimizer_states"], strict=True):
                optimizer.load_state_dict(state["workers"])

    return Unwrapped(process_group_backend=backend, start_method=start_method)
