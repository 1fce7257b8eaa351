"""baal's part of `benchmarks/labels_saved.py`, in an environment of its own: MC dropout, BALD, and its own loop.

Its example's shape: linear layers with dropout of one half, weights drawn anew each round, 20 predictions of a row.
The example trains for 10 epochs at a learning rate of .001 from 200 labels on, which from 20 labels is hardly
training; here it is Adam and 100 epochs.
"""

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import structlog
import torch
from baal.active import ActiveLearningDataset, ActiveLearningLoop
from baal.active.heuristics import BALD
from baal.bayesian.dropout import patch_module
from baal.modelwrapper import ModelWrapper, TrainingArgs
from labels_saved_peer import Floats, Given, Ints, run
from torch import nn
from torch.utils.data import TensorDataset

N_UNITS, EPOCHS, ITERATIONS = 128, 100, 20


def mc_dropout_bald(given: Given, rows: Ints) -> tuple[Floats, Callable[[], Any]]:
    torch.manual_seed(1000 * given.seed + len(rows))
    x, test = (torch.from_numpy(part.astype(np.float32)) for part in (given.x, given.test))
    pool = ActiveLearningDataset(TensorDataset(x, torch.from_numpy(given.y)))
    pool.label(rows.tolist())
    net = nn.Sequential(
        *(nn.Linear(x.shape[1], N_UNITS), nn.ReLU(), nn.Dropout()),
        *(nn.Linear(N_UNITS, N_UNITS), nn.ReLU(), nn.Dropout()),
        nn.Linear(N_UNITS, given.n_classes),
    )
    net = patch_module(net)
    args = TrainingArgs(
        optimizer=torch.optim.Adam(net.parameters(), lr=1e-3),
        criterion=nn.CrossEntropyLoss(),
        batch_size=32,
        epoch=EPOCHS,
        use_cuda=False,
        workers=0,
    )
    wrapper = ModelWrapper(net, args)
    wrapper.train_on_dataset(pool)
    args.batch_size = 512  # of predictions, which it does not change
    logits = wrapper.predict_on_dataset(TensorDataset(test), iterations=ITERATIONS, verbose=False)  # [T, C, M]
    probs = torch.softmax(torch.from_numpy(logits).double(), dim=1).mean(-1).numpy()

    def choose() -> Ints:
        loop = ActiveLearningLoop(
            pool,
            wrapper.predict_on_dataset,
            heuristic=BALD(),
            query_size=given.step,
            iterations=ITERATIONS,
            verbose=False,
        )
        loop.step()
        chosen = np.flatnonzero(pool.labelled)
        return np.setdiff1d(chosen, rows)

    return probs, choose


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    torch.set_num_threads(1)
    run({"bald": mc_dropout_bald})
