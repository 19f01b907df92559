import pytest

from bosch import BoschError
from bosch.common.lookup import lookup

KNOWN = {"niah_single_1": 1, "niah_multikey_1": 2}


def test_known_name_gives_its_entry():
    assert lookup("task", "niah_multikey_1", KNOWN) == 2


def test_typo_names_the_nearest_entry_and_all_entries():
    message = r"^unknown task 'niah_single1'; did you mean 'niah_single_1'\? known: niah_single_1, niah_multikey_1$"
    with pytest.raises(BoschError, match=message):
        lookup("task", "niah_single1", KNOWN)


@pytest.mark.parametrize("name", ["", "zzz", None, 3])
def test_name_unlike_any_other_lists_all_entries(name):
    with pytest.raises(BoschError, match=r"^unknown task .*; known: niah_single_1, niah_multikey_1$"):
        lookup("task", name, KNOWN)
