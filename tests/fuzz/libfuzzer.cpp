#include "fuzz/fuzz.hpp"

// The entry point that clang's -fsanitize=fuzzer calls with generated inputs.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    amalgam::fuzz::run_one(std::as_bytes(std::span(data, size)));
    return 0;
}
