"""The script that compares all arguments of approximate functions on a GPU, with the emulator in the GPU's place."""

import numpy as np

from benchmarks import ptx_approximate as script

NAME = "rcp.approx.ftz.f32"


def test_equal_results_and_planted_differences(monkeypatch, capsys):
    form = next(form for form in script.forms() if form.name == NAME)
    task = ("emulator", NAME, 0x3F800000 - 128, 256, 1)
    equal = script.part(task)
    assert (equal.compared, equal.by_exponent.sum(), equal.first.size) == (256, 0, 0)
    wrong = form._replace(run=lambda codes: form.run(codes) + (codes % 64 == 1).astype(np.uint32))
    monkeypatch.setitem(script._FORMS, NAME, wrong)
    planted = script.part(task)
    assert planted.by_exponent.sum() == 4
    assert planted.by_exponent[126] == planted.by_exponent[127] == 2
    script.show(form, [equal, planted], 1.0)
    assert "512 compared             4 differ" in capsys.readouterr().out


def test_every_argument_is_in_one_part():
    for form in script.forms():
        parts = list(script.tasks("cuda", form, 1))
        assert sum(count for *_, count, _ in parts) == form.arguments
        assert [start for _, _, start, *_ in parts] == list(range(0, form.arguments, script.COUNT))
