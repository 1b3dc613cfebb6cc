"""`mlcpc mi` and `mlcpc mi-matrix` on files as people have them."""

import csv
import json

import numpy as np
import pandas as pd
import pytest

from mlcpc.cli import main
from mlcpc.mi.files import choose, read_columns


@pytest.fixture
def folder(tmp_path, monkeypatch):
    g = np.random.default_rng(0)
    a = g.normal(size=300)
    b = a + 0.5 * g.normal(size=300)
    frame = pd.DataFrame({"height": a, "weight": b, "side": np.where(a > 0, "left", "right")})
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    np.savez(tmp_path / "t.npz", height=a, weight=b, both=np.stack([a, b], 1))
    np.save(tmp_path / "t.npy", np.stack([a, b], 1))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def estimate(capsys, *arguments: str) -> dict:
    assert main(["mi", *arguments, "--fast", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_every_kind_of_file_gives_the_same_number(folder, capsys) -> None:
    named = [estimate(capsys, f"t.{ending}", "--x", "height", "--y", "weight") for ending in ("csv", "parquet", "npz")]
    named.append(estimate(capsys, "t.npy", "--x", "0", "--y", "1"))
    assert len({result["lower_bound"] for result in named}) == 1
    assert 0.4 < named[0]["lower_bound"] < 1.1  # the truth is 0.80


def test_words_sentence_bits_and_picture(folder, capsys) -> None:
    arguments = ["mi", "t.csv", "--x", "height", "--y", "side,weight", "--fast", "--bits", "--plot", "out/mi.svg"]
    assert main(arguments) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "height tells at least" in out
    assert "bits about side,weight, 95 % sure; the data can show at most" in out
    assert (folder / "out/mi.svg").exists()


def test_matrix_of_all_pairs(folder, capsys) -> None:
    assert main(["mi-matrix", "t.csv", "--out", "m", "--jobs", "2"]) == 0
    rows = list(csv.DictReader((folder / "m/mi_matrix.csv").read_text().splitlines()))
    assert [(row["x"], row["y"]) for row in rows] == [("height", "weight"), ("height", "side"), ("weight", "side")]
    assert all(float(row["ci_low"]) > 0.1 for row in rows)
    assert (folder / "m/mi_matrix.svg").exists()
    assert "height" in capsys.readouterr().out


def cut(folder, name: str, to: str) -> str:
    (folder / to).write_bytes((folder / name).read_bytes()[: None if to.startswith("whole") else 400])
    return to


@pytest.mark.parametrize(
    ("file", "columns", "message"),
    [
        ("t.csv", ("hieght", "weight"), "--x names 'hieght', which is not a column: did you mean 'height'?"),
        ("t.csv", ("height", "height"), "both name height"),
        ("none.csv", ("a", "b"), "none.csv does not exist"),
        ("notes.txt", ("a", "b"), "notes.txt ends in .txt: give one of"),
        ("t.parquet→cut.parquet", ("a", "b"), "cut.parquet is not a Parquet file, or is truncated"),
        ("t.npz→cut.npz", ("a", "b"), "cut.npz is not an array file of numbers (.npz), or is truncated"),
        ("t.npy→cut.npy", ("0", "1"), "cut.npy is not an array file of numbers (.npy), or is truncated"),
        ("t.npz→zip.csv", ("a", "b"), "zip.csv is not a CSV file of text"),
        ("t.csv→npy.npy", ("a", "b"), "npy.npy is not an array file"),
        ("t.csv→short.csv", ("height", "weight"), "short.csv, line"),
        ("pickled.npy", ("0", "1"), "pickled.npy is not an array file"),
        (
            "t.npy→whole.npz",
            ("0", "1"),
            "whole.npz is not an array file of numbers (.npz), or is truncated: it holds something",
        ),
        ("t.npz→whole.npy", ("0", "1"), "it holds something else, by its content"),
        ("t.csv→whole.parquet", ("0", "1"), "whole.parquet is not a Parquet file"),
        ("empty.csv", ("0", "1"), "empty.csv has no columns"),
        ("heading.csv", ("a", "b"), "heading.csv has no rows"),
        ("uneven.npz", ("a", "b"), "the columns differ in their number of rows (a 60, b 50)"),
    ],
)
def test_bad_files_are_one_line_and_exit_code_2(folder, capsys, file: str, columns, message: str) -> None:
    np.save(folder / "pickled.npy", np.array([{"code": 1}] * 60, dtype=object), allow_pickle=True)
    np.savez(folder / "uneven.npz", a=np.arange(60.0), b=np.arange(50.0))
    (folder / "empty.csv").write_text("")
    (folder / "heading.csv").write_text("a,b\n")
    name = cut(folder, *file.split("→")) if "→" in file else file
    if name == "short.csv":
        (folder / name).write_text((folder / name).read_text().rpartition(",")[0])
    assert main(["mi", name, "--x", columns[0], "--y", columns[1]]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert message in lines[0]


def test_semicolons_tabs_spaces_and_commas_in_names(folder, capsys) -> None:
    frame = pd.read_csv("t.csv").rename(columns={"weight": "weight, kg"})
    frame.to_csv("semi.csv", sep=";", index=False)
    frame.to_csv("tab.tsv", sep="\t", index=False)
    frame.to_csv("quoted.csv", index=False)
    values = {
        estimate(capsys, name, "--x", "height", "--y", "weight, kg")["lower_bound"]
        for name in ("semi.csv", "tab.tsv", "quoted.csv")
    }
    assert len(values) == 1
    assert choose(["a", "b", "c"], "a, c", "--x") == ["a", "c"]


@pytest.mark.parametrize("ending", ["csv", "parquet", "npy"])
def test_a_long_file_streams_by_and_a_sample_of_it_is_kept(folder, ending: str) -> None:
    """Uniform, in order, pairs kept together, and the same for every kind of file."""
    n, most = 120_000, 1000
    frame = pd.DataFrame({"0": np.arange(n, dtype=float), "1": -np.arange(n, dtype=float)})
    if ending == "npy":
        np.save("long.npy", frame.to_numpy())
    else:
        getattr(frame, f"to_{ending}")(f"long.{ending}", index=False)
    columns, total = read_columns(folder / f"long.{ending}", lambda names: ["1", "0"], most)
    rows = np.array(columns["0"])
    assert total == n
    assert len(rows) == most == len(set(rows))
    assert (np.array(columns["1"]) == -rows).all()
    assert (np.diff(rows) > 0).all()
    quarters = np.histogram(rows, bins=4, range=(0, n))[0]
    assert abs(quarters - most / 4).max() < 5 * (most * 3 / 16) ** 0.5
    csv_rows = read_columns(folder / f"long.{ending}", lambda names: ["0"], most, seed=1)[0]["0"]
    assert set(csv_rows) != set(rows)


def test_matrix_looks_at_all_columns_first(folder, capsys) -> None:
    pd.read_csv("t.csv").assign(same=1.0).to_csv("bad.csv", index=False)
    for arguments, message in (
        (["bad.csv"], "same: column same of x is constant"),
        (["t.csv", "--columns", "height"], "only height is chosen"),
        (["t.csv", "--jobs", "-1"], "--jobs is -1"),
    ):
        assert main(["mi-matrix", *arguments]) == 2
        lines = capsys.readouterr().err.strip().splitlines()
        assert len(lines) == 1
        assert message in lines[0]


def test_bad_data_in_a_good_file(folder, capsys) -> None:
    frame = pd.read_csv("t.csv")
    frame["same"] = 1.0
    frame.loc[3, "weight"] = np.nan
    frame.to_csv("bad.csv", index=False)
    for y, message in (("same", "column same of y is constant"), ("weight", "1 of 300 rows have missing values")):
        assert main(["mi", "bad.csv", "--x", "height", "--y", y, "--fast"]) == 2
        assert message in capsys.readouterr().err
    assert estimate(capsys, "bad.csv", "--x", "height", "--y", "weight", "--drop-missing")["n"] == 299
