"""Classes of settings behave as the frozen dataclasses that they look like."""

import copy
import dataclasses
import pickle
from pathlib import Path
from typing import Any

import pytest

from flintmq.format.wire.command import Command
from flintmq.model.value_class import FieldEquality, NamedFields, Value, named_fields, value_class
from flintmq.settings.tls_settings import TlsSettings


@value_class
class Base(Value):
    """Settings that others add to."""

    root: Path
    count: int = 3


@value_class
class Derived(Base):
    """Settings with a default that is made, and with a check."""

    names: list[str] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        if self.count < 0:
            raise ValueError(self.count)


@named_fields
class Shared(NamedFields):
    """What several parts of a server share."""

    root: Path
    count: int = 3
    names: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class Made(FieldEquality):
    """What is made often."""

    name: str
    note: str = dataclasses.field(default="", compare=False)
    secret: str = dataclasses.field(default="", repr=False)


def test_what_is_not_given_has_its_default_and_made_defaults_are_not_shared() -> None:
    one, other = Derived(root=Path("a")), Derived(root=Path("a"))
    assert (one.root, one.count, one.names) == (Path("a"), 3, [])
    assert one.names is not other.names
    assert Derived(root=Path("a"), names=["x"]).names == ["x"]


@pytest.mark.parametrize("wrong", [{}, {"root": Path("a"), "cuont": 1}, {"count": 1}])
def test_a_setting_that_is_missing_or_unknown_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=r"Derived\(\): unknown or missing: (root|cuont)"):
        Derived(**wrong)


def test_nothing_can_be_assigned_or_deleted() -> None:
    settings = Derived(root=Path("a"))
    with pytest.raises(dataclasses.FrozenInstanceError, match="count"):
        settings.count = 4  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError, match="count"):
        del settings.count
    assert settings.count == 3


def test_replace_checks_the_new_values_and_leaves_the_old_settings() -> None:
    settings = Derived(root=Path("a"), names=["x"])
    changed = dataclasses.replace(settings, count=5)
    assert (changed.root, changed.count, changed.names) == (Path("a"), 5, ["x"])
    assert settings.count == 3
    with pytest.raises(ValueError, match="-1"):
        dataclasses.replace(settings, count=-1)
    assert [field.name for field in dataclasses.fields(Derived)] == ["root", "count", "names"]


def test_equal_settings_are_equal_also_after_a_copy() -> None:
    settings = Base(root=Path("a"))
    assert settings == Base(root=Path("a"), count=3)
    assert hash(settings) == hash(Base(root=Path("a"), count=3))
    assert settings != Base(root=Path("b"))
    assert settings != Derived(root=Path("a"))
    tls = TlsSettings(tls_enable="true")
    assert pickle.loads(pickle.dumps(tls)) == tls
    assert copy.copy(tls) == tls


def test_passwords_are_not_shown() -> None:
    shown = repr(TlsSettings(tls_server_key_password="secret", tls_enable="true"))
    assert shown.startswith("TlsSettings(")
    assert "tls_enable='true'" in shown
    assert "secret" not in shown
    assert "tls_server_key_password" not in shown


def test_named_fields_can_be_assigned_and_equal_only_themselves() -> None:
    one, other = Shared(root=Path("a")), Shared(root=Path("a"))
    assert (one.root, one.count, one.names) == (Path("a"), 3, [])
    assert one.names is not other.names
    assert one != other
    one.count = 4
    assert dataclasses.replace(one, root=Path("b")).count == 4
    with pytest.raises(AttributeError):
        one.cuont = 5  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [({}, "missing: root"), ({"root": Path("a"), "cuont": 1}, "unknown: cuont")],
)
def test_a_named_field_that_is_missing_or_unknown_is_refused(
    wrong: dict[str, Any], said: str
) -> None:
    with pytest.raises(TypeError, match=rf"Shared\(\): {said}"):
        Shared(**wrong)


def test_fields_decide_what_is_equal_and_what_is_shown() -> None:
    assert Made("a", note="x") == Made("a", note="y")
    assert Made("a") != Made("a", secret="x")
    assert Made("a") != "a"
    assert repr(Made("a", secret="x")) == "Made(name='a', note='')"
    with pytest.raises(TypeError, match="unhashable"):
        hash(Made("a"))


def test_commands_have_no_room_for_other_members() -> None:
    assert not hasattr(Command(code=1), "__dict__")
