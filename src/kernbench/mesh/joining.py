"""Merges the message views of several timed launches on a mesh."""

from collections.abc import Sequence

import numpy as np

from kernbench.result.launches import Numbered
from kernbench.result.reading import Data
from kernbench.result.run import Run
from kernbench.result.timeline import Ints


def joined_messages(launches: Sequence[Run], begins: Sequence[int]) -> Data:
    """The views `mesh` and `messages` of all launches, which begin at `begins`; empty if a launch lacks them."""
    if not all("messages" in launch.views and "mesh" in launch.views for launch in launches):
        return {}
    links = Numbered[tuple[int | str, ...]]([])
    columns: dict[str, list[Ints]] = {key: [] for key in ("link", "start", "sent", "received")}
    for launch, begin in zip(launches, begins, strict=True):
        messages = launch.views["messages"]
        columns["link"].append(links.of(map(tuple, launch.views["mesh"]["links"]))[messages["link"]])
        for key in ("start", "sent", "received"):
            columns[key].append(messages[key] + begin)
    mesh = {**launches[-1].views["mesh"], "links": [list(link) for link in links.known]}
    return {"mesh": mesh, "messages": {key: np.concatenate(parts) for key, parts in columns.items()}}
