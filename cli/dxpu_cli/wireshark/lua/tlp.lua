-- A TLP: what its bytes say (PCI Express Base Specification 5.0, section 2.2), and which rule it
-- breaks. Nothing here knows Wireshark.

local tlp = {}

local big, bits = numbers.big, numbers.bits

local MEMORY, LOCKED, IO, CONFIG_0, CONFIG_1 = 0, 1, 2, 4, 5
local COMPLETION, COMPLETION_LOCKED, CAS = 10, 11, 14
local MAX_PREFIXES, MAX_NP_DWORDS = 4, 8

-- Bytes of prefixes and header of the TLP at `offset`; nil if the bytes to `stop` do not tell.
function tlp.header_length(data, offset, stop)
  local start = offset
  while offset + 4 <= stop do
    local fmt = bits(string.byte(data, offset + 1), 5, 3)
    if fmt > 4 then return nil end
    if fmt ~= 4 then return offset - start + (fmt % 2 == 1 and 16 or 12) end
    offset = offset + 4
  end
  return nil
end

-- Bytes of the whole TLP at `offset`, with prefixes and digest; nil if the bytes do not tell.
function tlp.length(data, offset, stop)
  local size = tlp.header_length(data, offset, stop)
  if not size then return nil end
  while bits(string.byte(data, offset + 1), 5, 3) == 4 do offset = offset + 4 end
  if string.byte(data, offset + 1) >= 64 then
    local length = big(data, offset + 2, 2) % 1024
    size = size + 4 * (length == 0 and 1024 or length)
  end
  if string.byte(data, offset + 3) >= 128 then size = size + 4 end
  return size
end

-- An ID as bus:device.function.
function tlp.id(value)
  return string.format("%02x:%02x.%x", bits(value, 8, 8), bits(value, 3, 5), bits(value, 0, 3))
end

-- Bytes from the first one that is enabled to the last one, and whether one is (2.3.1.1). A request
-- for no byte is answered as for one.
local function enabled(first_be, last_be, length)
  local first, last
  local function see(n)
    first = first or n
    last = n
  end
  for n = 0, 3 do if bits(first_be, n, 1) == 1 then see(n) end end
  if length > 2 then
    see(4)
    see(4 * (length - 1) - 1)
  end
  if length > 1 then
    for n = 0, 3 do if bits(last_be, n, 1) == 1 then see(4 * (length - 1) + n) end end
  end
  if not first then return 1, false end
  return last - first + 1, true
end

