"""What tests of instruction sets do where the engine was built without some of them."""

from __future__ import annotations

import subprocess

import pytest

import programs

LACKS = (
    "loom.errors.InvalidValueError: this build has no kernels for the instruction set portable: it was built "
    "with LOOM_KERNELS=host, as `make demo` does, for the best of its machine alone"
)
NEVER = "loom.errors.InvalidValueError: this machine does not have the instruction set avx512"


@pytest.mark.parametrize(
    ("told", "automatic", "outcome"),
    [
        (LACKS, "", pytest.skip.Exception),
        (LACKS, "true", pytest.fail.Exception),
        (NEVER, "", None),
        ("", "", None),
    ],
)
def test_kernels_that_are_lacking_skip_a_test_outside_of_ci(
    told: str, automatic: str, outcome: type[BaseException] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*_: object, **__: str) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess([], int(bool(told)), "", told)

    monkeypatch.setattr(programs, "run", run)
    monkeypatch.setenv("CI", automatic)
    programs._lacks_kernels.cache_clear()
    try:
        if outcome is None:
            programs.require_kernels("portable")
        else:
            with pytest.raises(outcome, match="LOOM_KERNELS=host, without kernels for portable"):
                programs.require_kernels("portable")
    finally:
        programs._lacks_kernels.cache_clear()
