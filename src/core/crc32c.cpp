#include <array>
#include <cstddef>

#include <amalgam/core/crc32c.hpp>

#if defined(__x86_64__)
#include <cpuid.h>
#include <nmmintrin.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace amalgam {

namespace {

constexpr std::uint32_t polynomial = 0x82f63b78;  // Bit-reversed: lowest bit first.

using table = std::array<std::uint32_t, 256>;

/// The n-th table: the contribution of a byte followed by n zero bytes.
constexpr std::array<table, 8> make_tables() {
    std::array<table, 8> made{};
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
        std::uint32_t rest = byte;
        for (int bit = 0; bit < 8; ++bit)
            rest = rest >> 1 ^ ((rest & 1) != 0 ? polynomial : 0);
        made[0][byte] = rest;
    }
    for (std::size_t n = 1; n < made.size(); ++n) {
        for (std::size_t byte = 0; byte < 256; ++byte) {
            const std::uint32_t before = made[n - 1][byte];
            made[n][byte] = before >> 8 ^ made[0][before & 255];
        }
    }
    return made;
}
constexpr std::array<table, 8> tables = make_tables();

std::uint32_t by_table(std::uint32_t rest, const std::byte* at, std::size_t bytes) noexcept {
    for (; bytes >= 8; bytes -= 8, at += 8) {
        const std::uint64_t next = load_le<std::uint64_t>(at) ^ rest;
        rest = 0;
        for (std::size_t n = 0; n < 8; ++n)
            rest ^= tables[7 - n][next >> 8 * n & 255];
    }
    for (; bytes != 0; --bytes, ++at)
        rest = rest >> 8 ^ tables[0][(rest ^ std::to_integer<std::uint32_t>(*at)) & 255];
    return rest;
}

#if defined(__x86_64__)

// Not __builtin_cpu_supports(): it asks the processor for everything at the start of every program,
// which in a virtual machine takes as long as a hundred calls.
bool has_instruction() noexcept {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_SSE4_2) != 0;
}

__attribute__((target("sse4.2"))) std::uint32_t by_instruction(std::uint32_t rest,
                                                               const std::byte* at,
                                                               std::size_t bytes) noexcept {
    std::uint64_t wide = rest;
    for (; bytes >= 8; bytes -= 8, at += 8)
        wide = _mm_crc32_u64(wide, load_le<std::uint64_t>(at));
    rest = static_cast<std::uint32_t>(wide);
    for (; bytes != 0; --bytes, ++at)
        rest = _mm_crc32_u8(rest, std::to_integer<std::uint8_t>(*at));
    return rest;
}

#elif defined(__aarch64__) && defined(__linux__)

bool has_instruction() noexcept {
    return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
}

// Not by <arm_acle.h>: before clang 16 that declares them only where all of a program may use them.
std::uint32_t by_instruction(std::uint32_t rest, const std::byte* at, std::size_t bytes) noexcept {
    for (; bytes >= 8; bytes -= 8, at += 8) {
        asm(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1"
            : "+r"(rest)
            : "r"(load_le<std::uint64_t>(at)));
    }
    for (; bytes != 0; --bytes, ++at) {
        asm(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1"
            : "+r"(rest)
            : "r"(std::to_integer<std::uint32_t>(*at)));
    }
    return rest;
}

#else

constexpr bool has_instruction() noexcept {
    return false;
}
constexpr auto by_instruction = by_table;

#endif

}  // namespace

std::uint32_t crc32c(const_bytes bytes, std::uint32_t so_far) noexcept {
    static const bool fast = has_instruction();
    return ~(fast ? by_instruction : by_table)(~so_far, bytes.data(), bytes.size());
}

std::uint32_t detail::crc32c_by_table(const_bytes bytes, std::uint32_t so_far) noexcept {
    return ~by_table(~so_far, bytes.data(), bytes.size());
}

}  // namespace amalgam
