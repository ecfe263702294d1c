-- A frame of DXF in the tree of Wireshark.

local show_frame = {}

local F, E = fields.dxf, fields.experts

local FIRST = tables.ethernet_bytes

-- A range of bytes by its offset in the frame; `tvb` begins behind the EtherType.
local function at(tvb, offset, size) return tvb(offset - FIRST, size) end

local function add_rows(tree, tvb, rows, prefix, offset)
  for _, row in ipairs(rows) do
    local range = at(tvb, offset + row.offset, row.size)
    if row.name == "zero" then
      tree:add(F.zero, range)
    elseif not row.class then
      tree:add(F[fields.name(prefix .. row.name)], range)
    end
  end
end

local function add_credit(tree, tvb, offset, name)
  local item = tree:add(F.credit, at(tvb, offset, tables.credit_bytes)):set_text(name)
  add_rows(item, tvb, tables.credit_fields, "credit.", offset)
end

-- A CRC, and whether it is right.
local function add_check(tree, field, range, is_right, expected, little)
  local item = little and tree:add_le(field, range) or tree:add(field, range)
  item:append_text(is_right and " [right]" or expected
                   and string.format(" [wrong, should be 0x%x]", expected) or " [wrong]")
end

local function add_header(tree, tvb, info)
  for _, row in ipairs(tables.header_fields) do
    if row.offset >= FIRST and row.name ~= "HCRC" and row.name ~= "zero" then
      tree:add(F[fields.name(row.name)], at(tvb, row.offset, row.size))
    end
  end
  if info.hcrc then
    add_check(tree, F.hcrc, at(tvb, tables.hcrc_offset, 2), info.hcrc_is_right, info.hcrc)
  end
  if info.has_credit and info.bytes >= info.body then
    add_credit(tree, tvb, tables.header_bytes, "Credit extension")
  end
end

-- The place of a TLP for its completions: the slots that it is from and for, or the other way round,
-- wherever they were captured.
local function scopes(info)
  local from = string.format("%d/%d", info.src_node, info.src_slot)
  local to = string.format("%d/%d", info.dst_node, info.dst_slot)
  return from .. ">" .. to, to .. ">" .. from
end

-- A function that finds out what other TLPs have to do with TLP `n` of a frame.
local function linked(context, info, n)
  return function(read)
    local scope, answers = scopes(info)
    local key = string.format("%d.%d", context.number, n)
    return key, links.tlp(key, context.number, context.time, read, scope, answers,
                          context.found.first ~= nil or context.found.copy ~= nil)
  end
end

local BODIES = {}

function BODIES.RECORDS(tree, tvb, data, info, context)
  local texts = {}
  for n, record in ipairs(info.records) do
    local item = tree:add(F.record, at(tvb, record.start, record.stop - record.start))
    item:append_text(" " .. n)
    local link = not info.cause and linked(context, info, n) or nil
    texts[n] = show_tlp.add(item, tvb, string.sub(data, FIRST + 1), record.start - FIRST,
                            record.crc - FIRST, false, link)
    add_check(item, F.crc, at(tvb, record.crc, 4), record.is_right, record.expected, true)
    if record.stop > record.crc + 4 then
      item:add(F.padding, at(tvb, record.crc + 4, record.stop - record.crc - 4))
    end
  end
  return table.concat(texts, ", ")
end

function BODIES.LIMITS(tree, tvb, _, info)
  for _, row in ipairs(info.layout.fields) do
    if row.class then add_credit(tree, tvb, info.body + row.offset, "Credit of " .. row.name) end
  end
end

function BODIES.SACK(tree, tvb, data, info)
  BODIES.LIMITS(tree, tvb, data, info)
  add_rows(tree, tvb, info.layout.fields, info.layout.prefix, info.body)
  local word = info.body + info.layout.size
  if info.crc and word < info.crc then
    tree:add(F["sack.word"], at(tvb, word, tables.sack_word_bytes))
    return "missing " .. info.ack
  end
  return "go back to " .. info.ack
end

