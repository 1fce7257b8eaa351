"""Neural processes: a network that reads labelled rows and predicts others, learnt over many tasks."""

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.nn.functional import softplus

from bensemble_core.ensemble import Ensemble
from bensemble_core.errors import InvalidData, InvalidOption
from bensemble_core.io import below
from bensemble_core.likelihoods import FLOOR, Gaussian, HeteroscedasticGaussian
from bensemble_core.models.conditioned import LONGEST, Attention, Conditioned, Encoding, perceptron
from bensemble_core.models.spec import checked_state
from bensemble_core.options import STRICT
from bensemble_core.posteriors.function_space.tasks import (
    Split,
    Tasks,
    TasksOfProcess,
    TasksOfRows,
    inputs_around,
    process_of,
)
from bensemble_core.posteriors.own_nets import OwnNet
from bensemble_core.posteriors.start import check_memory
from bensemble_core.priors import FunctionSamples
from bensemble_core.randomness import derive, draw_seed, generator
from bensemble_core.threads import one_thread
from bensemble_core.training.descent import Descent, Run, descend
from bensemble_core.training.objectives import Batch, Forward
from bensemble_core.types import Aim, Data, Over, Problem, Report, Shapes, Tensors, silent

_INPUTS = 1024  # most inputs that are kept for pseudo-labels
_LEAST_SD = 0.1  # of the latent vector: sd = .1 + .9 sigmoid(raw), as the papers' authors have it


