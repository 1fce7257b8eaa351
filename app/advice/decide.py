"""From figures to one sentence. The rules, in this order; the first that applies decides:

1. No ensemble yet: label about 20 rows, then train. No rows any more: add a pool.
2. Relabel where the newest ensemble contradicts at least 3 labels, and 3 %, of those that it is surest of, unless it
   predicts another class for a quarter of all labels, too many to judge them; or where annotators disagree without a
   majority on at least 5 rows and 10 % of those that several labelled.
3. Train where at least 5 labels, and 5 % of those there are, came since the newest ensemble, unless a training is
   queued or an open round will set one off.
4. Stop where every row is labelled; where predictions are stable and 100 more labels are not expected to bring a clear
   gain; or where the expected gain is small and the upper end of its interval no larger than a clear gain or the
   standard error of today's value.
5. Else go on.

A gain in accuracy is small below 0.005 and clear from 0.01 on; of an RMSE it is 2 % and 4 % of today's.
"""

from dataclasses import dataclass

from app.advice.schemas import Action, AgreementAdvice, CurveAdvice, DisagreementsAdvice, DoubtsAdvice, SavedAdvice

FIRST_LABELS = 20
FEWEST_DOUBTS, DOUBTED_SHARE, POOR_JUDGE = 3, 0.03, 0.25
FEWEST_OPEN, OPEN_SHARE = 5, 0.1
FEWEST_UNSEEN, UNSEEN_SHARE = 5, 0.05
SMALL_ACCURACY, SMALL_RMSE = 0.005, 0.02  # the latter of today's value
CLEAR = 2  # times small


@dataclass(frozen=True, kw_only=True)
class Facts:
    n_rows: int  # of candidate pools
    n_labels: int  # labelled rows of these
    n_unseen: int  # label events that no ensemble has seen
    has_ensemble: bool
    trains_soon: bool  # a training is queued or running
    round_trains: bool  # an open round will set one off
    curve: CurveAdvice
    agreement: AgreementAdvice
    saved: SavedAdvice
    doubts: DoubtsAdvice
    disagreements: DisagreementsAdvice


def decide(facts: Facts) -> tuple[Action, str]:
    if not facts.has_ensemble:
        return _begin(facts)
    if not facts.n_rows:
        return "label", "Add a pool of rows to choose from: there are no rows to label."
    doubts, differing = facts.doubts, facts.disagreements
    can_judge = doubts.n_other < POOR_JUDGE * doubts.n_labels
    if can_judge and doubts.n_strong >= max(FEWEST_DOUBTS, DOUBTED_SHARE * doubts.n_sure):
        which = f"the newest ensemble contradicts {doubts.n_strong} of the {doubts.n_sure} labels that it is surest of"
        return "relabel", f"Relabel before you label new rows: {which}, see `doubts`."
    if differing.n_open >= max(FEWEST_OPEN, OPEN_SHARE * differing.n_several):
        which = f"on {differing.n_open} of {differing.n_several} rows that several labelled annotators disagree"
        return "relabel", f"Settle these before you label new rows: {which}, see `disagreements`."
    if facts.n_unseen >= max(FEWEST_UNSEEN, UNSEEN_SHARE * facts.n_labels):
        if facts.trains_soon:
            return "label", f"Go on labelling: {_labels(facts.n_unseen)} wait for a training that is queued or running."
        if not facts.round_trains:
            return "train", f"Train: {_labels(facts.n_unseen)} came since the newest ensemble."
    if facts.n_labels >= facts.n_rows:
        return "stop", "Stop, or add a pool: every row of the candidate pools is labelled."
    return _go_on_or_stop(facts)


def _begin(facts: Facts) -> tuple[Action, str]:
    if facts.trains_soon:
        return "label", "The first training is queued or running; go on labelling meanwhile."
    if not facts.n_rows:
        return "label", f"Add a pool of rows to choose from, and label about {FIRST_LABELS} rows of it first."
    if facts.n_labels < min(FIRST_LABELS, facts.n_rows):
        have = f"; {_labels(facts.n_labels)} {'is' if facts.n_labels == 1 else 'are'} there" if facts.n_labels else ""
        return "label", f"Label about {FIRST_LABELS} rows first, and then train{have}. A round chooses which."
    return "train", f"Train the first ensemble: {_labels(facts.n_labels)} are there."


def _go_on_or_stop(facts: Facts) -> tuple[Action, str]:
    curve, forecast = facts.curve, facts.curve.in_100
    small = SMALL_ACCURACY if curve.metric == "accuracy" else SMALL_RMSE * (curve.value or 0.0)
    if facts.agreement.is_stable and (forecast is None or forecast.gain < CLEAR * small):
        return "stop", "You can stop: predictions have hardly changed over the last three trainings."
    if forecast is None:
        return "label", "Go on labelling: what more labels would bring is not known yet."
    measurable = max(CLEAR * small, curve.se or 0.0)
    if forecast.gain < small and forecast.gain_high <= measurable:
        return "stop", f"You can stop: even with 100 more labels {_said(curve)}."
    return "label", f"Go on labelling: with 100 more labels {_said(curve)}."


def because(facts: Facts) -> list[str]:
    """What speaks for and against, whatever was decided."""
    curve, agreement, saved = facts.curve, facts.agreement, facts.saved
    there = f"{_labels(facts.n_labels)} of {facts.n_rows:,} rows; {facts.n_unseen} since the newest ensemble."
    found = [there if facts.n_rows else "There are no rows to choose from."]
    if curve.in_100 is not None:
        by = f"{curve.n_points} trainings, measured on {curve.n_measured:,} rows"
        found.append(f"With 100 more labels {_said(curve)} (by {by}).")
    elif curve.reason:
        found.append(curve.reason)
    if agreement.mean_of_last_three is not None:
        held = "stable" if agreement.is_stable else "still changing"
        value = f"{agreement.measure} {agreement.mean_of_last_three:.3f} over the last three versions"
        found.append(f"Predictions are {held}: {value}, {agreement.threshold} counts as stable.")
    if saved.labels is not None:
        what = f"about {saved.labels} labels were saved" if saved.labels >= 0 else f"{-saved.labels} labels were lost"
        found.append(f"Against random rows {what} ({_between(saved.low, saved.high)}).")
    elif saved.low is not None and saved.low > 0:
        found.append(f"Against random rows at least {saved.low} labels were saved (95 %).")
    elif saved.reason:
        found.append(saved.reason)
    if facts.doubts.n:
        doubts, how = facts.doubts, " (by an ensemble that learnt from them)" if facts.doubts.in_sample else ""
        found.append(
            f"{doubts.n} of {doubts.n_labels} labels are in doubt{how}, {doubts.n_strong} of them among the "
            f"{doubts.n_sure} that predictions are surest of."
        )
    if facts.disagreements.n:
        found.append(f"Annotators disagree on {facts.disagreements.n} of {facts.disagreements.n_several} rows.")
    return found


def _said(curve: CurveAdvice) -> str:
    forecast = curve.in_100
    if forecast is None:
        raise ValueError("only a curve with a forecast can be put in words")
    then, low, high = (f"{value:.3g}" for value in (forecast.value, forecast.low, forecast.high))
    metric = "RMSE" if curve.metric == "rmse" else curve.metric
    return f"the {metric} should be about {then} (95 %: {low} to {high}); today it is {curve.value:.3g}"


def _labels(n: int) -> str:
    return f"{n:,} label{'' if n == 1 else 's'}"


def _between(low: int | None, high: int | None) -> str:
    if low is None:
        return "95 %: not known"
    return f"95 %: {low} to {high}" if high is not None else f"95 %: {low} or more"
