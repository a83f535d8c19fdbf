"""Files of experiments, and their errors."""

from pathlib import Path

import pytest

from autosched.experiments.definition import PRIORITY, Definition, DefinitionError, load, parse


@pytest.fixture
def file(tmp_path: Path) -> Path:
    for name in ("a.onnx", "b.onnx"):
        (tmp_path / name).write_bytes(b"any bytes")
    (tmp_path / "lab.toml").write_text("[resources]\nlanes = 1\n")
    return tmp_path / "net-1.toml"


def read(text: str, file: Path) -> Definition:
    return parse(text, file)


def test_a_file_with_everything(file: Path) -> None:
    found = read(
        """
name = "all-of-it"
about = "Whether it pays"
priority = 5
at_once = 2
together = ["model", "trials"]
zip = [["model", "trials"]]

[parameters]
model = ["a.onnx", "b.onnx"]
trials = [8, 16]
policy = ["stagewise", "round-robin"]
goal = "latency"
settings = "lab.toml"
label.repeat = [1, 2]
option.population = 64
deadline = "30m"
shape = "x=1,3,48,48"

[[exclude]]
policy = "stagewise"
label.repeat = 2

[[include]]
model = "a.onnx"
trials = 32

[labels]
team = "vision"

[daemon]
own = true
""",
        file,
    )
    assert (found.name, found.about, found.priority, found.at_once) == ("all-of-it", "Whether it pays", 5, 2)
    assert found.parameters["label.repeat"] == (1, 2)
    assert found.parameters["option.population"] == (64,)
    assert found.zips == (("model", "trials"),)
    assert found.exclude == ({"policy": ("stagewise",), "label.repeat": (2,)},)
    assert found.include == ({"model": ("a.onnx",), "trials": (32,)},)
    assert (found.labels, found.own_daemon, found.together) == ({"team": "vision"}, True, ("model", "trials"))
    combinations = found.combinations()
    assert len(combinations) == 2 * 3 + 4
    policies = [one["policy"] for one in combinations]
    assert policies == sorted(policies, key=policies.index), "those under one policy stand together"
    assert len({found.batch(one) for one in combinations}) == 4


def test_what_a_short_file_means(file: Path) -> None:
    found = read('[parameters]\nmodel = "a.onnx"\n', file)
    assert (found.name, found.priority, found.at_once, found.own_daemon) == ("net-1", PRIORITY, None, False)
    assert found.combinations() == [{"model": "a.onnx"}]
    assert found.batch({"model": "a.onnx"}) == ()


