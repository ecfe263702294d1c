-- The protocols and their fields, as filters name them.
--
-- Names of fields of a TLP end as those of Antmicro's dissector do, where they mean the same.

local fields = {dxf = {}, tlp = {}, experts = {}}

local protocols = {
  dxf = Proto("dxf", "DXF, PCIe over Ethernet"),
  tlp = Proto("tlp", "PCIe TLP"),
}
fields.protocols = protocols

local listed = {dxf = {}, tlp = {}}

-- Makes a field; `kind` is the name of a function of ProtoField.
local function add(protocol, name, kind, ...)
  local made = ProtoField[kind](protocol .. "." .. name, ...)
  fields[protocol][name] = made
  table.insert(listed[protocol], made)
end

local function add_expert(protocol, name, text, group, severity)
  local made = ProtoExpert.new(protocol .. "." .. name, text, group, severity)
  fields.experts[protocol .. "." .. name] = made
  table.insert(listed[protocol .. " experts"], made)
end
listed["dxf experts"], listed["tlp experts"] = {}, {}

-- The name of a field in filters: that of the wire format, in small letters.
function fields.name(text) return string.lower((string.gsub(text, "[ -]", "_"))) end

-- Fields of DXF that a table describes: their places, and the values with names.
local KINDS = {[1] = "uint8", [2] = "uint16", [3] = "uint24", [4] = "uint32", [8] = "uint64"}

local function add_rows(rows, prefix)
  for _, row in ipairs(rows) do
    local name = fields.name(prefix .. row.name)
    if not fields.dxf[name] and row.name ~= "zero" and not row.class then
      local whole = row.size * 8
      local mask = row.width and row.width < whole and
        (2 ^ row.width - 1) * 2 ^ row.lsb or nil
      local shown = row.is_hex and base.HEX or base.DEC
      if row.width == 1 then
        add("dxf", name, "bool", row.name, 8, nil, mask)
      elseif KINDS[row.size] then
        add("dxf", name, KINDS[row.size], row.name, shown, row.values, mask)
      else
        add("dxf", name, "bytes", row.name)
      end
    end
  end
end

for _, row in ipairs(tables.header_fields) do
  if row.offset >= 14 then add_rows({row}, "") end
end
add("dxf", "crc", "uint32", "CRC-32C", base.HEX)
add("dxf", "binding", "uint32", "Binding word", base.HEX)
add("dxf", "padding", "bytes", "Padding")
add("dxf", "zero", "bytes", "Zero")
add("dxf", "fcs", "uint32", "FCS", base.HEX)
add("dxf", "drop_cause", "string", "Dropped by a receiver, cause")
add("dxf", "record", "none", "TLP record")
add("dxf", "credit", "none", "Credit")
add_rows(tables.credit_fields, "credit.")
for _, body in pairs(tables.bodies) do add_rows(body.fields, body.prefix) end
add("dxf", "sack.word", "uint64", "frames that came", base.HEX)
for _, bit_row in ipairs(tables.capabilities) do
  add("dxf", "hello.capability_" .. fields.name(bit_row.name), "bool", bit_row.name, 16, nil,
      bit_row.value)
end
add("dxf", "error", "uint32", "error", base.DEC, tables.error_codes)
add("dxf", "header_dword", "uint32", "dword of the header", base.HEX)
add("dxf", "data", "bytes", "data")
add_rows(tables.management_head, "mgmt.")
add_rows(tables.management_identity, "mgmt.identity.")
add("dxf", "mgmt.knock", "bytes", "knock")
add("dxf", "mgmt.encrypted", "bytes", "encrypted")
add("dxf", "mgmt.authentication", "bytes", "AES-CCM tag")
-- What is known from other frames.
add("dxf", "session", "uint32", "Session, in order of opening", base.DEC)
add("dxf", "session.opened_in", "framenum", "Session offered in", base.NONE)
add("dxf", "first", "framenum", "Sent first in", base.NONE, frametype.RETRANS_PREV)
add("dxf", "copy", "framenum", "Captured elsewhere in", base.NONE)
add("dxf", "acked", "framenum", "ACK covers frames up to that in", base.NONE, frametype.ACK)
add("dxf", "missing", "uint32", "Frames missing before", base.DEC)
add("dxf", "life", "uint32", "Life of the slot", base.DEC)
add("dxf", "life.began_in", "framenum", "Life began in", base.NONE)

