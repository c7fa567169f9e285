"""Reads the YAML documents of standard input and prints them as a list in JSON. Those of Kubernetes
are checked against its schemas first, or against the one that the folder in the first argument has
for their kind; what has neither fails."""

import json
import pathlib
import sys

import yaml

documents = [one for one in yaml.safe_load_all(sys.stdin) if one is not None]
if len(sys.argv) > 1:
    import jsonschema
    import kubernetes_validate

    folder = pathlib.Path(sys.argv[1])
    for one in documents:
        own = folder / f"{one['apiVersion'].replace('/', '_')}_{one['kind']}.json"
        if own.exists():
            jsonschema.validate(one["spec"], json.loads(own.read_text()))
        else:
            kubernetes_validate.validate(one, "1.37.0", strict=True)
json.dump(documents, sys.stdout)
