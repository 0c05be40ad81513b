#include "fuzz/fuzz.hpp"

// The entry that clang's -fsanitize=fuzzer calls with inputs of its own making.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    amalgam::fuzz::run_one(std::as_bytes(std::span(data, size)));
    return 0;
}
