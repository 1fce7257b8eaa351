"""skorch's part of `benchmarks/training.py`: one NeuralNetClassifier after another."""

import torch
from digits_task import BATCH, LR, N_NETWORKS, Rows, main, network
from skorch import NeuralNetClassifier
from torch import Tensor, nn


def train(rows: Rows, x: Tensor, epochs: int) -> Tensor:
    probabilities = []
    for seed in range(N_NETWORKS):
        torch.manual_seed(seed)
        net = NeuralNetClassifier(
            network,
            criterion=nn.CrossEntropyLoss,
            optimizer=torch.optim.Adam,
            lr=LR,
            batch_size=BATCH,
            max_epochs=epochs,
            iterator_train__shuffle=True,
            train_split=None,
            verbose=0,
        )
        net.fit(*rows)
        probabilities.append(torch.from_numpy(net.predict_proba(x)))
    return torch.stack(probabilities).mean(0)


if __name__ == "__main__":
    main(train, __doc__)
