"""Does the fragmentation map show what the allocators hold?"""

from __future__ import annotations

from sim.memory.allocators.base import Allocator
from sim.memory.allocators.block_tables import PagedAllocator
from sim.memory.allocators.buddy import BuddyAllocator
from sim.memory.allocators.growth import GrowthAllocator
from sim.memory.allocators.paged import BlockPool
from sim.memory.allocators.static import StaticAllocator
from sim.report.plots import address_space, segments, style

POOL, BLOCK = 1024, 16


def used() -> dict[str, Allocator]:
    """The same five sequences under each, the second and the fourth over again."""
    allocators: dict[str, Allocator] = {
        "static": StaticAllocator(POOL, 200), "growth": GrowthAllocator(POOL), "buddy": BuddyAllocator(POOL, BLOCK),
        "paged": PagedAllocator(BlockPool(POOL // BLOCK, BLOCK))}
    for allocator in allocators.values():
        for number, tokens in enumerate((100, 60, 130, 30, 90)):
            allocator.extend(number, tokens)
        allocator.free(1)
        allocator.free(3)
    return allocators


def test_segments_are_a_frame_that_covers_every_pool() -> None:
    allocators = used()
    frame = segments(allocators)
    assert list(frame.columns) == ["allocator", "start", "end", "use", "sequence"]
    assert list(frame["allocator"].unique()) == list(allocators)
    sizes = (frame["end"] - frame["start"]).groupby([frame["allocator"], frame["use"]]).sum()
    for name, allocator in allocators.items():
        stats = allocator.stats()
        assert sizes[name].sum() == POOL
        assert sizes[name, "useful"] == stats.useful == 320
        assert sizes[name].get("hole", 0) == stats.free
    assert frame.loc[frame["use"] == "hole", "sequence"].isna().all()


def test_the_map_has_a_row_an_allocator_and_says_how_much_is_useful() -> None:
    frame = segments(used())
    figure, ax = style.figure(7.4, 3.6)
    assert address_space(frame, ax, request=256, block_tokens={"paged": BLOCK}) is ax
    assert [text.get_text() for text in ax.get_yticklabels()] == ["static", "growth", "buddy", "paged"]
    notes = [text.get_text() for text in ax.texts]
    assert len(notes) == 4
    assert all("31% of the pool useful" in note for note in notes)
    assert "53% of what is allocated" in notes[0]
    assert "0% of free too scattered" in notes[3]
    assert style.svg(figure).startswith("<svg")
    assert not any("scattered" in text.get_text() for text in address_space(frame, style.figure()[1]).texts)


def test_an_empty_map_is_drawn_too() -> None:
    ax = address_space(segments({}), style.figure()[1])
    assert ax.get_xlabel() == "place in the pool (tokens)"


def test_it_is_public_and_in_the_gallery() -> None:
    import sim
    from sim.report.plots import gallery

    assert sim.plots.address_space is address_space
    frame = gallery.worn_pools()
    assert list(frame["allocator"].unique()) == ["static", "growth", "buddy", "paged"]
    left = frame[frame["use"] == "useful"].groupby("allocator")["sequence"].unique()
    assert {tuple(sorted(set(found.dropna()))) for found in left} == {(0, 2, 4, 6, 7)}
