#include <numeric>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/crc32c.hpp>
#include <amalgam/core/random.hpp>

namespace amalgam {
namespace {

// The test vectors of RFC 3720, B.4, and the algorithm's check value.
TEST(crc32c, known_values) {
    EXPECT_EQ(crc32c(as_bytes_of(std::string_view("123456789"))), 0xe3069283u);
    EXPECT_EQ(crc32c(as_bytes_of(std::vector<char>(32, '\0'))), 0x8a9136aau);
    EXPECT_EQ(crc32c(as_bytes_of(std::vector<char>(32, '\xff'))), 0x62a8ab43u);
    std::vector<std::uint8_t> rising(32);
    std::iota(rising.begin(), rising.end(), std::uint8_t{0});
    EXPECT_EQ(crc32c(as_bytes_of(rising)), 0x46dd794eu);
    EXPECT_EQ(crc32c({}), 0u);
}

TEST(crc32c, the_instruction_and_the_table_agree_at_every_length_and_alignment) {
    seeded_random random(7);
    std::vector<std::uint8_t> bytes(100);
    for (std::uint8_t& each : bytes)
        each = static_cast<std::uint8_t>(random());
    for (std::size_t from = 0; from < 9; ++from) {
        for (std::size_t length = 0; length + from <= bytes.size(); ++length) {
            const const_bytes part = const_bytes(as_bytes_of(bytes)).subspan(from, length);
            ASSERT_EQ(crc32c(part, 5), detail::crc32c_by_table(part, 5)) << from << ' ' << length;
        }
    }
}

TEST(crc32c, of_parts_is_that_of_the_whole) {
    const std::string_view whole = "an rpc message in several pieces";
    for (std::size_t cut = 0; cut <= whole.size(); ++cut) {
        EXPECT_EQ(crc32c(as_bytes_of(whole.substr(cut)), crc32c(as_bytes_of(whole.substr(0, cut)))),
                  crc32c(as_bytes_of(whole)));
    }
}

}  // namespace
}  // namespace amalgam
