import numpy as np
import pytest

from autosched_backend_autotvm.config_space import ConfigSpace, Knob
from autosched_backend_autotvm.cost_model import CostModel, Loss
from autosched_backend_autotvm.knob_features import KnobFeatures, logarithm
from autosched_backend_autotvm.tuners.config_sampler import ConfigSampler

SPACE = ConfigSpace(
    "t", (Knob("number", (1, 3, 7)), Knob("tiles", ((1, 8), (2, 4))), Knob("word", ("b", "a", "c")), Knob("one", (5,)))
)


def test_values_are_flattened() -> None:
    features = KnobFeatures(SPACE)
    assert features.names == ("number", "tiles.0", "tiles.1", "word=a", "word=b", "word=c", "one")
    index = SPACE.find({"number": 7, "tiles": (2, 4), "word": "a", "one": 5})
    assert index is not None
    row = features.of(ConfigSampler(SPACE).digits([index]))[0]
    assert row.tolist() == pytest.approx([3.0, np.log2(3), np.log2(5), 1, 0, 0, np.log2(6)])
    assert features.largest.tolist() == pytest.approx([3.0, np.log2(3), np.log2(9), 1, 1, 1, np.log2(6)])


def test_a_space_without_knobs_has_rows_without_columns() -> None:
    assert KnobFeatures(ConfigSpace("t", ())).of(ConfigSampler(ConfigSpace("t", ())).digits([0])).shape == (1, 0)


def test_logarithmic_features_are_continuous_at_zero() -> None:
    assert [logarithm(number) for number in (-3, 0, 1, 3)] == [-2.0, 0.0, 1.0, 2.0]


def order(values: np.ndarray) -> np.ndarray:
    return np.argsort(np.argsort(values))


@pytest.mark.parametrize("loss", ["reg", "rank"])
def test_the_order_of_all_is_learned_not_only_of_the_first_32(loss: Loss) -> None:
    rng = np.random.default_rng(1)
    features = rng.normal(size=(600, 5)).astype(np.float32)
    scores = np.exp(features[:, 0] - np.abs(features[:, 1])).astype(np.float32)
    model = CostModel(loss, 1, 1)
    model.fit(features[:400], scores[:400] / scores.max())
    told = model.predict(features[400:])
    assert np.corrcoef(order(told), order(scores[400:]))[0, 1] > 0.9


@pytest.mark.parametrize("loss", ["reg", "rank"])
def test_a_margin_is_where_the_model_starts(loss: Loss) -> None:
    rng = np.random.default_rng(1)
    features = rng.normal(size=(50, 3)).astype(np.float32)
    truth = features[:, 0]
    model = CostModel(loss, 1, 1)
    model.fit(features[:2], truth[:2], margin=truth[:2])
    told = model.predict(features, truth)
    assert np.corrcoef(order(told), order(truth))[0, 1] > 0.8, "two records teach nothing else"


@pytest.mark.parametrize("loss", ["reg", "rank"])
def test_one_record_and_equal_scores_can_be_fitted(loss: Loss) -> None:
    for scores in (np.ones(1), np.ones(9), np.zeros(9)):
        features = np.arange(len(scores), dtype=np.float32).reshape(-1, 1)
        model = CostModel(loss, 1, 1)
        model.fit(features, scores.astype(np.float32))
        assert np.isfinite(model.predict(features)).all()


def test_the_same_data_give_the_same_model() -> None:
    rng = np.random.default_rng(1)
    features, scores = rng.normal(size=(100, 4)).astype(np.float32), rng.random(100).astype(np.float32)
    told = []
    for _ in range(2):
        model = CostModel("reg", 5, 1)
        model.fit(features, scores)
        told.append(model.predict(features).tolist())
    assert told[0] == told[1]
