"""torchensemble's part of `benchmarks/training.py`: its VotingClassifier, which is a deep ensemble."""

import io
from contextlib import redirect_stdout

import torch
from digits_task import BATCH, LR, N_NETWORKS, Rows, main, network
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from torchensemble import VotingClassifier


class Net(nn.Sequential):
    """It builds its networks from a class; copies of an instance would all start alike."""

    def __init__(self) -> None:
        super().__init__(*network())  # type: ignore[misc]


def train(rows: Rows, x: Tensor, epochs: int) -> Tensor:
    torch.manual_seed(0)
    ensemble = VotingClassifier(estimator=Net, n_estimators=N_NETWORKS, cuda=False)
    ensemble.set_optimizer("Adam", lr=LR)
    loader = DataLoader(TensorDataset(*rows), batch_size=BATCH, shuffle=True)
    with redirect_stdout(io.StringIO()):  # it prints a line an epoch and network
        ensemble.fit(loader, epochs=epochs, save_model=False)
    with torch.no_grad():
        predicted: Tensor = ensemble(x)
    return predicted


if __name__ == "__main__":
    main(train, __doc__)
