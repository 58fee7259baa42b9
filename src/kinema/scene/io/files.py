"""File access of model readers: allowed folders, size limits."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kinema.errors import InputError, LeftOutWarning, ModelError

SHOWN = 80  # characters of a file's content that a message quotes


def short(text: object) -> str:
    """A quotation for a message, truncated if long."""
    shown = repr(text[: SHOWN + 1]) if isinstance(text, str) else str(text)
    return shown if len(shown) <= SHOWN else shown[: SHOWN - 4] + " ..."


def read_bytes(path: str | os.PathLike[str], limit: int, where: str | None = None) -> bytes:
    """The content of a regular file.

    Args:
        path: The file.
        limit: Maximum size [bytes].
        where: Name of the file in messages; its path if None.

    Raises:
        ModelError: The file does not exist, cannot be read, is not a regular file, or is larger than `limit`.
    """
    name = where or os.fspath(path)
    try:
        # Never open a pipe or device: it could block or never end.
        if not os.path.isfile(path):
            what = "is not a regular file" if os.path.exists(path) else "there is no such file"
            raise ModelError(what, where=name, fix="give the path of a file")
        with open(path, "rb") as file:
            data = file.read(limit + 1)
    except (OSError, ValueError) as error:
        raise ModelError(f"the file cannot be read: {getattr(error, 'strerror', None) or error}", where=name) from None
    if len(data) > limit:
        raise ModelError("the file is too large", where=name, expected=f"at most {limit // 2**20} MB")
    return data


@dataclass(frozen=True)
class Places:
    """Folders whose files a model may refer to; symbolic links are resolved before the check.

    Attributes:
        folder: The model's own folder, resolved; relative names start here.
        roots: Additional folders, resolved.
        packages: Folders of `package://name/...`, resolved.
    """

    folder: str
    roots: tuple[str, ...] = ()
    packages: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(
        cls,
        model: str | os.PathLike[str],
        roots: Iterable[str | os.PathLike[str]] = (),
        packages: Mapping[str, str | os.PathLike[str]] | None = None,
    ) -> Places:
        """The places of a model file.

        Raises:
            InputError: A root is not a folder.
        """
        # Iterating over a single string would make every letter a root, including "/".
        if isinstance(roots, (str, os.PathLike)):
            roots = (roots,)
        named = tuple((name, os.path.realpath(folder)) for name, folder in (packages or {}).items())
        resolved = tuple(os.path.realpath(root) for root in roots)
        for root in (*resolved, *(folder for _, folder in named)):
            if not os.path.isdir(root):
                raise InputError("a root is not a folder", got=root, fix="give folders that exist")
        return cls(os.path.dirname(os.path.realpath(model)), resolved, named)

    @property
    def allowed(self) -> tuple[str, ...]:
        """All folders below which the model may read files."""
        return (self.folder, *self.roots, *(folder for _, folder in self.packages))

    def candidates(self, name: str, where: str) -> list[str]:
        """Unchecked paths that a name in a model file may refer to.

        Raises:
            ModelError: The name is empty or a URL.
        """
        scheme, separator, rest = name.partition("://")
        if not separator:
            rest = name
        elif scheme == "file":
            rest = rest if rest.startswith("/") else "./" + rest
        elif scheme == "package":
            package, _, inner = rest.partition("/")
            if package in dict(self.packages):
                return [os.path.join(dict(self.packages)[package], inner.lstrip("/"))]
            # Undeclared package: a folder of that name in a root, or a root of that name.
            tops = (self.folder, *self.roots)
            found = [os.path.join(top, package, inner.lstrip("/")) for top in tops]
            return found + [os.path.join(top, inner.lstrip("/")) for top in tops if os.path.basename(top) == package]
        else:
            fix = "name a file: relative to the model, package://name/... or file://..."
            raise ModelError("URLs are not supported", where=where, got=short(name), fix=fix)
        if not rest.strip():
            raise ModelError("the file name is empty", where=where, fix="name a file, or delete the element")
        return [os.path.join(folder, rest) for folder in (self.folder, *self.roots)]

    def find(self, name: str, where: str) -> Path:
        """The file that a name in a model file refers to.

        Args:
            name: As written: relative, absolute, `package://` or `file://`.
            where: Location of the name, for messages.

        Raises:
            ModelError: The name is a URL, or the file lies outside the allowed folders or does not exist.
        """
        tried = list(dict.fromkeys(os.path.realpath(path) for path in self.candidates(name, where)))
        inside = [path for path in tried if any(is_below(path, root) for root in self.allowed)]
        for path in inside:
            if os.path.isfile(path):
                return Path(path)
        if not inside:
            raise ModelError(
                "the file lies outside the folders that the model may read",
                where=where,
                got=short(name),
                expected="a file below " + ", ".join(dict.fromkeys(self.allowed)),
                fix="pass roots=(folder,) with a folder that contains it, if you trust the model",
            )
        package = name.partition("://")[2].partition("/")[0] if name.startswith("package://") else ""
        known = package in dict(self.packages)
        fix = f"pass package_roots={{{package!r}: folder}}" if package and not known else "put the file there"
        searched = "\n".join(inside)
        raise ModelError(
            "the file does not exist", where=where, got=short(name), expected=f"one of\n{searched}", fix=fix
        )


def warn_of(notes: Sequence[str], file: str) -> None:
    """Issue one warning with all notes on what a reader left out or changed; none without notes."""
    if notes:
        warnings.warn(f"{file}: {'; '.join(notes)}", LeftOutWarning, stacklevel=3)


def is_below(path: str, folder: str) -> bool:
    """Whether a resolved path is inside a resolved folder."""
    try:
        return os.path.commonpath((path, folder)) == folder
    except ValueError:  # on different drives
        return False
