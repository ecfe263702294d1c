-- Numbers in strings of bytes, and the CRCs of DXF and of Ethernet.
--
-- Offsets count from 0. No operator of Lua 5.3 and later stands here, as Wireshark 4.0 has Lua 5.2;
-- results of `bit` are signed, so each is taken modulo 2^32.

local numbers = {}

local TWO_32 = 4294967296

-- Bitwise exclusive or of two numbers of 32 bits.
local library = bit or bit32
if library then
  local bxor = library.bxor
  numbers.bxor = function(a, b) return bxor(a, b) % TWO_32 end
else
  -- Compiled only where the operator is known.
  numbers.bxor = load("return function(a, b) return a ~ b end")()
end
local bxor = numbers.bxor

-- A big-endian number of `size` bytes, 6 at most.
function numbers.big(data, offset, size)
  local value = 0
  for n = offset + 1, offset + size do value = value * 256 + string.byte(data, n) end
  return value
end

-- A little-endian number of 4 bytes.
function numbers.little(data, offset)
  local a, b, c, d = string.byte(data, offset + 1, offset + 4)
  return a + 256 * (b + 256 * (c + 256 * d))
end

-- Bits of a number: `width` of them from bit `lsb` on. An integer, where the language has some.
function numbers.bits(value, lsb, width)
  return math.floor(math.floor(value / 2 ^ lsb) % 2 ^ width)
end

-- Whether the bytes from `offset` to before `stop` are all 0.
function numbers.is_zero(data, offset, stop)
  return not string.find(string.sub(data, offset + 1, stop), "[^%z]")
end

-- `size` bytes as hexadecimal digits.
function numbers.hex(data, offset, size)
  return (string.gsub(string.sub(data, offset + 1, offset + size), ".",
                      function(c) return string.format("%02x", string.byte(c)) end))
end

-- A reflected CRC of 32 bits: its table of bytes.
local function reflected(polynomial)
  local rows = {}
  for row = 0, 255 do
    local crc = row
    for _ = 1, 8 do
      local half = math.floor(crc / 2)
      crc = crc % 2 == 1 and bxor(half, polynomial) or half
    end
    rows[row] = crc
  end
  return rows
end

local CASTAGNOLI, ETHERNET = reflected(0x82F63B78), reflected(0xEDB88320)

local function crc32(rows, data, offset, stop, before)
  local crc = bxor(before or 0, 0xFFFFFFFF)
  for n = offset + 1, stop do
    crc = bxor(math.floor(crc / 256), rows[bxor(crc % 256, string.byte(data, n))])
  end
  return bxor(crc, 0xFFFFFFFF)
end

-- CRC-32C (RFC 3720) of the bytes from `offset` to before `stop`; `before` is that of the bytes
-- before them.
function numbers.crc32c(data, offset, stop, before)
  return crc32(CASTAGNOLI, data, offset, stop, before)
end

-- The frame check sequence of Ethernet (IEEE 802.3, 3.2.9), as a number.
function numbers.fcs(data, offset, stop, before)
  return crc32(ETHERNET, data, offset, stop, before)
end

local CCITT = {}
for row = 0, 255 do
  local crc = row * 256
  for _ = 1, 8 do
    local double = crc * 2 % 65536
    crc = crc >= 32768 and bxor(double, 0x1021) or double
  end
  CCITT[row] = crc
end

-- CRC-16/CCITT-FALSE of the bytes from `offset` to before `stop`, after those whose CRC is `before`.
function numbers.crc16(data, offset, stop, before)
  local crc = before or 0xFFFF
  for n = offset + 1, stop do
    crc = bxor(crc % 256 * 256, CCITT[bxor(math.floor(crc / 256), string.byte(data, n))])
  end
  return crc
end

return numbers
