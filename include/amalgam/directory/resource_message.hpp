#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include <amalgam/bulk/bulk_cache.hpp>
#include <amalgam/core/buffer.hpp>
#include <amalgam/core/bytes.hpp>
#include <amalgam/directory/resource_id.hpp>

namespace amalgam {

/// Memory for one message, from its context's pools: what is sent from there, or was received into
/// it, is not copied on the way when it is long.
///
/// Owner:   owns its memory; goes back to the pool when it ends, and may outlive the context.
/// Threads: like a plain value.
class message_buffer {
public:
    message_buffer() noexcept = default;  ///< Holds nothing.
    message_buffer(buffer&& small) noexcept : small_(std::move(small)) {}
    message_buffer(bulk_buffer&& large) noexcept : large_(std::move(large)) {}

    std::byte* data() const noexcept {
        return large_ ? large_.data() : const_cast<buffer&>(small_).data();
    }
    std::size_t size() const noexcept { return large_ ? large_.size() : small_.size(); }
    std::size_t capacity() const noexcept { return large_ ? large_.capacity() : small_.capacity(); }
    mutable_bytes bytes() const noexcept { return {data(), size()}; }
    std::string_view text() const noexcept {
        return {reinterpret_cast<const char*>(data()), size()};
    }
    /// Changes size() only. Precondition: size <= capacity().
    void resize(std::size_t size) noexcept {
        if (large_) {
            large_.resize(size);
        } else {
            small_.resize(size);
        }
    }
    /// It is registered, for peers to read or write.
    bool is_registered() const noexcept { return static_cast<bool>(large_); }
    /// The registered memory itself.
    const bulk_buffer& registered() const noexcept { return large_; }
    /// The same; this holds nothing afterwards.
    bulk_buffer take_registered() noexcept { return std::move(large_); }

private:
    buffer small_;
    bulk_buffer large_;
};

/// What one resource has sent to another.
struct resource_message {
    resource_id from = resource_id::none;
    resource_id to = resource_id::none;
    std::int32_t tag = 0;
    message_buffer content;
};

/// Which messages to receive. Of those that fit, the one that came first.
struct message_choice {
    resource_id from = resource_id::none;  ///< none: from any.
    std::optional<std::int32_t> tag = {};  ///< Nothing: with any.
};

}  // namespace amalgam
