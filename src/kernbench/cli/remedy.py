"""What a refusal says to do: messages are one sentence, first what is wrong and then the remedy."""

import re
from itertools import pairwise

_BREAK = re.compile(r"^|(?<!\.)[;:.?] (?=\S)")
# words with which a clause begins that tells somebody to do something
_VERBS = (
    "add|allocate|branch|build|call|choose|compile|compute|convert|copy|declare|define|describe|drop|enlarge|"
    "end|fill|free|give|hand|import|install|keep|leave|list|load|look|lower|make|mend|move|name|open|pack|pad|"
    "pass|pip|put|raise|read|release|remove|rename|replace|reshape|round|run|save|say|see|send|set|shorten|"
    "show|split|start|store|sweep|take|transpose|try|use|wait|widen|wrap|write"
)
_NOUNS = "is|are|has|have|must|of|was|says|gives|takes"
_DOES = re.compile(rf"(?:{_VERBS}) (?!(?:{_NOUNS})\b)|--\w", re.IGNORECASE)
_LISTS = re.compile(r"(?:known(?: are)?|allowed is|did you mean|they are|it is one of|it takes)\b", re.IGNORECASE)
_WANTED = re.compile(r"\b(?:is|are) wanted\b|\bworks (?:too|as well)\b|\bmust be\b")
# what was found instead is no part of it
_FOUND = re.compile(r"; got [^;]*$", re.DOTALL)
# the words of somebody else's error
_QUOTED = re.compile(r" raised \w+: ")


def remedy(text: str) -> str:
    """The part of a message that says what to do, to its end; empty where there is none."""
    if _QUOTED.search(text):
        return ""
    breaks = [*(found.end() for found in _BREAK.finditer(text)), len(text)]
    for begin, end in pairwise(breaks):
        clause = text[begin:end]
        named = begin and (_LISTS.match(clause) or _WANTED.search(clause))
        if named or (_DOES.match(clause) and (begin or not clause.startswith("-"))):
            return _FOUND.sub("", text[begin:])
    return ""
