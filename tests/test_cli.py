"""The command line as a person meets it."""

import json
import subprocess
import sys

import pytest

from mlcpc.cli import main


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["reproduce", "figure9"], "target is 'figure9', which is not known: write one of figure1"),
        (["reproduce", "figure1", "--scale", "huge"], "scale of figure1 is 'huge'"),
        (["reproduce", "figure1", "--sclae", "paper"], "Unrecognized options: --sclae"),
        (["bounds", "--m", "x", "--n", "3"], "--m: invalid literal"),
        (["bounds", "--m", "1", "--n", "3"], "m is 1: a row needs"),
        (["bounds", "--m", "4", "--n", "3", "--alpha", "7"], "alpha is 7.0 but must lie"),
        (["reproduce", "all", "--scale", "nope"], "scale is 'nope'"),
        (["bounds", "--m", "4", "--n", "3", "--alpha", "4"], "alpha is 4.0 but must lie"),
        (["frobnicate"], "frobnicate"),
        ([], "reproduce, demo, "),
        (["demo", "--out", "/dev/null/x"], "/dev/null"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments, message, capsys) -> None:
    try:
        code = main(arguments)
    except SystemExit as stop:
        code = stop.code
    errors = capsys.readouterr().err.strip().splitlines()
    assert code == 2
    assert len(errors) == 1
    assert errors[0].startswith("mlcpc: ")
    assert message in errors[0]


def test_listing_and_bounds(capsys) -> None:
    assert main(["reproduce"]) == 0
    assert "figure2" in capsys.readouterr().out
    assert main(["bounds", "--m", "128", "--n", "128", "--bits"]) == 0
    assert "13.989" in capsys.readouterr().out  # log2(128·127 + 1)


def test_reproduce_writes_where_it_says(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", "figure2", "--scale", "smoke"]) == 0
    assert "results/figure2/smoke/figure2.svg" in capsys.readouterr().out
    assert (tmp_path / "results/figure2/smoke/figure2.svg").exists()


def test_a_broken_result_is_named(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", "figure1", "--scale", "smoke"]) == 0
    (stored,) = (tmp_path / "runs").rglob("result.json")
    for text in ("", "[]", "{}"):
        stored.write_text(text)
        capsys.readouterr()
        assert main(["reproduce", "figure1", "--scale", "smoke"]) == 2
        error = capsys.readouterr().err.strip()
        assert str(stored.relative_to(tmp_path)) in error
        assert "delete the file" in error


def test_a_failed_check_is_exit_code_1(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    main(["reproduce", "figure1", "--scale", "smoke"])
    (stored,) = (tmp_path / "runs").rglob("result.json")
    result = json.loads(stored.read_text())
    for row in result["rows"]:
        row["mean"] = 0.7
    stored.write_text(json.dumps(result))
    assert main(["reproduce", "figure1", "--scale", "smoke"]) == 1


def test_interrupted_is_130(monkeypatch, capsys) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("mlcpc.commands.reproduce.reproduce", stop)
    assert main(["reproduce", "figure1", "--scale", "smoke"]) == 130
    assert "finished runs are kept" in capsys.readouterr().err


def test_as_a_module() -> None:
    out = subprocess.run([sys.executable, "-m", "mlcpc", "--version"], capture_output=True, text=True, check=True)
    assert out.stdout.startswith("mlcpc 0.")


def test_help_names_every_flag(capsys) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["reproduce", "--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    for flag in ("--scale", "--out", "--runs", "--bits"):
        assert flag in text


def test_matplotlib_is_loaded_when_something_is_drawn_and_not_before() -> None:
    code = "import sys, mlcpc.cli; mlcpc.cli.main(['reproduce']); print('matplotlib' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.splitlines()[-1] == "False"
