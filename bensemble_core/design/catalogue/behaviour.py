"""Tests and choices: item response theory, delay discounting, risk."""

from typing import Any

from bensemble_core.design.catalogue.entry import Entry, answer, bernoulli, beta, listed, lognormal, normal, uniform

_DELAYS = listed(1, 7, 14, 30, 60, 90, 180, 365)
_OFFERS = {"type": "list", "values": list(range(50, 1000, 50))}


def _discounting(form: str, value: str, parameters: dict[str, Any], reference: str) -> Entry:
    """800 later against less now: P(later) = sigmoid(temperature · (800 D(t) − now) / 100)."""
    return Entry(
        title=f"Delay discounting, {form}",
        summary="Whether 800 after a delay is preferred to a smaller amount now; the temperature is a nuisance.",
        reference=reference,
        spec={
            "parameters": {**parameters, "temperature": lognormal(0.5, 0.5)},
            "designs": {"delay": _DELAYS, "now": _OFFERS},
            "let": {"discount": value},
            "outcome": answer("temperature * (800 * discount - now) / 100"),
            "targets": sorted(parameters),
        },
    )


BEHAVIOUR: dict[str, Entry] = {
    "irt_1pl": Entry(
        title="Item response, one parameter (Rasch)",
        summary="Ability of a person from items of known difficulty.",
        reference="Rasch (1960), Probabilistic models for some intelligence and attainment tests",
        spec={
            "parameters": {"ability": normal(0, 1)},
            "designs": {"difficulty": {"type": "list", "values": [round(-3 + 0.1 * i, 1) for i in range(61)]}},
            "outcome": answer("ability - difficulty"),
        },
    ),
    "irt_2pl": Entry(
        title="Item response, two parameters",
        summary="Ability from a bank of items with difficulty and discrimination.",
        reference="Birnbaum (1968), Some latent trait models and their use in inferring an examinee's ability",
        spec={
            "parameters": {"ability": normal(0, 1)},
            "designs": [
                {"difficulty": round(-2.5 + 0.25 * i, 2), "discrimination": (0.6, 1.0, 1.7)[i % 3]} for i in range(21)
            ],
            "outcome": answer("discrimination * (ability - difficulty)"),
        },
    ),
    "irt_3pl": Entry(
        title="Item response, three parameters",
        summary="As the two-parameter model, with a chance of guessing.",
        reference="Birnbaum (1968), Some latent trait models and their use in inferring an examinee's ability",
        spec={
            "parameters": {"ability": normal(0, 1)},
            "designs": [
                {"difficulty": round(-2.5 + 0.25 * i, 2), "discrimination": (0.6, 1.0, 1.7)[i % 3], "guess": 0.2}
                for i in range(21)
            ],
            "outcome": bernoulli("guess + (1 - guess) * sigmoid(discrimination * (ability - difficulty))"),
        },
    ),
    "irt_graded": Entry(
        title="Graded response",
        summary="Answers on a scale of five, from a bank of items with location and discrimination.",
        reference="Samejima (1969), Estimation of latent ability using a response pattern of graded scores",
        spec={
            "parameters": {"trait": normal(0, 1)},
            "designs": {"location": listed(-1.5, -0.75, 0, 0.75, 1.5), "discrimination": listed(0.8, 1.5)},
            "outcome": {
                "y": {
                    "family": "ordinal",
                    "eta": "discrimination * (trait - location)",
                    "cuts": [-1.5, -0.5, 0.5, 1.5],
                }
            },
        },
    ),
    "discounting_exponential": _discounting(
        "exponential",
        "exp(-r * delay)",
        {"r": lognormal(-5, 1)},
        "Samuelson (1937), A note on measurement of utility",
    ),
    "discounting_hyperbolic": _discounting(
        "hyperbolic",
        "1 / (1 + k * delay)",
        {"k": lognormal(-4.5, 1)},
        "Mazur (1987), An adjusting procedure for studying delayed reinforcement",
    ),
    "discounting_hyperboloid": _discounting(
        "hyperboloid",
        "pow(1 + k * delay, -s)",
        {"k": lognormal(-4.5, 1), "s": lognormal(-0.2, 0.4)},
        "Myerson & Green (1995), Discounting of delayed rewards: models of individual choice",
    ),
    "discounting_quasi_hyperbolic": _discounting(
        "quasi-hyperbolic",
        "b * pow(d, delay)",
        {"b": beta(8, 2), "d": beta(200, 1)},
        "Laibson (1997), Golden eggs and hyperbolic discounting",
    ),
    "risky_choice": Entry(
        title="Risky choice",
        summary="A gamble against a sure amount under prospect theory: curvature of value, distortion of probability, "
        "temperature.",
        reference="Tversky & Kahneman (1992), Advances in prospect theory",
        spec={
            "parameters": {
                "alpha": lognormal(-0.2, 0.3),
                "gamma": lognormal(-0.4, 0.3),
                "temperature": lognormal(0, 0.5),
            },
            "designs": {"p": listed(0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95), "sure": listed(*range(5, 100, 10))},
            "let": {
                "seen": "pow(p, gamma)",
                "weight": "seen / pow(seen + pow(1 - p, gamma), 1 / gamma)",
                "risky": "weight * pow(100, alpha)",
                "scale": "pow(100, alpha) / 10",
            },
            "outcome": answer("temperature * (risky - pow(sure, alpha)) / scale"),
            "targets": ["alpha", "gamma"],
        },
    ),
    "ab_allocation": Entry(
        title="A/B allocation",
        summary="Which of two arms to show next, to learn both conversion rates.",
        reference="Chaloner & Verdinelli (1995), Bayesian experimental design: a review",
        spec={
            "parameters": {"rate_a": beta(2, 18), "rate_b": beta(1, 9)},
            "designs": {"arm": {"type": "categorical", "values": ["a", "b"]}},
            "outcome": bernoulli("where(arm == 0, rate_a, rate_b)"),
        },
    ),
    "preference": Entry(
        title="Preference between three products",
        summary="Choices among three at stated prices: a multinomial logit with a price sensitivity.",
        reference="McFadden (1974), Conditional logit analysis of qualitative choice behavior",
        spec={
            "parameters": {"quality": normal(0, 1), "sensitivity": uniform(0.2, 3)},
            "designs": {"price_b": listed(0.5, 1, 1.5, 2), "price_c": listed(0.5, 1, 1.5, 2)},
            "outcome": {
                "choice": {
                    "family": "categorical",
                    "logits": ["-sensitivity", "quality - sensitivity * price_b", "0.5 - sensitivity * price_c"],
                    "labels": ["a", "b", "c"],
                }
            },
        },
    ),
}