function BODIES.EVENT(tree, tvb, data, info)
  add_rows(tree, tvb, info.layout.fields, info.layout.prefix, info.body)
  local event = show_frame.event(data, info)
  if event.name == "ERROR" then
    tree:add(F.error, at(tvb, info.body + 4, 4))
    tree:add_proto_expert_info(E["dxf.event.error"])
  elseif event.name == "HEADER" then
    tree:add(F.header_dword, at(tvb, info.body + 4, 4))
  elseif event.name == "LINK_DOWN" then
    tree:add_proto_expert_info(E["dxf.event.link_down"])
  end
  return string.format("%s %d", event.name, event.argument)
end

function BODIES.FENCE(tree, tvb, data, info)
  add_rows(tree, tvb, info.layout.fields, info.layout.prefix, info.body)
  tree:add_proto_expert_info(E["dxf.fence"])
  local reason = string.byte(data, info.body + 1)
  return tables.fence_reasons[reason] or "reason " .. reason
end

function BODIES.HELLO(tree, tvb, data, info)
  add_rows(tree, tvb, info.layout.fields, info.layout.prefix, info.body)
  for _, row in ipairs(info.layout.fields) do
    if row.name == "capabilities" then
      for _, bit_row in ipairs(tables.capabilities) do
        tree:add(F["hello.capability_" .. fields.name(bit_row.name)],
                 at(tvb, info.body + row.offset, row.size))
      end
    end
  end
  local _, offered, echoed = show_frame.tags(data, info)
  local text = string.format("tag 0x%04x", offered)
  if echoed > 0 then text = text .. string.format(" for 0x%04x", echoed) end
  return text
end
BODIES.KEYED = BODIES.HELLO

-- The TLP of the split form, as far as it has come.
local function add_part(tree, tvb, data, info, context)
  local is_header = info.name == "HDR"
  local bytes = is_header and string.sub(data, info.body + 1, info.crc)
    or string.sub(data, info.body + 5, info.stop - 4)
  local offset = not is_header and numbers.big(data, info.body, 2) or 0
  local part = links.part(context.number, context.place, info, is_header and bytes or nil, offset,
                          bytes)
  if not part then return nil, "begins before the capture" end
  if not part.is_whole then return part, #part.bytes .. " B so far" end
  local whole = ByteArray.new(part.bytes, true):tvb("TLP")
  return part, (show_tlp.add(tree, whole, part.bytes, 0, #part.bytes, false,
                             linked(context, info, 1)))
end

function BODIES.HEADER(tree, tvb, data, info, context)
  if info.crc then
    local text = show_tlp.add(tree, tvb, string.sub(data, FIRST + 1), info.body - FIRST,
                              info.crc - FIRST, true)
    if not info.cause then add_part(tree, tvb, data, info, context) end
    return text
  end
end

function BODIES.DATA(tree, tvb, data, info, context)
  add_rows(tree, tvb, info.layout.fields, info.layout.prefix, info.body)
  tree:add(F.data, at(tvb, info.body + 4, info.stop - 4 - (info.body + 4)))
  if info.cause then return nil end
  local part, text = add_part(tree, tvb, data, info, context)
  local expected = part and numbers.bxor(part.crc, info.tag * 65536 + info.seq % 65536)
  local crc = at(tvb, info.stop - 4, 4)
  if not part then
    tree:add_le(F.crc, crc):append_text(" [cannot be checked]")
  else
    local is_right = expected == numbers.little(data, info.stop - 4)
    add_check(tree, F.crc, crc, is_right, expected, true)
    if not is_right then
      tree:add(F.drop_cause, "RECORD"):set_generated()
      tree:add_proto_expert_info(E["dxf.drop.record"])
    end
  end
  return text
end

