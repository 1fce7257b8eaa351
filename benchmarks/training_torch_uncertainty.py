"""torch-uncertainty's part of `benchmarks/training.py`: its deep ensemble, all networks on the same batches."""

import logging
import warnings

import torch
from digits_task import BATCH, LR, N_NETWORKS, WIDTHS, Rows, main, network
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it imports what others have deprecated
    from torch_uncertainty import TUTrainer
    from torch_uncertainty.methods import deep_ensembles
    from torch_uncertainty.routines import ClassificationRoutine
    from torch_uncertainty.transforms import RepeatTarget

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


def train(rows: Rows, x: Tensor, epochs: int) -> Tensor:
    torch.manual_seed(0)
    ensemble = deep_ensembles(network(), num_estimators=N_NETWORKS)
    routine = ClassificationRoutine(
        model=ensemble,
        num_classes=WIDTHS[-1],
        loss=nn.CrossEntropyLoss(),
        is_ensemble=True,
        format_batch_fn=RepeatTarget(N_NETWORKS),
        optim_recipe=torch.optim.Adam(ensemble.parameters(), lr=LR),
    )
    trainer = TUTrainer(
        accelerator="cpu",
        max_epochs=epochs,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning would like worker processes for its loader
        trainer.fit(routine, DataLoader(TensorDataset(*rows), batch_size=BATCH, shuffle=True))
    ensemble.eval()
    with torch.no_grad():
        outputs: Tensor = ensemble(x)
    return outputs.unflatten(0, (N_NETWORKS, -1)).softmax(-1).mean(0)


if __name__ == "__main__":
    main(train, __doc__)
