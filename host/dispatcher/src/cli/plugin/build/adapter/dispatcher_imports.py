"""Takes in what a project imports, since a component has no files to import from while it runs: what its
functions import is loaded when it is built. What cannot work there is refused. Knows no contract."""

import ast
import encodings
import importlib
import os
import pkgutil
import sys
import traceback

# What the Python within a component cannot do, by the name that needs it.
NO_NETWORK = "the Python within a component cannot call out over the network"
NO_THREADS = "the Python within a component has no threads and no processes"
NO_LOOP = "the Python within a component has no event loop: write `handle` without async"
UNUSABLE = {
    **dict.fromkeys(("urllib.request", "http.client", "ssl", "smtplib", "ftplib"), NO_NETWORK),
    **dict.fromkeys(("requests", "httpx", "aiohttp", "urllib3", "boto3", "botocore"), NO_NETWORK),
    **dict.fromkeys(("redis", "pymongo", "pymysql"), NO_NETWORK),
    **dict.fromkeys(("subprocess", "multiprocessing", "concurrent.futures"), NO_THREADS),
    **dict.fromkeys(("asyncio.run", "asyncio.Runner", "asyncio.new_event_loop"), NO_LOOP),
    **dict.fromkeys(("threading.Thread", "threading.Timer", "os.fork", "os.system"), NO_THREADS),
}

# A `try` that expects an import to fail.
EXPECTS = ("ImportError", "ModuleNotFoundError", "Exception", "BaseException")

# What the standard library itself imports late.
LATE = ("_strptime", "heapq", "unicodedata")

NO_FILES = "a component has no files to import from while it runs"


class Refused(Exception):
    """Why the project cannot become a component."""


class Imports(ast.NodeVisitor):
    """The imports of a module, each with whether a function does it and whether it may fail; and what
    else it names that cannot work."""

    def __init__(self, package):
        # The package to which relative imports belong.
        self.package = package
        self.found = []
        self.named = []
        self.depth = 0
        self.guards = 0

    def visit_FunctionDef(self, node):
        self.depth += 1
        self.generic_visit(node)
        self.depth -= 1

    visit_AsyncFunctionDef = visit_FunctionDef
    visit_Lambda = visit_FunctionDef

    def visit_If(self, node):
        # What only type checkers import is not imported.
        if getattr(node.test, "attr", getattr(node.test, "id", None)) == "TYPE_CHECKING":
            for child in node.orelse:
                self.visit(child)
        else:
            self.generic_visit(node)

    def visit_Try(self, node):
        is_guard = expects_failure(node)
        self.guards += is_guard
        for child in node.body:
            self.visit(child)
        self.guards -= is_guard
        for child in [*node.handlers, *node.orelse, *node.finalbody]:
            self.visit(child)

    def visit_Import(self, node):
        for alias in node.names:
            self.add(node, alias.name, None)

    def visit_ImportFrom(self, node):
        name = node.module or ""
        if node.level > 0:
            parts = self.package.split(".") if self.package else []
            parts = parts[: len(parts) - node.level + 1]
            name = ".".join([*parts, *([node.module] if node.module else [])])
        for alias in node.names:
            self.add(node, name, alias.name)

    def visit_Call(self, node):
        # `importlib.import_module("name")`
        called = getattr(node.func, "attr", getattr(node.func, "id", None))
        name = node.args[0] if node.args else None
        if called in ("import_module", "__import__") and isinstance(name, ast.Constant):
            if isinstance(name.value, str) and not name.value.startswith("."):
                self.add(node, name.value, None)
        self.generic_visit(node)

    def visit_Attribute(self, node):
        if isinstance(node.value, ast.Name):
            self.named.append((node, f"{node.value.id}.{node.attr}"))
        self.generic_visit(node)

    def add(self, node, name, member):
        self.found.append((node, name, member, self.depth > 0, self.guards > 0))


def expects_failure(node):
    """Whether a `try` handles what an import raises."""
    for handler in node.handlers:
        # One that raises again stops the import as well.
        if isinstance(handler.body[-1], ast.Raise):
            continue
        kinds = [handler.type] if not isinstance(handler.type, ast.Tuple) else handler.type.elts
        if any(kind is None or getattr(kind, "id", None) in EXPECTS for kind in kinds):
            return True
    return False


def is_loaded(name, member):
    module = sys.modules.get(name)
    if module is None:
        return False
    return member in (None, "*") or hasattr(module, member) or f"{name}.{member}" in sys.modules


def load(name, member):
    """Imports a module, and what is taken of it if that is a module as well."""
    module = importlib.import_module(name)
    if member not in (None, "*") and not hasattr(module, member):
        importlib.import_module(f"{name}.{member}")


