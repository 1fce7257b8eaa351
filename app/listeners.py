"""Who hears of which event, in this order. By path, so that a process loads only the nouns whose events it publishes:
storing a pool needs no torch, opening a round does."""

from app.events import EnsembleTrained, PoolStored, RankingReady, subscribe

LISTENERS = {
    PoolStored: ("app.labels.record_given:record_given",),
    RankingReady: ("app.rounds.open:hand_out",),
    EnsembleTrained: ("app.rounds.follow:open_following_rounds",),
}

subscribe(LISTENERS)
