"""Model state on disk: safetensors and a SHA-256 manifest. No pickle; a flipped bit is refused."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from coterie.algorithms.rowstore import RowStore
from coterie.errors import CoterieError

MANIFEST = "manifest.json"
_FORMAT = 2  # 2: the manifest seals itself whole


def save(directory: Path, state: Any, about: dict[str, Any]) -> str:
    """Write arrays and manifest into `directory` (which must not exist yet) and return the model's hash."""
    directory.mkdir(parents=True)
    plain: dict[str, np.ndarray] = {}
    hashes: dict[str, str] = {}

    def write(name: str, arrays: dict[str, np.ndarray]) -> None:
        path = directory / name
        save_arrays(path, arrays)
        hashes[name] = _hash(path)

    for name, value in leaves(state):
        if isinstance(value, RowStore):
            for number, shard in enumerate(value.shards()):
                write(f"{name}-{number:04d}.safetensors", shard)
        else:
            plain[name] = value
    write("arrays.safetensors", plain)
    model_hash = hashlib.sha256(json.dumps(hashes, sort_keys=True).encode()).hexdigest()
    manifest = {"format": _FORMAT, "sha256": model_hash, "files": hashes, **about}
    manifest["seal"] = _seal(manifest)
    write_json(directory / MANIFEST, manifest)
    return model_hash


def save_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """One safetensors file, on the disk when this returns."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    try:
        save_file({key: np.ascontiguousarray(value) for key, value in arrays.items()}, path)
    except SafetensorError as problem:  # safetensors wraps the system's error: a full disk, mostly
        raise OSError(f"cannot write {path}: {problem}") from problem
    _sync(path)


def load(directory: Path, template: Any) -> Any:
    """Read a state of the template's shape, checking every byte and every number."""
    from safetensors.numpy import load_file

    manifest = check(directory)
    plain = load_file(directory / "arrays.safetensors")
    found: dict[str, Any] = {}
    for name, value in leaves(template):
        if isinstance(value, RowStore):
            files = sorted(one for one in manifest["files"] if one.startswith(f"{name}-"))
            found[name] = RowStore.from_shards(load_file(directory / one) for one in files)
            continue
        if name not in plain:
            raise CoterieError(f"{directory}: no array {name!r}; it was written by another algorithm or version")
        array = plain[name]
        if array.dtype != value.dtype:
            raise CoterieError(f"{directory}: {name} is {array.dtype}, expected {value.dtype}")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise CoterieError(f"{directory}: {name} holds numbers that are not finite")
        found[name] = array
    return rebuild(template, found)


def check(directory: Path) -> dict[str, Any]:
    """Hash every file; the manifest, if all is as it was written."""
    manifest = read_manifest(directory)
    for name, expected in manifest["files"].items():
        path = directory / name
        if not path.is_file():
            raise CoterieError(f"{path}: missing, though the manifest names it; this copy of the model is incomplete")
        if _hash(path) != expected:
            raise CoterieError(f"{path}: its SHA-256 is not the manifest's: the file is damaged; use another copy")
    return manifest


def read_manifest(directory: Path) -> dict[str, Any]:
    """The manifest, its own hash checked."""
    path = directory / MANIFEST
    try:
        text = path.read_text()
        manifest = json.loads(text)
        files, version = manifest["files"], manifest["format"]
    except FileNotFoundError:
        raise CoterieError(f"{directory}: no {MANIFEST}; this is not a saved model") from None
    except (ValueError, KeyError, TypeError):
        raise CoterieError(f"{path}: damaged: it is not a manifest of ours") from None
    if version != _FORMAT:
        raise CoterieError(
            f"{path}: format {version}, written by coterie {manifest.get('version', 'unknown')}; this version reads "
            f"format {_FORMAT}"
        )
    if not isinstance(files, dict) or manifest.get("seal") != _seal(manifest) or text != _text(manifest):
        raise CoterieError(f"{path}: damaged: it does not match its own seal; use another copy")
    if any("/" in name or name.startswith(".") for name in files):
        raise CoterieError(f"{path}: names a file outside its folder")
    result: dict[str, Any] = manifest
    return result


def leaves(state: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted name, array or row store) of nested NamedTuples."""
    if isinstance(state, (np.ndarray, RowStore)):
        yield prefix, state
        return
    for field in getattr(state, "_fields", ()):
        yield from leaves(getattr(state, field), f"{prefix}.{field}" if prefix else field)


def rebuild(template: Any, found: dict[str, Any]) -> Any:
    """Nested NamedTuples like the template, with other arrays by their dotted names."""
    return _rebuild(template, "", found)


def _rebuild(template: Any, prefix: str, found: dict[str, Any]) -> Any:
    if isinstance(template, (np.ndarray, RowStore)):
        return found[prefix]
    if not hasattr(template, "_fields"):
        return template
    names = (f"{prefix}.{field}" if prefix else field for field in template._fields)
    return type(template)(*(_rebuild(value, name, found) for value, name in zip(template, names, strict=True)))


def copy(state: Any, into: Any = None) -> Any:
    """A state that shares nothing with this one, in the memory of `into`, a former copy, where that fits."""
    former = {} if into is None else dict(leaves(into))
    return rebuild(state, {name: _copied(one, former.get(name)) for name, one in leaves(state)})


def _copied(value: Any, into: Any) -> Any:
    if isinstance(value, RowStore):
        return value.copy(into)
    if into is None or into.shape != value.shape or into.dtype != value.dtype:
        return value.copy()
    np.copyto(into, value)  # fresh memory is several times as slow, since the system has to find it first
    return into


def nbytes(state: Any) -> int:
    return sum(int(value.nbytes) for _, value in leaves(state))


def finite(state: Any, largest: int | None = None) -> str | None:
    """The first array that holds a number that is not finite, if any, of those with at most `largest` bytes.

    Private rows are seen through their loss.
    """
    for name, value in leaves(state):
        if not isinstance(value, np.ndarray) or value.dtype.kind != "f":
            continue
        if largest is not None and value.nbytes > largest:
            continue
        with np.errstate(over="ignore", invalid="ignore"):
            total = value.sum()  # of finite numbers if it is finite; if not, it may have overflown
        if not np.isfinite(total) and not np.isfinite(value).all():
            return name
    return None


def _seal(manifest: dict[str, Any]) -> str:
    """A hash of all the manifest says, but for the seal itself."""
    said = {key: value for key, value in manifest.items() if key != "seal"}
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _text(value: Any) -> str:
    return json.dumps(value, indent=1, allow_nan=False) + "\n"


def write_json(path: Path, value: Any) -> None:
    """Atomic: the file is the old one or the new one, never half."""
    part = path.with_name(path.name + ".part")
    with part.open("w") as file:
        file.write(_text(value))
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    _sync(path.parent)
