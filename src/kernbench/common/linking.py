"""How loops and their parts become machine code: a part is read into the loops that call it, and improved only there.

numba makes of each function that another one calls a library of its own: it is optimised twice and translated, and then
read into its callers, where all of that happens again. What is called by loops only needs none of it.
"""

from collections.abc import Callable
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from llvmlite import binding as llvm
from numba import _dynfunc
from numba.core import codegen, compiler, compiler_machinery, environment, typed_passes

# objects of numba and of what it compiles: it publishes no types of them
Numba = Any
_Library: Numba = codegen.JITCodeLibrary
_Lowering: Numba = typed_passes.NativeLowering
_Compiler: Numba = compiler.Compiler
_registered: Numba = compiler_machinery.register_pass
_make_function: Numba = _dynfunc.make_function
_environment: Numba = environment.lookup_environment
# how numba begins the names of what functions know of Python
_ENVIRONMENTS = "_ZN08NumbaEnv"


class _PartLibrary(_Library):  # type: ignore[misc]
    """A function that others call: nothing is done with it but to read it into them."""

    _shared_module: Numba

    def finalize(self) -> None:
        self._raise_if_finalized()
        for function in self._final_module.functions:
            if not function.is_declaration and function.linkage == llvm.Linkage.external:
                function.linkage = "linkonce_odr"
        self._finalize_dynamic_globals()
        self._finalized = True

    def alone(self) -> Numba:
        """Its module, without what it calls."""
        self._ensure_finalized()
        return self._final_module

    def _get_module_for_linking(self) -> Numba:
        """Its module with all that it calls, for libraries that are not loops of ours."""
        if self._shared_module is None:
            whole = self.alone().clone()
            _read_into(whole, self._linking_libraries)
            self._shared_module = whole
        return self._shared_module

    def get_pointer_to_function(self, name: str) -> int:
        """None: there is no machine code of it alone."""
        self._ensure_finalized()
        return 0


class _LoopLibrary(_Library):  # type: ignore[misc]
    """A loop with all its parts, in one module that is optimised once."""

    def _optimize_functions(self, ll_module: Numba) -> None:
        """Not before everything is together."""
        ll_module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        """numba's first round is for counts of references, of which loops have none."""
        passes, builder = self._codegen._module_pass_manager()
        with self._recorded_timings.record("Module passes (full optimization)", builder):
            passes.run(self._final_module, builder)

    def finalize(self) -> None:
        for one in _read_into(self._final_module, self._linking_libraries):
            self._reload_init.update(one._reload_init)
        self._linking_libraries.clear()
        super().finalize()
        for variable in self._final_module.global_variables:
            known = _environment(variable.name) if variable.name.startswith(_ENVIRONMENTS) else None
            if known is not None:
                self._codegen.set_env(variable.name, known)


def _read_into(module: Numba, libraries: list[Numba]) -> list[Numba]:
    """Read libraries into a module, and all that parts among them call; each once. Gives all that were read."""
    found: list[Numba] = []
    waiting = list(reversed(libraries))
    while waiting:
        one = waiting.pop()
        if one in found:
            continue
        found.append(one)
        is_part = isinstance(one, _PartLibrary)
        module.link_in(one.alone() if is_part else one._get_module_for_linking(), preserve=True)
        waiting += reversed(one._linking_libraries if is_part else [])
    return found


def _no_code(library: Numba, description: Numba, env: Numba) -> Numba:
    """What stands for a part in numba's tables; it is never called."""
    name = description.qualname.split(".")[-1]
    return _make_function(description.lookup_module(), name, "part of compiled loops", 0, env, (library,))


@_registered(mutates_CFG=True, analysis_only=False)
class _LowerPart(_Lowering):  # type: ignore[misc]
    """Makes the code of a part."""

    _name = "kernbench_part_lowering"

    def run_pass(self, state: Numba) -> bool:
        state.library = _PartLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        # the context is a copy for this function
        state.targetctx.get_executable = _no_code
        return bool(super().run_pass(state))


@_registered(mutates_CFG=True, analysis_only=False)
class _LowerLoop(_Lowering):  # type: ignore[misc]
    """Makes the code of a loop."""

    _name = "kernbench_loop_lowering"

    def run_pass(self, state: Numba) -> bool:
        state.library = _LoopLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        return bool(super().run_pass(state))


class LoopCompiler(_Compiler):  # type: ignore[misc]
    """numba's compiler, but for how code is made."""

    _lowering: Numba = _LowerLoop
    # for functions that are kept: what to do when one cannot be compiled
    failed: ClassVar[WeakKeyDictionary[Numba, Callable[[], None]]] = WeakKeyDictionary()

    def compile_extra(self, func: Numba) -> Numba:
        """Compile a function; others need not wait for one that cannot be."""
        try:
            return super().compile_extra(func)
        except BaseException:
            self.failed.get(func, bool)()
            raise

    def define_pipelines(self) -> list[Numba]:
        """numba's steps; the last but one makes code as our loops want it."""
        made = super().define_pipelines()
        for manager in made:
            manager.passes = [(self._lowering, why) if one is _Lowering else (one, why) for one, why in manager.passes]
        return list(made)


class PartCompiler(LoopCompiler):
    """The same, for what loops call."""

    _lowering = _LowerPart
