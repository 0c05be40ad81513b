#pragma once

#include <optional>

#include <amalgam/core/bytes.hpp>
#include <amalgam/rpc/archive.hpp>

namespace amalgam::detail {

/// Decodes exactly one value; empty if the bytes are not exactly a `T`.
template <typename T>
std::optional<T> decoded(const_bytes all) {
    archive_reader read(all);
    T value{};
    read(value);
    if (!read.ok() || read.remaining() != 0) return std::nullopt;
    return value;
}

}  // namespace amalgam::detail
