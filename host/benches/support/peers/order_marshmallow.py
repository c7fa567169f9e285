# The same handler with marshmallow, for the peer and for the component.
from marshmallow import Schema, fields


class Order(Schema):
    id = fields.String(required=True)
    amount = fields.Integer(required=True)
    note = fields.String()


SCHEMA = Order()


def look_at(body):
    SCHEMA.loads(body)
