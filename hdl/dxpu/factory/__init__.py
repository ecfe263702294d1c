"""Who a device is from its making on: address, serial number and key, out of its flash."""

from .reader import FactoryReader
from .record import (
    DEFAULT_MAC, FIELDS, MAGIC, RECORD_BYTES, FactoryRecord, FactoryState, RecordError, is_record,
    mac_text,
)

__all__ = ["DEFAULT_MAC", "FIELDS", "MAGIC", "RECORD_BYTES", "FactoryReader", "FactoryRecord",
           "FactoryState", "RecordError", "is_record", "mac_text"]
