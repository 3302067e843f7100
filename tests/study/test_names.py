"""Study names: from a search, a loss and a stage, and back."""

import pytest

from search.stages import Stage, loss_of, search_of, study_name, trainings_of


@pytest.mark.parametrize("stage", Stage)
def test_a_name_gives_back_what_it_is_made_of(stage: Stage) -> None:
    name = study_name("birds-2", "proxy_anchor", stage)
    assert (search_of(name), loss_of(name), trainings_of(name)) == ("birds-2", "proxy_anchor", stage.trainings)


def test_the_names_of_a_loss_s_studies_differ() -> None:
    assert len({study_name("birds", "pnp", stage) for stage in Stage}) == len(Stage)
