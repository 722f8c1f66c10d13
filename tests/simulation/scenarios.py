"""Worlds to begin with: small ones, of which every interleaving is looked at, and random ones."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.simulation.logs import Log
from tests.simulation.runs import Scenario, Spec

__all__ = ["DEEP", "FAULTS", "SMALL", "drawn"]

FAULTS = ("kill", "killed", "unknown", "unlanded", "late", "busy")
_KEYS = Log(((1, 2, 1, 2, 1, 2),))
_RUNS: tuple[tuple[Spec, ...], ...] = ((("run", 1), ("run", 1)), (("run", 1),))
_TWO = Scenario("two runs", _KEYS, ((0, 6),), _RUNS)
_ONE: tuple[tuple[Spec, ...], ...] = ((("run", 2),), (("run", 1),))
_FRESH = Log(((1, 1, 1, 1),), deletes=frozenset({(0, 3)}))


def _named(scenario: Scenario, name: str, **fields: object) -> Scenario:
    return replace(scenario, name=name, **fields)  # type: ignore[arg-type]


#: Every interleaving of these is part of `make test`.
SMALL = (
    _named(_TWO, "two runs, two faults", faults=FAULTS, budget=2),
    _named(_TWO, "two first runs", begun=False, faults=("kill", "unknown", "late"), budget=1),
    _named(_TWO, "four runs", actors=((("run", 1),),) * 4, most=1),
    _named(_TWO, "rows with a key", keyed=True, faults=FAULTS, budget=1),
    _named(_TWO, "at_least_once", delivery="at_least_once", actors=_ONE, faults=FAULTS, budget=1),
    _named(_TWO, "at_least_once, a key, records that come", delivery="at_least_once", keyed=True, ends=((0, 2),), most=4,
           actors=((("run", 1),), (("run", 1),), (("produce", 0, 2),)), faults=("kill", "late"), budget=1),
    _named(_TWO, "at_most_once", delivery="at_most_once", actors=_ONE, faults=FAULTS, budget=1),
    _named(_TWO, "at_most_once, deletes", delivery="at_most_once", keyed=True, deleting=True, log=_FRESH, ends=((0, 4),),
           actors=((("run", 1),), (("run", 1),)), faults=("kill", "late"), budget=1),
    _named(_TWO, "SET OFFSETS ahead, and BACKFILL", actors=((("run", 1),), (("offsets", 0, 4), ("backfill",), ("run", 1))),
           keyed=True, faults=("late",), budget=1),
    _named(_TWO, "SET OFFSETS REREAD", actors=((("run", 2),), (("run", 1),), (("reread", 0, 1),))),
    _named(_TWO, "at_least_once, SET OFFSETS REREAD", delivery="at_least_once", ends=((0, 4),),
           actors=((("run", 1),), (("run", 1),), (("reread", 0, 0),))),
    _named(_TWO, "retention", actors=((("run", 2),), (("expire", 0, 3),)), records_loss=True, faults=("late",), budget=1),
    _named(_TWO, "two first runs, deletes, retention", begun=False, keyed=True, deleting=True, log=_FRESH, ends=((0, 4),),
           actors=((("run", 1),), (("run", 1),), (("expire", 0, 2),))),
    _named(_TWO, "at_most_once, a destination that is busy", delivery="at_most_once", actors=((("run", 1), ("run", 1)),),
           faults=("busy",), budget=1),
    _named(_TWO, "a record that no batch gets past", log=replace(_KEYS, poison=frozenset({(0, 2)})), skips=True, ends=((0, 4),),
           actors=((("run", 2),), (("run", 1),)), faults=("late",), budget=1),
    _named(_TWO, "a log that is cut and grows again", ends=((0, 4),), actors=((("run", 3),), (("run", 1),), (("cut", 0, 1),)),
           faults=("late",), budget=1),
    _named(_TWO, "a log that is cut, at_least_once", ends=((0, 4),), delivery="at_least_once",
           actors=((("run", 3),), (("cut", 0, 3),)), faults=("late", "killed"), budget=1),
    _named(_TWO, "a log that is cut, at_most_once", ends=((0, 4),), delivery="at_most_once",
           actors=((("run", 1), ("run", 2)), (("cut", 0, 1),)), faults=("killed",), budget=1),
    _named(_TWO, "a log that is cut, and SET OFFSETS", ends=((0, 4),),
           actors=((("run", 3),), (("cut", 0, 2), ("offsets", 0, 4), ("run", 1)))),
    _named(_TWO, "a log that is cut, and SET OFFSETS while a run reads", ends=((0, 2),), records_loss=True,
           actors=((("run", 2), ("run", 1)), (("cut", 0, 0), ("offsets", 0, 3)))),
    _named(_TWO, "a log that is cut, and SET OFFSETS REREAD", ends=((0, 4),),
           actors=((("run", 2),), (("cut", 0, 1), ("reread", 0, 1), ("run", 1)))),
    # SET OFFSETS has read the ledger before a run finds the cut, below the lane that it changes.
    _named(_TWO, "a log that is cut, at_most_once, and SET OFFSETS that does not know it", ends=((0, 2),),
           delivery="at_most_once", actors=((("run", 1), ("run", 1)), (("offsets", 0, 4),), (("cut", 0, 0),))),
    _named(_TWO, "a receiver of requests", sends=True, ends=((0, 4),), faults=FAULTS, budget=2),
    _named(_TWO, "a receiver, and SET OFFSETS REREAD twice", sends=True, ends=((0, 3),),
           actors=((("run", 2),), (("reread", 0, 1), ("reread", 0, 2)))),
    _named(_TWO, "a receiver, and a batch that is given up", sends=True, ends=((0, 4),),
           actors=((("run", 1), ("give_up", 1)), (("run", 1),)), faults=("kill", "killed", "unknown"), budget=1),
)  # fmt: skip

#: Larger ones, for `make chaos`.
DEEP = (
    *(_named(x, f"{x.name}, one fault more", budget=x.budget + 1, faults=x.faults or FAULTS) for x in SMALL),
    *(_named(_TWO, f"three runs, {delivery}{', a key' * keyed}", delivery=delivery, keyed=keyed,
             actors=((("run", 2),), (("run", 1),), (("run", 1),)), faults=("kill", "late"), budget=1)
      for delivery in ("exactly_once", "at_least_once", "at_most_once") for keyed in (False, True)),
)  # fmt: skip


def drawn(chance: random.Random) -> Scenario:
    """A random scenario: two to four actors; two of three are small enough to be looked at as a whole."""
    pick, small = chance.choice, chance.random() < 0.67
    length, partitions = chance.randint(3, 4 if small else 8), 1 if small else pick((1, 1, 2))
    keys = tuple(tuple(10 * p + chance.randint(1, 3) for _ in range(length)) for p in range(partitions))
    places = [(p, at) for p in range(partitions) for at in range(length)]
    keyed = chance.random() < 0.5
    deleting = keyed and chance.random() < 0.4
    some = [frozenset(place for place in places if chance.random() < share) for share in (0.3, 0.15)]
    poison = frozenset({pick(places)}) if chance.random() < 0.15 else frozenset()
    log = Log(keys, some[0] if keyed else frozenset(), some[1] - some[0] - poison, poison - some[0])
    moving = chance.random() < (0.2 if small else 0.4)
    ends = tuple((0, chance.randint(1, length) if moving else length) for _ in range(partitions))
    actors = [_runs(chance, small) for _ in range(2 if small else pick((2, 2, 3)))]
    if chance.random() < 0.4:
        actors.append(tuple(_decision(chance, partitions, length) for _ in range(1 if small else chance.randint(1, 2))))
    if moving:
        actors.append(_moves(chance, small, partitions, length, not keyed))
    faults = tuple(f for f in FAULTS if chance.random() < (0.4 if small else 0.6))
    made = Scenario(
        "drawn", log, ends, tuple(actors[:4]), pick(("exactly_once", "at_least_once", "at_most_once")), keyed, deleting,
        chance.randint(1, 3), faults, chance.randint(0, 1 if small else 3) if faults else 0, chance.random() < 0.8,
        chance.randint(0, 1), bool(poison), chance.random() < 0.5, chance.random() < 0.1,
    )  # fmt: skip
    if chance.random() < 0.05:
        return _calm(made)
    if made.cuts and made.delivery == "at_most_once":
        # A run that claims behind another one's claim has no fingerprint of what that one reads: docs/explanation/reliability.md.
        alone = tuple(actor for at, actor in enumerate(made.actors) if at == 0 or actor[0][0] not in ("run", "contend"))
        made = replace(made, actors=alone)
    return replace(made, delivery="exactly_once", keyed=False, deleting=False) if made.sends else made


def _calm(drawn: Scenario) -> Scenario:
    """One run after the other at a destination that is busy once: nothing explains a loss, also with at_most_once."""
    log, actors = replace(drawn.log, poison=frozenset[tuple[int, int]]()), (drawn.actors[0] * 2,)
    return replace(drawn, log=log, skips=False, actors=actors, faults=("busy",), budget=1, delivery="at_most_once", sends=False)


def _runs(chance: random.Random, small: bool) -> tuple[Spec, ...]:
    kind = chance.choice(("run", "run", "contend"))
    return tuple((kind, chance.choice((1, 1, 2) if small else (1, 2, 3))) for _ in range(1 if small else chance.randint(1, 2)))


def _decision(chance: random.Random, partitions: int, length: int) -> Spec:
    kind = chance.choice(("offsets", "offsets", "reread", "reread", "backfill"))
    return (kind,) if kind == "backfill" else (kind, chance.randrange(partitions), chance.randint(0, length))


def _moves(chance: random.Random, small: bool, partitions: int, length: int, cutting: bool) -> tuple[Spec, ...]:
    expire: Spec = ("expire", 0, chance.randint(1, length - 1))
    if cutting and chance.random() < 0.5:
        return (("cut", chance.randrange(partitions), chance.randint(0, length - 1)),)
    grow = [("produce", chance.randrange(partitions), chance.randint(1, 4)) for _ in range(1 if small else chance.randint(1, 2))]
    return (*grow, expire) if chance.random() < 0.4 else tuple(grow)
