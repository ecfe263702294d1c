-- What frames and TLPs have to do with those before them: sessions, numbers sent again or missing,
-- lives of slots, completions and their requests. Nothing here knows Wireshark.
--
-- Each frame is looked at once, in the order of the capture; what was found is kept by its number.

local links = {}

local TWO_24 = 16777216

-- How far a number is ahead of another one, modulo 2^24, as a signed number.
local function ahead(number, of)
  return (number - of + TWO_24 / 2) % TWO_24 - TWO_24 / 2
end

local function fresh()
  return {
    ways = {},       -- by interface, nodes, stream: numbers of one direction there
    lines = {},      -- by nodes, stream: frames and acknowledgements of one direction, anywhere
    sessions = {},   -- by nodes, stream and tag of a direction
    opened = 0,
    lives = {},      -- by row: the life that is going on
    requests = {},   -- by scope, requester and tag: requests without all their completions
    frames = {},     -- by number of the frame: what was found
    tlps = {},       -- by number of the frame and of the TLP in it: the same
    answers = {},    -- by the same of a request: frames of its completions
    parts = {},      -- by direction: the TLP in the split form that is being put together
  }
end
local state = fresh()

-- Forgets everything, before a capture is read.
function links.reset() state = fresh() end

local function line_of(from, to, info)
  return string.format("%d|%d|%d", from, to, info.stream)
end

local function session_of(from, to, stream, tag)
  return string.format("%d|%d|%d|%d", from, to, stream, tag)
end

-- HELLO_ACK says both tags of the session that it offers.
local function open(info, number, offered, echoed)
  local key = session_of(info.src_node, info.dst_node, info.stream, echoed)
  local known = state.sessions[key]
  if known and known.offered == offered then return known end
  state.opened = state.opened + 1
  local session = {number = state.opened, hello = number, offered = offered}
  state.sessions[key] = session
  state.sessions[session_of(info.dst_node, info.src_node, info.stream, offered)] = session
  return session
end

-- What is known of the frame's direction by its tag; nil if its tag is one that was there before.
local function known_of(all, key, info)
  local known = all[key]
  if known and known.former[info.tag] then return nil end
  if not known or known.tag ~= info.tag then
    local former = known and known.former or {}
    if known then former[known.tag] = true end
    known = {tag = info.tag, seen = {}, former = former}
    all[key] = known
  end
  return known
end

local function follow_numbers(found, place, info, number)
  local key = line_of(info.src_node, info.dst_node, info)
  local way = known_of(state.ways, place .. "|" .. key, info)
  local line = known_of(state.lines, key, info)
  if not way or not line then
    found.is_former = true
    return
  end
  local back = state.lines[line_of(info.dst_node, info.src_node, info)]
  local seq = info.seq
  if info.numbering == "CONSUMES" then
    local first = way.seen[seq]
    if first then
      found.first = first
      found.is_duplicate = back and back.ack and ahead(back.ack, seq) > 0 or false
      found.is_again = not found.is_duplicate
    else
      if way.next and ahead(seq, way.next) > 0 then
        found.gap = ahead(seq, way.next)
      elseif way.next and ahead(seq, way.next) < 0 then
        found.is_late = true
      end
      way.seen[seq] = number
      -- The same frame, captured at another place before.
      found.copy = line.seen[seq]
      line.seen[seq] = line.seen[seq] or number
      if not way.next or ahead(seq + 1, way.next) > 0 then way.next = (seq + 1) % TWO_24 end
    end
  elseif way.next and ahead(seq, way.next) > 0 then
    found.gap = ahead(seq, way.next)
    way.next = seq
  elseif not way.next then
    way.next = seq
  end
  if not line.ack or ahead(info.ack, line.ack) > 0 then line.ack = info.ack end
  -- The frame that is the newest of those which the ACK covers.
  if back then found.acked = back.seen[(info.ack - 1) % TWO_24] end
end

local function row_of(info)
  local a = string.format("%d/%d", info.src_node, info.src_slot)
  local b = string.format("%d/%d", info.dst_node, info.dst_slot)
  return a < b and a .. "|" .. b or b .. "|" .. a
