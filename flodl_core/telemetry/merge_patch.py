"""What changed between two trees of JSON values, and the way back.

What it is: a pure pair of functions after RFC 7386: a patch names what is new, null
takes a key away, and a list is replaced as a whole. A list of rows under a key that
is declared as spliced is described by what is dropped in front, kept, and added.
What it is not: a general difference of lists.
Who drives it: the recorder makes patches, the replay applies them.

Values hold no null of their own: absent is absent.
"""

from collections.abc import Collection, Mapping
from typing import Final, TypeAlias

Tree: TypeAlias = dict[str, object]
"""An object of JSON; its values are trees, lists and scalars, never None."""

SKIP: Final = "skip"
KEEP: Final = "keep"
ADD: Final = "add"


def difference(
    before: Mapping[str, object], after: Mapping[str, object], spliced: Collection[str]
) -> Tree:
    """Return the patch from `before` to `after`; empty if they are equal.

    Args:
        before: a tree without None.
        after: another one.
        spliced: keys of the outermost level whose lists are described by splices.
    """
    patch: Tree = {key: None for key in before if key not in after}
    for key, new in after.items():
        old = before.get(key)
        if old == new and type(old) is type(new):
            continue
        if isinstance(new, Mapping) and isinstance(old, Mapping):
            patch[key] = difference(old, new, ())
        elif key in spliced and isinstance(new, list) and isinstance(old, list):
            patch[key] = _splice(old, new)
        else:
            patch[key] = new
    return patch


def patched(
    before: Mapping[str, object], patch: Mapping[str, object], spliced: Collection[str]
) -> Tree:
    """Return what a patch makes of a tree; neither is changed.

    Raises:
        ValueError: the patch is not one of this tree.
    """
    after = dict(before)
    for key, change in patch.items():
        old = after.get(key)
        if change is None:
            after.pop(key, None)
        elif key in spliced and isinstance(change, Mapping):
            after[key] = _spliced(old, change)
        elif isinstance(change, Mapping):
            after[key] = patched(old if isinstance(old, Mapping) else {}, change, ())
        else:
            after[key] = change
    return after


def _splice(old: list[object], new: list[object]) -> Tree:
    """Describe a list that lost some of its front, changed or grew at its end."""
    skip = next((index for index, row in enumerate(old) if new and row == new[0]), len(old))
    keep = 0
    for row, wanted in zip(old[skip:], new, strict=False):
        if row != wanted:
            break
        keep += 1
    return {SKIP: skip, KEEP: keep, ADD: new[keep:]}


def _spliced(old: object, change: Mapping[str, object]) -> list[object]:
    skip, keep, add = change.get(SKIP), change.get(KEEP), change.get(ADD)
    if not (isinstance(old, list) and isinstance(skip, int) and isinstance(keep, int)):
        raise ValueError("a splice without a list")
    if not isinstance(add, list) or not 0 <= skip + keep <= len(old):
        raise ValueError("a splice of another list")
    return [*old[skip : skip + keep], *add]
