"""What the same trajectories would cost at a provider that sells tokens and caches prompts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim import units
from sim.errors import InputError
from sim.metrics.volume import volume

if TYPE_CHECKING:
    import pandas as pd

#: Columns of `turns` that a bill needs.
COLUMNS = ["replication", "trajectory", "status", "ready_s", "first_token_s", "prompt_tokens", "output_tokens",
           "ceiling_tokens"]
_FOLDER = Path(__file__).parent / "prices"


@dataclass(frozen=True, slots=True)
class Price:
    """What a provider charges for one model.

    Attributes
    ----------
    name, provider, date, source, note
        The model, who sells it, since when (or when read), and whose page says so.
    checked
        Where, and when, the figures were found again, in a page that could be read; empty: they are from memory.
    input, output
        USD for a million tokens.
    read
        Price of a cached token, as a fraction of `input`.
    write
        Time to live in seconds -> price of writing a token, as a multiple of `input`. Empty: writing is free.
    ttl_s, refresh
        How long an entry lives, and whether that time starts anew at each use.
    minimum_tokens, step_tokens
        Shortest prefix that is cached, and the steps in which it is matched.
    storage_usd_per_Mtok_hour
        USD for keeping a million tokens for an hour.
    long
        Prices of requests whose prompt is longer than `above_tokens`.
    """

    name: str
    provider: str
    date: str
    input: float
    output: float
    read: float = 0.1
    write: Mapping[int, float] = field(default_factory=dict)
    ttl_s: float = 300.0
    refresh: bool = True
    minimum_tokens: int = 1024
    step_tokens: int = 1
    storage_usd_per_Mtok_hour: float = 0.0
    long: Mapping[str, float] = field(default_factory=dict)
    source: str = ""
    note: str = ""
    checked: str = ""

    def kept(self, ttl_s: float) -> float:
        """Return the multiple of `input` that writing for a time to live costs.

        Raises
        ------
        InputError
            The provider does not sell that time to live.
        """
        if not self.write:
            return 1.0
        if ttl_s not in self.write:
            raise InputError(f"{self.name} is written for {', '.join(f'{known:g} s' for known in self.write)}",
                             field="ttl", got=f"{ttl_s:g} s")
        return self.write[int(ttl_s)]


@dataclass(frozen=True, slots=True)
class Bill:
    """A bill, in USD and tokens.

    `usd` is the sum of `read_usd`, `write_usd`, `input_usd` (prompt tokens neither read nor written), `output_usd` and
    `storage_usd`. `expired` counts turns whose own prefix was no longer there.
    """

    name: str
    date: str
    ttl_s: float
    turns: int
    expired: int
    read_tokens: int
    write_tokens: int
    input_tokens: int
    output_tokens: int
    read_usd: float
    write_usd: float
    input_usd: float
    output_usd: float
    storage_usd: float

    @property
    def usd(self) -> float:
        """The whole of it."""
        return self.read_usd + self.write_usd + self.input_usd + self.output_usd + self.storage_usd


def prices() -> dict[str, Price]:
    """Return every price there is, by model."""
    import yaml

    found: dict[str, Price] = {}
    for path in sorted(_FOLDER.glob("*.yaml")):
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
        for name, own in data["models"].items():
            fields = {**data["rules"], **own, "date": str(own["date"])}
            found[name] = Price(name=name, provider=data["provider"], **fields)
    return found


def price(name: str) -> Price:
    """Return one price; InputError for a model that has none."""
    known = prices()
    if name not in known:
        raise InputError(f"unknown price; choose from {', '.join(known)}", field="price", got=name)
    return known[name]


def bill(turns: pd.DataFrame, at: Price, *, ttl_s: float | None = None, since_s: float = 0.0) -> Bill:
    """Return what the turns of a run would cost.

    Parameters
    ----------
    turns
        A run's table; `COLUMNS` are looked at.
    at
        The price.
    ttl_s
        Time to live in seconds, in place of the usual one.
    since_s
        Turns that became ready earlier fill the cache but are not charged (the warm-up).

    Notes
    -----
    A turn may read what an infinite cache would hold of its prompt, as long as that has been used within the time to
    live: by its own trajectory, or else, for the part that trajectories share (what the first turn of a trajectory
    finds), by any trajectory. A prompt counts as used when its first output token comes. Where a request marks what is
    cached, one mark is taken to stand at its end and one at the end of what is shared. Waits are those simulated; an
    entry that is refreshed never expires while its trajectory goes on at a quicker pace than the time to live.
    """
    ttl = float(at.ttl_s if ttl_s is None else ttl_s)
    write = at.kept(ttl)
    tokens = dict.fromkeys(("read", "write", "input", "output"), 0)
    usd = dict.fromkeys(("read", "write", "input", "output"), 0.0)
    expired = charged = 0
    storage = 0.0
    rows = turns.loc[turns["status"] == "finished", COLUMNS].sort_values("ready_s", kind="stable")
    cache = _Cache(ttl, refresh=at.refresh)
    for replication, number, _, ready_s, token_s, prompt, output, ceiling in rows.itertuples(index=False, name=None):
        read, gone, stored = cache.turn((replication, number), replication, ready_s, token_s, prompt, ceiling)
        read = read // at.step_tokens * at.step_tokens
        read = read if read >= at.minimum_tokens else 0
        if ready_s < since_s:
            continue
        charged += 1
        expired += gone
        storage += stored
        written = prompt - read if at.write and prompt >= at.minimum_tokens else 0
        tier = at.long if at.long and prompt > at.long["above_tokens"] else {}
        base, out = tier.get("input", at.input) / 1e6, tier.get("output", at.output) / 1e6
        amounts = {"read": read, "write": written, "input": prompt - read - written, "output": output}
        each = {"read": base * at.read, "write": base * write, "input": base, "output": out}
        for name, amount in amounts.items():
            tokens[name] += int(amount)
            usd[name] += amount * each[name]
    return Bill(at.name, at.date, ttl, charged, expired, tokens["read"], tokens["write"], tokens["input"],
                tokens["output"], usd["read"], usd["write"], usd["input"], usd["output"],
                storage / 3600e6 * at.storage_usd_per_Mtok_hour)


class _Cache:
    """What is still there: last uses of each trajectory's prompts, and of what trajectories share."""

    def __init__(self, ttl_s: float, *, refresh: bool) -> None:
        self._ttl_s = ttl_s
        self._refresh = refresh
        self._own: dict[Any, tuple[float, int]] = {}
        self._shared: dict[Any, int] = {}
        self._last: dict[Any, float] = {}

    def turn(self, trajectory: Any, group: Any, ready_s: float, token_s: float, prompt: int,
             ceiling: int) -> tuple[int, bool, float]:
        """Take one turn; return tokens read, whether its own prefix had expired, and token-seconds stored since."""
        before = self._own.get(trajectory)
        common = self._shared.setdefault(trajectory, ceiling)
        common_there = group in self._last and ready_s - self._last[group] <= self._ttl_s
        stored = 0.0
        fresh = before is not None and ready_s - before[0] <= self._ttl_s
        if before is not None:
            stored = before[1] * min(max(ready_s - before[0], 0.0), self._ttl_s)
        read = ceiling if fresh else min(ceiling, common) if common_there else 0
        if self._refresh or not fresh:
            self._own[trajectory] = (token_s, prompt)
        else:
            assert before is not None
            self._own[trajectory] = (before[0], prompt)
        if self._refresh or not common_there:
            self._last[group] = max(token_s, self._last.get(group, token_s))
        return read, before is not None and not fresh, stored