MODEL = '[parameters]\nmodel = "a.onnx"\n'


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("[parameters", 1, "not valid TOML"),
        ("\n\nx = ", 3, "not valid TOML"),
        ("", 1, r"\[parameters\] is missing"),
        ("parameters = 3", 1, "parameters is not a table"),
        ("[parameters]\ntrials = 8", 1, r"no model is named. Write in \[parameters\]: model = "),
        ('[parameters]\nmodel = "nowhere.onnx"', 2, "nowhere.onnx is neither a file nor a model of the zoo"),
        ('[parameters]\nmodel = "*.pt2"', 2, r"the pattern \*.pt2 matches no file"),
        (f"nam = 1\n{MODEL}", 1, "'nam' is not known here; did you mean 'name'"),
        (f"{MODEL}trails = 3", 3, "no parameter is named 'trails'; did you mean 'trials'"),
        (f"{MODEL}xyz = 3", 3, "no parameter is named 'xyz'; there are: model, shape, target"),
        (f"{MODEL}trials = [8, 'many']", 3, "trials: 'many': expected a whole number, got text in quotes"),
        (f"{MODEL}trials = -1", 3, "expected a whole number >= 0"),
        (f"{MODEL}trials = []", 3, "trials has an empty list"),
        (f"{MODEL}trials = [8, 8]", 3, "trials has 8 twice"),
        (f"{MODEL}layout = 'best'", 3, "choose from: keep, nchw, nhwc, nchwc, auto"),
        (f"{MODEL}deadline = 'soon'", 3, "'soon' is no duration"),
        (f"{MODEL}shape = 'x:3'", 3, "'x:3' is no shape. Write NAME=D1,D2"),
        (f"{MODEL}backend = 'magic'", 3, "no backend is named 'magic'. Installed: "),
        (f"{MODEL}policy = 'magic'\n[daemon]\nown = true", 3, "no policy is named 'magic'; there are: predictive"),
        (f"{MODEL}settings = 'none.toml'\n[daemon]\nown = true", 3, "cannot be read"),
        (f"{MODEL}policy = ['stagewise']", 3, r"policy belongs to the daemon .* own = true in \[daemon\]"),
        (f"{MODEL}option = 3", 3, "no parameter is named 'option'"),
        (f"{MODEL}option.x = [[1]]", 3, "got a list"),
        (f"at_once = 0\n{MODEL}", 1, "at_once is 0; allowed: a whole number, at least 1"),
        (f"at_once = true\n{MODEL}", 1, "at_once is True"),
        (f"priority = 101\n{MODEL}", 1, "allowed: -100 to 100"),
        (f"name = 'a/b'\n{MODEL}", 1, "'a/b' is no name"),
        (f"together = ['modl']\n{MODEL}", 1, r"\[parameters\] does not name 'modl'; did you mean 'model'"),
        (f"together = 'model'\n{MODEL}", 1, "together takes a list"),
        (f"zip = ['model']\n{MODEL}", 1, "zip takes lists of parameters"),
        (f"zip = [['model', 'seed']]\n{MODEL}seed = [1, 2]", 1, "equal lengths: model has 1, seed has 2"),
        (f"zip = [['model', 'seed'], ['seed', 'model']]\n{MODEL}seed = [1]", 1, "model, seed stands in two"),
        (f"{MODEL}[exclude]\nseed = 1", 3, r"write \[\[exclude\]\], in two pairs of brackets"),
        (f"{MODEL}[[exclude]]\n", 3, r"an empty \[\[exclude\]\] says nothing"),
        (f"{MODEL}[[exclude]]\nseed = 1", 4, r"\[parameters\] does not name seed"),
        (f"{MODEL}seed = [1, 2]\n[[exclude]]\nseed = 1\n[[exclude]]\nseed = 3", 7, "it leaves out nothing"),
        (f"{MODEL}seed = [1, 2]\n[[exclude]]\nseed = [1, 2]", 4, "all combinations are left out"),
        (f"{MODEL}[[include]]\nsed = 1", 4, "no parameter is named 'sed'"),
        (f"{MODEL}[labels]\n'a b' = 'c'", 4, "'a b=c' is no label"),
        (f"{MODEL}[daemon]\nown = 1", 3, r"\[daemon\] takes one setting"),
        (f"{MODEL}seed = {[*range(200)]}\ntrials = {[*range(200)]}", 1, "40,000 jobs are too many; 10,000 are allowed"),
        (f"together = ['policy']\n{MODEL}policy = ['stagewise']\n[daemon]\nown = true", 1, "cannot differ in policy"),
    ],
)  # fmt: skip
def test_errors_name_the_line_and_what_is_allowed(text: str, line: int, what: str, file: Path) -> None:
    with pytest.raises(DefinitionError, match=rf"^{file}:{line}: .*{what}"):
        read(text, file)


def test_lists_in_step_may_repeat_a_value(file: Path) -> None:
    lists = 'model = ["a.onnx", "a.onnx", "b.onnx"]\nlabel.set = ["one", "two", "two"]'
    assert len(read(f'zip = [["model", "label.set"]]\n[parameters]\n{lists}', file).combinations()) == 3


def test_the_quick_size_has_lists_of_its_own(file: Path) -> None:
    text = f"{MODEL}trials = [64, 128]\nseed = [0, 1]\n[quick]\ntrials = 8\n"
    whole, quick = parse(text, file), parse(text, file, quick=True)
    assert (whole.name, len(whole.combinations())) == ("net-1", 4)
    assert (quick.name, [one["trials"] for one in quick.combinations()]) == ("net-1-quick", [8, 8])
    with pytest.raises(DefinitionError, match="it has no quick size"):
        parse(MODEL, file, quick=True)
    with pytest.raises(DefinitionError, match=r"net-1.toml:4: no parameter is named 'trails'"):
        parse(f"{MODEL}[quick]\ntrails = 8\n", file)


def test_all_errors_are_told_at_once(file: Path) -> None:
    with pytest.raises(DefinitionError) as found:
        read(f"nam = 1\nat_once = 0\n{MODEL}trials = 'x'\nsed = 1\n", file)
    assert [line.split(":")[1] for line in str(found.value).splitlines()] == ["1", "2", "5", "6"]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match=r"cannot be read .*Name the file of an experiment, FILE.toml"):
        load(tmp_path / "none.toml")


def test_a_huge_product_is_refused_at_once(file: Path) -> None:
    lists = "\n".join(f"option.x{number} = {[*range(100)]}" for number in range(12))
    with pytest.raises(DefinitionError, match="combinations are more than anybody can run"):
        read(f"{MODEL}{lists}", file)
