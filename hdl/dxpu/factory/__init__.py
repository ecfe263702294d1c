"""Factory data of a device, from its flash: MAC address, serial number and key."""

from .node_key import NODE_KEY_BYTES, NodeKey
from .reader import FactoryReader
from .record import (
    DEFAULT_MAC, FIELDS, MAGIC, RECORD_BYTES, FactoryRecord, FactoryState, RecordError, is_record,
    mac_text,
)

__all__ = ["DEFAULT_MAC", "FIELDS", "MAGIC", "NODE_KEY_BYTES", "RECORD_BYTES", "FactoryReader",
           "FactoryRecord", "FactoryState", "NodeKey", "RecordError", "is_record", "mac_text"]
