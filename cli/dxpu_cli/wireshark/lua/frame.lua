-- A frame of DXF: what its bytes say, and the cause for which a receiver drops it
-- (docs/reference/wire-format.md). Nothing here knows Wireshark.

local frame = {}

local big, little, bits = numbers.big, numbers.little, numbers.bits

-- A number of the body, by the name of its field.
local function field(info, data, name)
  for _, row in ipairs(info.layout.fields) do
    if row.name == name then return big(data, info.body + row.offset, row.size) end
  end
end

local function wrong(info, cause, detail)
  info.cause, info.detail = cause, detail
  return info
end

-- Where the records of a TLP frame are; false if they do not end within the frame.
local function find_records(info, data)
  local at = info.body
  for n = 1, info.count do
    local size = tlp.length(data, at, #data)
    if not size then return false end
    local padded = size + tables.record_crc_bytes
    if info.count > 1 then
      padded = padded + -(at - info.body + padded) % tables.record_align
    end
    if at + padded > #data then return false end
    info.records[n] = {start = at, size = size, crc = at + size,
                       stop = at + padded, number = n}
    at = at + padded
  end
  info.stop = at
  return true
end

-- Where the body ends; nil if a receiver could not tell, with what is wrong.
local function find_end(info, data)
  local layout, left = info.layout, #data - info.body
  local ending = layout.ending
  if ending == "RECORDS" then
    return find_records(info, data) and info.stop
  elseif ending == "HEADER" then
    local size = tlp.header_length(data, info.body, #data)
    return size and info.body + size + tables.body_crc_bytes
  elseif ending == "FRAME" then
    return #data
  end
  if left < layout.size then return nil end
  local size = layout.size
  if ending == "LENGTH" then
    local offset, length = field(info, data, "offset"), field(info, data, "length")
    if offset % 4 > 0 or length % 4 > 0 or length < 4 or length > tables.data_bytes_max then
      return nil, string.format("%d bytes at offset %d", length, offset)
    end
    return info.body + size + length + tables.record_crc_bytes
  elseif ending == "WORDS" then
    local words = field(info, data, "count")
    if words > 1 then return nil, string.format("%d words", words) end
    size = size + words * tables.sack_word_bytes
  elseif ending == "KEYED" and field(info, data, "security mode") ~= 0 then
    info.layout = tables.bodies.KEYED
    size = info.layout.size
  end
  return info.body + size + tables.body_crc_bytes
end

local function binding_word(info)
  return info.tag * 65536 + info.seq % 65536
end

-- The CRC of each record, and the zeros behind it.
local function check_records(info, data)
  local is_padded, is_right = true, true
  for _, record in ipairs(info.records) do
    local crc = numbers.bxor(numbers.crc32c(data, record.start, record.crc), binding_word(info))
    record.expected, record.is_right = crc, crc == little(data, record.crc)
    is_right = is_right and record.is_right
    record.is_padded =
      numbers.is_zero(data, record.crc + tables.record_crc_bytes, record.stop)
    is_padded = is_padded and record.is_padded
  end
  if not is_padded then return wrong(info, "PADDING", "between records") end
  if not is_right then return wrong(info, "RECORD", "CRC-32C") end
  return info
end

local function check_body(info, data)
  if info.layout.ending == "RECORDS" then return check_records(info, data) end
  if not info.layout.sealed then return info end
  info.crc = info.stop - tables.body_crc_bytes
  info.expected = numbers.crc32c(data, info.body, info.crc)
  info.is_right = info.expected == little(data, info.crc)
  if not info.is_right then return wrong(info, "BODY", "CRC-32C") end
  for _, row in ipairs(info.layout.fields) do
    if row.name == "zero"
        and not numbers.is_zero(data, info.body + row.offset,
                                info.body + row.offset + row.size) then
      return wrong(info, "BODY", "zero field")
    end
    if row.class and string.byte(data, info.body + row.offset + 1) ~= row.class then
      return wrong(info, "BODY", "class of an entry")
    end
  end
  if info.layout.ending == "WORDS" and field(info, data, "request") > 1 then
    return wrong(info, "BODY", "request " .. field(info, data, "request"))
  end
  return info
end

-- What a frame without FCS says, from its destination MAC on, as a table.
--
-- `cause` and `detail` say why a receiver drops the frame. What could be read before is there, as
-- far as the bytes go; `body` is where the body begins, `stop` where it ends.
function frame.read(data)
  local info = {bytes = #data, records = {}}
  if #data < tables.header_bytes then return wrong(info, "RUNT", #data .. " bytes") end
  local flags = string.byte(data, 16)
  info.version, info.type = bits(string.byte(data, 15), 4, 4), string.byte(data, 15) % 16
  info.has_credit = flags >= 128
  info.ar, info.count = bits(flags, 6, 1), flags % 32
  info.dst_node, info.src_node = math.floor(big(data, 16, 3) / 4096), big(data, 16, 3) % 4096
  info.dst_slot, info.src_slot = string.byte(data, 20, 21)
  info.path, info.stream = bits(string.byte(data, 22), 4, 4), string.byte(data, 22) % 16
  info.tag, info.seq, info.ack = big(data, 22, 2), big(data, 24, 3), big(data, 27, 3)
  info.body = tables.header_bytes + (info.has_credit and tables.credit_bytes or 0)
  if #data < tables.min_frame_bytes then return wrong(info, "RUNT", #data .. " bytes") end
  if info.version ~= tables.version then return wrong(info, "VERSION", tostring(info.version)) end

  info.hcrc = numbers.crc16(data, tables.header_bytes, info.body,
                            numbers.crc16(data, tables.hcrc_start, tables.hcrc_offset))
  info.hcrc_is_right = info.hcrc == big(data, tables.hcrc_offset, 2)
  if not info.hcrc_is_right then return wrong(info, "HCRC") end
  local row = tables.frame_types[info.type]
  if not row then return wrong(info, "TYPE", tostring(info.type)) end
  info.name, info.numbering = row.name, row.numbering
  info.layout = tables.bodies[row.body]
  if bits(flags, 5, 1) == 1 or (info.count > 0) ~= (info.layout.ending == "RECORDS") then
    return wrong(info, "FIELD", string.format("byte 15 is 0x%02x", flags))
  end
  if info.has_credit and string.byte(data, tables.header_bytes + 1) > 2 then
    return wrong(info, "FIELD", "credit class " .. string.byte(data, tables.header_bytes + 1))
  end
  if info.numbering == "NONE" and (info.seq > 0 or info.ack > 0) then
    return wrong(info, "FIELD", "SEQ or ACK of a " .. info.name)
  end

  local stop, detail = find_end(info, data)
  if not stop then return wrong(info, "LENGTH", detail or "the body has no end") end
  info.stop = stop
  info.wanted = math.max(tables.min_frame_bytes, stop)
  if #data ~= info.wanted then
    return wrong(info, "LENGTH", string.format("%d bytes, body of %d", #data, stop - info.body))
  end
  if not numbers.is_zero(data, stop, #data) then
    return wrong(info, "PADDING", "after the body")
  end
  return check_body(info, data)
end

-- The frame in `data`, which may end with its FCS. `ends` is "automatic", "always" or "never". The
-- FCS is there if it is right, or if the frame is 4 bytes longer than its body says.
--
-- Returns what `frame.read` does. `fcs` is where the FCS is, `fcs_is_right` whether it is right.
function frame.read_captured(data, ends)
  if ends == "never" or #data < tables.min_frame_bytes + 4 then return frame.read(data) end
  local at = #data - 4
  local is_right = numbers.fcs(data, 0, at) == little(data, at)
  local info = frame.read(data)
  if ends == "automatic" and not is_right and info.wanted ~= at then return info end
  info = frame.read(string.sub(data, 1, at))
  info.fcs, info.fcs_is_right = at, is_right
  if not is_right then return wrong(info, "FCS") end
  return info
end

-- How a frame is numbered, and what for, in one line.
function frame.text(info)
  local words = {info.name or "type " .. tostring(info.type)}
  local function say(form, ...) words[#words + 1] = string.format(form, ...) end
  if info.numbering ~= "NONE" then
    if info.seq then say("seq %d ack %d", info.seq, info.ack) end
    if info.count and info.count > 1 then say("x%d", info.count) end
  end
  return table.concat(words, " ")
end

return frame
