# The handler of the loop of boto3.
import json


def look_at(body):
    if not isinstance(json.loads(body).get("id"), str):
        raise ValueError("`id`: wanted a string")
