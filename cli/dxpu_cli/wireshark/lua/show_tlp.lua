-- A TLP in the tree of Wireshark.

local show_tlp = {}

local F, E = fields.tlp, fields.experts

-- Adds an ID and its parts.
local function add_id(tree, field, range)
  local item = tree:add(field, range)
  item:append_text(" (" .. tlp.id(range:uint()) .. ")")
  item:add(F.bus_no, range)
  item:add(F.dev_no, range)
  item:add(F.fun_no, range)
end

local function add_prefix(tree, tvb, at)
  local range = tvb(at, 4)
  local item = tree:add(F.prefix, range)
  local kind = tvb(at, 1):uint() % 32
  item:append_text(": " .. (tables.tlp_prefixes[kind] or "reserved"))
  item:add(F["prefix.type"], tvb(at, 1))
  if kind == 0x10 then
    item:add(F["prefix.st_high"], tvb(at + 1, 1))
    item:add(F.reserved, tvb(at + 2, 2))
  elseif kind == 0x11 then
    item:add(F["prefix.privileged"], tvb(at + 1, 3))
    item:add(F["prefix.execute"], tvb(at + 1, 3))
    item:add(F["prefix.pasid"], tvb(at + 1, 3))
  else
    item:add(F["prefix.content"], tvb(at + 1, 3))
  end
end

local function add_first_dword(tree, tvb, at, info)
  local item = tree:add(F.fmttp, tvb(at, 1))
  item:add(F.fmt, tvb(at, 1))
  item:add(F.type, tvb(at, 1))
  local range = tvb(at + 1, 3)
  item = tree:add(F.h1, range)
  for _, name in ipairs({"t9", "tc", "t8"}) do item:add(F[name], range) end
  local attr = item:add(F.attr, range)
  for _, name in ipairs({"attr.ido", "attr.ro", "attr.ns"}) do attr:add(F[name], range) end
  for _, name in ipairs({"ln", "th", "td", "ep", "at", "len_value"}) do
    item:add(F[name], range)
  end
  tree:add(F.length, tvb(at + 2, 2), info.length):set_generated()
end

local function add_latency(tree, range, text)
  local item = tree:add(F.latency, range):set_text(text)
  for _, name in ipairs({"latency.required", "latency.scale", "latency.value"}) do
    item:add(F[name], range)
  end
end

-- Bytes 8 to 15 of a message, by its code (2.2.8 and chapter 10).
local MESSAGES = {
  [0x01] = function(tree, tvb, at)
    tree:add(F.itag, tvb(at + 6, 1))
    add_id(tree, F.target_id, tvb(at + 8, 2))
    tree:add(F.reserved, tvb(at + 10, 6))
  end,
  [0x02] = function(tree, tvb, at)
    add_id(tree, F.target_id, tvb(at + 8, 2))
    tree:add(F.completions, tvb(at + 11, 1))
    tree:add(F.itag_vector, tvb(at + 12, 4))
  end,
  [0x04] = function(tree, tvb, at)
    local page = tvb(at + 8, 8):uint64()
    tree:add(F.page, tvb(at + 8, 8), page - page % 4096)
    tree:add(F["page.group"], tvb(at + 14, 2))
    for _, name in ipairs({"page.last", "page.write", "page.read"}) do
      tree:add(F[name], tvb(at + 15, 1))
    end
  end,
  [0x05] = function(tree, tvb, at)
    add_id(tree, F.target_id, tvb(at + 8, 2))
    tree:add(F["page.answer"], tvb(at + 10, 1))
    tree:add(F["page.answer_group"], tvb(at + 10, 2))
    tree:add(F.reserved, tvb(at + 12, 4))
  end,
  [0x10] = function(tree, tvb, at)
    tree:add(F.reserved, tvb(at + 8, 4))
    add_latency(tree, tvb(at + 12, 2), "No-snoop latency")
    add_latency(tree, tvb(at + 14, 2), "Snoop latency")
  end,
  [0x12] = function(tree, tvb, at)
    tree:add(F.reserved, tvb(at + 8, 7))
    tree:add(F.obff, tvb(at + 15, 1))
  end,
  [0x53] = function(tree, tvb, at, info)
    if info.has_data then tree:add(F.time, tvb(at + 8, 8)) else
      tree:add(F.reserved, tvb(at + 8, 8))
    end
  end,
}

local function add_vendor(tree, tvb, at, info)
  if info.routing == 2 then add_id(tree, F.target_id, tvb(at + 8, 2)) else
    tree:add(F.reserved, tvb(at + 8, 2))
  end
  tree:add(F.vendor, tvb(at + 10, 2))
  -- Vendor 1 is the PCI-SIG itself.
  if tvb(at + 10, 2):uint() == 1 then tree:add(F["vendor.subtype"], tvb(at + 12, 1)) end
  tree:add(F["vendor.content"], tvb(at + 12, 4))
end
MESSAGES[0x7E], MESSAGES[0x7F] = add_vendor, add_vendor

local function add_message(tree, tvb, at, info)
  add_id(tree, F.rq_id, tvb(at + 4, 2))
  tree:add(F.routing, tvb(at, 1))
  tree:add(F.tag, tvb(at + 6, 1), info.tag)
  tree:add(F.code, tvb(at + 7, 1))
  local add = MESSAGES[info.code]
  if add then
    add(tree, tvb, at, info)
  elseif info.routing == 2 then
    add_id(tree, F.target_id, tvb(at + 8, 2))
    tree:add(F.reserved, tvb(at + 10, 6))
  else
    tree:add(F.reserved, tvb(at + 8, 8))
  end
