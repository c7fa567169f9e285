"""One use of each package, by the message's body. `packages.rs` builds and runs it."""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import arrow
import attr
import bs4
import dateutil.parser
import jinja2
import jsonschema
import markdown
import marshmallow
import more_itertools
import pytz
import slugify
import sqlalchemy
import sqlparse
import tomlkit
import xmltodict
import yaml

if TYPE_CHECKING:
    # Which a component cannot import.
    import boto3

session: "boto3.Session | None" = None


@attr.s(auto_attribs=True)
class Point:
    x: int


class Order(marshmallow.Schema):
    amount = marshmallow.fields.Integer(required=True)


TRIED = {
    # No package: encodings that nothing used before.
    "encodings": lambda: "é".encode("cp850") == b"\x82" and "ü".encode("utf-7") == b"+APw-",
    "PyYAML": lambda: yaml.safe_load("a: [1, 2]")["a"] == [1, 2],
    "jsonschema": lambda: jsonschema.Draft7Validator({"type": "object"}).validate({}) is None,
    "marshmallow": lambda: Order().load({"amount": "7"}) == {"amount": 7},
    "attrs": lambda: Point(3).x == 3,
    "python-dateutil": lambda: dateutil.parser.parse("2026-11-28T10:00:00Z").year == 2026,
    "pytz": lambda: pytz.timezone("Europe/Berlin").zone == "Europe/Berlin",
    "tzdata": lambda: datetime(2026, 7, 1, tzinfo=ZoneInfo("Europe/Berlin")).utcoffset() == timedelta(hours=2),
    "Jinja2": lambda: jinja2.Template("{{ 'hello' }} {{ name }}").render(name="Ada") == "hello Ada",
    "Markdown": lambda: markdown.markdown("*a*") == "<p><em>a</em></p>",
    "beautifulsoup4": lambda: bs4.BeautifulSoup("<p>a</p>", "html.parser").p.text == "a",
    "tomlkit": lambda: tomlkit.parse("a = 1")["a"] == 1,
    "xmltodict": lambda: xmltodict.parse("<a><b>1</b></a>")["a"]["b"] == "1",
    "arrow": lambda: arrow.get("2026-11-28").to("Europe/Berlin").hour == 1,
    "more-itertools": lambda: list(more_itertools.chunked([1, 2, 3], 2)) == [[1, 2], [3]],
    "python-slugify": lambda: slugify.slugify("Grüße!") == "grusse",
    # Has modules that are compiled and there as source as well.
    "SQLAlchemy": lambda: str(sqlalchemy.select(sqlalchemy.column("id"))) == "SELECT id",
    "sqlparse": lambda: len(sqlparse.split("select 1; select 2")) == 2,
}


def handle(message):
    print(f"{message.body} {TRIED[message.body]()}")