@dataclass(frozen=True, kw_only=True)
class NeuralProcess:
    """A network that reads the labelled rows of a task and predicts its others, learnt over many tasks.

    Trained on rows with `task` numbers; task 0 is the one predicted, and its rows (all of them) are the context C of
    every member. Each step takes some tasks, splits each at random into a context and targets, and maximises
    Σ_targets log N(y | μ(x; C), σ²(x; C)) (conditional: Garnelo et al. 2018a), or with a latent z
    E_q(z | C, targets) Σ log N(y | μ(x; C, z), σ²(x; C, z)) − KL(q(z | C, targets) ‖ q(z | C)) (Garnelo et al. 2018b).
    `encoder="mean"` averages the codes of the context's rows; "attention" gives each row an average of its own (Kim et
    al. 2019). With prior=bc.GP(…) and a known noise, tasks are drawn from that process instead, at inputs around the
    rows. `update((x, y), keep=False, epochs=0)` conditions on another task without training.

    Regression only. Encoder and decoder are networks of its own: of the model handed in only the shapes of input and
    output are used, and a prior on weights is not (they are found by maximum likelihood). The decoder gives a variance
    of its own for each row, which holds what the context leaves open too, and so members run with a
    HeteroscedasticGaussian; a noise that is handed in as known is its least sd.

    Members are functions that differ: draws of z (mean with a latent); for the others, the context and 8
    `pseudo_labels`, drawn one after another at training inputs, each from what is predicted given those before it, so
    that a member's labels are one coherent draw. With attention and a latent, z is drawn as well; alone it is ignored.
    A latent predicts worse here: on functions of a Gaussian process, with 10 rows of context, the log-likelihood of a
    target was about 0 with attention, −.7 with mean, −.9 with mean and a latent (exact: .23; without a context: −1.42).

    Departures from the papers: targets are scored without the context's rows; attention has no self-attention and no
    projections beyond the networks that make keys and values; with mean and latent there is no deterministic path.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    aims: ClassVar[Aim] = "none"
    batches: ClassVar[bool] = False
    resumes: ClassVar[bool] = True
    starts_from_weights: ClassVar[bool] = False
    needs_tasks: ClassVar[bool] = True
    over: ClassVar[Over] = "functions"
    name: Literal["neural_process"] = "neural_process"
    encoder: Encoding = field(
        default="attention", metadata={"description": "a row's own average of the context, or one for all rows"}
    )
    latent: bool = field(
        default=False, metadata={"description": "with a latent vector of width / 8; with mean its draws are members"}
    )
    width: int = field(default=64, metadata={"ge": 4, "le": 1024, "description": "units of each layer"})
    epochs: int = field(
        default=2000,
        metadata={"ge": 0, "le": 1_000_000, "description": "passes over the tasks, or steps where those are drawn"},
    )
    tasks: int = field(default=16, metadata={"ge": 1, "le": 10_000, "description": "tasks a step"})
    rows: int = field(default=40, metadata={"ge": 2, "le": 10_000, "description": "most rows of a task in a step"})
    lr: float = field(
        default=0.003,
        metadata={"gt": 0, "le": 1, "search": ("log", 1e-4, 1e-2), "description": "learning rate at the start"},
    )
    pseudo_labels: int = field(
        default=8, metadata={"ge": 1, "le": 1000, "description": "of each member, where it is no draw of z"}
    )

    def check(self, problem: Problem) -> None:
        """Refuse classes, embeddings, and tasks from a process without a known noise."""
        if not isinstance(problem.likelihood, (Gaussian, HeteroscedasticGaussian)):
            raise InvalidOption(
                f"neural_process is for numbers, got {type(problem.likelihood).__name__}; use likelihood='gaussian', "
                "or for classes deep_ensemble"
            )
        advice = "take fewer tasks or rows a step, or a smaller width"
        held = self.tasks * self.rows * (self.width + self.rows)
        check_memory(self.name, "the tasks of a step", held, advice)
        if problem.model.integers:
            raise InvalidOption("neural_process reads rows of real numbers, and these are indices; pass embedded rows")
        if isinstance(problem.prior, FunctionSamples):
            raise InvalidOption(
                "neural_process draws its tasks from a process with a covariance, and FunctionSamples has draws alone; "
                "pass prior=GP(lengthscale=…, scale=…), draw tasks of your own, Data(task=…), or use fbnn"
            )
        if process_of(problem.prior) is not None and _known_noise(problem) is None:
            raise InvalidOption(
                "tasks drawn from a Gaussian process need its noise; pass likelihood=bc.Gaussian(noise=…), or tasks of "
                "your own and another prior"
            )

    def fit(
        self,
        problem: Problem,
        data: Data,
        *,
        rng: torch.Generator,
        warm: Tensors | None = None,
        resume: Tensors | None = None,
        report: Report = silent,
    ) -> dict[str, Tensor]:
        """`np/…`, the networks [1, ...]; `context/x` [C, D], `context/y` [C, T]; `context/inputs`, for pseudo-labels.

        With epochs=0 and a warm state its networks and inputs are kept, and the context alone is new. The state of
        another method has nothing to start from, and is not used.
        """
        context = data if data.task is None else data.take(data.task == 0)
        if not context.n_rows:
            raise InvalidData("task 0 is the one that is predicted, and it has no rows; number its rows 0")
        if self.encoder == "attention" and context.n_rows > LONGEST:
            raise InvalidData(
                f"attention looks at every row of the context for every prediction, and {context.n_rows:,} are more "
                f"than {LONGEST:,}; take encoder='mean', or fewer rows of task 0"
            )
        base, process = draw_seed(rng), _Networks(method=self, problem=problem)
        theta = process.start(base, device=data.x.device)
        if warm is not None and (not self.epochs or any(name in warm for name in theta)):  # else another method's
            checked_state(theta, warm, "warm start")
            theta = {k: warm[k].to(v) for k, v in theta.items()}
        if self.epochs:
            theta = process.train(self._tasks(problem, data), theta, seed=base, resume=resume, report=report)
        kept = None if self.epochs or warm is None else warm.get("context/inputs")
        inputs = _inputs(problem, data, generator(base, 1)) if kept is None else kept
        return {**theta, "context/x": context.x.flatten(1), "context/y": context.y, "context/inputs": inputs}

    def sample(self, problem: Problem, state: Tensors, n: int, *, rng: torch.Generator) -> Ensemble:
        """Exactly n functions, each a decoder under a context of its own."""
        process = _Networks(method=self, problem=problem)
        with torch.no_grad():
            model, stacked, shared = process.members(state, n, rng)
        own = replace(problem, model=model, likelihood=process.likelihood)
        return Ensemble(problem=own, stacked=stacked, shared=shared)

    def expected(self, problem: Problem, state: Tensors) -> Shapes:
        """The networks' tensors, and rows as many as the state has."""
        inputs, targets = math.prod(problem.model.input_shape), len(_moments(problem).mean)
        n, n_inputs = (
            state[name].shape[0] if name in state and state[name].ndim else 0
            for name in ("context/x", "context/inputs")
        )
        own = {"context/x": (n, inputs), "context/y": (n, targets), "context/inputs": (n_inputs, inputs)}
        return _Networks(method=self, problem=problem).shapes() | own

    def cost(self, n_parameters: int) -> int:
        """Its own weights, about 10 width², × epochs; the network handed in does not count."""
        return 10 * self.width**2 * max(1, self.epochs)

    def _tasks(self, problem: Problem, data: Data) -> Tasks:
        prior, noise = process_of(problem.prior), _known_noise(problem)
        if prior is None or noise is None:
            return TasksOfRows.of(data, rows=self.rows)
        return TasksOfProcess(
            process=prior,
            noise=noise,
            problem=problem,
            likelihood=_moments(problem),
            centres=data.x.flatten(1),
            rows=self.rows,
            count=self.tasks,
        )