end

local function follow_life(found, info, number, event)
  local row = row_of(info)
  if event and (event.name == "BIND" or event.name == "RESET") then
    local life = state.lives[row]
    if not life or life.number ~= event.argument then
      state.lives[row] = {number = event.argument, began = number, by = event.name}
    end
  end
  found.life = state.lives[row]
  if event and event.name == "UNBIND" then state.lives[row] = nil end
end

-- What a good frame has to do with those before it.
--
-- `place` is where the frame was captured, `offered` and `echoed` are tags of a HELLO_ACK, `event`
-- is the name and the argument of an EVENT.
function links.frame(number, place, info, offered, echoed, event)
  local found = state.frames[number]
  if found then return found end
  found = {}
  state.frames[number] = found
  if info.name == "HELLO_ACK" then
    found.session = open(info, number, offered, echoed)
  else
    found.session = state.sessions[session_of(info.src_node, info.dst_node, info.stream, info.tag)]
  end
  if info.numbering == "NONE" then return found end
  follow_numbers(found, place, info, number)
  if info.name == "TLP" or info.name == "HDR" or info.name == "DATA" or info.name == "EVENT" then
    follow_life(found, info, number, event)
  end
  return found
end

-- A part of a TLP in the split form: HDR if `header`, else DATA with `size` bytes of data at
-- `offset`. Returns what the TLP has so far: its bytes, the CRC that DATA must have (without binding
-- word), and whether the TLP is whole; nil if it was not seen from its start.
function links.part(number, place, info, header, offset, bytes)
  local key = "part|" .. number
  local found = state.frames[key]
  if found ~= nil then return found or nil end
  local way = place .. "|" .. line_of(info.src_node, info.dst_node, info) .. "|" .. row_of(info)
  local open_tlp = state.parts[way]
  if header then
    open_tlp = {bytes = header, header = #header, number = number,
                crc = numbers.crc32c(header, 0, #header)}
  elseif not open_tlp or offset ~= #open_tlp.bytes - open_tlp.header then
    state.frames[key] = false
    return nil
  else
    open_tlp = {bytes = open_tlp.bytes .. bytes, header = open_tlp.header,
                number = open_tlp.number, crc = numbers.crc32c(bytes, 0, #bytes, open_tlp.crc)}
  end
  state.parts[way] = open_tlp
  open_tlp.is_whole = #open_tlp.bytes == tlp.length(open_tlp.bytes, 0, #open_tlp.bytes)
  state.frames[key] = open_tlp
  return open_tlp
end

-- What a TLP has to do with those before it.
--
-- `key` names the TLP, `scope` is where a completion with the same IDs would answer it, `answers`
-- the scope whose requests a completion from here answers. `is_again`: its frame was sent before.
function links.tlp(key, number, time, info, scope, answers, is_again)
  local found = state.tlps[key]
  if found then return found end
  found = {}
  state.tlps[key] = found
  if info.is_posted then return found end
  local identity = string.format("|%d|%d", info.requester_id, info.tag)
  if not info.is_completion then
    local open_request = state.requests[scope .. identity]
    if is_again then
      found.request = open_request
      return found
    end
    found.is_reused = open_request ~= nil
    state.requests[scope .. identity] = {key = key, number = number, time = time,
                                         name = info.name, left = tlp.asked(info),
                                         is_read = not info.has_data or info.is_atomic}
    return found
  end
  local request = state.requests[answers .. identity]
  if not request then
    found.is_unexpected = not is_again
    return found
  end
  found.request = request
  found.time = time - request.time
  if is_again then return found end
  local answered = state.answers[request.key] or {}
  state.answers[request.key] = answered
  answered[#answered + 1] = {number = number, time = found.time}
  request.left = request.left - tlp.completed(info)
  if info.status ~= 0 or not info.has_data or request.left <= 0 then
    found.is_last = true
    state.requests[answers .. identity] = nil
  end
  return found
end

-- Frames of the completions of a request, as far as they were seen, each with the time that it took.
function links.answers(key) return state.answers[key] or {} end

return links