def table(turns: pd.DataFrame, summary: Mapping[str, Any], names: Iterable[str] = (),
          ttl: str | float | None = None, daily_tasks: float | None = None, nodes: int = 1) -> pd.DataFrame:
    """Return bills of a run at several providers, and its own cost, over the same measured span.

    Parameters
    ----------
    turns, summary
        Of the run.
    names
        Models; all of them when left out.
    ttl
        Time to live of what is cached, in seconds or as text like ``1 h``. Models that are named must sell it; of all
        of them, those that do not keep their own.
    daily_tasks, nodes
        Trajectories a day, and the nodes of the deployment simulated: adds what a day costs (see `sim.metrics.volume`).

    Returns
    -------
    DataFrame
        One row a price, the run's own first (``self-hosted``): USD, USD a finished trajectory, parts and tokens. With
        `daily_tasks` also ``usd_per_day`` and ``usd_per_task`` at that volume, and in the first row what `volume`
        gives besides.

    Raises
    ------
    InputError
        A model has no price, or is not sold with that time to live; `ttl` is no time, `daily_tasks` no number of tasks,
        or nothing finished.
    """
    import pandas as pd

    try:
        ttl_s = None if ttl is None else units.parse(ttl, units.SECONDS)
    except InputError as error:
        raise InputError(error.reason, field="ttl", got=ttl) from None
    if ttl_s is not None and ttl_s <= 0:
        raise InputError("expected a time above 0", field="ttl", got=ttl)
    named = [price(name) for name in names]
    if ttl_s is not None:
        for at in named:
            at.kept(ttl_s)
    cost, checks = summary["cost"], summary["checks"]
    finished = summary["throughput"]["trajectories_per_s"] or 0.0
    count = finished * checks["span_s"] * checks["replications"]
    rows: list[dict[str, Any]] = [{"name": "self-hosted", "date": None, "checked": True, "ttl_s": None,
                                   "usd": cost["usd"], "usd_per_trajectory": cost["usd_per_trajectory"]}]
    for at in named or prices().values():
        wanted = ttl_s if ttl_s is not None and (not at.write or ttl_s in at.write) else None
        made = bill(turns, at, ttl_s=wanted, since_s=checks["warmup_s"])
        row = asdict(made)
        rows.append({**{key: row.pop(key) for key in ("name", "date", "ttl_s")},
                     "checked": bool(at.checked), "usd": made.usd,
                     "usd_per_trajectory": made.usd / count if count else None, **row})
    if daily_tasks is not None:
        rows[0] |= asdict(volume(summary, daily_tasks, nodes))
        for row in rows[1:]:
            row["usd_per_task"] = row["usd_per_trajectory"]
            row["usd_per_day"] = row["usd_per_trajectory"] * daily_tasks
    return pd.DataFrame(rows)
