"""Follows undefined elements through a program's operators, and reports where the host uses them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakKeyDictionary

import torch

from kernbench.ptx.doors.session import Session, UnsafeLaunchError
from kernbench.ptx.doors.terms.running import running_test
from kernbench.ptx.doors.terms.sites import launch_site
from kernbench.ptx.doors.terms.unwritten import Gap
from kernbench.ptx.doors.terms.words import TRITON
from kernbench.ptx.doors.torch_door.definedness.masks import DeviceStorages, Masks
from kernbench.ptx.doors.torch_door.definedness.operators import Operator, changed, computes, name_of, tags_of, tensors
from kernbench.ptx.doors.torch_door.definedness.rules import Call, Outcome, fills, outcome
from kernbench.ptx.emulator.memory.arena import Allocation

_NO_FUNCTION_MODE: Any = torch._C.DisableTorchFunction
# modes of torch's own, such as one that traces, are not to see what is computed here
_NO_DISPATCH: Any = torch._C._DisableTorchDispatch
_DEPENDENT = getattr(torch.Tag, "data_dependent_output", None)
# operators that give the host a value, and what they do with it
_READS = {
    "_local_scalar_dense": "is taken to the host as a number",
    "is_nonzero": "is taken to the host as a number",
    "equal": "is compared by torch.equal",
    "allclose": "is compared by torch.allclose",
    "nonzero": "decides on the host how many elements there are (nonzero)",
    "_unique2": "decides on the host how many elements there are (unique)",
    "unique_dim": "decides on the host how many elements there are (unique)",
    "unique_consecutive": "decides on the host how many elements there are (unique)",
}
_COPIED = "is copied to the host"


@dataclass
class Step:
    """A call with undefined elements among its arguments: the tensors that it changes, and the masks of its results."""

    call: Call
    changed: list[torch.Tensor]
    gaps: list[Gap]
    results: list[torch.Tensor] = field(default_factory=list)
    masks: Outcome | None = None

    @property
    def by_value(self) -> bool:
        """Whether no rule says which of its results are undefined."""
        return self.masks is None


class Following:
    """The undefined elements of one session's tensors; to be called without a function mode."""

    def __init__(self, storages: DeviceStorages, session: Session):
        self._storages, self._session = storages, session
        self._memory = storages.memory
        self._masks = Masks(storages)
        # results of operators with undefined elements -> what nobody wrote
        self._gaps: WeakKeyDictionary[Allocation, Gap] = WeakKeyDictionary()
        self._reported: set[object] = set()

    def before(
        self, func: Operator, args: Sequence[object], kwargs: Mapping[str, object], to_host: bool
    ) -> Step | None:
        """Before an operator runs: its undefined arguments, unless there are none. Reports what the host gets."""
        if not self._memory.watches or not computes(func):
            return None
        given = [*tensors(args), *tensors(list(kwargs.values()))]
        suspects = [
            tensor for tensor in given if self._storages.has_data(tensor) and self._masks.may_be_undefined(tensor)
        ]
        # tensors without data, which other modes of torch compute with
        if not suspects or not all(map(self._storages.has_data, given)):
            return None
        with _NO_DISPATCH():
            return self._undefined(Call(func, args, kwargs, {}), suspects, to_host)

    def _undefined(self, call: Call, suspects: Sequence[torch.Tensor], to_host: bool) -> Step | None:
        """The undefined ones among arguments that may be."""
        func, args, kwargs = call.func, call.args, call.kwargs
        altered = list(tensors(list(changed(func, args, kwargs))))
        # of what is only written, the content before does not matter
        ignored = {id(one) for one in tensors(list(changed(func, args if fills(func) else (), kwargs)))}
        found = {
            id(one): mask for one in suspects if id(one) not in ignored and (mask := self._masks.of(one)) is not None
        }
        if not found and not altered:
            return None
        undefined = [tensor for tensor in suspects if id(tensor) in found]
        gaps = [self._gap(tensor, found[id(tensor)]) for tensor in undefined]
        step = Step(replace(call, masks=found), altered, gaps)
        self._read(step, undefined, to_host)
        return step

    def _read(self, step: Step, undefined: Sequence[torch.Tensor], to_host: bool) -> None:
        """Report what the host gets from a call."""
        name, what = name_of(step.call.func), ""
        if name in _READS or (_DEPENDENT is not None and _DEPENDENT in tags_of(step.call.func)):
            what = _READS.get(name, "is used on the host")
        elif to_host and not step.changed:
            what = _COPIED
        elif name == "copy_" and not self._storages.holds_here(step.changed[0]):
            what, undefined = _COPIED, [one for one in undefined if one is step.call.args[1]]
        for tensor in undefined if what else ():
            self.report(tensor, step.call.masks[id(tensor)], what)

    def after(self, step: Step, result: object) -> None:
        """After it ran: which elements of its results, and of what it changed, are undefined."""
        with _NO_DISPATCH():
            step.results = [] if step.changed else list(filter(self._storages.has_data, tensors(result)))
            step.masks = outcome(step.call, [one.shape for one in step.changed or step.results])
            if step.changed:
                self._change(step)

    def keep(self, step: Step) -> None:
        """The results are on the device: keep their masks."""
        with _NO_DISPATCH():
            self._keep_masks(step)

    def _keep_masks(self, step: Step) -> None:
        for number, tensor in enumerate(step.results):
            mask = None if step.masks is None else step.masks[number]
            if not self._storages.holds_here(tensor):
                continue
            if mask is not None:
                self._masks.put(tensor, mask)
            if step.gaps and (mask is not None or step.by_value):
                self._derive(tensor, step.gaps[0])

    def _change(self, step: Step) -> None:
        for number, tensor in enumerate(step.changed):
            if not self._storages.holds_here(tensor):
                continue
            mask = None if step.masks is None else step.masks[number]
            if mask is not None:
                self._masks.put(tensor, mask)
                self._derive(tensor, step.gaps[0])
            elif self._masks.may_be_undefined(tensor) and (not step.by_value or not self._is_empty(tensor)):
                self._masks.put(tensor, None)

    def _is_empty(self, tensor: torch.Tensor) -> bool:
        """Whether the program made its memory unwritten, so that its content says what is written."""
        return self._masks.made(tensor) is not None

    def _derive(self, tensor: torch.Tensor, gap: Gap) -> None:
        found = self._masks.allocation(tensor)
        if found is not None and self._masks.made(tensor) is None:
            self._gaps[found] = gap if gap.derived else replace(gap, derived=True)

    def _gap(self, tensor: torch.Tensor, mask: torch.Tensor) -> Gap:
        """What nobody wrote of a tensor, or of what it was computed from."""
        found = self._masks.allocation(tensor)
        assert found is not None, "a tensor with a mask"
        if found in self._gaps:
            return self._gaps[found]
        made, count = self._masks.made(tensor), int(mask.sum())
        uses, site = self._session.history.uses(found), None if made is None else made.site
        first = self._masks.first(tensor, mask)
        return Gap(found.name, count, tensor.numel(), count * tensor.element_size(), first, site, uses)

    def read(self, tensor: torch.Tensor, what: str) -> None:
        """The host reads a tensor without an operator."""
        if not self._memory.watches:
            return
        with _NO_FUNCTION_MODE(), _NO_DISPATCH():
            if self._storages.has_data(tensor) and (mask := self._masks.of(tensor)) is not None:
                self.report(tensor, mask, what)

    def report(self, tensor: torch.Tensor, mask: torch.Tensor, what: str) -> None:
        """Report a use of undefined elements: once for each line and array, in each test."""
        gap, where = self._gap(tensor, mask), launch_site()
        key = (gap.name, gap.made, where, running_test())
        if key in self._reported or not self._session.judges:
            return
        self._reported.add(key)
        call = self._session.report(gap.finding(what, where, TRITON.made))
        if self._session.options.stop_at_finding:
            raise UnsafeLaunchError(call)
