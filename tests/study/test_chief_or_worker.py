import pytest
from kdist.errors import UserError
from kdist.study.parallel import Role, read_role, refuse_own_processes, role_variables


@pytest.mark.parametrize(
    ("tuner_id", "chief", "worker"), [("chief", True, False), ("worker0", False, True)]
)
def test_a_process_reads_the_role_that_it_was_given(tuner_id, chief, worker):
    role = read_role(role_variables(tuner_id, ip="127.0.0.1", port=4000))
    assert (role.tuner_id, role.is_chief, role.is_worker) == (tuner_id, chief, worker)


def test_a_name_alone_makes_no_worker():
    role = read_role({"KERASTUNER_TUNER_ID": "worker0"})
    assert role == Role()
    assert not role.is_chief
    assert not role.is_worker


@pytest.mark.parametrize("missing", ["KERASTUNER_TUNER_ID", "KERASTUNER_ORACLE_PORT"])
def test_the_variables_go_together(missing):
    variables = role_variables("chief", ip="127.0.0.1", port=4000)
    del variables[missing]
    with pytest.raises(UserError, match=f"without {missing}: set it too"):
        read_role(variables)


def test_only_a_search_without_a_chief_starts_processes():
    refuse_own_processes(Role(), per_trial=1)
    refuse_own_processes(Role("chief"), per_trial=None)
    with pytest.raises(UserError, match="received per_trial=1 and KERASTUNER_ORACLE_IP"):
        refuse_own_processes(Role("chief"), per_trial=1)