function BODIES.OPAQUE(tree, tvb, data, info)
  local head, left = tables.management_head_bytes, #data - info.body
  if left < head then return nil end
  add_rows(tree, tvb, tables.management_head, "mgmt.", info.body)
  local kind, length = string.byte(data, info.body + 1), numbers.big(data, info.body + 2, 2)
  local counter = numbers.big(data, info.body + 4, 4)
  local first, crc = info.body + head, info.body + head + length
  local row = tables.management_kinds[kind]
  local text = (row and row.name or "kind " .. kind)
    .. (counter > 0 and " " .. counter or "")
  if #data < crc + 4 then return text .. " cut short" end
  if row and row.name == "ASK" and length == tables.management_knock_bytes then
    tree:add(F["mgmt.knock"], at(tvb, first, length))
  elseif row and row.is_sealed and length >= tables.management_tag_bytes then
    local plain = length - tables.management_tag_bytes
    if plain > 0 then tree:add(F["mgmt.encrypted"], at(tvb, first, plain)) end
    tree:add(F["mgmt.authentication"], at(tvb, first + plain, tables.management_tag_bytes))
  elseif length == tables.management_identity_bytes then
    add_rows(tree, tvb, tables.management_identity, "mgmt.identity.", first)
    text = text .. " serial 0x" .. numbers.hex(data, first + 8, 4)
  elseif length > 0 then
    tree:add(F.data, at(tvb, first, length))
  end
  local expected = numbers.crc32c(data, info.body, crc)
  local is_right = expected == numbers.little(data, crc)
  add_check(tree, F.crc, at(tvb, crc, 4), is_right, expected, true)
  if not is_right then
    tree:add(F.drop_cause, "BODY"):set_generated()
    tree:add_proto_expert_info(E["dxf.drop.body"])
  end
  if #data > crc + 4 then tree:add(F.padding, at(tvb, crc + 4, #data - crc - 4)) end
  return text
end

-- Tags of a HELLO_ACK or the like: whether it has some, that offered, that echoed.
function show_frame.tags(data, info)
  local found = {}
  for _, row in ipairs(info.layout.fields) do
    found[row.name] = numbers.big(data, info.body + row.offset, math.min(row.size, 4))
  end
  return found["tag offered"] ~= nil, found["tag offered"], found["tag echoed"]
end

-- Name and argument of an EVENT.
function show_frame.event(data, info)
  local code = string.byte(data, info.body + 1)
  return {name = tables.event_codes[code] or "code " .. code,
          argument = numbers.big(data, info.body + 4, 4)}
end

local function add_links(tree, found)
  if found.session then
    tree:add(F.session, found.session.number):set_generated()
    tree:add(F["session.opened_in"], found.session.hello):set_generated()
  end
  if found.acked then tree:add(F.acked, found.acked):set_generated() end
  if found.life then
    tree:add(F.life, found.life.number):set_generated()
    tree:add(F["life.began_in"], found.life.began):set_generated()
  end
  if found.first then tree:add(F.first, found.first):set_generated() end
  if found.copy then tree:add(F.copy, found.copy):set_generated() end
  if found.gap then
    tree:add(F.missing, found.gap):set_generated()
    tree:add_proto_expert_info(E["dxf.gap"])
  end
  for key, name in pairs({is_again = "retransmission", is_duplicate = "duplicate",
                          is_late = "late", is_former = "former"}) do
    if found[key] then tree:add_proto_expert_info(E["dxf." .. name]) end
  end
end

-- Adds a frame: `data` are all its bytes, `tvb` those behind the EtherType, `info` is what
-- `frame.read_captured` says. `context` has number, time and place of the frame.
--
-- Returns the frame in one line.
function show_frame.add(tree, tvb, data, info, context)
  context.found = {}
  if not info.cause then
    local offered, echoed, event
    if info.name == "HELLO_ACK" then
      local _
      _, offered, echoed = show_frame.tags(data, info)
    end
    if info.name == "EVENT" then event = show_frame.event(data, info) end
    context.found = links.frame(context.number, context.place, info, offered, echoed, event)
  end
  local text = frame.text(info)
  if info.body then add_header(tree, tvb, info) end
  if info.stop and info.stop <= #data then
    local body = BODIES[info.layout.name](tree, tvb, data, info, context)
    if body and body ~= "" then text = text .. " | " .. body end
    if info.crc then
      add_check(tree, F.crc, at(tvb, info.crc, 4), info.is_right, info.expected, true)
    end
    local ends = info.fcs or #data
    if ends > info.stop then tree:add(F.padding, at(tvb, info.stop, ends - info.stop)) end
  end
  if info.fcs then add_check(tree, F.fcs, at(tvb, info.fcs, 4), info.fcs_is_right) end
  add_links(tree, context.found)
  if info.cause then
    tree:add(F.drop_cause, info.cause):set_generated()
    tree:add_proto_expert_info(E["dxf.drop." .. fields.name(info.cause)])
    text = text .. " dropped (" .. info.cause .. (info.detail and ": " .. info.detail or "") .. ")"
  elseif context.found.first then
    text = text .. " again"
  elseif context.found.gap then
    text = text .. " after " .. context.found.gap .. " missing"
  end
  return text
end

return show_frame
