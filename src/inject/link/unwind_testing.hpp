#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "inject/image/contents.hpp"

namespace amalgam::detail {

/// Unwind records as compilers write them, for tests: one common record, and one for a range of
/// code; any field can be corrupted.
struct unwind_text {
    struct range {
        std::int64_t offset, bytes;
    };

    std::uint32_t offset = 0;  ///< Of the records, in the image.
    range code{};
    std::int64_t personality_word = 0;
    std::int64_t table = 0;
    image_rights rights = image_rights::read;

    std::uint8_t version = 1;
    std::string letters = "zPLR";
    std::uint8_t personality = 0x9b, tables = 0x1b, addresses = 0x1b;
    int augmentation_bytes = -1, range_augmentation_bytes = -1;  ///< -1: unchanged.
    std::int32_t back_by = 0;
    std::uint32_t longer = 0;
    bool end = true;
    std::pair<std::size_t, int> changed{0, -1};  ///< Finally, sets the byte at `first` to `second`.

    std::vector<std::uint8_t> bytes() const {
        std::vector<std::uint8_t> all;
        const auto number = [&](std::uint64_t value, std::size_t size) {
            for (std::size_t i = 0; i < size; ++i)
                all.push_back(static_cast<std::uint8_t>(value >> (8 * i)));
        };
        const auto distance = [&](std::int64_t to, std::uint8_t encoding) {
            const std::int64_t here = std::int64_t{offset} + static_cast<std::int64_t>(all.size());
            number(static_cast<std::uint64_t>(to) - static_cast<std::uint64_t>(here),
                   (encoding & 0x0f) == 0x0c ? 8 : 4);
        };
        const auto finish = [&](std::size_t from) {
            while ((all.size() - from) % 8 != 0)
                all.push_back(0);
            const auto size = static_cast<std::uint32_t>(all.size() - from - 4) + longer;
            for (std::size_t i = 0; i < 4; ++i)
                all[from + i] = static_cast<std::uint8_t>(size >> (8 * i));
        };
        number(0, 8);
        number(version, 1);
        for (const char each : letters)
            number(static_cast<std::uint8_t>(each), 1);
        number(0, 1);
        for (const std::uint8_t each : {1, 0x78, 16})  // Code and data alignment; return register.
            number(each, 1);
        const std::size_t pointer = (personality & 0x0f) == 0x0c ? 8 : 4;
        number(augmentation_bytes < 0 ? 1 + pointer + 2
                                      : static_cast<std::uint64_t>(augmentation_bytes),
               1);
        number(personality, 1);
        distance(personality_word, personality);
        number(tables, 1);
        number(addresses, 1);
        for (const std::uint8_t each : {0x0c, 7, 8, 0x90, 1})  // The frame: rsp + 8, rip at -8.
            number(each, 1);
        finish(0);
        const std::size_t second = all.size();
        number(0, 4);
        number(static_cast<std::uint64_t>(static_cast<std::int64_t>(all.size()) + back_by), 4);
        distance(code.offset, addresses);
        number(static_cast<std::uint64_t>(code.bytes), (addresses & 0x0f) == 0x0c ? 8 : 4);
        const std::size_t table_pointer = (tables & 0x0f) == 0x0c ? 8 : 4;
        number(range_augmentation_bytes < 0 ? table_pointer
                                            : static_cast<std::uint64_t>(range_augmentation_bytes),
               1);
        distance(table, tables);
        finish(second);
        if (end) number(0, 4);
        if (changed.second >= 0 && changed.first < all.size())
            all[changed.first] = static_cast<std::uint8_t>(changed.second);
        return all;
    }
};

}  // namespace amalgam::detail
