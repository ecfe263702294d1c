-- The two dissectors, and where Wireshark finds them.

local dxf, raw = fields.protocols.dxf, fields.protocols.tlp

dxf.prefs.fcs = Pref.enum(
  "Frames end with their FCS", 1, "Whether the captured frames end with their FCS",
  {{1, "Find out", 1}, {2, "Always", 2}, {3, "Never", 3}}, false)
local ENDS = {"automatic", "always", "never"}

local destination, source = Field.new("eth.dst"), Field.new("eth.src")
local interface = Field.new("frame.interface_id")
local direction = Field.new("frame.packet_flags_direction")
local damaged = Field.new("frame.packet_flags_crc_error")

local function place_of()
  local found = interface()
  return found and tostring(found.value) or "0"
end

-- Addresses and type of the Ethernet frame; zeros in a capture of another kind.
local function head_of()
  local to, from = destination(), source()
  if not to or not from then return string.rep("\0", 12) .. "\136\181" end
  return to.range:raw() .. from.range:raw() .. "\136\181"
end

function dxf.init() links.reset() end

function dxf.dissector(tvb, pinfo, tree)
  local item = tree:add(dxf, tvb())
  pinfo.cols.protocol = "DXF"
  if tvb:reported_len() > tvb:captured_len() then
    item:add_proto_expert_info(fields.experts["dxf.cut"])
    pinfo.cols.info = "cut short by the capture"
    return tvb:len()
  end
  local data = head_of() .. tvb:raw()
  local info = frame.read_captured(data, ENDS[dxf.prefs.fcs])
  -- Ethernet's dissector takes an FCS away if the capture says that there is one; then its flags say
  -- what became of the frame.
  local flag = damaged()
  if flag and flag.value then info.cause, info.detail = "FCS", nil end
  if info.fcs then data = string.sub(data, 1, info.fcs) end
  local text = show_frame.add(item, tvb, data, info,
                              {number = pinfo.number, time = pinfo.rel_ts, place = place_of()})
  pinfo.cols.info = text
  item:append_text(": " .. text)
  return tvb:len()
end
DissectorTable.get("ethertype"):add(tables.ethertype, dxf)

-- TLPs alone, as a capture of a PCIe port has them. A completion answers what went the other way.
function raw.dissector(tvb, pinfo, tree)
  local way = direction()
  local place = place_of() .. " "
  local here, there = place, place
  if way then
    here = place .. tostring(way.value)
    there = place .. tostring(3 - way.value)
  end
  local data = tvb:raw()
  local text = show_tlp.add(tree, tvb, data, 0, #data, false, function(info)
    local key = pinfo.number .. ".0"
    return key, links.tlp(key, pinfo.number, pinfo.rel_ts, info, here, there, false)
  end)
  pinfo.cols.protocol = "TLP"
  pinfo.cols.info = text
  return tvb:len()
end
DissectorTable.get("wtap_encap"):add(wtap.USER0 + tables.tlp_user, raw)
