"""Keeps the data files of packages and of the project in the component, which has no other files while it
runs: `open`, `importlib.resources`, `pkgutil.get_data` and `os.path` read them there."""

import _io
import builtins
import importlib
import io
import os
import pkgutil
import stat
import sys

# More bytes in all stop the build: they would be in the memory of every instance.
MOST = 16 * 1024 * 1024

# What a component needs no copy of: code, and what is beside a project's sources.
CODE = (".py", ".pyc", ".pyi", ".so", ".pyd", ".dylib", ".wasm", ".c", ".h", ".pyx", ".pxd")
NO_DATA = ("node_modules", "build", "dist", "wit", "target", "tests", "__pycache__", "dispatcher_guest")
NO_FILES = ("requirements.txt", "pyproject.toml", "README.md")

files = {}
folders = {}
# The project's folder, to which relative paths belong.
root_folder = "/"


class TooLarge(Exception):
    """Why the files do not fit into the component."""


def _add(path):
    with _original_open(path, "rb") as file:
        files[path] = file.read()
    while path != "/":
        folder, name = os.path.split(path)
        folders.setdefault(folder, set()).add(name)
        path = folder


def _is_data(name):
    return not name.endswith(CODE) and not name.startswith(".") and name not in NO_FILES


def keep(root, others):
    """Reads the data files of the loaded packages, and those of the project in `root`. Folders in `others`
    have modules of neither."""
    global root_folder
    root_folder = root
    if "zoneinfo" in sys.modules:
        _load_time_zones()
    packages = set()
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None) or ""
        if "." in name or not file.endswith("__init__.py"):
            continue
        folder = os.path.dirname(file)
        if not folder.startswith(tuple(other + os.sep for other in others)) and folder not in others:
            packages.add(folder)
    found, seen = {}, set()
    for top in [*sorted(packages), root]:
        # A package of the project is below its folder as well.
        found[top] = [path for path in _data_files(top) if path not in seen]
        seen.update(found[top])
    sizes = {top: sum(os.path.getsize(path) for path in paths) for top, paths in found.items()}
    if sum(sizes.values()) > MOST:
        largest = max(sizes, key=sizes.get)
        raise TooLarge(
            f"{os.path.basename(largest)}: {sizes[largest]} bytes of data files, of {sum(sizes.values())} in "
            f"all; a component keeps at most {MOST}, since every instance has them in memory"
        )
    for path in (path for paths in found.values() for path in paths):
        _add(path)


def _data_files(top):
    for folder, inner, names in os.walk(top):
        inner[:] = [one for one in inner if one not in NO_DATA and not one.startswith(".")]
        for name in filter(_is_data, names):
            yield os.path.join(folder, name)


def _load_time_zones():
    """Loads the packages of `tzdata`, whose files `zoneinfo` looks up by their packages."""
    try:
        tzdata = importlib.import_module("tzdata")
    except ImportError:
        return
    for one in pkgutil.walk_packages(tzdata.__path__, "tzdata."):
        importlib.import_module(one.name)


def _place(path):
    try:
        return os.path.normpath(os.path.join(root_folder, os.fsdecode(path)))
    except TypeError:
        # A number of an open file.
        return None


_original_open = builtins.open
_original_open_code = io.open_code
_original_stat = os.stat
_original_listdir = os.listdir
_original_scandir = os.scandir


def _open(file, mode="r", buffering=-1, encoding=None, errors=None, newline=None, closefd=True, opener=None):
    data = files.get(_place(file))
    if data is None or set(mode) - set("rbt"):
        return _original_open(file, mode, buffering, encoding, errors, newline, closefd, opener)
    binary = io.BytesIO(data)
    return binary if "b" in mode else io.TextIOWrapper(binary, encoding or "utf-8", errors, newline)


def _open_code(path):
    data = files.get(_place(path))
    return _original_open_code(path) if data is None else io.BytesIO(data)


def _stat(path, *, dir_fd=None, follow_symlinks=True):
    place = _place(path)
    if place in files:
        return os.stat_result((stat.S_IFREG | 0o444, 0, 0, 1, 0, 0, len(files[place]), 0, 0, 0))
    if place in folders:
        return os.stat_result((stat.S_IFDIR | 0o555, 0, 0, 1, 0, 0, 0, 0, 0, 0))
    return _original_stat(path, dir_fd=dir_fd, follow_symlinks=follow_symlinks)


def _listdir(path="."):
    place = _place(path)
    return sorted(folders[place]) if place in folders else _original_listdir(path)


class _Entry:
    """One entry of a folder, as `os.scandir` returns it."""

    def __init__(self, folder, name):
        self.name = name
        self.path = os.path.join(os.fsdecode(folder), name)

    def __fspath__(self):
        return self.path

    def is_dir(self, *, follow_symlinks=True):
        return _place(self.path) in folders

    def is_file(self, *, follow_symlinks=True):
        return _place(self.path) in files

    def is_symlink(self):
        return False

    def stat(self, *, follow_symlinks=True):
        return _stat(self.path)


class _Entries(list):
    def __enter__(self):
        return iter(self)

    def __exit__(self, *_):
        return None


def _scandir(path="."):
    place = _place(path)
    if place not in folders:
        return _original_scandir(path)
    return _Entries(_Entry(path, name) for name in sorted(folders[place]))


def serve():
    """Has the functions that read files find the kept ones. The last step of a build."""
    builtins.open = io.open = _io.open = _open
    io.open_code = _io.open_code = _open_code
    os.stat = os.lstat = _stat
    os.listdir = _listdir
    os.scandir = _scandir

