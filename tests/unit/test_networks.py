"""The list of trained networks that benchmarks use."""

import networks


def test_halves_follow_the_fixed_rule() -> None:
    listed = networks.networks()
    assert {n.name: n.half for n in listed} == {n.name: networks.half_of(n.of or n.name) for n in listed}


def test_names_and_files_are_unique() -> None:
    listed = networks.networks()
    files = {(network.sha256, network.how) for network in listed}
    assert len({network.name for network in listed}) == len(files) == len(listed)


def test_each_half_has_enough_networks_of_several_kinds() -> None:
    for half in ("training", "test"):
        chosen = networks.networks(half=half)
        assert len(chosen) >= 15
        assert len({network.kind for network in chosen}) >= 4


def test_values_are_given_for_inputs_that_have_shapes() -> None:
    for network in networks.networks():
        assert set(network.values) <= set(network.shapes), network.name