for _, cause in ipairs(tables.drop_causes) do
  add_expert("dxf", "drop." .. fields.name(cause.name), cause.text, expert.group.MALFORMED,
             expert.severity.ERROR)
end
local SEQUENCE, PROTOCOL = expert.group.SEQUENCE, expert.group.PROTOCOL
local NOTE, WARN, ERROR = expert.severity.NOTE, expert.severity.WARN, expert.severity.ERROR
add_expert("dxf", "retransmission", "Frame is sent again", SEQUENCE, NOTE)
add_expert("dxf", "duplicate", "Frame is sent again, although it was acknowledged", SEQUENCE, NOTE)
add_expert("dxf", "late", "Frame was missing before", SEQUENCE, NOTE)
add_expert("dxf", "gap", "Frames are missing before this one", SEQUENCE, WARN)
add_expert("dxf", "former", "Tag of a former session", SEQUENCE, WARN)
add_expert("dxf", "fence", "Session is given up", PROTOCOL, WARN)
add_expert("dxf", "event.link_down", "Link of a slot is down", PROTOCOL, WARN)
add_expert("dxf", "event.error", "Error of a slot", PROTOCOL, ERROR)
add_expert("dxf", "cut", "Frame was not captured whole", PROTOCOL, NOTE)

add("tlp", "name", "string", "Kind")
add("tlp", "text", "string", "TLP")
add("tlp", "prefix", "none", "Prefix")
add("tlp", "prefix.type", "uint8", "Prefix type", base.HEX, tables.tlp_prefixes, 0x1F)
add("tlp", "prefix.st_high", "uint8", "Steering tag, bits 15:8", base.HEX)
add("tlp", "prefix.pasid", "uint24", "PASID", base.HEX, nil, 0x0FFFFF)
add("tlp", "prefix.execute", "bool", "Execute requested", 24, nil, 0x100000)
add("tlp", "prefix.privileged", "bool", "Privileged mode requested", 24, nil, 0x200000)
add("tlp", "prefix.content", "uint24", "Content", base.HEX)
add("tlp", "fmttp", "uint8", "Fmt and Type", base.HEX, tables.tlp_names)
add("tlp", "fmt", "uint8", "Fmt", base.HEX, nil, 0xE0)
add("tlp", "type", "uint8", "Type", base.HEX, nil, 0x1F)
add("tlp", "h1", "uint24", "Attributes and length", base.HEX)
add("tlp", "t9", "bool", "T9", 24, nil, 0x800000)
add("tlp", "tc", "uint24", "Traffic class", base.DEC, nil, 0x700000)
add("tlp", "t8", "bool", "T8", 24, nil, 0x080000)
add("tlp", "attr", "uint24", "Attr", base.HEX, nil, 0x043000)
add("tlp", "attr.ido", "bool", "ID-based ordering", 24, nil, 0x040000)
add("tlp", "attr.ro", "bool", "Relaxed ordering", 24, nil, 0x002000)
add("tlp", "attr.ns", "bool", "No snoop", 24, nil, 0x001000)
add("tlp", "ln", "bool", "Lightweight notification", 24, nil, 0x020000)
add("tlp", "th", "bool", "Processing hints", 24, nil, 0x010000)
add("tlp", "td", "bool", "Digest", 24, nil, 0x008000)
add("tlp", "ep", "bool", "Poisoned", 24, nil, 0x004000)
add("tlp", "at", "uint24", "Address type", base.DEC, tables.tlp_address_types, 0x000C00)
add("tlp", "len_value", "uint24", "Length field", base.DEC, nil, 0x0003FF)
add("tlp", "length", "uint16", "Length in dwords", base.DEC)
add("tlp", "rq_id", "uint16", "Requester ID", base.HEX)
add("tlp", "comp_id", "uint16", "Completer ID", base.HEX)
add("tlp", "target_id", "uint16", "Target ID", base.HEX)
add("tlp", "bus_no", "uint16", "Bus", base.HEX, nil, 0xFF00)
add("tlp", "dev_no", "uint16", "Device", base.HEX, nil, 0x00F8)
add("tlp", "fun_no", "uint16", "Function", base.HEX, nil, 0x0007)
add("tlp", "tag", "uint16", "Tag", base.HEX_DEC)
add("tlp", "last_be", "uint8", "Last byte enables", base.HEX, nil, 0xF0)
add("tlp", "first_be", "uint8", "First byte enables", base.HEX, nil, 0x0F)
add("tlp", "st", "uint8", "Steering tag, bits 7:0", base.HEX)
add("tlp", "addr", "uint64", "Address", base.HEX)
add("tlp", "hint", "uint8", "Processing hint", base.DEC, tables.tlp_hints, 0x03)
add("tlp", "register", "uint16", "Register", base.HEX, nil, 0x0FFC)
add("tlp", "operand", "bytes", "Operand")
add("tlp", "compare", "bytes", "Compare value")
add("tlp", "status", "uint16", "Status", base.DEC, tables.tlp_statuses, 0xE000)
add("tlp", "bcm", "bool", "Byte count modified", 16, nil, 0x1000)
add("tlp", "byte_count", "uint16", "Byte count", base.DEC)
add("tlp", "lower_addr", "uint8", "Lower address", base.HEX, nil, 0x7F)
add("tlp", "routing", "uint8", "Routing", base.DEC, tables.tlp_routings, 0x07)
add("tlp", "code", "uint8", "Message code", base.HEX, tables.tlp_messages)
add("tlp", "vendor", "uint16", "Vendor ID", base.HEX)
add("tlp", "vendor.subtype", "uint8", "Subtype", base.HEX, tables.tlp_subtypes)
add("tlp", "vendor.content", "bytes", "Vendor's content")
add("tlp", "latency", "uint16", "Latency", base.HEX)
add("tlp", "latency.required", "bool", "Required", 16, nil, 0x8000)
add("tlp", "latency.scale", "uint16", "Scale", base.DEC, tables.tlp_latency_scales, 0x1C00)
add("tlp", "latency.value", "uint16", "Value", base.DEC, nil, 0x03FF)
add("tlp", "obff", "uint8", "OBFF code", base.HEX, tables.tlp_obff, 0x0F)
add("tlp", "itag", "uint8", "ITag", base.DEC, nil, 0x1F)
add("tlp", "itag_vector", "uint32", "ITag vector", base.HEX)
add("tlp", "completions", "uint8", "Completion count", base.DEC, nil, 0x07)
add("tlp", "page", "uint64", "Page address", base.HEX)
add("tlp", "page.last", "bool", "Last request of the group", 8, nil, 0x04)
add("tlp", "page.write", "bool", "Write", 8, nil, 0x02)
add("tlp", "page.read", "bool", "Read", 8, nil, 0x01)
add("tlp", "page.group", "uint16", "Page request group", base.DEC, nil, 0x0FF8)
add("tlp", "page.answer", "uint8", "Response code", base.DEC, tables.tlp_page_answers, 0xF0)
add("tlp", "page.answer_group", "uint16", "Page request group", base.DEC, nil, 0x01FF)
add("tlp", "time", "uint64", "Master time in ns", base.DEC)
add("tlp", "delay", "uint32", "Propagation delay in ns", base.DEC)
add("tlp", "power", "uint8", "Slot power limit", base.DEC)
add("tlp", "power.scale", "uint8", "Scale", base.DEC, tables.tlp_power_scales, 0x03)
add("tlp", "reserved", "bytes", "Reserved")
add("tlp", "data", "bytes", "Data")
add("tlp", "digest", "uint32", "Digest (ECRC)", base.HEX)
add("tlp", "surplus", "bytes", "Bytes beyond the TLP")
add("tlp", "req_frame", "framenum", "Request in", base.NONE, frametype.REQUEST)
add("tlp", "res_frame", "framenum", "Completion in", base.NONE, frametype.RESPONSE)
add("tlp", "response_time", "relative_time", "Response time")

for _, cause in ipairs(tables.malformed) do
  add_expert("tlp", "malformed." .. fields.name(cause.name), cause.text, expert.group.MALFORMED,
             ERROR)
end
add_expert("tlp", "unsuccessful", "Completion is not successful", expert.group.RESPONSE_CODE, WARN)
add_expert("tlp", "poisoned", "TLP is poisoned", PROTOCOL, WARN)
add_expert("tlp", "unexpected", "Request of this completion is not in the capture", SEQUENCE, NOTE)
add_expert("tlp", "reused", "Tag is in use by a request that waits", SEQUENCE, WARN)

for name, protocol in pairs(protocols) do
  protocol.fields = listed[name]
  protocol.experts = listed[name .. " experts"]
end

return fields
