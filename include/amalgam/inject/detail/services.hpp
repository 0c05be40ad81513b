#pragma once

#include <cstddef>
#include <cstdint>

/// What injected.hpp asks of targets, beside image.h: with failures that can be thrown.
extern "C" {

/// Takes a result, or the sentence that says why there is none.
using amalgam_inject_taker = void (*)(void* context, const void* data, std::size_t bytes);

/// 0, or -1 and a sentence. Arguments and result in the native encoding.
int amalgam_inject_call_typed(const char* address, const char* procedure, const char* signature,
                              const void* arguments, std::size_t bytes, amalgam_inject_taker take,
                              void* context);
/// 0, or -1 and a sentence.
int amalgam_inject_transfer(unsigned which, int push, std::uint64_t offset, void* bytes,
                            std::size_t size, amalgam_inject_taker take, void* context);
}
