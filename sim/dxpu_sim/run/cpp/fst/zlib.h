// The functions of zlib that Verilator's FST writer calls, so that no package of the system is needed.
//
// Nothing is compressed: the writer then stores the data as they are. They are few, as the changes of
// signals are compressed by LZ4. Format: zlib (RFC 1950) with stored blocks (RFC 1951, 3.2.4).

#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

using Bytef = unsigned char;
using uLong = unsigned long;
using uLongf = unsigned long;

constexpr int Z_OK = 0;

constexpr uLong STORED_BLOCK = 65535;

// Largest number of bytes that compress2 writes for `size` bytes.
inline uLong compressBound(uLong size) { return size + 5 * (size / STORED_BLOCK + 1) + 6; }

// Store `size` bytes in `target`, of at least compressBound(size) bytes; sets its length.
inline int compress2(Bytef* target, uLongf* length, const Bytef* source, uLong size, int) {
    Bytef* out = target;
    *out++ = 0x78;
    *out++ = 0x01;
    uint32_t a = 1, b = 0;
    uLong left = size;
    do {
        const uLong part = std::min(left, STORED_BLOCK);
        left -= part;
        *out++ = left == 0;
        for (const uLong field : {part, ~part}) {
            *out++ = static_cast<Bytef>(field);
            *out++ = static_cast<Bytef>(field >> 8);
        }
        std::memcpy(out, source, part);
        out += part;
        for (uLong n = 0; n < part; ++n) {
            a = (a + source[n]) % 65521;
            b = (b + a) % 65521;
        }
        source += part;
    } while (left);
    for (const uint32_t sum : {b, a}) {
        *out++ = static_cast<Bytef>(sum >> 8);
        *out++ = static_cast<Bytef>(sum);
    }
    *length = out - target;
    return Z_OK;
}