-- What the header of a TLP says, as a table; nil if the bytes from `offset` to `stop` hold no
-- header of a defined Fmt and Type. Offsets are those of `data`.
function tlp.read(data, offset, stop)
  local at, prefixes = offset, {}
  while #prefixes < MAX_PREFIXES and at + 4 <= stop
      and bits(string.byte(data, at + 1), 5, 3) == 4 do
    prefixes[#prefixes + 1] = at
    at = at + 4
  end
  local info = {offset = offset, stop = stop, prefixes = prefixes, header = at}
  if at + 1 > stop then return nil, "TRUNCATED", info end
  local first = string.byte(data, at + 1)
  info.fmt, info.type = bits(first, 5, 3), first % 32
  info.header_bytes = info.fmt % 2 == 1 and 16 or 12
  if stop - at < info.header_bytes then return nil, "TRUNCATED", info end
  if info.fmt == 4 then return nil, "PREFIX", info end
  for _, prefix in ipairs(prefixes) do
    if bits(string.byte(data, prefix + 1), 4, 1) == 0 then return nil, "PREFIX", info end
  end
  info.is_message = bits(info.type, 3, 2) == 2
  local name = tables.tlp_kinds[first]
  if info.is_message and (info.fmt == 1 or info.fmt == 3) then
    name = info.fmt == 3 and "MsgD" or "Msg"
  end
  if not name then return nil, "FORMAT", info end
  info.name = name

  local second, third = string.byte(data, at + 2), string.byte(data, at + 3)
  info.tc, info.th = bits(second, 4, 3), second % 2
  info.attr = bits(second, 2, 1) * 4 + bits(third, 4, 2)
  info.td, info.ep, info.at = bits(third, 7, 1), bits(third, 6, 1), bits(third, 2, 2)
  info.len_value = big(data, at + 2, 2) % 1024
  info.length = info.len_value == 0 and 1024 or info.len_value
  info.has_data = info.fmt >= 2
  info.data = at + info.header_bytes
  info.data_bytes = info.has_data and 4 * info.length or 0
  info.size = info.data + info.data_bytes + 4 * info.td - offset
  local high = bits(second, 7, 1) * 512 + bits(second, 3, 1) * 256
  info.is_completion = info.type == COMPLETION or info.type == COMPLETION_LOCKED
  info.is_config = info.type == CONFIG_0 or info.type == CONFIG_1
  info.is_io = info.type == IO
  info.is_atomic = info.type >= 12 and info.type <= CAS
  info.is_memory = info.type == MEMORY or info.type == LOCKED
  info.is_posted = info.is_message or (info.type == MEMORY and info.has_data)
  if info.is_completion then
    info.completer_id, info.requester_id = big(data, at + 4, 2), big(data, at + 8, 2)
    info.status = bits(string.byte(data, at + 7), 5, 3)
    local count = big(data, at + 6, 2) % 4096
    info.byte_count = count == 0 and 4096 or count
    info.tag = high + string.byte(data, at + 11)
    info.lower_address = string.byte(data, at + 12) % 128
    return info
  end
  info.requester_id, info.tag = big(data, at + 4, 2), high + string.byte(data, at + 7)
  local enables = string.byte(data, at + 8)
  if info.is_message then
    info.code, info.routing = enables, info.type % 8
    return info
  end
  if info.is_memory and not info.has_data and info.th == 1 then
    info.first_be, info.last_be = 15, info.length == 1 and 0 or 15
    info.is_steered = true
  elseif not info.is_atomic then
    info.first_be, info.last_be = enables % 16, math.floor(enables / 16)
  end
  if info.is_config then
    info.target_id, info.register = big(data, at + 8, 2), big(data, at + 10, 2) % 4096
    info.register = info.register - info.register % 4
  else
    info.address_bytes = info.header_bytes - 8
    info.address_low = big(data, info.data - 4, 4)
    info.hint = info.address_low % 4
    info.address_low = info.address_low - info.hint
    info.address_high = info.address_bytes == 8 and big(data, at + 8, 4) or 0
  end
  return info
end

local function is_gapless(info)
  local first, last = info.first_be, info.last_be
  if info.length == 1 then return last == 0 end
  if first == 0 or last == 0 then return false end
  if info.length == 2 and info.address_low and info.address_low % 8 == 0 then return true end
  return (first == 8 or first == 12 or first == 14 or first == 15)
    and (last == 1 or last == 3 or last == 7 or last == 15)
end

-- The rule that a TLP of exactly these bytes breaks at the port of a switch, by its name in
-- `Malformed`, or nil (docs/reference/tlp-checks.md).
function tlp.malformed(info)
  if (info.is_io or info.is_config)
      and (info.length ~= 1 or info.tc ~= 0 or info.attr % 4 ~= 0 or info.at ~= 0) then
    return "FIXED"
  end
  if info.is_atomic and info.length > MAX_NP_DWORDS then return "ATOMIC" end
  if info.first_be and not is_gapless(info) then return "BYTE_ENABLE" end
  if info.is_memory and not (info.at == 1 and not info.has_data)
      and info.address_low % 4096 + 4 * info.length > 4096 then
    return "BOUNDARY"
  end
  if info.is_message and info.tc ~= 0 and tables.tc0_messages[info.code] then
    return "TRAFFIC_CLASS"
  end
  if info.size ~= info.stop - info.offset then return "LENGTH" end
  return nil
end

-- Bytes that a request is for, by its enables; without enables, its data.
function tlp.bytes(info)
  if not info.first_be then return info.data_bytes end
  local count, is_any = enabled(info.first_be, info.last_be, info.length)
  return is_any and count or 0
end

-- Bytes of data that a completion brings, of those that its request is for (2.3.1.1).
function tlp.completed(info)
  if not info.has_data then return 0 end
  return math.min(info.byte_count, info.data_bytes - info.lower_address % 4)
end

-- Bytes of all completions of a request.
function tlp.asked(info)
  if info.is_atomic then return info.data_bytes / (info.type == CAS and 2 or 1) end
  if info.is_memory and not info.has_data then
    return (enabled(info.first_be, info.last_be, info.length))
  end
  return 4
end

-- An address as hexadecimal digits in groups of four.
local function grouped(high, low)
  local digits = high > 0 and string.format("%x%08x", high, low) or string.format("%08x", low)
  local groups = {}
  for stop = #digits, 1, -4 do
    table.insert(groups, 1, string.sub(digits, math.max(1, stop - 3), stop))
  end
  return table.concat(groups, "_")
end

-- A TLP in one line.
function tlp.text(info)
  local words = {info.name}
  local function say(form, ...) words[#words + 1] = string.format(form, ...) end
  if info.is_message then
    say("%s", tables.tlp_messages[info.code] or string.format("code %02xh", info.code))
    if info.has_data then say("%d B", info.data_bytes) end
  elseif info.is_completion then
    say("%s", tables.tlp_statuses[info.status] or "reserved status " .. info.status)
    if info.has_data then say("%d B", tlp.completed(info)) end
    if info.has_data and tlp.completed(info) < info.byte_count then
      say("of %d", info.byte_count)
    end
  elseif info.is_config then
    say("%s +%03x", tlp.id(info.target_id), info.register)
  else
    say("%d B", tlp.bytes(info))
    say("@0x%s", grouped(info.address_high, info.address_low))
  end
  if not info.is_posted then say("tag %d", info.tag) end
  if info.ep == 1 then say("poisoned") end
  return table.concat(words, " ")
end

return tlp
