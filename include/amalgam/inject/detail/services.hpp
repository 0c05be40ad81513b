#pragma once

#include <cstddef>
#include <cstdint>

/// Services of the target used by injected.hpp, in addition to image.h; they report errors as text,
/// to be thrown.
extern "C" {

/// Receives a result, or the error message.
using amalgam_inject_taker = void (*)(void* context, const void* data, std::size_t bytes);

/// Returns 0, or -1 with a message. Arguments and result use the native encoding.
int amalgam_inject_call_typed(const char* address, const char* procedure, const char* signature,
                              const void* arguments, std::size_t bytes, amalgam_inject_taker take,
                              void* context);
/// Returns 0, or -1 with a message.
int amalgam_inject_transfer(unsigned which, int push, std::uint64_t offset, void* bytes,
                            std::size_t size, amalgam_inject_taker take, void* context);
}
