// The functions of LZ4 that Verilator's FST writer calls, so that no package of the system is needed.
//
// Format: LZ4 block (https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md).

#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

// Largest number of bytes that LZ4_compress_default writes for `size` bytes.
inline int LZ4_compressBound(int size) { return size + size / 255 + 16; }

// Compress `size` bytes into `target`, of at least LZ4_compressBound(size) bytes; returns the length.
//
// Greedy: the match for four bytes is the last place with the same hash, if there are the same bytes.
inline int LZ4_compress_default(const char* source, char* target, int size, int) {
    constexpr int MATCH = 4, MAX_HASH_BITS = 14, REACH = 65535;
    // The format's rules for the end: literals are the last five bytes, and no match begins in the
    // last twelve.
    constexpr int LITERALS = 5, NO_MATCH = 12;
    const auto* const in = reinterpret_cast<const uint8_t*>(source);
    auto* out = reinterpret_cast<uint8_t*>(target);
    static thread_local std::array<int32_t, 1 << MAX_HASH_BITS> places;
    int hash_bits = 6;
    while (hash_bits < MAX_HASH_BITS && 1 << hash_bits < size) ++hash_bits;
    std::fill_n(places.begin(), 1 << hash_bits, -1);

    const auto word = [in](int at) {
        uint32_t value;
        std::memcpy(&value, in + at, MATCH);
        return value;
    };
    // The part of a length that is too large for its four bits in the token.
    const auto more = [&out](int length) {
        if (length < 15) return;
        for (length -= 15; length >= 255; length -= 255) *out++ = 255;
        *out++ = static_cast<uint8_t>(length);
    };
    const auto literals = [&](int from, int count, int rest) {
        *out++ = static_cast<uint8_t>(std::min(count, 15) << 4 | std::min(rest, 15));
        more(count);
        std::memcpy(out, in + from, count);
        out += count;
    };

    int done = 0;
    for (int at = 0; at <= size - NO_MATCH;) {
        auto& place = places[word(at) * 2654435761u >> (32 - hash_bits)];
        const int before = place;
        place = at;
        if (before < 0 || at - before > REACH || word(before) != word(at)) {
            ++at;
            continue;
        }
        int length = MATCH;
        while (at + length < size - LITERALS && in[before + length] == in[at + length]) ++length;
        literals(done, at - done, length - MATCH);
        *out++ = static_cast<uint8_t>(at - before);
        *out++ = static_cast<uint8_t>((at - before) >> 8);
        more(length - MATCH);
        done = at += length;
    }
    literals(done, size - done, 0);
    return static_cast<int>(out - reinterpret_cast<uint8_t*>(target));
}