def unusable(*names):
    """Why one of these names, or a package that it is in, cannot work."""
    for name in names:
        parts = name.split(".")
        for count in range(len(parts), 0, -1):
            reason = UNUSABLE.get(".".join(parts[:count]))
            if reason:
                return reason
    return None


class Project:
    """The modules of a project and of the packages that it has installed."""

    def __init__(self, root, generated):
        self.root = root
        # Folders with modules of neither.
        library = (os.path.dirname(module.__file__) for module in (os, ast))
        self.others = (*library, *generated)
        self.seen = set()

    def modules(self):
        """Loaded modules that have not been looked at: names, files, and the place in the project of
        its own."""
        for name, module in sorted(sys.modules.items()):
            file = getattr(module, "__file__", None) or ""
            if name in self.seen or not file.endswith(".py"):
                continue
            self.seen.add(name)
            inside = os.path.relpath(file, self.root) if file.startswith(self.root + os.sep) else ""
            if inside and not inside.startswith((".venv", "build" + os.sep)):
                yield name, file, inside
            elif not inside and not file.startswith(tuple(folder + os.sep for folder in self.others)):
                yield name, file, None

    def take_in(self):
        """Loads what functions import, and what the modules loaded by this import in turn."""
        while modules := list(self.modules()):
            for name, file, inside in modules:
                with open(file, encoding="utf-8", errors="replace") as source:
                    text = source.read()
                if inside is None:
                    take_in_package(name, text)
                else:
                    take_in_own(name, text, inside)
        for name in LATE:
            importlib.import_module(name)
        load_codecs()


def load_codecs():
    """Loads the modules of all text encodings, which Python looks up by their names."""
    for codec in pkgutil.iter_modules(encodings.__path__, "encodings."):
        try:
            importlib.import_module(codec.name)
        except ImportError:
            # Those of Windows, and those that need a library in C.
            continue


def package_of(module):
    return getattr(sys.modules.get(module), "__package__", None) or ""


def take_in_package(module, text):
    """What the functions of a package import is loaded if it can be: it may never be called."""
    imports = Imports(package_of(module))
    try:
        imports.visit(ast.parse(text))
    except SyntaxError:
        return
    for _, name, member, in_function, _ in imports.found:
        if in_function and not unusable(name) and not is_loaded(name, member):
            try:
                load(name, member)
            except (Exception, SystemExit):
                continue


def take_in_own(module, text, inside):
    imports = Imports(package_of(module))
    imports.visit(ast.parse(text))
    lines = text.splitlines()

    def refuse(node, reason):
        raise Refused(f"{inside}:{node.lineno}: {lines[node.lineno - 1].strip()}\n  {reason}")

    for node, name, member, in_function, is_guarded in imports.found:
        reason = unusable(f"{name}.{member}" if member else name)
        if reason and not is_guarded:
            refuse(node, reason)
        if reason or not in_function or is_loaded(name, member):
            continue
        try:
            load(name, member)
        except ImportError as error:
            if not is_guarded:
                refuse(node, f"{error}; {compiled(error) or NO_FILES}")
    for node, name in imports.named:
        if name in UNUSABLE and name.split(".")[0] in sys.modules:
            refuse(node, UNUSABLE[name])


def compiled(error):
    """Why an import failed within a package of compiled code; None for any other."""
    frames = traceback.extract_tb(error.__traceback__)
    for frame in reversed(frames):
        folder = os.path.dirname(frame.filename)
        if os.path.exists(os.path.join(folder, "__init__.py")) and "importlib" not in folder:
            if any(name.endswith((".so", ".pyd", ".dylib")) for _, _, names in os.walk(folder) for name in names):
                while os.path.exists(os.path.join(os.path.dirname(folder), "__init__.py")):
                    folder = os.path.dirname(folder)
                name = os.path.basename(folder)
                return compiled_package(name, importing(frames))
    return None


def importing(frames):
    """The packages of the frames of a stack, the outermost first."""
    names = []
    for frame in frames:
        # `/2/pydantic/main.py`, a package in the second folder of the path; `/0/app.py`.
        parts = frame.filename.strip("/").split("/")[1:]
        if len(parts) > 1 and not frame.filename.startswith("/python/"):
            names.append(parts[0])
    return names


def compiled_package(name, chain):
    """The sentence about a package of compiled code. `chain` has the packages that import it."""
    return f"the package {name} is compiled code, which a component cannot load{requirers(chain, name)}"


def requirers(names, name):
    """The packages through which the project comes to import `name`, the outermost first, as an addition to a
    sentence."""
    found = [one for one in dict.fromkeys(names) if one != name]
    return f"; it is required by {', which is required by '.join(reversed(found))}" if found else ""


def handler_module():
    """The project's `app.py`."""
    try:
        return importlib.import_module("app")
    except ImportError as error:
        reason = compiled(error)
        if reason:
            raise Refused(f"{error}\n  {reason}") from error
        raise
