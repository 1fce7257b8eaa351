"""Thresholds and slopes: what a person can just see, hear or remember."""

from typing import Any

from bensemble_core.design.catalogue.entry import (
    Entry,
    answer,
    bernoulli,
    beta,
    integer,
    lognormal,
    normal,
    real,
    uniform,
)

_WATSON = "Watson (2017), QUEST+: a general multidimensional Bayesian adaptive psychometric method"
_WICHMANN = "Wichmann & Hill (2001), The psychometric function: I. Fitting, sampling, and goodness of fit"


def _curve(core: str, guess: str) -> dict[str, Any]:
    """P(correct) = guess + (1 − guess − lapse) F(x), with F named by `core`; a guess rate of 0 is a yes-no task."""
    return {
        "parameters": {"threshold": normal(0, 1), "slope": lognormal(0.7, 0.5), "lapse": beta(1.5, 40)},
        "designs": {"x": {"type": "list", "values": [round(-3 + 0.15 * i, 2) for i in range(41)]}},
        "let": {"f": core},
        "outcome": bernoulli(f"{guess} + (1 - {guess} - lapse) * f"),
        "targets": ["slope", "threshold"],
    }


_CORES = {
    "logistic": "sigmoid(slope * (x - threshold))",
    "probit": "ncdf(slope * (x - threshold))",
    "weibull": "0 - expm1(-exp(clip(slope * (x - threshold), -500, 50)))",
    "gumbel": "exp(-exp(clip(-slope * (x - threshold), -500, 50)))",
}
_WORDS = {
    "weibull": "F(x) = 1 - exp(-exp(slope (x - threshold))): a Weibull function of the strength where x is its "
    "logarithm, which Palamedes and psignifit call Gumbel (log-Weibull) in x. F is 0.632 at the threshold.",
    "gumbel": "F(x) = exp(-exp(-slope (x - threshold))), the Gumbel distribution of maxima, which psychophysics "
    "packages call the reversed Gumbel; what they call Gumbel (log-Weibull) is the weibull entry. F is 0.368 at the "
    "threshold.",
}
_TITLES = {"weibull": "weibull (log-Weibull in x)", "gumbel": "reversed gumbel (of maxima)"}
_CURVE = (
    "Threshold and slope of detection against stimulus strength on a log or linear scale x, with the lapse rate a "
    "nuisance."
)

PSYCHOPHYSICS: dict[str, Entry] = {
    **{
        f"psychometric_{name}_{task}": Entry(
            title=f"Psychometric function, {_TITLES.get(name, name)}, {words}",
            summary=f"{_CURVE} {_WORDS.get(name, '')}".strip(),
            reference=_WICHMANN,
            spec=_curve(core, guess),
        )
        for name, core in _CORES.items()
        for task, words, guess in (("yes_no", "yes-no", "0.02"), ("2afc", "two-alternative", "0.5"))
    },
    "psychometric_weibull_4afc": Entry(
        title="Psychometric function, weibull, four-alternative",
        summary="As the two-alternative one, with a chance level of a quarter.",
        reference=_WICHMANN,
        spec=_curve(_CORES["weibull"], "0.25"),
    ),
    "quest_plus": Entry(
        title="Contrast threshold in dB (QUEST+)",
        summary="Weibull in decibels with slope, guess and lapse known; the threshold on a grid from −40 to 0 dB.",
        reference=_WATSON,
        spec={
            "parameters": {"threshold": {"dist": "grid", "values": list(range(-40, 1))}},
            "designs": {"contrast": integer(-40, 0)},
            "outcome": bernoulli("0.98 - 0.48 * exp(-pow(10, 3.5 * (contrast - threshold) / 20))"),
        },
    ),
    "digit_span": Entry(
        title="Digit span",
        summary="How many digits a person can repeat: a logistic curve of slope 1 in the length of the list.",
        reference="Foster et al. (2019), Variational Bayesian optimal experimental design, section 6.1",
        spec={
            "parameters": {"theta": normal(7, 2)},
            "designs": {"xi": integer(1, 15)},
            "outcome": answer("theta - xi"),
            "stop": {"any": [{"sd": {"theta": 0.6}}, {"max_eig_below": 0.02}, {"max_trials": 30}]},
        },
    ),
    "contrast_sensitivity": Entry(
        title="Contrast sensitivity function (truncated parabola)",
        summary="Peak gain, peak frequency and bandwidth of log sensitivity against log spatial frequency, in a "
        "two-alternative task; the low-frequency plateau is fixed.",
        reference="Lesmes et al. (2010), Bayesian adaptive estimation of the contrast sensitivity function",
        spec={
            "parameters": {
                "gain": normal(2, 0.4),
                "frequency": normal(0.4, 0.25),
                "bandwidth": lognormal(1.1, 0.3),
            },
            "designs": {
                "log_contrast": {"type": "list", "values": [round(-2.6 + 0.2 * i, 1) for i in range(14)]},
                "log_frequency": {"type": "list", "values": [round(-0.4 + 0.2 * i, 1) for i in range(9)]},
            },
            "let": {
                "width": "bandwidth * log(2) / log(10) / 2",
                "parabola": "gain - log(2) / log(10) * ((log_frequency - frequency) / width) ** 2",
                "sensitivity": "where(log_frequency < frequency, max(parabola, gain - 0.5), parabola)",
                "drive": "clip(4 * (log_contrast + sensitivity), -200, 40)",
            },
            "outcome": bernoulli("0.5 + 0.48 * (0 - expm1(-exp(drive)))"),
        },
    ),
    "memory_retention_power": Entry(
        title="Memory retention, power law",
        summary="P(recall) after a delay, a (1 + t)^−b.",
        reference="Cavagnaro, Myung, Pitt & Kujala (2010), Adaptive design optimization",
        spec={
            "parameters": {"a": beta(2, 1), "b": beta(1, 4)},
            "designs": {"delay": integer(0, 100)},
            "outcome": bernoulli("a * pow(1 + delay, -b)"),
        },
    ),
    "memory_retention_exponential": Entry(
        title="Memory retention, exponential",
        summary="P(recall) after a delay, a exp(−b t).",
        reference="Cavagnaro, Myung, Pitt & Kujala (2010), Adaptive design optimization",
        spec={
            "parameters": {"a": beta(2, 1), "b": beta(1, 80)},
            "designs": {"delay": integer(0, 100)},
            "outcome": bernoulli("a * exp(-b * delay)"),
        },
    ),
    "signal_detection": Entry(
        title="Signal detection, yes-no with two stimulus classes",
        summary="Sensitivity d' and criterion from hits and false alarms; the design is whether a signal is shown.",
        reference="Green & Swets (1966), Signal detection theory and psychophysics",
        spec={
            "parameters": {"dprime": uniform(0, 4), "criterion": normal(0, 1)},
            "designs": {"signal": {"type": "categorical", "values": ["absent", "present"]}},
            "outcome": bernoulli("ncdf(dprime * (signal - 0.5) - criterion)"),
        },
    ),
    "reaction_time": Entry(
        title="Reaction time with answers",
        summary="One ability drives both whether the answer is right and how long it takes: a product of outcomes.",
        reference="van der Linden (2007), A hierarchical framework for modeling speed and accuracy on test items",
        spec={
            "parameters": {"ability": normal(0, 1)},
            "designs": {"difficulty": real(-3, 3)},
            "outcome": {
                "correct": {"family": "bernoulli", "logit": "ability - difficulty"},
                "seconds": {"family": "lognormal", "mean": "0.5 - 0.3 * (ability - difficulty)", "sd": 0.5},
            },
        },
    ),
}