@dataclass(frozen=True, kw_only=True)
class _Steps(Descent):
    """The options of a descent over tasks, and of the method: a snapshot has to agree in them."""

    method: NeuralProcess = field(default_factory=NeuralProcess)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Networks:
    """The networks of a neural process for one problem: how they start, are trained, and make members."""

    method: NeuralProcess
    problem: Problem

    @cached_property
    def likelihood(self) -> HeteroscedasticGaussian:
        return _moments(self.problem)

    @cached_property
    def model(self) -> Conditioned:
        """What members run, but for the sizes of their contexts."""
        likelihood, noise = self.likelihood, _known_noise(self.problem)
        units = [a * b for a, b in zip(likelihood.scale, likelihood.spread, strict=True)]
        return Conditioned(
            input_shape=self.problem.model.input_shape,
            n_outputs=likelihood.n_outputs,
            encoder=self.method.encoder,
            width=self.method.width,
            latent=max(4, self.method.width // 8) if self.method.latent else 0,
            floor=tuple(0.0 if noise is None else (noise / unit) ** 2 for unit in units),
        )

    @cached_property
    def nets(self) -> dict[str, OwnNet]:
        """query: x -> keys; encoder: (x, y) -> codes; latent: (x, y) -> codes; moments: their mean -> those of z."""
        n_inputs, n_targets = math.prod(self.model.input_shape), self.model.n_outputs // 2
        width, row = self.method.width, n_inputs + n_targets
        made: dict[str, Any] = {}
        if self.method.encoder == "attention":
            made["query"] = self.model.query
        if self.model.has_code:
            made["encoder"] = lambda: perceptron([row, width, width, width])
        if self.model.latent:
            made["latent"] = lambda: perceptron([row, width, width])
            made["moments"] = lambda: perceptron([width, width, 2 * self.model.latent])
        made["decoder"] = self.model.decoder
        return {name: OwnNet(f"np/{name}/", build) for name, build in made.items()}

    @cached_property
    def attention(self) -> Attention:
        return Attention(self.method.width)

    def start(self, seed: int, *, device: torch.device) -> dict[str, Tensor]:
        theta: dict[str, Tensor] = {}
        for i, net in enumerate(self.nets.values()):
            theta |= net.start(derive(seed, 0, i), dtype=self.problem.dtype, device=device)
        return theta

    def shapes(self) -> Shapes:
        return {name: shape for net in self.nets.values() for name, shape in net.shapes().items()}

    def train(
        self, tasks: Tasks, theta: Tensors, *, seed: int, resume: Tensors | None, report: Report
    ) -> dict[str, Tensor]:
        """A descent whose rows are tasks."""
        method, device = self.method, next(iter(theta.values())).device

        def objective(problem: Problem, forward: Forward, theta: Tensors, batch: Batch) -> Tensor:
            chosen = batch.x.reshape(-1).cpu()
            return self.loss(theta, tasks.split(chosen, derive(batch.seeds[0], 0)), derive(batch.seeds[0], 1))

        run = Run(
            problem=replace(self.problem, model=self.model, likelihood=self.likelihood, prior=None),
            data=Data(x=torch.arange(tasks.count, device=device)[:, None], y=tasks.marks.to(device)),
            theta=theta,
            fixed={},
            options=_Steps(epochs=method.epochs, batch_size=method.tasks, lr=method.lr, method=method),
            seeds=[derive(seed, 2)],
            objective=objective,
            mode="vmap",
        )
        with one_thread(device.type == "cpu" and method.tasks * method.rows * method.width <= 1 << 18):
            return descend(run, resume=resume, report=report).theta

    def loss(self, theta: Tensors, tasks: Split, seed: int) -> Tensor:
        """−(the objective of the class's docstring) / number of targets: [1]."""
        x, y, is_context = tasks.x, tasks.y, tasks.is_context
        n_targets = tasks.is_target.sum()
        parts, divergence = [x], x.new_zeros(())
        if "encoder" in self.nets:
            codes = self.nets["encoder"](theta, torch.cat([x, y], -1))
            if self.method.encoder == "attention":
                keys = self.nets["query"](theta, x)
                parts.append(self.attention(keys, [keys], [codes], ~is_context))
            else:
                parts.append(_average(codes, is_context)[:, None].expand_as(codes))
        if "latent" in self.nets:
            codes = self.nets["latent"](theta, torch.cat([x, y], -1))
            mean0, sd0 = self.moments(theta, _average(codes, is_context))
            mean, sd = self.moments(theta, _average(codes, is_context | tasks.is_target))
            white = torch.randn(mean.shape, generator=generator(seed), dtype=mean.dtype).to(mean)
            z = mean + sd * white  # [B, L]
            parts.append(z[:, None].expand(*x.shape[:2], -1))
            ratio = sd / sd0
            divergence = (0.5 * (ratio.square() + ((mean - mean0) / sd0).square() - 1) - ratio.log()).sum()
        outputs = self.nets["decoder"](theta, *parts)
        scores = self.likelihood.log_prob(outputs, y, {})  # [B, P]
        total = torch.where(tasks.is_target, scores, 0).sum() - divergence
        return -(total / n_targets)[None]

    def moments(self, theta: Tensors, code: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and sd of z given an average code [..., W]: [..., L] each."""
        mean, raw = self.nets["moments"](theta, code).chunk(2, -1)
        return mean, _LEAST_SD + (1 - _LEAST_SD) * torch.sigmoid(raw)

    def members(
        self, state: Tensors, n: int, rng: torch.Generator
    ) -> tuple[Conditioned, dict[str, Tensor], dict[str, Tensor]]:
        """The model of n members, and its tensors, stacked and shared."""
        x, y = state["context/x"], state["context/y"]
        rows = torch.cat([x, y], -1)
        shared = {f"decoder.{k}": v[0] for k, v in below("np/decoder/", state).items()}
        stacked: dict[str, Tensor] = {}
        if "latent" in self.nets:
            mean, sd = self.moments(state, self.nets["latent"](state, rows).mean(0))
            white = torch.randn(n, len(mean), generator=rng, dtype=mean.dtype).to(mean)
            stacked["z"] = mean + sd * white
        if "encoder" not in self.nets:
            return self.model, stacked, shared
        codes = self.nets["encoder"](state, rows)  # [C, W]
        n_own = self.method.pseudo_labels
        own_x, own_codes = self._pseudo_labels(state, codes, stacked.get("z"), n, rng)
        if self.method.encoder == "mean":
            code = (codes.sum(0) + own_codes.sum(1)) / (len(codes) + n_own)
            return self.model, {**stacked, "code": code}, shared
        shared |= {f"query.{k}": v[0] for k, v in below("np/query/", state).items()}
        shared |= {"context_keys": self.nets["query"](state, x), "context_values": codes}
        stacked |= {"keys": self.nets["query"](state, own_x), "values": own_codes}
        return replace(self.model, n_context=len(x), n_own=n_own), stacked, shared

    def _pseudo_labels(
        self, state: Tensors, codes: Tensor, z: Tensor | None, n: int, rng: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Inputs [n, P, D] of pseudo-labels and their codes [n, P, W], each label drawn given those before it."""
        inputs, n_own = state["context/inputs"], self.method.pseudo_labels
        x = inputs[torch.randint(len(inputs), (n, n_own), generator=rng).to(inputs.device)]
        white = torch.randn(n, n_own, self.model.n_outputs // 2, generator=rng, dtype=x.dtype).to(x)
        spread = x.new_tensor(self.likelihood.spread).square()
        attends = self.method.encoder == "attention"
        keys = self.nets["query"](state, state["context/x"]) if attends else codes
        own_keys = self.nets["query"](state, x) if attends else x
        made = codes.new_zeros(n, 0, codes.shape[1])
        for i in range(n_own):
            here = x[:, i : i + 1]
            if attends:
                code = self.attention(own_keys[:, i : i + 1], [keys, own_keys[:, :i]], [codes, made])
            else:
                code = ((codes.sum(0) + made.sum(1)) / (len(codes) + i))[:, None]
            parts = [here, code] if z is None else [here, code, z[:, None]]
            mean, raw = self.nets["decoder"](state, *parts).chunk(2, -1)
            y = mean + (spread * (softplus(raw) + FLOOR)).sqrt() * white[:, i : i + 1]
            made = torch.cat([made, self.nets["encoder"](state, torch.cat([here, y], -1))], 1)
        return x, made


def _average(codes: Tensor, where: Tensor) -> Tensor:
    """Over the rows that are there: [B, P, W], [B, P] -> [B, W]."""
    return torch.where(where[..., None], codes, 0).sum(1) / where.sum(1, keepdim=True)


def _moments(problem: Problem) -> HeteroscedasticGaussian:
    likelihood = problem.likelihood
    assert isinstance(likelihood, (Gaussian, HeteroscedasticGaussian))
    return HeteroscedasticGaussian(mean=likelihood.mean, scale=likelihood.scale, spread=likelihood.spread)


def _known_noise(problem: Problem) -> float | None:
    likelihood = problem.likelihood
    return likelihood.noise if isinstance(likelihood, Gaussian) and not likelihood.learns else None


def _inputs(problem: Problem, data: Data, rng: torch.Generator) -> Tensor:
    """Where pseudo-labels are drawn: training inputs, as many as are kept."""
    x = data.x.flatten(1)
    if process_of(problem.prior) is not None:
        return inputs_around(x, _INPUTS, rng)
    return x[torch.randperm(len(x), generator=rng)[:_INPUTS].to(x.device)]
