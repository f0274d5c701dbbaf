"""Scopes restore, whatever happens inside and in whatever order they end."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor

import keras
import pytest

import tf_amp_kit as amp
from tests.precision.helpers import in_new_thread, keras_policy, now

pytestmark = pytest.mark.usefixtures("machine")


def test_a_scope_wins_inside_and_restores_after() -> None:
    amp.enable_amp("bf16")
    with amp.amp_scope("fp16", level="O2") as inside:
        seen = now()
    assert seen == ("mixed_float16", inside)
    assert now() == (
        "mixed_bfloat16",
        amp.AmpState("bfloat16", "O1"),
    )


def test_a_scope_that_is_not_entered_changes_nothing() -> None:
    amp.amp_scope("fp16")
    assert now() == ("float32", None)


def test_a_scope_restores_after_an_exception() -> None:
    with pytest.raises(KeyboardInterrupt), amp.amp_scope("fp16"):
        raise KeyboardInterrupt
    assert now() == ("float32", None)


def test_a_scope_restores_after_clear_session() -> None:
    amp.enable_amp("bf16")
    with amp.amp_scope("fp16"):
        keras.utils.clear_session()
    assert keras_policy() == "mixed_bfloat16"


def test_a_scope_restores_a_policy_object_of_the_user() -> None:
    policy_map = keras.dtype_policies.DTypePolicyMap(default_policy="mixed_bfloat16")
    keras.config.set_dtype_policy(policy_map)
    with amp.amp_scope("fp16"):
        pass
    assert keras.config.dtype_policy() is policy_map


def test_nested_scopes_restore_one_by_one() -> None:
    seen = []
    with amp.amp_scope("fp16"):
        with amp.amp_scope("bf16"):
            with amp.amp_scope("fp32"):
                seen.append(now())
            seen.append(now())
        seen.append(now())
    seen.append(now())
    assert seen == [
        ("float32", amp.AmpState("float32", "O0")),
        ("mixed_bfloat16", amp.AmpState("bfloat16", "O1")),
        ("mixed_float16", amp.AmpState("float16", "O1")),
        ("float32", None),
    ]


def test_enable_inside_a_scope_counts_until_its_end() -> None:
    with amp.amp_scope("fp16"):
        amp.enable_amp("bf16", level="O2")
        seen = now()
    assert seen == ("mixed_bfloat16", amp.AmpState("bfloat16", "O2"))
    assert now() == ("float32", None)


def test_enable_inside_a_nested_scope_leaves_the_outer_one_alone() -> None:
    with amp.amp_scope("fp16"):
        with amp.amp_scope("fp32"):
            amp.enable_amp("bf16")
        assert now() == (
            "mixed_float16",
            amp.AmpState("float16", "O1"),
        )


def test_disable_inside_a_scope_counts_until_its_end() -> None:
    amp.enable_amp("bf16")
    with amp.amp_scope("fp16"):
        amp.disable_amp()
        seen = now()
    assert seen == ("float32", None)
    assert now() == (
        "mixed_bfloat16",
        amp.AmpState("bfloat16", "O1"),
    )


def test_disable_inside_scopes_alone_goes_back_to_before_the_outermost() -> None:
    keras.config.set_dtype_policy("mixed_bfloat16")
    with amp.amp_scope("fp16"), amp.amp_scope("fp32"):
        amp.disable_amp()
        assert keras_policy() == "mixed_bfloat16"


def test_a_scope_is_not_seen_from_a_thread_started_inside() -> None:
    with amp.amp_scope("fp16"):
        assert in_new_thread(amp.current_amp) is None


def test_enable_in_a_thread_outlives_a_scope_elsewhere() -> None:
    with amp.amp_scope("fp16"):
        in_new_thread(lambda: amp.enable_amp("bf16"))
    assert amp.current_amp() == amp.AmpState("bfloat16", "O1")


def test_scopes_of_two_threads_do_not_meet() -> None:
    both_inside = threading.Barrier(2, timeout=10)

    def work(name: str) -> tuple[str, amp.AmpState | None]:
        with amp.amp_scope(name):
            both_inside.wait()
            return now()

    with ThreadPoolExecutor(2) as pool:
        seen = list(pool.map(work, ["fp16", "bf16"]))
    assert seen == [
        ("mixed_float16", amp.AmpState("float16", "O1")),
        ("mixed_bfloat16", amp.AmpState("bfloat16", "O1")),
    ]


def scoped(name: str) -> Iterator[str]:
    with amp.amp_scope(name):
        yield keras_policy()


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_generators_restore_in_whatever_order_they_close(order: tuple[int, int]) -> None:
    generators = [scoped("fp16"), scoped("bf16")]
    for generator in generators:
        next(generator)
    for position in order:
        generators[position].close()  # type: ignore[attr-defined]
    assert now() == ("float32", None)


def test_the_later_scope_stays_when_the_earlier_closes_first() -> None:
    first, second = scoped("fp16"), scoped("bf16")
    next(first), next(second)
    next(first, None)
    assert now() == (
        "mixed_bfloat16",
        amp.AmpState("bfloat16", "O1"),
    )
    next(second, None)


def test_an_abandoned_generator_restores() -> None:
    generator = scoped("fp16")
    next(generator)
    del generator
    gc.collect()
    assert now() == ("float32", None)


def test_a_generator_closed_elsewhere_leaves_that_thread_alone() -> None:
    generator = scoped("fp16")
    next(generator)

    def close() -> str:
        keras.config.set_dtype_policy("mixed_bfloat16")
        next(generator, None)
        return keras_policy()

    assert in_new_thread(close) == "mixed_bfloat16"
    assert amp.current_amp() is None


def test_a_task_sees_its_own_scope() -> None:
    async def task(name: str) -> amp.AmpState | None:
        with amp.amp_scope(name):
            await asyncio.sleep(0)
            return amp.current_amp()

    async def both() -> list[amp.AmpState | None]:
        return list(await asyncio.gather(task("fp16"), task("bf16")))

    assert asyncio.run(both()) == [
        amp.AmpState("float16", "O1"),
        amp.AmpState("bfloat16", "O1"),
    ]
    assert now() == ("float32", None)


def test_a_task_that_outlives_its_scope_no_longer_sees_it() -> None:
    async def late(closed: asyncio.Event) -> amp.AmpState | None:
        await closed.wait()
        return amp.current_amp()

    async def main() -> amp.AmpState | None:
        closed = asyncio.Event()
        with amp.amp_scope("fp16"):
            task = asyncio.create_task(late(closed))
        closed.set()
        return await task

    assert asyncio.run(main()) is None


def test_an_async_generator_left_open_restores_when_the_loop_ends() -> None:
    async def numbers() -> AsyncIterator[int]:
        with amp.amp_scope("fp16"):
            yield 1
            yield 2

    async def main() -> None:
        async for _ in numbers():
            break

    asyncio.run(main())
    assert now() == ("float32", None)


@pytest.mark.parametrize("switch_off", [False, True])
def test_a_request_of_another_task_survives_a_scope_around_it(switch_off: bool) -> None:
    async def request() -> None:
        amp.enable_amp("bf16")
        if switch_off:
            amp.disable_amp()

    async def scope_around(entered: asyncio.Event, done: asyncio.Event) -> None:
        with amp.amp_scope("fp16"):
            entered.set()
            await done.wait()

    async def main() -> None:
        entered, done = asyncio.Event(), asyncio.Event()
        outer = asyncio.create_task(scope_around(entered, done))
        await entered.wait()
        await asyncio.create_task(request())
        done.set()
        await outer

    asyncio.run(main())
    expected = (
        ("float32", None) if switch_off else ("mixed_bfloat16", amp.AmpState("bfloat16", "O1"))
    )
    assert now() == expected