end

local function add_completion(tree, tvb, at, info)
  add_id(tree, F.comp_id, tvb(at + 4, 2))
  tree:add(F.status, tvb(at + 6, 2))
  tree:add(F.bcm, tvb(at + 6, 2))
  tree:add(F.byte_count, tvb(at + 6, 2), info.byte_count)
  add_id(tree, F.rq_id, tvb(at + 8, 2))
  tree:add(F.tag, tvb(at + 10, 1), info.tag)
  tree:add(F.lower_addr, tvb(at + 11, 1))
end

local function add_request(tree, tvb, at, info)
  add_id(tree, F.rq_id, tvb(at + 4, 2))
  tree:add(F.tag, tvb(at + 6, 1), info.tag)
  -- A steering tag stands where a write has its tag, and a read its byte enables (2.2.7.1.1).
  if info.is_steered then
    tree:add(F.st, tvb(at + 7, 1))
  else
    if info.is_posted and info.th == 1 then tree:add(F.st, tvb(at + 6, 1)) end
    tree:add(F.last_be, tvb(at + 7, 1))
    tree:add(F.first_be, tvb(at + 7, 1))
  end
  if info.is_config then
    add_id(tree, F.target_id, tvb(at + 8, 2))
    tree:add(F.register, tvb(at + 10, 2))
    return
  end
  local range = tvb(at + 8, info.address_bytes)
  tree:add(F.addr, range, UInt64(info.address_low, info.address_high))
  if info.th == 1 then tree:add(F.hint, tvb(at + 7 + info.address_bytes, 1)) end
end

-- The data, by what they are for.
local function add_data(tree, tvb, info)
  local range = tvb(info.data, info.data_bytes)
  if info.name == "CAS" then
    local half = info.data_bytes / 2
    tree:add(F.compare, tvb(info.data, half))
    tree:add(F.operand, tvb(info.data + half, half))
  elseif info.is_atomic then
    tree:add(F.operand, range)
  elseif info.is_message and info.code == 0x50 then
    tree:add(F.power, tvb(info.data, 1))
    tree:add(F["power.scale"], tvb(info.data + 1, 1))
  elseif info.is_message and info.code == 0x53 then
    tree:add(F.delay, tvb(info.data, 4))
  end
  tree:add(F.data, range)
end

-- Adds what other TLPs have to do with this one.
local function add_links(tree, info, key, found)
  if found.request then
    tree:add(F.req_frame, found.request.number):set_generated()
  end
  if found.time then
    local seconds = math.floor(found.time)
    local nanoseconds = math.floor((found.time - seconds) * 1e9 + 0.5)
    tree:add(F.response_time, NSTime(seconds, nanoseconds)):set_generated()
  end
  for _, answer in ipairs(links.answers(key)) do
    tree:add(F.res_frame, answer.number):set_generated()
  end
  if found.is_unexpected then tree:add_proto_expert_info(E["tlp.unexpected"]) end
  if found.is_reused then tree:add_proto_expert_info(E["tlp.reused"]) end
end

-- Adds the TLP in the bytes from `offset` to `stop` of `tvb`; `data` are all bytes of `tvb`. A TLP
-- of which only prefixes and header are there is `open`. `link` finds out what other TLPs have to do
-- with it.
--
-- Returns the TLP in one line, and its fields; nil for the fields if it cannot be read.
function show_tlp.add(tree, tvb, data, offset, stop, open, link)
  local range = tvb(offset, stop - offset)
  local item = tree:add(fields.protocols.tlp, range)
  local info, cause, begun = tlp.read(data, offset, stop)
  if not info then
    for _, prefix in ipairs(begun.prefixes) do add_prefix(item, tvb, prefix) end
    item:append_text(": malformed")
    item:add_proto_expert_info(E["tlp.malformed." .. fields.name(cause)])
    return "malformed TLP (" .. cause .. ")", nil
  end
  local text = tlp.text(info)
  item:append_text(": " .. text)
  item:add(F.name, info.name):set_generated()
  item:add(F.text, text):set_generated()
  for _, prefix in ipairs(info.prefixes) do add_prefix(item, tvb, prefix) end
  local at = info.header
  add_first_dword(item, tvb, at, info)
  local add = info.is_message and add_message or info.is_completion and add_completion
    or add_request
  add(item, tvb, at, info)
  if not open then
    local left = stop - info.data
    if info.has_data and left >= info.data_bytes then add_data(item, tvb, info) end
    local ends = info.offset + info.size
    if info.td == 1 and stop >= ends then item:add(F.digest, tvb(ends - 4, 4)) end
    if stop > ends then item:add(F.surplus, tvb(ends, stop - ends)) end
  else
    info.stop = info.offset + info.size
  end
  local broken = tlp.malformed(info)
  if broken then
    item:add_proto_expert_info(E["tlp.malformed." .. fields.name(broken)])
    text = text .. " malformed (" .. broken .. ")"
  end
  if info.is_completion and info.status ~= 0 then
    item:add_proto_expert_info(E["tlp.unsuccessful"])
  end
  if info.ep == 1 then item:add_proto_expert_info(E["tlp.poisoned"]) end
  if link then
    local key, found = link(info)
    add_links(item, info, key, found)
  end
  return text, info
end

return show_tlp
