"""Refuses a project before it is built, if one of its imports is certain to fail within a component. Only
reads the sources of the project and of its packages: runs none of them. What it does not find, the build does."""

import ast
import importlib.machinery
import os
import sys
import sysconfig

from dispatcher_imports import NO_NETWORK, UNUSABLE, Imports, Refused, compiled_package, requirers, unusable

# Imports that fail within a component, of the standard library.
MISSING = ("ssl", "_ssl")

# What to use in place of packages that do nothing without their compiled code.
INSTEAD = {
    "cryptography": "hmac and hashlib of the standard library, and leave the rest to a service",
    "lxml": "xml.etree of the standard library",
    "numpy": "math and statistics of the standard library",
    "pandas": "csv and statistics of the standard library",
    "orjson": "json of the standard library",
    "pydantic_core": "marshmallow, or dataclasses with checks of your own",
    "ujson": "json of the standard library",
}


class CertainImports(Imports):
    """The imports that a module runs when it is loaded, whatever holds then."""

    def visit_branch(self, node):
        self.guards += 1
        self.generic_visit(node)
        self.guards -= 1

    visit_If = visit_While = visit_For = visit_Match = visit_With = visit_branch


def imports_of(file, module, is_own):
    """The certain imports of a file: a line, its text, the module, and what is taken of it. Of the project's
    own files also those in functions, which the build loads, and what else cannot work."""
    with open(file, encoding="utf-8", errors="replace") as source:
        text = source.read()
    package = module if os.path.basename(file) == "__init__.py" else module.rpartition(".")[0]
    imports = CertainImports(package)
    try:
        imports.visit(ast.parse(text))
    except (SyntaxError, RecursionError):
        return []
    lines = text.splitlines()
    found = [
        (node.lineno, lines[node.lineno - 1].strip(), name, member)
        for node, name, member, in_function, is_guarded in imports.found
        if name and (is_own or not in_function) and not is_guarded
    ]
    modules = {name.split(".")[0] for _, _, name, _ in found}
    if is_own:
        found += [
            (node.lineno, lines[node.lineno - 1].strip(), name, None)
            for node, name in imports.named
            if name in UNUSABLE and name.split(".")[0] in modules
        ]
    return found


class Sources:
    """The files of modules, without the standard library."""

    def __init__(self, folders):
        self.folders = folders
        self.found = {}

    def file(self, name):
        """The file of a module; None if there is none, or its folder has no `__init__.py`."""
        if name not in self.found:
            parent, _, last = name.rpartition(".")
            above = self.file(parent) if parent else None
            folders = self.folders if not parent else [os.path.dirname(above)] if above else []
            # A component loads the source of a module that is there compiled as well.
            ends = ("/__init__.py", ".py", *importlib.machinery.EXTENSION_SUFFIXES)
            places = (os.path.join(folder, last) + end for folder in folders for end in ends)
            self.found[name] = next(filter(os.path.isfile, places), None)
        return self.found[name]


def loaded_by(name, member):
    """The modules that an import loads, in their order."""
    parts = name.split(".")
    names = [".".join(parts[:count]) for count in range(1, len(parts) + 1)]
    return [*names, f"{name}.{member}"] if member not in (None, "*") else names


def reason_of(name, file, chain):
    """Why a module cannot be loaded; None if it may be."""
    if name in MISSING:
        return f"No module named '_ssl': {NO_NETWORK}{requirers(chain, None)}"
    package = name.split(".")[0]
    is_compiled = file is not None and file.endswith(tuple(importlib.machinery.EXTENSION_SUFFIXES))
    if not is_compiled and package not in INSTEAD:
        return None
    instead = f"; use {INSTEAD[package]}" if package in INSTEAD else ""
    return f"{compiled_package(package, chain)}{instead}"


def check(root, packages):
    """Raises `Refused` with the line of the project's first import that is certain to fail."""
    sources = Sources([root, packages])
    seen = set()

    def visit(name, chain):
        """Why a module cannot be loaded; None if it may be. `chain` has the packages that import it."""
        if name in seen:
            return None
        seen.add(name)
        file = sources.file(name)
        reason = reason_of(name, file, chain)
        if reason or file is None or not file.endswith(".py"):
            return reason
        is_own = file.startswith(root + os.sep) and not file.startswith(packages + os.sep)
        below = chain if is_own else [*chain, name.split(".")[0]]
        for line, text, imported, member in imports_of(file, name, is_own):
            why = unusable(f"{imported}.{member}" if member else imported) if is_own else None
            for one in loaded_by(imported, member):
                why = why or visit(one, below)
            if why and is_own:
                raise Refused(f"{os.path.relpath(file, root)}:{line}: {text}\n  {why}")
            if why:
                return why
        return None

    visit("app", [])
    if "zoneinfo" in seen and sources.file("tzdata") is None:
        print("zoneinfo is imported: a component has no time zones unless requirements.txt lists tzdata")


if __name__ == "__main__":
    sys.setrecursionlimit(20000)
    try:
        check(os.getcwd(), sysconfig.get_path("purelib"))
    except Refused as why:
        sys.exit(str(why))
