"""Refuses a project before it is built, if one of its imports is certain to fail within a component. Only
reads the sources of the project and of its packages: runs none of them. What it does not find, the build does."""

import ast
import importlib.machinery
import os
import sys
import sysconfig

from dispatcher_imports import NO_NETWORK, Imports, Refused, requirers_of, unusable

# Imports that fail within a component, of the standard library.
MISSING = ("ssl", "_ssl")

# What to use in place of packages of compiled code.
INSTEAD = {
    "cryptography": "hmac and hashlib of the standard library, and leave the rest to a service",
    "lxml": "xml.etree of the standard library",
    "numpy": "math and statistics of the standard library",
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


def imports_of(file, module):
    """The certain imports of a file: a line, its text, the module, and what is taken of it."""
    with open(file, encoding="utf-8", errors="replace") as source:
        text = source.read()
    package = module if os.path.basename(file) == "__init__.py" else module.rpartition(".")[0]
    imports = CertainImports(package)
    try:
        imports.visit(ast.parse(text))
    except (SyntaxError, RecursionError):
        return []
    lines = text.splitlines()
    return [
        (node.lineno, lines[node.lineno - 1].strip(), name, member)
        for node, name, member, in_function, is_guarded in imports.found
        if name and not in_function and not is_guarded
    ]


class Sources:
    """The files of modules, without the standard library."""

    def __init__(self, folders):
        self.folders = folders
        self.found = {}

    def file(self, name):
        """The file of a module; None if there is none, or its folder has no `__init__.py`."""
        if name not in self.found:
            parent = name.rpartition(".")[0]
            above = self.file(parent) if parent else None
            folders = self.folders if not parent else [os.path.dirname(above)] if above else []
            spec = importlib.machinery.PathFinder.find_spec(name, folders) if folders else None
            self.found[name] = spec.origin if spec is not None and spec.has_location else None
        return self.found[name]


def loaded_by(name, member):
    """The modules that an import loads, in their order."""
    parts = name.split(".")
    names = [".".join(parts[:count]) for count in range(1, len(parts) + 1)]
    return [*names, f"{name}.{member}"] if member not in (None, "*") else names


def reason_of(name, file, chain):
    """Why a module cannot be loaded; None if it may be."""
    if name in MISSING:
        return f"No module named '_ssl': {NO_NETWORK}{requirers_of(chain, None)}"
    if file is None or not file.endswith(tuple(importlib.machinery.EXTENSION_SUFFIXES)):
        return None
    package = name.split(".")[0]
    instead = f"; use {INSTEAD[package]}" if package in INSTEAD else ""
    required = requirers_of(chain, package)
    return f"the package {package} is compiled code, which a component cannot load{required}{instead}"


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
        for line, text, imported, member in imports_of(file, name):
            why = unusable(f"{imported}.{member}" if member else imported) if is_own else None
            for one in loaded_by(imported, member):
                why = why or visit(one, below)
            if why and is_own:
                raise Refused(f"{os.path.relpath(file, root)}:{line}: {text}\n  {why}")
            if why:
                return why
        return None

    visit("app", [])


if __name__ == "__main__":
    sys.setrecursionlimit(20000)
    try:
        check(os.getcwd(), sysconfig.get_path("purelib"))
    except Refused as why:
        sys.exit(str(why))
