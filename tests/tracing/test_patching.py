"""Patches of classes, with interruptions in between any two lines."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tf_amp_kit._keras.patching import ClassPatch


def made_loud(original: Any) -> Any:
    return lambda self: original(self) + "!"


class Interrupted(type):
    """Classes that raise when an attribute is set, if they were told to."""

    when: str | None = None

    def __setattr__(cls, name: str, value: Any) -> None:
        when, Interrupted.when = Interrupted.when, None
        if when == "before":
            raise KeyboardInterrupt
        super().__setattr__(name, value)
        if when == "after":
            raise KeyboardInterrupt


@pytest.fixture
def owner() -> Any:
    class Owner(metaclass=Interrupted):
        def say(self) -> str:
            return "said"

    return Owner


def works(owner: Any, patch: ClassPatch) -> bool:
    """Whether a scope replaces the original, and puts it back."""
    before = owner().say()
    with patch.installed():
        inside = owner().say()
    return (before, inside, owner().say()) == ("said", "said!", "said")


def test_the_replacement_is_there_within_the_scope_alone(owner):
    assert works(owner, ClassPatch(owner, "say", made_loud))


def test_scopes_in_each_other_replace_once(owner):
    patch = ClassPatch(owner, "say", made_loud)
    with patch.installed():
        with patch.installed():
            assert owner().say() == "said!"
        assert owner().say() == "said!"
    assert owner().say() == "said"


def test_a_make_that_raises_leaves_the_original(owner):
    answers: list[Callable[[Any], Any] | None] = [None, made_loud]

    def make(original: Any) -> Any:
        found = answers.pop(0)
        if found is None:
            raise KeyboardInterrupt
        return found(original)

    patch, original = ClassPatch(owner, "say", make), owner.__dict__["say"]
    with pytest.raises(KeyboardInterrupt), patch.installed():
        pass
    assert owner.__dict__["say"] is original
    assert works(owner, patch)


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_interruption_while_it_is_installed_leaves_the_original(owner, when):
    patch, original = ClassPatch(owner, "say", made_loud), owner.__dict__["say"]
    Interrupted.when = when
    with pytest.raises(KeyboardInterrupt), patch.installed():
        pytest.fail("the scope was entered")
    assert owner.__dict__["say"] is original
    assert works(owner, patch)


@pytest.mark.parametrize("when", ["before", "after"])
def test_what_an_interruption_on_the_way_out_leaves_the_next_scope_takes_away(owner, when):
    patch, original = ClassPatch(owner, "say", made_loud), owner.__dict__["say"]
    with pytest.raises(KeyboardInterrupt), patch.installed():
        Interrupted.when = when
    with patch.installed():
        assert owner().say() == "said!"
    assert owner.__dict__["say"] is original


def test_an_attribute_that_is_not_there_is_said_each_time(owner):
    patch = ClassPatch(owner, "shout", made_loud)
    for _ in range(2):
        with pytest.raises(KeyError, match="shout"), patch.installed():
            pass


def test_an_error_in_the_scope_puts_the_original_back(owner):
    patch = ClassPatch(owner, "say", made_loud)
    with pytest.raises(ZeroDivisionError), patch.installed():
        _ = 1 / 0
    assert works(owner, patch)


def test_the_last_scope_of_several_threads_puts_the_original_back(owner):
    patch, is_in, may_leave = (
        ClassPatch(owner, "say", made_loud),
        *(threading.Event() for _ in range(2)),
    )

    def hold() -> None:
        with patch.installed():
            is_in.set()
            may_leave.wait(10)

    thread = threading.Thread(target=hold)
    with patch.installed():
        thread.start()
        assert is_in.wait(10)
    assert owner().say() == "said!"
    may_leave.set()
    thread.join()
    assert works(owner, patch)


def test_another_patch_on_top_stays(owner):
    patch = ClassPatch(owner, "say", made_loud)
    with patch.installed():
        ours = owner.say
        owner.say = lambda self: f"({ours(self)})"
    assert owner().say() == "(said!)"
