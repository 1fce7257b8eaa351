"""Doses, rates, decays and peaks; and the regressions that many of them come down to."""

from bensemble_core.design.catalogue.entry import (
    Entry,
    answer,
    bernoulli,
    gaussian,
    integer,
    listed,
    lognormal,
    normal,
    real,
    uniform,
)

_DOSES = {"type": "list", "values": [0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100]}
_HILL = "The Hill equation: Hill (1910); Gesztelyi et al. (2012) for a review"

LABORATORY: dict[str, Entry] = {
    "dose_response_hill_binary": Entry(
        title="Dose-response, Hill, binary",
        summary="Half-effective dose and steepness from whether a subject responds.",
        reference=_HILL,
        spec={
            "parameters": {"log_ec50": normal(0, 1.5), "h": lognormal(0.3, 0.4)},
            "designs": {"dose": _DOSES},
            "outcome": answer("h * (log(dose) - log_ec50)"),
        },
    ),
    "dose_response_emax": Entry(
        title="Dose-response, Emax, continuous",
        summary="Placebo effect, greatest effect and half-effective dose of a continuous response.",
        reference="Macdougall (2006), Analysis of dose-response studies: Emax model",
        spec={
            "parameters": {"e0": normal(0, 0.5), "emax": normal(2, 0.7), "log_ed50": normal(0, 1)},
            "designs": {"dose": {"type": "list", "values": [0, *_DOSES["values"]]}},
            "outcome": gaussian("e0 + emax * dose / (exp(log_ed50) + dose)", 0.5),
        },
    ),
    "dose_response_4pl": Entry(
        title="Dose-response, four-parameter logistic",
        summary="Bottom, top, half-effective dose and steepness of an assay.",
        reference="Finney (1978), Statistical method in biological assay",
        spec={
            "parameters": {
                "bottom": normal(0, 0.2),
                "top": normal(3, 0.5),
                "log_ec50": normal(0, 1.5),
                "h": lognormal(0.2, 0.4),
            },
            "designs": {"dose": _DOSES},
            "outcome": gaussian("bottom + (top - bottom) * sigmoid(h * (log(dose) - log_ec50))", 0.2),
        },
    ),
    "michaelis_menten": Entry(
        title="Michaelis-Menten kinetics",
        summary="Greatest rate and half-saturation of an enzyme from initial rates; substrate is paid for.",
        reference="Michaelis & Menten (1913); Dette & Biedermann (2003) for designs",
        spec={
            "parameters": {"vmax": lognormal(0, 0.3), "km": lognormal(0, 0.6)},
            "designs": {"s": real(0.05, 10, "log")},
            "outcome": gaussian("vmax * s / (km + s)", 0.05),
            "cost": "1 + 0.1 * s",
        },
    ),
    "pharmacokinetics": Entry(
        title="One-compartment pharmacokinetics",
        summary="Absorption, elimination and volume from a concentration after an oral dose of 400, with noise in "
        "proportion to it; when to draw blood.",
        reference="Ryan et al. (2014), Towards Bayesian experimental design for nonlinear models",
        spec={
            "parameters": {"log_ka": normal(0, 0.22), "log_ke": normal(-2.3, 0.22), "log_v": normal(3, 0.22)},
            "designs": {"t": real(0.1, 24)},
            "let": {
                "ka": "exp(log_ka)",
                "ke": "exp(log_ke)",
                "c": "400 / exp(log_v) * ka / (ka - ke) * (exp(-ke * t) - exp(-ka * t))",
            },
            "outcome": gaussian("c", "sqrt(0.01 * c ** 2 + 0.1)"),
        },
    ),
    "exponential_decay": Entry(
        title="Exponential decay",
        summary="Lifetime from counts in a window of time, with a known background.",
        reference="Box & Lucas (1959), Design of experiments in non-linear situations",
        spec={
            "parameters": {"amplitude": lognormal(3, 0.3), "tau": lognormal(0, 0.5)},
            "designs": {"t": {"type": "list", "values": [round(0.2 * i, 1) for i in range(26)]}},
            "outcome": {"y": {"family": "poisson", "rate": "1 + amplitude * exp(-t / tau)"}},
        },
    ),
    "waiting_time": Entry(
        title="Waiting times under stress",
        summary="Rate of failure against temperature (Arrhenius) from exponential waiting times.",
        reference="Chernoff (1962), Optimal accelerated life designs for estimation",
        spec={
            "parameters": {"log_rate": normal(-2, 0.7), "activation": lognormal(0, 0.4)},
            "designs": {"stress": real(0, 3)},
            "outcome": {"hours": {"family": "exponential", "rate": "exp(log_rate + activation * stress)"}},
            "cost": "exp(-0.5 * stress)",
        },
    ),
    "lorentzian_peak": Entry(
        title="Lorentzian peak",
        summary="Centre and width of a resonance from noisy readings at chosen frequencies.",
        reference="Dushenko, Ambal & McMichael (2020), Sequential Bayesian experiment design for magnetometry",
        spec={
            "parameters": {"centre": normal(0, 1), "width": lognormal(-0.7, 0.3)},
            "designs": {"f": {"type": "list", "values": [round(-3 + 0.1 * i, 1) for i in range(61)]}},
            "outcome": gaussian("1 / (1 + ((f - centre) / width) ** 2)", 0.2),
        },
    ),
    "ramsey": Entry(
        title="Ramsey interferometry",
        summary="Detuning of a qubit from single shots after a chosen time of free evolution, with known dephasing.",
        reference="Granade, Ferrie, Wiebe & Cory (2012), Robust online Hamiltonian learning",
        spec={
            "parameters": {"detuning": uniform(0, 1)},
            "designs": {"t": listed(*range(1, 41))},
            "outcome": bernoulli("0.5 + 0.5 * exp(-t / 30) * cos(2 * pi * detuning * t / 10)"),
        },
    ),
    "source_location": Entry(
        title="Source location in the plane",
        summary="Where a source is, from the logarithm of the intensity at a chosen place.",
        reference="Foster, Ivanova, Malik & Rainforth (2021), Deep adaptive design, section 6.1",
        spec={
            "parameters": {"sx": normal(0, 1), "sy": normal(0, 1)},
            "designs": {"px": real(-3, 3), "py": real(-3, 3)},
            "let": {"d2": "(px - sx) ** 2 + (py - sy) ** 2"},
            "outcome": gaussian("log(0.1 + 1 / (0.0001 + d2))", 0.5),
        },
    ),
    "death_process": Entry(
        title="Death process",
        summary="Rate of infection from how many of 50 are infected at one time of looking.",
        reference="Cook, Gibson & Gilligan (2008), Optimal observation times in experimental epidemic processes",
        spec={
            "parameters": {"b": {"dist": "truncnormal", "loc": 1, "scale": 1, "low": 0.001}},
            "designs": {"t": {"type": "list", "values": [round(0.1 * i, 1) for i in range(1, 41)]}},
            "outcome": {"infected": {"family": "binomial", "n": 50, "prob": "0 - expm1(-b * t)"}},
        },
    ),
    "linear_regression": Entry(
        title="Linear regression",
        summary="Intercept and slope with known noise: in closed form.",
        reference="Lindley (1956), On a measure of the information provided by an experiment",
        spec={
            "parameters": {"intercept": normal(0, 1), "slope": normal(0, 1)},
            "designs": {"x": real(-1, 1)},
            "outcome": gaussian("intercept + slope * x", 0.5),
        },
    ),
    "logistic_regression": Entry(
        title="Logistic regression",
        summary="Intercept and two slopes from binary answers, within the unit disc.",
        reference="Chaloner & Larntz (1989), Optimal Bayesian design applied to logistic regression experiments",
        spec={
            "parameters": {"intercept": normal(0, 1), "slope_1": normal(0, 1), "slope_2": normal(0, 1)},
            "designs": {"x1": listed(*(i / 4 for i in range(-4, 5))), "x2": listed(*(i / 4 for i in range(-4, 5)))},
            "constraints": ["x1 * x1 + x2 * x2 <= 1"],
            "outcome": answer("intercept + slope_1 * x1 + slope_2 * x2"),
        },
    ),
    "poisson_regression": Entry(
        title="Poisson regression",
        summary="Log-rate and slope from counts.",
        reference="Russell, Woods, Lewis & Eccleston (2009), D-optimal designs for Poisson regression models",
        spec={
            "parameters": {"intercept": normal(1, 0.5), "slope": normal(0, 0.5)},
            "designs": {"x": integer(-2, 2)},
            "outcome": {"y": {"family": "poisson", "log_rate": "intercept + slope * x"}},
        },
    ),
    "overdispersed_counts": Entry(
        title="Over-dispersed counts",
        summary="Dilution series: a count whose variance exceeds its mean, at a chosen dilution.",
        reference="Hilbe (2011), Negative binomial regression",
        spec={
            "parameters": {"log_density": normal(3, 0.7), "dispersion": lognormal(-1, 0.4)},
            "designs": {"dilution": listed(1, 2, 4, 8, 16)},
            "outcome": {
                "y": {"family": "negative_binomial", "mean": "exp(log_density) / dilution", "dispersion": "dispersion"}
            },
            "targets": ["log_density"],
        },
    ),
    "robust_calibration": Entry(
        title="Calibration with outliers",
        summary="Gain of an instrument read at chosen inputs, with heavy-tailed noise.",
        reference="Lange, Little & Taylor (1989), Robust statistical modeling using the t distribution",
        spec={
            "parameters": {"gain": normal(1, 0.3)},
            "designs": {"x": real(0.1, 5)},
            "outcome": {"y": {"family": "student_t", "df": 3, "mean": "gain * x", "sd": 0.5}},
            "cost": "1 + 0.2 * x",
        },
    ),
    "yield_fraction": Entry(
        title="Reaction yield as a fraction",
        summary="Optimum temperature of a reaction from yields between 0 and 1.",
        reference="Ferrari & Cribari-Neto (2004), Beta regression for modelling rates and proportions",
        spec={
            "parameters": {"best": normal(60, 10), "spread": lognormal(2.7, 0.3)},
            "designs": {"temperature": integer(20, 100, 5)},
            "outcome": {
                "yield_": {
                    "family": "beta",
                    "mean": "0.02 + 0.9 * exp(-0.5 * ((temperature - best) / spread) ** 2)",
                    "concentration": 25,
                }
            },
        },
    ),
}
